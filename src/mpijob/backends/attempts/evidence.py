"""The evidence of a failed attempt, for engines that see its ranks: what `diagnosis` explains the failure from.

The meaning of evidence is decided in `diagnosis`. Evidence of a cluster's jobs, whose ranks are seen through pods
only, is collected in `kubernetes/status`.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from mpijob.backends import site_rule_loader
from mpijob.backends.attempts import library_search, log_reader
from mpijob.backends.attempts.findings import explained
from mpijob.backends.attempts.log_reader import LogFileSource
from mpijob.diagnosis.evidence import ActiveWarning, Evidence, Memory, Window, World, without_aborts
from mpijob.diagnosis.logs.log_windows import BLOCK_BYTES, TAIL_LINES, Piece, cut
from mpijob.diagnosis.logs.prefilter import Prefilter
from mpijob.diagnosis.logs.quiet_time import silence
from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import RULES
from mpijob.errors import Finding
from mpijob.model import Exit, LogLine, Plan, Role
from mpijob.observation.state import phase
from mpijob.observation.state.attempt_state import TOGETHER_SECONDS, AttemptState

LINES_PER_FILE = 60
# Less free space than this is a full disk: other processes take and free space meanwhile.
FULL_BYTES = 64 << 10
# A problem that a rank survived for longer than this before the failure is not its cause.
BEFORE_SECONDS = 60.0
# The last lines of a file that is not longer are the whole file.
SHORT_BYTES = 16 << 10
# Bytes of logs that are searched at most.
MAX_BYTES = 512 << 20
_MPI_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
_HOST_OF_ERROR = re.compile(rb"-worker-(\d{1,6}):\d+\] \*\*\* An error occurred in Socket closed")
_ABORTS = re.compile(
    rb"^Abort\(-?\d+\) on node \d+ \(rank \d+ in comm"
)  # MPICH and Intel MPI, by the rank itself
PEER_LOST = re.compile(
    rb"(?i)socket closed|connection reset|connection closed|broken pipe|lost connection|peer"
)


class Attempt(NamedTuple):
    """An attempt and its files; `secrets` are values that must not be quoted.

    `follows` returns whether a line only follows from something that the engine did itself; such lines are
    ignored.
    """

    plan: Plan
    number: int
    logs: Path
    work: Path
    rules: str = ""
    secrets: tuple[str, ...] = ()
    follows: Callable[[LogLine], bool] | None = None


def findings_for(
    attempt: Attempt,
    attempt_state: AttemptState,
    result: phase.PhaseResult,
    started: float | None = None,
    active_warnings: tuple[ActiveWarning, ...] = (),
) -> tuple[Finding, ...]:
    """Return why the attempt failed, the first cause first; adds to `attempt_state.followers`."""
    site_rules = site_rule_loader.load_if_valid(attempt.rules)
    tails = log_reader.tails(attempt.logs, attempt.number, attempt_state.ranks, LINES_PER_FILE)
    lines = tuple(line for line in tails if attempt.follows is None or not attempt.follows(line))
    evidence = msgspec.structs.replace(
        _evidence(attempt, attempt_state, result, lines, site_rules),
        started=started, active_warnings=active_warnings, elapsed_seconds=_deadline_seconds(attempt, result),
        silent_seconds=_silence(attempt, result, started, lines),
    )  # fmt: skip
    findings = explained(evidence, site_rules, attempt.secrets)
    if findings and (step := attempt_state.failed_step()) is not None:
        text = f"step {step.number}, {step.command}: exited with {step.exit_code}"
        first = msgspec.structs.replace(findings[0], evidence=(text, *findings[0].evidence))
        findings = (first, *findings[1:])
    cause = findings[0].rank if findings else None
    attempt_state.followers |= {exit.index for exit in evidence.ranks if _followed(exit, cause)}
    return findings


def _deadline_seconds(attempt: Attempt, result: phase.PhaseResult) -> float | None:
    """Return how long the attempt ran before its deadline ended it; None if something else did."""
    late = result.reason is phase.Reason.DEADLINE_EXCEEDED
    return attempt.plan.job.deadline_seconds if late else None


def _silence(
    attempt: Attempt, result: phase.PhaseResult, started: float | None, lines: Iterable[LogLine]
) -> float | None:
    """Return for how long no rank had written a line when the deadline came; None without a deadline."""
    deadline = _deadline_seconds(attempt, result)
    if deadline is None or started is None:
        return None
    return silence(lines, started + deadline, begin=started, most=LINES_PER_FILE)


def _followed(exit: Exit, cause: int | None) -> bool:
    killed = exit.by_us or exit.signal in _MPI_SIGNALS
    return killed and not exit.good and exit.index != cause


def _evidence(
    attempt: Attempt,
    attempt_state: AttemptState,
    result: phase.PhaseResult,
    lines: tuple[LogLine, ...],
    site_rules: tuple[Rule, ...] = (),
) -> Evidence:
    plan = attempt.plan
    lines = tuple(without_aborts(lines)) if attempt_state.aborted else lines
    exits = attempt_state.ranks_ended()
    return Evidence(
        spec=plan.job,
        family=plan.family,
        attempt=attempt.number,
        reason=_reason(attempt, attempt_state, result),
        message=result.message,
        worker=attempt_state.failed_worker(),
        launcher=attempt_state.launcher,
        # Without MPI daemons that ended: those are covered by the reason.
        workers=tuple(attempt_state.lost.values()),
        ranks=tuple(_mark_consequences(exits, lines, attempt_state)),
        memory=_memory(attempt, attempt_state, result),
        world=World(planned=plan.world, proved=attempt_state.proved),
        logs=lines,
        windows=tuple(_before_the_failure(attempt, attempt_state, site_rules)),
        plan=plan,
        census=attempt_state.rank_states(),
        libraries=library_search.directories(attempt.work, next(iter(plan.job.argv), ""), lines),
    )


def _before_the_failure(
    attempt: Attempt, attempt_state: AttemptState, site_rules: tuple[Rule, ...]
) -> Iterator[Window]:
    """Yield passages from shortly before the first failure, from logs in which many lines follow it."""
    ends = [exit.time for exit in attempt_state.ranks_ended() if not exit.good and not exit.by_us]
    if not ends:
        return
    prefilter = Prefilter(sign.literal for rule in (*site_rules, *RULES) for sign in rule.signs)
    files = log_reader.sources(
        attempt.logs, attempt.number, log_reader.workers_of(attempt_state.rank_states())
    )
    for window in _find_windows(files, prefilter, int((min(ends) - BEFORE_SECONDS) * 1e9)):
        # After an abort of ours, the launcher's lines are about that.
        if window.role is Role.RANK or not attempt_state.aborted:
            yield window


def _ranks_that_lost_a_peer(lines: Iterable[LogLine], attempt_state: AttemptState) -> set[int | None]:
    """Return the ranks that reported, or of which the launcher reported, that they lost another rank."""
    reports = [line for line in lines if PEER_LOST.search(line.text)]
    workers = {
        int(match[1]) for line in reports if line.rank is None and (match := _HOST_OF_ERROR.search(line.text))
    }
    return {line.rank for line in reports} | {
        rank for rank, state in attempt_state.ranks.items() if state.worker in workers
    }


def _mark_consequences(
    exits: tuple[Exit, ...], lines: tuple[LogLine, ...], attempt_state: AttemptState
) -> Iterator[Exit]:
    """Yield the exits in order, marked as `by_us` if they followed from the first one's failure."""
    lost_peer = _ranks_that_lost_a_peer(lines, attempt_state)
    # Hydra then kills all ranks, often also the one that has called MPI_Abort or failed in MPI_Init, before it exits.
    aborted = {line.rank for line in lines if line.rank is not None and _ABORTS.match(line.text)} - lost_peer
    # MPI itself ends the other ranks when one has failed. And a rank that lost its peer may be gone before the
    # kernel has finished with that peer, so the first exit is not always the cause.
    bad = [exit for exit in exits if not exit.good and not exit.by_us]
    together = [exit for exit in bad if exit.time - bad[0].time < TOGETHER_SECONDS]
    candidates = [exit for exit in together if exit.index not in lost_peer] or together
    first = _first(candidates, attempt_state)
    for exit in exits:
        independent = exit.good or exit is first or first is None
        followed = not independent and (
            _ended_by_mpi(exit, lost_peer) or _ended_everything(first, exit, attempt_state)
        )
        followed = followed or (bool(aborted) and exit.signal in _MPI_SIGNALS)
        yield msgspec.structs.replace(exit, by_us=True) if followed else exit


