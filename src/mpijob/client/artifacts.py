"""The files that jobs left, listed and brought here; what the engine keeps is the backend's business."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mpijob.model import Artifact, JobRef

if TYPE_CHECKING:
    from mpijob.client.front import Target
    from mpijob.client.reading import Reading


class Artifacts:
    """The artifacts of one client's jobs."""

    def __init__(self, client: Reading) -> None:
        self._client = client

    def list(self, name: Target, *, namespace: str | None = None) -> tuple[Artifact, ...]:
        """Return the files that a job left."""
        ref = self._client.ref(name, namespace)
        return self._client._bridge.call(self._client.backend.artifacts(ref))

    def fetch(
        self, name: Target, directory: str | Path, paths: Iterable[str] = (), *, namespace: str | None = None
    ) -> tuple[Path, ...]:
        """Copy files of a job into a directory, all of them by default; return where they are now."""
        ref = self._client.ref(name, namespace)
        wanted = tuple(paths) or tuple(file.path for file in self.list(name, namespace=namespace))
        return tuple(self._fetch_one(ref, path, Path(directory)) for path in wanted)

    def _fetch_one(self, ref: JobRef, path: str, directory: Path) -> Path:
        target = directory / Path(path).name if path.startswith(("/", "..")) else directory / path
        self._client._bridge.call(self._client.backend.fetch(ref, path, target))
        return target
