"""What a job said: the log files of its ranks, live or stored; of a script, the file that Slurm writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mpijob import codec
from mpijob.backends.attempts import log_reader
from mpijob.backends.slurm.job_files import JobFiles
from mpijob.backends.slurm.job_reader import JobReader
from mpijob.errors import NotFound
from mpijob.model import JobRef, JobState, LogLine, LogQuery, Phase, Role
from mpijob.observation.logs import pipeline

Pause = Callable[[float], None]


def of_ranks(reader: JobReader, files: JobFiles, query: LogQuery, pause: Pause) -> Iterator[LogLine]:
    """Yield the merged lines of all attempts, or of one."""

    def found() -> tuple[list[tuple[Path, int]], dict[int, int], bool]:
        now = reader.jobs.files(files.place)
        state = reader.state(now, findings=False)
        numbers = [one for one in now.attempts() if query.attempt in (None, one)]
        over = state.phase.final or state.phase is Phase.SUSPENDED
        return [(now.logs(one), one) for one in numbers], log_reader.workers_of(state.ranks), over

    if query.follow:
        yield from log_reader.followed(found, query, pause)
    else:
        attempts, worker_of, _ = found()
        yield from log_reader.stored(attempts, worker_of, query)


def of_script(
    reader: JobReader, known: JobState, files: JobFiles | None, query: LogQuery, pause: Pause
) -> Iterator[LogLine]:
    """Yield the lines of the files that Slurm writes for a script. Nobody wrote down when each was said.

    A line has the time when it was seen, or that of the file's last change.
    """
    wanted = pipeline.LogPipeline(query)
    sources: dict[str, _Output] = {}
    first = True
    state, ref = known, known.ref
    while True:
        for stream, path in _paths(reader, ref, files).items():
            sources.setdefault(path, _Output(Path(path), stream, state.attempt))
        if not sources and state.phase.final:
            raise NotFound(
                f"where job '{ref.name}' writes its output is not known any more",
                hint="Slurm knows that for some minutes after a job's end; look in the directory it was submitted from",
            )
        lines = [line for source in sources.values() for line in source.read(last=state.phase.final)]
        if not query.follow:
            yield from pipeline.select(sorted(lines, key=lambda line: line.time), query)
            return
        yield from wanted.history(lines, query.tail) if first else wanted.live(lines, None)
        first = False
        if state.phase.final:
            yield from wanted.rest()
            return
        pause(0.2)
        state = reader.get(ref)


def _paths(reader: JobReader, ref: JobRef, files: JobFiles | None) -> dict[str, str]:
    """Return the output file of each stream, kept at the submit or asked of Slurm."""
    if files is not None:
        try:
            fields = codec.decode((files.path / "output.json").read_bytes(), dict[str, str])
        except (OSError, msgspec.DecodeError):
            fields = reader.client.show_job(files.number)
    else:
        fields = reader.client.show_job(reader.plain(ref).number)
    out, err = fields.get("StdOut", ""), fields.get("StdErr", "")
    return {"stdout": out, **({"stderr": err} if err not in ("", out) else {})} if out else {}


class _Output:
    """A file that grows, and how far it was read."""

    def __init__(self, path: Path, stream: str, attempt: int) -> None:
        self._path, self._stream, self._attempt = path, stream, attempt
        self._offset, self._rest = 0, b""

    def read(self, *, last: bool) -> Iterator[LogLine]:
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
