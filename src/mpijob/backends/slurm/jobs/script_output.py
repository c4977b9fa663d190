"""The files that Slurm writes for a script: where they are, and what they say."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob import codec
from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.model import LogLine, Role


def paths(client: SlurmClient, number: str, files: JobFiles | None) -> dict[str, str]:
    """Return the output file of each stream, kept at the submit or asked of Slurm."""
    fields: dict[str, str] = {}
    if files is not None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            fields = codec.decode((files.path / "output.json").read_bytes(), dict[str, str])
    fields = fields or client.show_job(number)
    out, err = fields.get("StdOut", ""), fields.get("StdErr", "")
    return {"stdout": out, **({"stderr": err} if err not in ("", out) else {})} if out else {}


def of(client: SlurmClient, number: str, files: JobFiles | None, attempt: int) -> dict[str, Output]:
    """Return the output files of a script by their paths, none of which was read yet."""
    found = paths(client, number, files)
    return {path: Output(Path(path), stream, attempt) for stream, path in found.items()}


class Output:
    """A file that grows, and how far it was read."""

    def __init__(self, path: Path, stream: str, attempt: int) -> None:
        self._path, self._stream, self._attempt = path, stream, attempt
        self._offset, self._rest = 0, b""

    def read(self, *, last: bool) -> Iterator[LogLine]:
        """Yield the lines that are new; with `last`, also one that has no end yet."""
        try:
            with self._path.open("rb") as file:
                when = os.fstat(file.fileno()).st_mtime_ns
                file.seek(self._offset)
                data = self._rest + file.read()
                self._offset = file.tell()
        except FileNotFoundError:
            return
        *lines, self._rest = data.split(b"\n")
        if last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        for text in lines:
            yield LogLine(when, text, Role.LAUNCHER, self._stream, attempt=self._attempt)
