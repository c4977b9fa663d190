"""What was seen of a job on a cluster, in nobody's words: its members, its queue, its engine's verdict.

`status_reader` reads Kubernetes objects into these values, `observation/state/cluster_phase` derives from them where
the job stands. All times are seconds since the epoch and come from the cluster, never from a clock here.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mpijob.model.status.records import Role
from mpijob.model.status.state import Exit, JobState, Phase, RankState, StepState

# An object may ask for any number of workers. Of more than this, those without a pod are not listed one by one.
MAX_WORKERS = 10_000


class Stage(StrEnum):
    """How far one launcher or worker has come."""

    # It has no place yet.
    WAITING = "waiting"
    # It has a place: image, volumes, preparation.
    PREPARING = "preparing"
    # Its program runs and is not ready yet.
    STARTED = "started"
    READY = "ready"
    ENDED = "ended"


class StartupProblem(StrEnum):
    """What stands between a member and its start."""

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
    """Why a member ended that was not asked to by its own job."""

    NONE = ""
    MEMORY = "memory"
    EVICTED = "evicted"
    DRAINED = "drained"
    PREEMPTED = "preempted"
    MACHINE = "machine"
    DELETED = "deleted"
    NOT_STARTED = "not started"


class WaitKind(StrEnum):
    """Why a queue keeps a job back."""

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
    """What kind of no an engine got, or gave."""

    INVALID = "invalid"
    QUOTA = "quota"
    POLICY = "policy"
    OTHER = "other"


class Seen(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The root of the values here: frozen, keyword only."""


class Obstacle(Seen, frozen=True):
    """What a member waits for, as a sentence; `lasting` when waiting alone will not help."""

    hurdle: StartupProblem
    text: str
    since: float | None = None
    lasting: bool = False


class Member(Seen, frozen=True):
    """One launcher or worker: how far it has come, what is in its way, how it ended.

    `asked_to_end` is when somebody asked for its removal. `last_words` is what its program left for its
    engine. `machine_silent` says that its machine does not answer any more.
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
        """Whether it holds a place or will."""
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
    """How the engine itself says that the job ended; `late` when it was its deadline."""

    good: bool
    reason: str = ""
    message: str = ""
    time: float = 0.0
    late: bool = False


class Refusal(Seen, frozen=True):
    """A no that the engine met while it made the job's parts; `final` when trying again will not help."""

    text: str
    kind: Refused = Refused.OTHER
    final: bool = False
    time: float = 0.0


class GivenUp(Seen, frozen=True):
    """A job that we ended ourselves because it could not start: the reason, and when."""

    reason: str
    message: str = ""
    time: float = 0.0


class Census(Seen, frozen=True):
    """What the launcher counted: `proved` is the size of the world, `wrong` what differs from the plan.

    `wrong_world` says why a rank that was counted would have been a world of its own: it was ended.

    `exits` are the ends that ranks reported themselves, in the order in which they happened; `starved` are
    the ranks that were killed because their worker's memory had run out, `spared` those that were killed
    although it had not, `mourners` those that said that they had lost another rank, `left` those that ended
    badly by themselves and had MPI end the others.

    `read` is False when nobody has looked at the launcher's log; silence then says nothing. `begun` says that
    the user's command has spoken, which it cannot before the world is proved: the beginning of a long log
    may be gone. `ready` is when the launcher said that it had found every worker.
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
    """Everything that was seen of one job at one moment.

    `about` holds what the objects say of the job itself (name, kind, engine, image …); its phase means
    nothing yet. `ours` is True for jobs written here, which are never tried again by their engine and
    whose world must be proved (`counted`); `guarded` is False where the launcher runs another text than
    ours, which ends with 0 only for a world that was proved. `launched` is True where a launcher starts the ranks.
    `resuming` says that nobody wants the job suspended any more, and its engine still calls it so.
    `fewest` is with how few workers an elastic job goes on, None for any other: its workers come and go.
    `groups` names the group of each worker, where workers are in groups.
    `ordered` says that the launcher is made only when every worker is ready. `whole` says that `members`
    is all there is, so that one who is missing is missing. `shown` is the phase that the engine itself
    shows, for when no member can be seen; `before` is what members that are gone
    were waiting for, `began` when the engine says that it started the job.
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
        """The launcher, where there is one."""
        return next((member for member in self.members if member.role is Role.LAUNCHER), None)

    def group_of(self, worker: int) -> str:
        """Return the group of a worker, "" for none."""
        return self.groups[worker] if worker < len(self.groups) else ""

    @property
    def workers(self) -> tuple[Member, ...]:
        """The workers, by their number."""
        return tuple(member for member in self.members if member.role is Role.WORKER)
