"""Diagnose a job: carries the engine's facts to `diagnosis`; and diagnose a log without a job.

Engines explain a failure when it happens, from what only they know. This module adds the timeline, the site's
own rules for logs, and jobs that wait or are silent.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from mpijob.backends.attempts.findings import explained
from mpijob.client import paging
from mpijob.diagnosis import explain, fixed, patterns, report, signals
from mpijob.diagnosis.evidence import Evidence, Memory, Pod, World
from mpijob.diagnosis.logs import standalone_log
from mpijob.diagnosis.logs.log_windows import BLOCK_BYTES
from mpijob.diagnosis.logs.quiet_time import silence
from mpijob.diagnosis.report import Diagnosis
from mpijob.errors import Finding, Fix, InvalidJob, MpiJobError, NotFound
from mpijob.model import Event, Exit, Family, JobState, LogLine, LogQuery, MPIJob, Phase, Role, Sample

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.diagnosis.patterns import Fleet
    from mpijob.diagnosis.rule import Rule
    from mpijob.model import JobRef, JobState, Scope
    from mpijob.settings import Settings

LOG_LINES = 4000
SILENT_SECONDS = 60.0
STDIN = "-"
_DEADLINE = "DEADLINE_EXCEEDED"
_SEES_RANKS = ("local", "memory")
_WAITS = (Phase.QUEUED, Phase.PENDING, Phase.INITIALIZING, Phase.SUSPENDED)


def diagnose(
    log: str | bytes | os.PathLike[str] | Mapping[str, bytes],
    *,
    exit_code: int | None = None,
    family: Family | str = Family.AUTO,
    job: MPIJob | None = None,
) -> Diagnosis:
    """Return what a log tells: its text, the path of a file or a folder of them, or texts by name.

    >>> import mpijob
    >>> told = mpijob.diagnose(b"bash: orted: command not found", exit_code=127)
    >>> told.first.code
    'MPI_NOT_ON_WORKER'
    """
    return of_logs(_texts(log), exit_code=exit_code, family=Family(family), job=job)


def of_logs(
    logs: Mapping[str, Iterator[bytes]],
    *,
    exit_code: int | None = None,
    family: Family = Family.AUTO,
    job: MPIJob | None = None,
    site: tuple[Rule, ...] = (),
) -> Diagnosis:
    """Diagnose logs, given by name as blocks of bytes."""
    seen = standalone_log.read(logs, family=family, exit_code=exit_code, spec=job, site=site)
    return report.of_log(seen, explain(seen, site))


def files(paths: tuple[str, ...]) -> dict[str, Iterator[bytes]]:
    """Open files by name, as blocks; a directory stands for the files in it, `-` for stdin."""
    found: dict[str, Iterator[bytes]] = {}
    for path in paths:
        if path == STDIN:
            found["stdin"] = _read(sys.stdin.buffer, "stdin")
            continue
        for file in _within(Path(path)):
            found[str(file)] = _blocks(file)
    return found


def _within(path: Path) -> list[Path]:
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        if not inside:
            raise NotFound(
                f"the directory {path} has no files", hint="specify a log file, or a directory with logs"
            )
        return inside
    if not path.exists():
        raise NotFound(f"there is no file {path}", hint="specify the path of a log; - reads it from stdin")
    return [path]


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from _read(file, str(path))
    except OSError as error:
        raise InvalidJob(f"{path} cannot be read: {error.strerror}") from error


def _read(file: IO[bytes], name: str) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        # Reading /dev/zero, for example, would never end; a terminal is a device too, but nobody types a full
        # block.
        if len(block) == BLOCK_BYTES and _is_device(file):
            raise InvalidJob(
                f"{name} is a device with more than {BLOCK_BYTES >> 20} MiB of data, not a log",
                hint="specify the path of a log; - reads it from stdin",
            )
        yield block


def _is_device(file: IO[bytes]) -> bool:
    try:
        mode = os.fstat(file.fileno()).st_mode
    # Not a real file.
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _texts(log: str | bytes | os.PathLike[str] | Mapping[str, bytes]) -> dict[str, Iterator[bytes]]:
    if isinstance(log, os.PathLike):
        return files((os.fspath(log),))
    if isinstance(log, Mapping):
        return {name: iter((text,)) for name, text in log.items()}
    return {"log": iter((log.encode() if isinstance(log, str) else log,))}


def of_job(ref: JobRef, backend: Backend, settings: Settings) -> Diagnosis:
    """Diagnose a job that failed, waits, is silent, or is well."""
    state = backend.get(ref)
    spec = backend.spec(state.ref)
    events = tuple(backend.events(state.ref))
    site = site_rules(settings)
    lines = _lines(state, backend, wanted=bool(site) or state.phase is Phase.RUNNING)
    if _late(state) and not site:
        # The engine's findings stand without a log.
        with suppress(MpiJobError):
            lines = _lines(state, backend, wanted=True)
    samples = backend.samples(state.ref) if state.phase is not Phase.QUEUED else ()
    seen = _evidence(state, spec, events, lines, samples, now=time.time())
    return report.of_job(state, seen, _findings(state, seen, site), events)


def site_rules(settings: Settings) -> tuple[Rule, ...]:
    """Return the site's own rules, none if the settings name no file."""
    if not settings.rules:
        return ()
    from mpijob.backends import site_rule_loader

    return site_rule_loader.load(settings.rules)


