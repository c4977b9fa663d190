"""What a job said: the log files of its ranks, live or stored; of a script, the file that Slurm writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mpijob.backends.attempts import log_reader
from mpijob.backends.slurm.jobs import script_output
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.backends.slurm.jobs.script_output import Output
from mpijob.errors import NotFound
from mpijob.model import JobState, LogLine, LogQuery, Phase
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
    sources: dict[str, Output] = {}
    first = True
    state, ref = known, known.ref
    while True:
        number = files.number if files is not None else reader.plain(ref).number
        sources = script_output.of(reader.client, number, files, state.attempt) | sources
        if not sources and state.phase.final:
            raise NotFound(
                f"where job '{ref.name}' writes its output is no longer known",
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