def _first(candidates: list[Exit], attempt_state: AttemptState) -> Exit | None:
    """Return the exit that the others followed from."""
    # A rank that failed by itself was first, unless another was killed from outside before it.
    struck = next((exit for exit in candidates if attempt_state.killed_from_outside(exit)), None)
    until = float("inf") if struck is None else struck.time
    own = (exit for exit in candidates if attempt_state.failed_by_itself(exit) and exit.time <= until)
    return next(own, struck) or next(iter(candidates), None)


def _ended_by_mpi(exit: Exit, lost_peer: set[int | None]) -> bool:
    """Return whether MPI ended this rank, or it ended because it had lost another."""
    return exit.signal in _MPI_SIGNALS or exit.index in lost_peer


def _ended_everything(first: Exit | None, exit: Exit, attempt_state: AttemptState) -> bool:
    """Return whether the first rank made MPI end all others, of which this is one."""
    if first is None or exit.index in attempt_state.aborted:
        return False
    return first.index in attempt_state.aborted or attempt_state.killed_from_outside(first)


def _reason(attempt: Attempt, attempt_state: AttemptState, result: phase.PhaseResult) -> str:
    # A full disk first: then the program's own message about it could not be stored.
    if shutil.disk_usage(attempt.work).free < FULL_BYTES:
        return phase.Reason.DISK_FULL.value
    if result.reason is not phase.Reason.WORKER_FAILED:
        return result.reason.value
    # A worker that failed while its process lives has lost its MPI daemon.
    first = min((e for e in attempt_state.daemon_exits.values() if not e.good), key=lambda e: e.time)
    return "DaemonLost" if first.signal or (first.code or 0) > 128 else result.reason.value


