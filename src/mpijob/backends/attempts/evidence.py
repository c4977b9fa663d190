"""What an engine that sees its ranks knows of a failed attempt, in the words that `diagnosis` understands."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from mpijob.backends import site_rule_loader
from mpijob.backends.attempts import log_reader
from mpijob.backends.attempts.findings import explained
from mpijob.backends.attempts.log_reader import LogFileSource
from mpijob.diagnosis.evidence import Evidence, Memory, Window, World, Worry, without_aborts
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
FULL_BYTES = 64 << 10
BEFORE_SECONDS = 60.0
_MPI_KILLS = (signal.SIGKILL, signal.SIGTERM)
_SAID_OF = re.compile(rb"-worker-(\d{1,6}):\d+\] \*\*\* An error occurred in Socket closed")
PEER_LOST = re.compile(
    rb"(?i)socket closed|connection reset|connection closed|broken pipe|lost connection|peer"
)


class Attempt(NamedTuple):
    """Which attempt it was, and where its files are; `secrets` are values that must not be quoted.

    `follows` tells lines that only follow from what the engine did itself; they are not listened to.
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
    standing: phase.PhaseResult,
    started: float | None = None,
    worries: tuple[Worry, ...] = (),
) -> tuple[Finding, ...]:
    """Return why the attempt failed, first cause first; note in the ledger which ranks' ends only followed."""
    site = site_rule_loader.load_if_valid(attempt.rules)
    lines = log_reader.tails(attempt.logs, attempt.number, attempt_state.ranks, LINES_PER_FILE)
    said = tuple(line for line in lines if attempt.follows is None or not attempt.follows(line))
    seen = _evidence(attempt, attempt_state, standing, said, site)
    evidence = msgspec.structs.replace(
        seen, started=started, worries=worries, elapsed_seconds=_limit(attempt, standing),
        silent_seconds=_silence(attempt, standing, started, said),
    )  # fmt: skip
    findings = explained(evidence, site, attempt.secrets)
    if findings and (step := attempt_state.failed_step()) is not None:
        told = f"step {step.number}, {step.command}: exited with {step.exit_code}"
        first = msgspec.structs.replace(findings[0], evidence=(told, *findings[0].evidence))
        findings = (first, *findings[1:])
    cause = findings[0].rank if findings else None
    attempt_state.followers |= {exit.index for exit in evidence.ranks if _followed(exit, cause)}
    return findings


def _limit(attempt: Attempt, standing: phase.PhaseResult) -> float | None:
    """Return how long the attempt ran before its deadline ended it; None where something else did."""
    late = standing.reason is phase.Reason.DEADLINE_EXCEEDED
    return attempt.plan.job.deadline_seconds if late else None


def _silence(
    attempt: Attempt, standing: phase.PhaseResult, started: float | None, said: Iterable[LogLine]
) -> float | None:
    """Return how long no rank had said anything when the deadline came; None where none did, or it is not known."""
    limit = _limit(attempt, standing)
    if limit is None or started is None:
        return None
    return silence(said, started + limit, begin=started, most=LINES_PER_FILE)


def _followed(exit: Exit, cause: int | None) -> bool:
    killed = exit.by_us or exit.signal in _MPI_KILLS
    return killed and not exit.good and exit.index != cause


def _evidence(
    attempt: Attempt,
    attempt_state: AttemptState,
    standing: phase.PhaseResult,
    said: tuple[LogLine, ...],
    site: tuple[Rule, ...] = (),
) -> Evidence:
    plan = attempt.plan
    said = tuple(without_aborts(said)) if attempt_state.aborted else said
    return Evidence(
        spec=plan.job,
        family=plan.family,
        attempt=attempt.number,
        reason=_reason(attempt, attempt_state, standing),
        message=standing.message,
        worker=attempt_state.failed_worker(),
        launcher=attempt_state.launcher,
        workers=tuple(attempt_state.lost.values()),  # a daemon that ended is told by the reason
        ranks=tuple(
            _consequences(attempt_state.ranks_ended(), _mourners(said, attempt_state), attempt_state)
        ),
        memory=_memory(attempt, attempt_state, standing),
        world=World(planned=plan.world, proved=attempt_state.proved),
        logs=said,
        windows=tuple(_before_the_end(attempt, attempt_state, site)),
        plan=plan,
        census=attempt_state.rank_states(),
    )


def _before_the_end(
    attempt: Attempt, attempt_state: AttemptState, site: tuple[Rule, ...]
) -> Iterator[Window]:
    """Yield what was said shortly before the first failure, where much was said after it.

    What is older than a minute is left out: a trouble that a rank has survived is no cause.
    """
    ends = [exit.time for exit in attempt_state.ranks_ended() if not exit.good and not exit.by_us]
    if not ends:
        return
    sieve = Prefilter(sign.literal for rule in (*site, *RULES) for sign in rule.signs)
    files = log_reader.sources(
        attempt.logs, attempt.number, log_reader.workers_of(attempt_state.rank_states())
    )
    for window in found(files, sieve, int((min(ends) - BEFORE_SECONDS) * 1e9)):
        if window.role is Role.RANK or not attempt_state.aborted:  # then the launcher tells of our own abort
            yield window