def _lines(state: JobState, backend: Backend, *, wanted: bool) -> tuple[LogLine, ...]:
    if not wanted or state.phase is Phase.QUEUED:
        return ()
    query = LogQuery(tail=LOG_LINES, attempt=state.attempt)
    return tuple(backend.logs(state.ref, query))


def _findings(state: JobState, seen: Evidence, site: tuple[Rule, ...]) -> tuple[Finding, ...]:
    """Return the engine's findings, with those that only the client finds: a wait, silence, site rules."""
    known = (_late(state) and _quiet(seen)) or state.findings
    if state.phase in (*_WAITS, Phase.RUNNING) or (not known and state.phase is not Phase.SUCCEEDED):
        codes = {finding.code for finding in known}
        known = (*known, *(one for one in explained(seen) if one.code not in codes))
    if not site:
        return known
    names = {rule.id for rule in site}
    # The engine had these rules, and more facts.
    if any(one.code in names for one in known):
        return known
    own = tuple(one for one in explained(seen, site) if one.code in names)
    return (*own, *(one for one in known if one.code != "UNKNOWN" or not own))


def _late(state: JobState) -> bool:
    """Return whether a deadline ended the job on an engine that does not see ranks, and perhaps had no log by
    then.
    """
    known = [one.code for one in state.findings]
    return state.phase is Phase.FAILED and known == [_DEADLINE] and state.engine not in _SEES_RANKS


def _quiet(seen: Evidence) -> tuple[Finding, ...]:
    """Return the finding of a deadline after a long silence; nothing if ranks wrote lines until then."""
    if signals.quiet_at_deadline(seen) is None:
        return ()
    found = explained(msgspec.structs.replace(seen, logs=()))
    return tuple(one for one in found if one.code == _DEADLINE)


def _evidence(
    state: JobState,
    spec: MPIJob,
    events: tuple[Event, ...],
    lines: tuple[LogLine, ...],
    samples: tuple[Sample, ...],
    *,
    now: float,
) -> Evidence:
    code = state.launcher_exit_code
    return Evidence(
        spec=spec,
        family=Family(state.mpi) if state.mpi in set(Family) else Family.AUTO,
        attempt=state.attempt,
        phase=state.phase,
        reason=_reason(state),
        message=_waiting(state) if state.phase in _WAITS else state.message,
        launcher=None if code is None else Exit(code=code),
        memory=tuple(_memory(state, spec, samples)),
        samples=samples,
        world=World(planned=state.world, proved=len(state.ranks) or None),
        census=state.ranks,
        pods=tuple(Pod(one.name, one.index, one.phase.value, one.reason, one.node, one.restarts)
                   for one in state.workers),
        events=events if not state.phase.final else (),
        logs=lines,
        started=state.started,
        elapsed_seconds=state.duration_seconds(now),
        silent_seconds=_silence_at_end(state, spec, lines) if _late(state) else _silence(state, lines, now),
    )  # fmt: skip


