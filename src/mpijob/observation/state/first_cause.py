"""The first cause among a job's pods: who ended first without being asked to by the job itself.

An engine names the job that it saw failing first, which is usually the launcher, because mpirun ends when
a worker is gone. So ends are put in order of time. Times have whole seconds: of two in the same second a
worker's end comes before the launcher's, which follows from it. Whatever was asked to end at or after the
job's own end is no cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor
from typing import NamedTuple

from mpijob.model import Exit, Role
from mpijob.model.platform.cluster_observation import MAX_WORKERS, Census, ClusterObservation, Loss, Member
from mpijob.observation.state.phase import Reason

_SECOND = 1.0
_TERMINATED = 15  # SIGTERM; `signal` itself takes a while to load


class Cause(NamedTuple):
    """What ended a job: the member, when, and the reason with its sentence."""

    member: Member | None
    time: float
    reason: Reason
    message: str
    at: int | None = None

    @property
    def worker(self) -> int | None:
        """The worker that it was; `at` names one that has left no trace, or whose rank it was."""
        if self.member is None or self.at is not None:
            return self.at
        return self.member.index if self.member.role is Role.WORKER else None


# How a launcher or worker of ours ends for a reason of its own; `pod_scripts.Ending` has these codes
OWN_ENDINGS = {
    90: Reason.NO_KEY,
    91: Reason.NO_PROGRAM,
    92: Reason.WORLD_NOT_STARTED,
    93: Reason.WORLD_DIFFERS,
    94: Reason.START_TIMEOUT,
    95: Reason.NO_SSHD,
}
_LOST = {
    Loss.MEMORY: (Reason.MEMORY_EXCEEDED, "used more memory than its limit and was killed"),
    Loss.EVICTED: (Reason.WORKER_EVICTED, "was evicted from its node"),
    Loss.DRAINED: (Reason.WORKER_LOST, "was removed by an eviction request from its node"),
    Loss.PREEMPTED: (Reason.WORKER_PREEMPTED, "was removed for a pod of higher priority"),
    Loss.MACHINE: (Reason.WORKER_LOST, "was lost with its node"),
    Loss.DELETED: (Reason.WORKER_LOST, "was deleted"),
    Loss.NOT_STARTED: (Reason.START_REFUSED, "could not be started"),
}
_OF_LAUNCHER = {
    Reason.WORKER_LOST: Reason.LAUNCHER_LOST,
    Reason.WORKER_EVICTED: Reason.LAUNCHER_LOST,
    Reason.WORKER_PREEMPTED: Reason.LAUNCHER_LOST,
    Reason.MEMORY_EXCEEDED: Reason.LAUNCHER_MEMORY,
}


def first(seen: ClusterObservation) -> Cause | None:
    """Return the first cause, or None where nobody ended ill by himself."""
    return min(_ends(seen), key=lambda one: (floor(one.time), _place(seen, one), one.time), default=None)


def _place(seen: ClusterObservation, one: Cause) -> int:
    """Of what happened in one second a worker's own end comes first, then one that somebody removed.

    The launcher's end follows from both; whatever was removed when the engine had its verdict, from that.
    """
    if one.member is not None and one.member.role is Role.LAUNCHER:
        return 2
    removed = one.member is not None and (one.member.loss is Loss.DELETED and _was_asked(one.member))
    return (3 if seen.verdict is not None and _since(one.time, seen.verdict.time) else 1) if removed else 0


def _since(time: float, other: float) -> bool:
    """Whether something happened at or after another thing; events have parts of a second, pods have not."""
    return floor(time) >= floor(other)


def _ends(seen: ClusterObservation) -> Iterator[Cause]:
    launcher, over = seen.launcher, _over(seen)
    if seen.fewest is None:
        yield from _of_workers(seen, over)
        yield from _missing(seen, over)
        yield from _remade(seen, over)
    else:
        yield from _of_elastic_workers(seen, seen.fewest, over)
    if launcher is not None and not (launcher.exit is not None and launcher.exit.good):
        time = _time(launcher)
        if time is not None and not _cleared(seen, launcher, time, over):
            yield _of_rank(seen, launcher, time) or of(launcher, time, ours=seen.ours)


def _of_workers(seen: ClusterObservation, over: float | None) -> Iterator[Cause]:
    launcher = seen.launcher
    for one in seen.workers:
        if launcher is None or one.name != launcher.name:
            yield from _worker(seen, one, over)


def _of_elastic_workers(seen: ClusterObservation, fewest: int, over: float | None) -> list[Cause]:
    """Workers of an elastic job come and go: one that is lost is a cause only where too few were left."""
    ended = seen.verdict is not None or (seen.launcher is not None and seen.launcher.exit is not None)
    if seen.launcher is not None and not ended:
        return []  # its launcher goes on, or waits for others
    wanted = seen.about.workers_wanted
    lost = [one for one in _of_workers(seen, over) if one.worker is not None and one.worker < wanted]
    return lost if wanted - len({one.worker for one in lost}) < fewest else []


def _worker(seen: ClusterObservation, one: Member, over: float | None) -> Iterator[Cause]:
    time = _time(one)
    if time is None or _cleared(seen, one, time, over):
        return
    well = one.exit is not None and one.exit.good and one.loss in (Loss.NONE, Loss.DELETED)
    if not well or (seen.ours and _was_asked(one)):
        yield of(one, time, ours=seen.ours)
    elif seen.ours and not _follows(seen, time):
        yield Cause(one, time, Reason.WORKER_LOST, f"worker {one.index} ended while the job still ran")


def _over(seen: ClusterObservation) -> float | None:
    """Return when the job itself was over, so that its pods are cleared away: nothing later is a cause."""
    ends = [seen.cancelled_at, seen.given_up.time if seen.given_up else None]
    if seen.verdict is not None and (seen.verdict.good or seen.verdict.late):
        ends.append(seen.verdict.time)
    launcher = seen.launcher
    if launcher is not None and launcher.exit is not None and launcher.exit.good:
        ends.append(launcher.exit.time)
    return min((end for end in ends if end is not None), default=None)


def _cleared(seen: ClusterObservation, one: Member, time: float, over: float | None) -> bool:
    """Whether a member ended because the job was over: nothing that its engine clears away is a cause."""
    if over is not None and _since(time, over):
        return True
    return seen.verdict is not None and _was_asked(one) and _since(time, seen.verdict.time)


def _follows(seen: ClusterObservation, time: float) -> bool:
    """Whether a worker that ended with 0 may only follow another's end, which was there before.

    Nobody asked it to, or that would be known: so what ended in the same second, launcher or verdict, follows from it.
    """
    of_workers = [
        one.exit.time
        for one in seen.members
        if one.exit is not None and not one.exit.good and one.role is not Role.LAUNCHER
    ]
    others = [seen.launcher.exit.time] if seen.launcher is not None and seen.launcher.exit is not None else []
    others += [seen.verdict.time] if seen.verdict is not None else []
    return any(_since(time, end) for end in of_workers) or any(floor(time) > floor(end) for end in others)


def _was_asked(one: Member) -> bool:
    """Whether a member was asked to end before it did."""
    return one.asked_to_end is not None and (one.exit is None or one.asked_to_end <= one.exit.time)


def _time(one: Member) -> float | None:
    """Return when a member began to end: when it was asked to, or else when it did."""
    if _was_asked(one):
        return one.asked_to_end
    return one.exit.time if one.exit is not None else None


def of(one: Member, time: float, *, ours: bool = True) -> Cause:
    """Return why one member ended, in words.

    A program of the user's may end with one of our own codes; ours leave last words, too.
    """
    launching = one.role is Role.LAUNCHER
    who = "the launcher" if launching else f"worker {one.index}"
    if ours and one.last_words and one.exit is not None and one.exit.code in OWN_ENDINGS:
        words = " ".join(one.last_words.split())
        return Cause(one, time, OWN_ENDINGS[one.exit.code], f"{who}: {words}")
    if one.loss is not Loss.NONE:
        return _lost(one, time, who)
    how = str(one.exit) if one.exit is not None else "is gone"
    if launching:
        return Cause(one, time, Reason.LAUNCHER_FAILED, f"{who} {how}")
    lost = one.exit is None or one.exit.killer is not None or one.exit.code is None
    return Cause(one, time, Reason.WORKER_LOST if lost else Reason.WORKER_FAILED, f"{who} {how}")


def _of_rank(seen: ClusterObservation, launcher: Member, time: float) -> Cause | None:
    """Return the rank that ended first, when the launcher only reported that one did."""
    rank = first_rank(seen.census)
    if rank is None or launcher.loss is not Loss.NONE or _was_asked(launcher):
        return None
    if rank.index in seen.census.starved:
        text = f"{called(rank)} was killed: the worker ran out of memory"
        return Cause(launcher, time, Reason.MEMORY_EXCEEDED, text, rank.worker)
    return Cause(launcher, time, Reason.RANK_FAILED, f"{called(rank)} {rank}", rank.worker)


def first_rank(census: Census) -> Exit | None:
    """Return the rank that failed first; MPI ends the others, and some end themselves when they lose a peer."""
    bad = [exit for exit in census.exits if not exit.good]
    own = (exit for exit in bad if exit.killer != _TERMINATED and exit.index not in census.mourners)
    return next(own, bad[0] if bad else None)


def followers(census: Census) -> frozenset[int]:
    """Return the ranks whose end only followed from the first failure."""
    failed = first_rank(census)
    return frozenset(one.index for one in census.exits if one is not failed and not one.good)


def silent_followers(seen: ClusterObservation, cause: Cause | None) -> frozenset[int]:
    """Return the ranks that ended with the launcher before they could report it.

    Those of a worker that was the cause ended with it, and not because of another.
    """
    if cause is None or seen.launcher is None or seen.launcher.exit is None:
        return frozenset()
    reported = {one.index for one in seen.census.exits}
    lost = cause.worker if first_rank(seen.census) is None else None
    silent = (one for one in seen.census.ranks if one.rank not in reported)
    return frozenset(one.rank for one in silent if lost is None or one.worker != lost)


def called(rank: Exit) -> str:
    """Return a rank with its worker, as sentences call it."""
    return f"rank {rank.index}" + ("" if rank.worker is None else f" on worker {rank.worker}")


def _lost(one: Member, time: float, who: str) -> Cause:
    reason, text = _LOST[one.loss]
    if one.role is Role.LAUNCHER:
        reason = _OF_LAUNCHER.get(reason, reason)
    on = f" {one.node}" if one.node and one.loss in (Loss.MACHINE, Loss.EVICTED, Loss.DRAINED) else ""
    return Cause(one, time, reason, f"{who} {text}{on}" + (f": {one.why}" if one.why else ""))


def _missing(seen: ClusterObservation, over: float | None) -> Iterator[Cause]:
    """A worker of ours whose pod is gone while the launcher runs."""
    launcher = seen.launcher
    if not (seen.ours and seen.whole and seen.ordered) or over is not None or seen.verdict is not None:
        return
    if launcher is None or launcher.started is None or launcher.exit is not None:
        return
    there = {one.index for one in seen.workers}
    wanted = range(min(seen.about.workers_wanted, MAX_WORKERS))
    for index in (index for index in wanted if index not in there):
        text = f"worker {index} is gone: its pod no longer exists"
        yield Cause(None, launcher.started + _SECOND, Reason.WORKER_LOST, text, index)


def _remade(seen: ClusterObservation, over: float | None) -> Iterator[Cause]:
    """A worker of ours that its engine made anew after the launcher had started: the first one was lost."""
    launcher = seen.launcher
    if not (seen.ours and seen.ordered) or launcher is None or launcher.started is None:
        return
    # the API server says when pods were made, a node's own clock when they started: it may be behind
    there = max(launcher.started, launcher.created or 0.0)
    for one in seen.workers:
        if one.created is None or one.created <= there + _SECOND or (over and _since(one.created, over)):
            continue
        text = f"worker {one.index} was lost while the job ran; its engine created a new one"
        time = one.created if launcher.exit is None else min(one.created, launcher.exit.time)
        yield Cause(None, time, Reason.WORKER_LOST, text, one.index)
