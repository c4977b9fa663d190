"""The observed state of a job on a cluster: its members, its queue, the engine's verdict.

`status_reader` fills it in from Kubernetes objects; `observation/state/cluster_phase` derives the phase. All times
are seconds since the epoch on the cluster's clock.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mpijob.model.status.records import Role
from mpijob.model.status.state import Exit, JobState, Phase, RankState, StepState

# An object may ask for any number of workers; of more than this, those without a pod are not listed.
MAX_WORKERS = 10_000


class Stage(StrEnum):
    """The stage of a launcher or worker."""

    # No node yet.
    WAITING = "waiting"
    # On a node: image, volumes, init containers.
    PREPARING = "preparing"
    # The program runs, and is not ready yet.
    STARTED = "started"
    READY = "ready"
    ENDED = "ended"


class StartupProblem(StrEnum):
    """Why a member does not start."""

    NO_PLACE = "no place"
    HELD_BACK = "held back"
    PLACING = "placing"
    PULLING = "pulling"
    IMAGE_MISSING = "image missing"
    IMAGE_REFUSED = "image refused"
    IMAGE_FAILED = "image failed"
    IMAGE_NAME = "image name"
    SETTINGS = "settings"
    VOLUME = "volume"
    PREPARING = "preparing"
    STARTING = "starting"
    START_FAILED = "start failed"
    RESTARTING = "restarting"


class Loss(StrEnum):
    """Why a member ended that its own job had not asked to end."""

    NONE = ""
    MEMORY = "memory"
    EVICTED = "evicted"
    DRAINED = "drained"
    PREEMPTED = "preempted"
    MACHINE = "machine"
    DELETED = "deleted"
    NOT_STARTED = "not started"


class WaitKind(StrEnum):
    """Why a queue holds a job."""

    WAITING = "waiting"
    TOO_LARGE = "too large"
    MISSING = "missing"
    CLOSED = "closed"
    CHECKS = "checks"
    UNHEARD = "unheard"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    DEACTIVATED = "deactivated"


class Refused(StrEnum):
    """The kind of a refusal, by or for an engine."""

    INVALID = "invalid"
    QUOTA = "quota"
    POLICY = "policy"
    OTHER = "other"


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base class: frozen, keyword only."""


class Obstacle(Seen, frozen=True):
    """What a member waits for; `lasting` if waiting alone will not help."""

    hurdle: StartupProblem
    text: str
    since: float | None = None
    lasting: bool = False


class Member(Seen, frozen=True):
    """One launcher or worker: its stage, what it waits for, how it ended.

    `asked_to_end` is the time at which its deletion was requested, `last_words` its termination message.
    `machine_silent` says that its node does not respond.
    """

    role: Role
    index: int
    name: str
    stage: Stage
    host: str = ""
    node: str = ""
    obstacle: Obstacle | None = None
    exit: Exit | None = None
    loss: Loss = Loss.NONE
    last_words: str = ""
    why: str = ""
    asked_to_end: float | None = None
    machine_silent: bool = False
    restarts: int = 0
    cores: float | None = None
    memory_limit_bytes: int | None = None
    gpus: int = 0
    container: str = ""
    created: float | None = None
    placed: float | None = None
    started: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.stage is not Stage.ENDED


class Queueing(Seen, frozen=True):
    """A job in a queue: admitted, or why not. `position` counts from 1."""

    name: str
    admitted: bool = False
    hold: WaitKind = WaitKind.WAITING
    text: str = ""
    position: int | None = None
    since: float | None = None
    admitted_at: float | None = None


class Verdict(Seen, frozen=True):
    """The end of the job as its engine reports it; `late` if it reached its deadline."""

    good: bool
    reason: str = ""
    message: str = ""
    time: float = 0.0
    late: bool = False


class Refusal(Seen, frozen=True):
    """A refused creation of one of the job's objects; `final` if the engine's retries will not help."""

    text: str
    kind: Refused = Refused.OTHER
    final: bool = False
    time: float = 0.0


class GivenUp(Seen, frozen=True):
    """The reason and the time of our ending a job that could not start."""

    reason: str
    message: str = ""
    time: float = 0.0


class Census(Seen, frozen=True):
    """The ranks that the launcher counted. `proved` is the size of the world, `wrong` a difference from the plan.

    `wrong_world` says why a rank would have been an MPI world of its own; the job was ended.

    `exits` are the exits that ranks reported, in order. Of the ranks, `starved` were killed when their worker's
    memory had run out, `spared` were killed although it had not, `mourners` reported the loss of another rank, and
    `left` failed by themselves, so that MPI ended the others.

    `read` is False if the launcher's log was not read. `begun` says that there is output of the user's command, which
    starts only after the census: the beginning of a long log may be gone. `ready` is the time at which the launcher
    had reached every worker.
    """

    read: bool = False
    proved: int | None = None
    begun: bool = False
    wrong: str = ""
    wrong_world: str = ""
    ranks: tuple[RankState, ...] = ()
    exits: tuple[Exit, ...] = ()
    starved: tuple[int, ...] = ()
    spared: tuple[int, ...] = ()
    mourners: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    steps: tuple[StepState, ...] = ()
    time: float | None = None
    ready: float | None = None


class ClusterObservation(Seen, frozen=True):
    """One job at one moment.

    - `about`: what its objects say of it (name, kind, engine, image); the phase in it is not set.
    - `ours`: written by mpijob: its engine never retries it, and its ranks must be `counted`.
    - `guarded`: False if the launcher runs another script than ours, which succeeds only in a proved world.
    - `launched`: a launcher starts the ranks. `ordered`: it is created when every worker is ready.
    - `resuming`: resumed by the user, but still suspended for the engine.
    - `fewest`: the least number of workers of an elastic job, None for others.
    - `groups`: the group of each worker, if there are groups.
    - `whole`: `members` are complete, so that a missing one does not exist.
    - `shown`: the engine's own phase, for jobs without visible members.
    - `before`: what members that are gone waited for. `began`: when the engine started the job.
    """

    about: JobState
    ours: bool = False
    counted: bool = False
    guarded: bool = True
    launched: bool = False
    ordered: bool = False
    whole: bool = False
    shown: Phase | None = None
    slots: int = 1
    groups: tuple[str, ...] = ()
    fewest: int | None = None
    suspended: bool = False
    resuming: bool = False
    suspended_at: float | None = None
    cancelled_at: float | None = None
    deleting: bool = False
    given_up: GivenUp | None = None
    after: tuple[str, ...] = ()
    queue: Queueing | None = None
    members: tuple[Member, ...] = ()
    verdict: Verdict | None = None
    refusal: Refusal | None = None
    census: Census = Census()
    deadline_seconds: float | None = None
    before: Obstacle | None = None
    began: float | None = None

    @property
    def launcher(self) -> Member | None:
        """The launcher, None if there is none."""
        return next((member for member in self.members if member.role is Role.LAUNCHER), None)

    def group_of(self, worker: int) -> str:
        """Return the group of a worker, "" for none."""
        return self.groups[worker] if worker < len(self.groups) else ""

    @property
    def workers(self) -> tuple[Member, ...]:
        """The workers by number."""
        return tuple(member for member in self.members if member.role is Role.WORKER)