def _reason(state: JobState) -> str:
    if state.phase is Phase.QUEUED:
        return "Waiting" if state.reason in ("", "WaitingForResources") else state.reason
    return "Suspended" if state.phase is Phase.SUSPENDED else state.reason


def _waiting(state: JobState) -> str:
    """Return what a job waits for, with its position and the estimated time."""
    from mpijob.diagnosis.template_fields import duration_text

    place = f"position {state.queue_position}" if state.queue_position is not None else ""
    wait = state.wait_estimate_seconds
    about = f"about {duration_text(wait)}" if wait is not None else ""
    return ", ".join(part for part in (state.waiting_for or state.message, place, about) if part)


def _memory(state: JobState, spec: MPIJob, samples: tuple[Sample, ...]) -> Iterator[Memory]:
    peaks: dict[int, int] = {}
    for sample in samples:
        if sample.attempt == state.attempt:
            peaks[sample.worker] = max(peaks.get(sample.worker, 0), sample.memory_bytes)
    for worker in state.workers:
        peaks[worker.index] = max(peaks.get(worker.index, 0), worker.memory_bytes or 0)
    limits = {one.index: one.memory_limit_bytes for one in state.workers}
    for index, peak in sorted(peaks.items()):
        if peak:
            yield Memory(index, peak, limits.get(index) or spec.resources.memory_bytes)


def _silence(state: JobState, lines: tuple[LogLine, ...], now: float) -> float | None:
    """Return the seconds since the last line of any rank, None if that is not long."""
    if state.phase is not Phase.RUNNING or state.running is None:
        return None
    last = max((line.time / 1e9 for line in lines if line.role is Role.RANK), default=state.running)
    quiet = now - max(last, state.running)
    return quiet if quiet >= SILENT_SECONDS else None


def _silence_at_end(state: JobState, spec: MPIJob, lines: tuple[LogLine, ...]) -> float | None:
    """Return how long ranks had been silent at the deadline; None if not all of their lines are known."""
    if state.started is None or state.finished is None:
        return None
    return silence(lines, min(state.finished, state.started + (spec.deadline_seconds or float("inf"))))


def fixed_fields(spec: MPIJob, diagnosis: Diagnosis, number: int) -> dict[str, Any]:
    """Return the fields that a numbered fix changes; raise InvalidJob for a fix that must be done by hand."""
    chosen = next((one for one in diagnosis.fixes if one.number == number), None)
    name = diagnosis.job
    if chosen is None:
        count = len(diagnosis.fixes)
        there = f"its fixes are 1 to {count}" if count else "no fix is known"
        raise NotFound(f"job '{name}' has no fix {number}: {there}", hint=f"mpijob why {name} shows them")
    if not chosen.patch:
        raise InvalidJob(
            f"fix {number} changes nothing in the job's spec: {chosen.text}",
            hint=chosen.command or "apply it by hand, then run the job again",
        )
    changed = msgspec.to_builtins(fixed(spec, Fix(chosen.text, chosen.patch)))
    return {field: changed[field] for field in chosen.patch}


ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
MOST_JOBS, MOST_LOOKS = 5000, 500


def find_patterns(scope: Scope, backend: Backend, *, since: float, until: float, least: int) -> Fleet:
    """Return common causes of the jobs that ended in a period; causes that a list lacks are read job by job."""
    found: list[JobState] = []
    looks = 0
    for state in paging.pages(scope, backend):
        if not since <= (state.finished or 0.0) <= until:
            continue
        if state.phase is Phase.FAILED and not state.findings and looks < MOST_LOOKS:
            looks += 1
            state = _whole(state, backend)
        found.append(state)
        if len(found) >= MOST_JOBS:
            break
    return patterns.find(found, since=since, until=until, least=least)


def _whole(state: JobState, backend: Backend) -> JobState:
    try:
        return backend.get(state.ref)
    # Deleted meanwhile.
    except NotFound:
        return state