def _mourners(said: Iterable[LogLine], attempt_state: AttemptState) -> set[int | None]:
    """Return the ranks that said, or of which the launcher said, that they lost another."""
    lines = [line for line in said if PEER_LOST.search(line.text)]
    hosts = {int(match[1]) for line in lines if line.rank is None and (match := _SAID_OF.search(line.text))}
    return {line.rank for line in lines} | {
        r for r, state in attempt_state.ranks.items() if state.worker in hosts
    }


def _consequences(
    exits: tuple[Exit, ...], mourners: set[int | None], attempt_state: AttemptState
) -> Iterator[Exit]:
    """Yield the exits, in order, with those marked that followed from another's.

    MPI ends the other ranks itself when one has failed. And a rank that lost its peer may be gone before
    the kernel has finished with that peer: it has said so. After a rank that let MPI end all, all is its doing.
    """
    bad = [exit for exit in exits if not exit.good and not exit.by_us]
    together = [exit for exit in bad if exit.time - bad[0].time < TOGETHER_SECONDS]
    candidates = [exit for exit in together if exit.index not in mourners] or together
    first = _first(candidates, attempt_state)
    for exit in exits:
        alone = exit.good or exit is first or first is None
        followed = not alone and (_killed(exit, mourners) or _sweeps(first, exit, attempt_state))
        yield msgspec.structs.replace(exit, by_us=True) if followed else exit


def _first(candidates: list[Exit], attempt_state: AttemptState) -> Exit | None:
    """Return the exit that the others followed from: one by a rank's own doing, unless a rank was killed before it."""
    struck = next((exit for exit in candidates if attempt_state.struck(exit)), None)
    until = float("inf") if struck is None else struck.time
    own = (exit for exit in candidates if attempt_state.failed_by_itself(exit) and exit.time <= until)
    return next(own, struck) or next(iter(candidates), None)


def _killed(exit: Exit, mourners: set[int | None]) -> bool:
    """Whether MPI ended this rank, or it ended because it had lost another."""
    return exit.signal in _MPI_KILLS or exit.index in mourners


def _sweeps(first: Exit | None, exit: Exit, attempt_state: AttemptState) -> bool:
    """Whether whatever else ended with the first one ended because of it."""
    if first is None or exit.index in attempt_state.aborted:
        return False
    return first.index in attempt_state.aborted or attempt_state.struck(first)


def _reason(attempt: Attempt, attempt_state: AttemptState, standing: phase.PhaseResult) -> str:
    """Return the verdict; a worker that failed while its process lives has lost its MPI daemon."""
    if _disk_is_full(attempt):
        return phase.Reason.DISK_FULL.value
    if standing.reason is not phase.Reason.WORKER_FAILED:
        return standing.reason.value
    first = min((e for e in attempt_state.daemon_exits.values() if not e.good), key=lambda e: e.time)
    return "DaemonLost" if first.signal or (first.code or 0) > 128 else standing.reason.value


def _disk_is_full(attempt: Attempt) -> bool:
    """Whether there is no room: then the program's own words about it could not be kept either."""
    return shutil.disk_usage(attempt.work).free < FULL_BYTES


def _memory(attempt: Attempt, attempt_state: AttemptState, standing: phase.PhaseResult) -> tuple[Memory, ...]:
    over = standing.reason is phase.Reason.MEMORY_EXCEEDED
    return tuple(_memory_of(worker.index, attempt, attempt_state, over) for worker in attempt.plan.workers)


def _memory_of(index: int, attempt: Attempt, attempt_state: AttemptState, over: bool) -> Memory:
    """Return what one worker used; where the kernel killed for its limit, it used all of it, seen or not."""
    limit = attempt.plan.job.resources.memory_bytes
    kills = attempt_state.oom_kills.get(index, 0)
    peak = max(attempt_state.peak_bytes.get(index, 0), limit if kills else 0)
    return Memory(index, peak, limit, kills, exceeded=over and peak > limit, time=attempt_state.now)


SHORT_BYTES = 16 << 10  # a file that is no longer has said it all in its last lines
MOST_BYTES = 512 << 20


def found(sources: Iterable[LogFileSource], sieve: Prefilter, since_ns: int) -> Iterator[Window]:
    """Yield the passages of long files that were said after a time; the files' ends are not among them."""
    left = MOST_BYTES if sieve.fast else MOST_BYTES // 16
    for source in sources:
        size = source.path.stat().st_size
        if SHORT_BYTES < size <= left:
            left -= size
            for piece in cut(_blocks(source.path), sieve)[:-1]:
                yield from (one for one in _windows(source, piece) if one.times[-1] >= since_ns)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _windows(source: LogFileSource, piece: Piece) -> Iterator[Window]:
    streams: dict[str, list[tuple[int, LogLine]]] = {}
    for number, raw in enumerate(piece.lines, start=piece.first):  # never 0: only the log's end has no number
        line = source.line(raw)
        streams.setdefault(line.stream, []).append((number, line))
    for stream, lines in streams.items():
        first = lines[0][1]
        texts = tuple(line.text for _, line in lines)
        numbers, times = tuple(number for number, _ in lines), tuple(line.time for _, line in lines)
        yield Window(first.role, texts, numbers, times, stream, first.worker, first.rank, after=TAIL_LINES)
