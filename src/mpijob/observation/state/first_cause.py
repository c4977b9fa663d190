"""Finds the first cause among the ends of a job's pods: the first that the job itself did not ask for.

An engine names the job that it saw failing first, which is usually the launcher, because mpirun ends when a
worker is gone. So ends are ordered by time. Times in Kubernetes objects have whole seconds: within one
second, a worker's end comes before the launcher's, which follows from it. Pods that were asked to end at or
after the job's own end are no cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor
from typing import NamedTuple

from mpijob.model import Exit, Role
from mpijob.model.platform.cluster_observation import MAX_WORKERS, Census, ClusterObservation, Loss, Member
from mpijob.observation.state.phase import Reason

_SECOND = 1.0
# SIGTERM. The module `signal` is not imported, for a quick start.
_TERMINATED = 15


class Cause(NamedTuple):
    """What ended a job: the member, the time, and the reason with its message."""

    member: Member | None
    time: float
    reason: Reason
    message: str
    at: int | None = None

    @property
    def worker(self) -> int | None:
        """The index of the worker; `at` names a worker without a pod, or the one whose rank it was."""
        if self.member is None or self.at is not None:
            return self.at
        return self.member.index if self.member.role is Role.WORKER else None


# Exit codes of our launcher and worker scripts; `pod_scripts.Ending` defines them.
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
# The message ends with the node's name.
_WITH_NODE = (Loss.MACHINE, Loss.EVICTED, Loss.DRAINED)
_OF_LAUNCHER = {
    Reason.WORKER_LOST: Reason.LAUNCHER_LOST,
    Reason.WORKER_EVICTED: Reason.LAUNCHER_LOST,
    Reason.WORKER_PREEMPTED: Reason.LAUNCHER_LOST,
    Reason.MEMORY_EXCEEDED: Reason.LAUNCHER_MEMORY,
}


def first(job: ClusterObservation) -> Cause | None:
    """Return the first cause, or None if no member failed."""
    return min(
        _ends(job), key=lambda cause: (floor(cause.time), _order(job, cause), cause.time), default=None
    )


def _order(job: ClusterObservation, cause: Cause) -> int:
    # Within one second: a worker's own end, then a removal by somebody else, then the launcher's end, which
    # follows from both, then what was removed after the engine's verdict.
    if cause.member is None:
        return 0
    if cause.member.role is Role.LAUNCHER:
        return 2
    if cause.member.loss is not Loss.DELETED or not _was_asked(cause.member):
        return 0
    return 3 if job.verdict is not None and _not_before(cause.time, job.verdict.time) else 1


def _not_before(time: float, other: float) -> bool:
    # Events have fractions of a second, pods have not.
    return floor(time) >= floor(other)


def _ends(job: ClusterObservation) -> Iterator[Cause]:
    launcher, over = job.launcher, _job_end(job)
    if job.fewest is None:
        yield from _of_workers(job, over)
        yield from _missing(job, over)
        yield from _recreated(job, over)
    else:
        yield from _of_elastic_workers(job, job.fewest, over)
    if launcher is not None and not (launcher.exit is not None and launcher.exit.good):
        time = _end_time(launcher)
        if time is not None and not _is_cleanup(job, launcher, time, over):
            yield _of_rank(job, launcher, time) or cause_of_end(launcher, time, ours=job.ours)


def _of_workers(job: ClusterObservation, over: float | None) -> Iterator[Cause]:
    launcher = job.launcher
    for member in job.workers:
        if launcher is None or member.name != launcher.name:
            yield from _worker(job, member, over)


def _of_elastic_workers(job: ClusterObservation, fewest: int, over: float | None) -> list[Cause]:
    # An elastic job may lose workers: a lost one is a cause only if fewer than the minimum remained.
    ended = job.verdict is not None or (job.launcher is not None and job.launcher.exit is not None)
    if job.launcher is not None and not ended:
        # The launcher continues, or waits for other workers.
        return []
    wanted = job.about.workers_wanted
    lost = [cause for cause in _of_workers(job, over) if cause.worker is not None and cause.worker < wanted]
    return lost if wanted - len({cause.worker for cause in lost}) < fewest else []


def _worker(job: ClusterObservation, member: Member, over: float | None) -> Iterator[Cause]:
    time = _end_time(member)
    if time is None or _is_cleanup(job, member, time, over):
        return
    ended_well = member.exit is not None and member.exit.good and member.loss in (Loss.NONE, Loss.DELETED)
    if not ended_well or (job.ours and _was_asked(member)):
        yield cause_of_end(member, time, ours=job.ours)
    elif job.ours and not _follows(job, time):
        yield Cause(member, time, Reason.WORKER_LOST, f"worker {member.index} ended while the job still ran")


def _job_end(job: ClusterObservation) -> float | None:
    # From then on pods are removed because the job has ended, so no later end is a cause.
    ends = [job.cancelled_at, job.given_up.time if job.given_up else None]
    if job.verdict is not None and (job.verdict.good or job.verdict.late):
        ends.append(job.verdict.time)
    launcher = job.launcher
    if launcher is not None and launcher.exit is not None and launcher.exit.good:
        ends.append(launcher.exit.time)
    return min((end for end in ends if end is not None), default=None)


def _is_cleanup(job: ClusterObservation, member: Member, time: float, over: float | None) -> bool:
    if over is not None and _not_before(time, over):
        return True
    return job.verdict is not None and _was_asked(member) and _not_before(time, job.verdict.time)


def _follows(job: ClusterObservation, time: float) -> bool:
    # Whether a worker's exit with 0 may follow from another end. It was not asked to end, or that would be
    # recorded, so only failures of workers count in the same second: the launcher's end and the verdict
    # follow from it.
    of_workers = [
        member.exit.time
        for member in job.members
        if member.exit is not None and not member.exit.good and member.role is not Role.LAUNCHER
    ]
    others = [job.launcher.exit.time] if job.launcher is not None and job.launcher.exit is not None else []
    others += [job.verdict.time] if job.verdict is not None else []
    follows_worker = any(_not_before(time, end) for end in of_workers)
    return follows_worker or any(floor(time) > floor(end) for end in others)


def _was_asked(member: Member) -> bool:
    asked = member.asked_to_end
    return asked is not None and (member.exit is None or asked <= member.exit.time)


def _end_time(member: Member) -> float | None:
    # The request comes first: an asked pod may take its whole grace period to end.
    if _was_asked(member):
        return member.asked_to_end
    return member.exit.time if member.exit is not None else None


def cause_of_end(member: Member, time: float, *, ours: bool = True) -> Cause:
    """Return why one member ended, with a message.

    Our exit codes count only together with a termination message, because a user's program may exit with the
    same code.
    """
    is_launcher = member.role is Role.LAUNCHER
    name = "the launcher" if is_launcher else f"worker {member.index}"
    if ours and member.last_words and member.exit is not None and member.exit.code in OWN_ENDINGS:
        message = " ".join(member.last_words.split())
        return Cause(member, time, OWN_ENDINGS[member.exit.code], f"{name}: {message}")
    if member.loss is not Loss.NONE:
        return _lost(member, time, name)
    how = str(member.exit) if member.exit is not None else "is gone"
    if is_launcher:
        return Cause(member, time, Reason.LAUNCHER_FAILED, f"{name} {how}")
    is_lost = member.exit is None or member.exit.killer is not None or member.exit.code is None
    return Cause(member, time, Reason.WORKER_LOST if is_lost else Reason.WORKER_FAILED, f"{name} {how}")


def _of_rank(job: ClusterObservation, launcher: Member, time: float) -> Cause | None:
    # mpirun's end only reports the end of a rank, which is then the cause; unless the launcher was itself
    # lost or removed.
    rank = first_rank(job.census)
    if rank is None or launcher.loss is not Loss.NONE or _was_asked(launcher):
        return None
    if rank.index in job.census.starved:
        text = f"{rank_name(rank)} was killed: the worker ran out of memory"
        return Cause(launcher, time, Reason.MEMORY_EXCEEDED, text, rank.worker)
    return Cause(launcher, time, Reason.RANK_FAILED, f"{rank_name(rank)} {rank}", rank.worker)


def first_rank(census: Census) -> Exit | None:
    """Return the exit of the rank that failed first; None if none failed."""
    bad = [exit for exit in census.exits if not exit.good]
    # MPI ends the other ranks with SIGTERM, and some exit by themselves when they lose a peer.
    own = (exit for exit in bad if exit.killer != _TERMINATED and exit.index not in census.mourners)
    return next(own, bad[0] if bad else None)


def followers(census: Census) -> frozenset[int]:
    """Return the ranks whose end only followed from the first failure."""
    failed = first_rank(census)
    return frozenset(exit.index for exit in census.exits if exit is not failed and not exit.good)


def silent_followers(job: ClusterObservation, cause: Cause | None) -> frozenset[int]:
    """Return the ranks that ended with the launcher before they could report it."""
    if cause is None or job.launcher is None or job.launcher.exit is None:
        return frozenset()
    reported = {rank.index for rank in job.census.exits}
    # Ranks of the worker that was the cause ended with it, so they follow nothing.
    lost = cause.worker if first_rank(job.census) is None else None
    silent = (rank for rank in job.census.ranks if rank.rank not in reported)
    return frozenset(rank.rank for rank in silent if lost is None or rank.worker != lost)


def rank_name(rank: Exit) -> str:
    """Return the name of a rank with its worker, for messages."""
    return f"rank {rank.index}" + ("" if rank.worker is None else f" on worker {rank.worker}")


def _lost(member: Member, time: float, who: str) -> Cause:
    reason, text = _LOST[member.loss]
    if member.role is Role.LAUNCHER:
        reason = _OF_LAUNCHER.get(reason, reason)
    on = f" {member.node}" if member.node and member.loss in _WITH_NODE else ""
    return Cause(member, time, reason, f"{who} {text}{on}" + (f": {member.why}" if member.why else ""))


def _missing(job: ClusterObservation, over: float | None) -> Iterator[Cause]:
    launcher = job.launcher
    if not (job.ours and job.whole and job.ordered) or over is not None or job.verdict is not None:
        return
    if launcher is None or launcher.started is None or launcher.exit is not None:
        return
    there = {member.index for member in job.workers}
    wanted = range(min(job.about.workers_wanted, MAX_WORKERS))
    for index in (index for index in wanted if index not in there):
        text = f"worker {index} is gone: its pod no longer exists"
        # When the pod went is unknown: the workers existed when the launcher started.
        yield Cause(None, launcher.started + _SECOND, Reason.WORKER_LOST, text, index)


def _recreated(job: ClusterObservation, over: float | None) -> Iterator[Cause]:
    # A worker that its engine created again after the launcher had started: the first pod was lost.
    launcher = job.launcher
    if not (job.ours and job.ordered) or launcher is None or launcher.started is None:
        return
    # Creation times come from the API server, start times from the node's clock, which may be behind.
    there = max(launcher.started, launcher.created or 0.0)
    for member in job.workers:
        created = member.created
        if created is None or created <= there + _SECOND or (over and _not_before(created, over)):
            continue
        text = f"worker {member.index} was lost while the job ran; its engine created a new one"
        time = created if launcher.exit is None else min(created, launcher.exit.time)
        yield Cause(None, time, Reason.WORKER_LOST, text, member.index)
