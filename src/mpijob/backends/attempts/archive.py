"""Move the record and the log files of a job into the archive of its engine, before the job is deleted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from mpijob.backends.attempts import mpi_profiles as profile_files
from mpijob.backends.attempts.log_reader import parse_file_name, workers_of
from mpijob.errors import MpiJobError
from mpijob.history import mpi_profiles, retention
from mpijob.history.archive import Archive, deleted_event, deleted_state
from mpijob.history.import_job import JobImport, import_job
from mpijob.history.records import Gap, LogSource
from mpijob.model import Event, JobRef, JobState, Plan, Role, Sample
from mpijob.settings import Settings, history_directory

_log = logging.getLogger(__name__)


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an engine has of an ended job.

    `newest` is the directory of its last attempt, `logs` are the directories of log files with the attempts'
    numbers, `attempts` the last states of earlier attempts.
    """

    state: JobState
    plan: Plan
    newest: Path
    logs: Sequence[tuple[Path, int]]
    events: Sequence[Event]
    samples: tuple[Sample, ...] = ()
    gaps: tuple[Gap, ...] = ()
    attempts: tuple[JobState, ...] = ()


def archive_job(ref: JobRef, collect: Callable[[], EndedJob], settings: Settings, engine: str) -> None:
    """Store an ended job in the archive of an engine; an error is logged only."""
    # A full disk must not prevent the deletion, which frees space.
    now = time.time()
    try:
        archive = Archive(history_directory(settings, engine))
        try:
            job = collect()
            import_job(archive, _record(job, now), _sources(job), now)
            retention.apply_retention(archive, retention.RetentionSettings.from_settings(settings), now)
        finally:
            archive.close()
    except (MpiJobError, OSError) as error:
        _log.warning("could not record %s: %s", ref, error)


def _record(job: EndedJob, now: float) -> JobImport:
    state = job.state
    last = msgspec.structs.replace(deleted_event(now, state.attempt), sequence=len(job.events) + 1)
    return JobImport(
        state=deleted_state(state, now),
        spec=msgspec.json.encode(job.plan.job),
        plan=msgspec.json.encode(job.plan),
        events=(*job.events, last),
        samples=job.samples,
        facts=mpi_profiles.profile_facts(profile_files.read(job.newest, state, now), now),
        gaps=job.gaps,
        attempts=job.attempts,
    )


def _sources(job: EndedJob) -> Iterator[tuple[LogSource, str]]:
    """Yield each log file with its source."""
    workers = workers_of(job.state.ranks)
    files = ((path, attempt) for directory, attempt in job.logs for path in _list_files(directory))
    for path, attempt in files:
        if (parsed := parse_file_name(path.name)) is None:
            continue
        role, number, _step = parsed
        rank = number if role is Role.RANK else None
        worker = number if role is Role.WORKER else workers.get(rank) if rank is not None else None
        key, name = job.state.ref.key, path.name
        yield LogSource(key=key, attempt=attempt, role=role, worker=worker, rank=rank, source=name), str(path)


def _list_files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
