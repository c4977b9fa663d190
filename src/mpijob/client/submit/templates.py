"""Jobs to start from: the user's own templates, the team's shared ones, and the library that ships.

A template is a job file. The user's own lie beside the settings file and are closed to others; shared
ones lie in the directory that the setting `templates` (or MPIJOB_TEMPLATES) names. An own template
hides a shared one of the same name, and that one the library's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from mpijob import atomic_write
from mpijob.backends import code_upload
from mpijob.client.submit import resubmit
from mpijob.errors import BackendError, Conflict, InvalidJob, NotAllowed, NotFound
from mpijob.model import MPIJob
from mpijob.settings import Settings, config_path, load, own_places

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LIBRARY = Path(__file__).parent / "library"


class Origin(StrEnum):
    """Where a template comes from."""

    OWN = "own"
    SHARED = "shared"
    LIBRARY = "library"


class Template(msgspec.Struct, frozen=True):
    """One line of the list of templates."""

    name: str
    origin: Origin
    description: str = ""


class Templates:
    """All templates that a user can see."""

    def __init__(self, own: Path, shared: Path | None = None) -> None:
        self._places = {Origin.OWN: own, Origin.LIBRARY: _LIBRARY}
        if shared is not None:
            self._places = {Origin.OWN: own, Origin.SHARED: shared, Origin.LIBRARY: _LIBRARY}

    @classmethod
    def of(cls, settings: Settings) -> Templates:
        """Return the templates where the settings have them."""
        shared = Path(settings.templates) if settings.templates else None
        return cls(Path(config_path(os.environ)).parent / "templates", shared)

    def save(self, name: str, job: MPIJob, *, overwrite: bool = False) -> Template:
        """Keep a job as an own template."""
        return self._write(Origin.OWN, name, job, 0o600, overwrite)

    def share(self, name: str, *, overwrite: bool = False) -> Template:
        """Copy an own template to where the team sees it."""
        if Origin.SHARED not in self._places:
            raise NotAllowed(
                "there is no directory for shared templates", hint="set `templates` or MPIJOB_TEMPLATES"
            )
        return self._write(Origin.SHARED, name, self._read(Origin.OWN, name), 0o644, overwrite)

    def list(self) -> tuple[Template, ...]:
        """Return the templates by name; a hidden one is left out."""
        found: dict[str, Template] = {}
        for origin, place in reversed(self._places.items()):
            for path in place.glob("*.yaml") if place.is_dir() else ():
                if _NAME.fullmatch(path.stem):
                    found[path.stem] = Template(path.stem, origin, self._description(path))
        return tuple(found[name] for name in sorted(found))

    def show(self, name: str) -> MPIJob:
        """Return the job of a template; raise NotFound."""
        return self._read(self._origin(name), name)

    def use(self, name: str, changed: Mapping[str, Any] | None = None, /, **fields: Any) -> MPIJob:
        """Return a template's job with changes, by name (`workers=8`) or path (`{"env.LR": 0.1}`)."""
        return resubmit.apply(self.show(name), {**(changed or {}), **fields})

    def delete(self, name: str) -> None:
        """Remove an own template, or a shared one that the user may remove; the library stays."""
        origin = self._origin(name)
        if origin is Origin.LIBRARY:
            raise NotAllowed(
                f"template '{name}' belongs to the library", hint="save one of that name to hide it"
            )
        try:
            self._path(origin, name).unlink()
        except OSError as error:
            raise _refused(f"template '{name}' cannot be deleted", error) from error

    def _origin(self, name: str) -> Origin:
        for origin in self._places:
            if self._path(origin, name).is_file():
                return origin
        raise NotFound(f"there is no template '{name}'", hint="`mpijob template list` shows them")

    def _path(self, origin: Origin, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidJob(
                f"{name!r} is not a name for a template", hint="use a-z, 0-9 and -, at most 63 characters"
            )
        return self._places[origin] / f"{name}.yaml"

    def _read(self, origin: Origin, name: str) -> MPIJob:
        from mpijob.formats.jobfile import jobfile_reader

        path = self._path(origin, name)
        try:
            return jobfile_reader.read(path.read_bytes(), file=str(path))
        except FileNotFoundError as error:
            raise NotFound(f"there is no {origin} template '{name}'") from error
        except OSError as error:
            raise _refused(f"template '{name}' cannot be read", error) from error

    def _write(self, origin: Origin, name: str, job: MPIJob, mode: int, overwrite: bool) -> Template:
        from mpijob.formats.jobfile import jobfile_reader

        path = self._path(origin, name)
        if path.exists() and not overwrite:
            raise Conflict(
                f"there is a template '{name}' already", hint="choose another name, or overwrite it"
            )
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.write(path, jobfile_reader.write(job).encode(), mode)
        except OSError as error:
            raise _refused(f"template '{name}' cannot be written", error) from error
        return Template(name, origin, job.description)

    def _description(self, path: Path) -> str:
        from mpijob.formats.jobfile import jobfile_reader

        try:
            return jobfile_reader.read(path.read_bytes(), file=str(path)).description
        except (InvalidJob, OSError):
            return "(cannot be read)"


def _refused(what: str, error: OSError) -> NotAllowed:
    return NotAllowed(f"{what}: {error.strerror}", hint=f"look at {error.filename}" if error.filename else "")


def beside(job: MPIJob, file: str) -> MPIJob:
    """Return the job with its code looked for beside its file."""
    return code_upload.resolve(job, Path(file).parent, own_places(load()))


def load_job(path: str | Path) -> MPIJob:
    """Return the job that a file describes, with its code found beside it."""
    from mpijob.client.submit.validate import read_job

    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise BackendError(f"cannot read {path}: {error.strerror}") from error
    return beside(read_job(text, str(path)), str(path))
