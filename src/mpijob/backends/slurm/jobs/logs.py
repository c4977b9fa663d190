"""A job's log: the files of its ranks, live or stored; of a script, the output files that Slurm writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mpijob import codec
from mpijob.backends.attempts import log_reader
from mpijob.errors import NotFound
from mpijob.model import LogLine, LogQuery, Phase, Role
from mpijob.observation.logs import pipeline

if TYPE_CHECKING:
    from mpijob.backends.slurm.client import SlurmClient
    from mpijob.backends.slurm.jobs.job_files import JobFiles
    from mpijob.backends.slurm.jobs.job_reader import JobReader
    from mpijob.model import JobState

Pause = Callable[[float], None]


def of_ranks(reader: JobReader, files: JobFiles, query: LogQuery, pause: Pause) -> Iterator[LogLine]:
    """Yield the merged lines of all attempts, or of one."""

    def found() -> tuple[list[tuple[Path, int]], dict[int, int], bool]:
        now = reader.jobs.files(files.place)
        try:
            state = reader.state(now, findings=False)
        except NotFound:
            # The job was deleted meanwhile.
            return [], {}, True
        numbers = [number for number in now.attempts() if query.attempt in (None, number)]
        over = state.phase.final or state.phase is Phase.SUSPENDED
        return [(now.logs(attempt), attempt) for attempt in numbers], log_reader.workers_of(state.ranks), over

    if query.follow:
        yield from log_reader.follow(found, query, pause)
    else:
        attempts, worker_of, _ = found()
        yield from log_reader.read_stored(attempts, worker_of, query)


def of_script(
    reader: JobReader, known: JobState, files: JobFiles | None, query: LogQuery, pause: Pause
) -> Iterator[LogLine]:
    """Yield the lines of the files that Slurm writes for a script.

    They have no timestamps: a line has the time of the file's last change.
    """
    wanted = pipeline.LogPipeline(query)
    sources: tuple[ScriptOutput, ...] = ()
    first = True
    state, ref = known, known.ref
    while True:
        number = files.number if files is not None else reader.plain(ref).number
        sources = sources or outputs(reader.client, number, files, state.attempt)
        if not sources and state.phase.final:
            raise NotFound(
                f"the output files of job '{ref.name}' are no longer known",
                hint="Slurm reports them for some minutes after a job's end; check the directory of its submission",
            )
        lines = [line for source in sources for line in source.read(last=state.phase.final)]
        if not query.follow:
            yield from pipeline.select(sorted(lines, key=lambda line: line.time), query)
            return
        yield from wanted.history(lines, query.tail) if first else wanted.live(lines, None)
        first = False
        if state.phase.final:
            yield from wanted.rest()
            return
        pause(0.2)
        try:
            state = reader.get(ref)
        except NotFound:
            # The job was deleted meanwhile, or Slurm has forgotten it.
            yield from wanted.rest()
            return


def outputs(
    client: SlurmClient, number: str, files: JobFiles | None, attempt: int
) -> tuple[ScriptOutput, ...]:
    """Return the output files of a script, unread: those stored at the submit, else from Slurm."""
    fields: dict[str, str] = {}
    if files is not None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            fields = codec.decode((files.path / "output.json").read_bytes(), dict[str, str])
    fields = fields or client.show_job(number)
    out, err = fields.get("StdOut", ""), fields.get("StdErr", "")
    paths = {"stdout": out, "stderr": "" if err == out else err}
    return tuple(ScriptOutput(Path(path), stream, attempt) for stream, path in paths.items() if path)


class ScriptOutput:
    """A growing file, and how far it was read; anything but a regular file has no lines."""

    def __init__(self, path: Path, stream: str, attempt: int) -> None:
        self._path, self._stream, self._attempt = path, stream, attempt
        self._offset, self._rest = 0, b""

    def read(self, *, last: bool) -> Iterator[LogLine]:
        """Yield the new lines; with `last`, also one without a line feed."""
        # It does not exist yet, or is a device or pipe, which may have no end.
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            about = os.fstat(file.fileno())
            # Slurm has restarted the job and truncated the file.
            if about.st_size < self._offset:
                self._offset, self._rest = 0, b""
            file.seek(self._offset)
            data = self._rest + file.read()
            self._offset = file.tell()
        *lines, self._rest = data.split(b"\n")
        if last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        for text in lines:
            yield LogLine(about.st_mtime_ns, text, Role.LAUNCHER, self._stream, attempt=self._attempt)