def _memory(attempt: Attempt, attempt_state: AttemptState, result: phase.PhaseResult) -> tuple[Memory, ...]:
    exceeded = result.reason is phase.Reason.MEMORY_EXCEEDED
    return tuple(
        _memory_of(worker.index, attempt, attempt_state, exceeded) for worker in attempt.plan.workers
    )


def _memory_of(index: int, attempt: Attempt, attempt_state: AttemptState, exceeded: bool) -> Memory:
    limit = attempt.plan.job.part_of(index).job.resources.memory_bytes
    kills = attempt_state.oom_kills.get(index, 0)
    # Usage is sampled: a worker that the kernel killed for its limit used all of it, measured or not.
    peak = max(attempt_state.peak_bytes.get(index, 0), limit if kills else 0)
    return Memory(index, peak, limit, kills, exceeded=exceeded and peak > limit, time=attempt_state.now)


def _find_windows(sources: Iterable[LogFileSource], prefilter: Prefilter, since_ns: int) -> Iterator[Window]:
    """Yield the passages of long files that were written after a time, without the files' ends."""
    # Without RE2 (`mpijob[regex]`), each literal of the rules is searched separately.
    bytes_left = MAX_BYTES if prefilter.fast else MAX_BYTES // 16
    for source in sources:
        size = source.path.stat().st_size
        if SHORT_BYTES < size <= bytes_left:
            bytes_left -= size
            for piece in cut(_blocks(source.path), prefilter)[:-1]:
                yield from (window for window in _windows(source, piece) if window.times[-1] >= since_ns)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _windows(source: LogFileSource, piece: Piece) -> Iterator[Window]:
    """Yield a window for each stream (stdout, stderr) of a piece of a log file."""
    streams: dict[str, list[tuple[int, LogLine]]] = {}
    # Never numbered 0: that stands for the end of a log, whose lines have no number.
    for number, raw in enumerate(piece.lines, start=piece.first):
        line = source.line(raw)
        streams.setdefault(line.stream, []).append((number, line))
    for stream, lines in streams.items():
        first = lines[0][1]
        texts = tuple(line.text for _, line in lines)
        numbers, times = tuple(number for number, _ in lines), tuple(line.time for _, line in lines)
        yield Window(first.role, texts, numbers, times, stream, first.worker, first.rank, after=TAIL_LINES)
