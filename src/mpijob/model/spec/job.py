"""What is wanted: one launcher, N workers, a command, and how they are to be treated.

An `MPIJob` is a frozen value without any engine's words in it, so one spec runs on a laptop and on
a cluster. It is changed by copying (`job.replace(workers=8)`). Well-formedness is the business of
`checks`; reading and writing files that of `formats/jobfile`.

>>> from mpijob import MPIJob
>>> job = MPIJob(name="train", workers=4, slots=2, command=["python", "train.py"])
>>> job.world
8
>>> job.replace(workers=8, env={"LR": "0.1"}).world
16
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec
from msgspec.structs import force_setattr

from mpijob import codec
from mpijob.errors import InvalidJob
from mpijob.model.spec import quantity
from mpijob.model.spec.amounts import Amounts
from mpijob.model.spec.enums import PRIORITIES
from mpijob.model.spec.quantity import Amount

_MAIL_ADDRESS = (
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The root of every part of a spec: frozen, keyword only, unknown fields refused."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


class Family(StrEnum):
    """Which MPI library starts and joins the ranks."""

    AUTO = "auto"
    OPENMPI = "openmpi"
    MPICH = "mpich"
    INTEL = "intel"
    CUSTOM = "custom"


class VolumeKind(StrEnum):
    """Where a volume's files come from."""

    PATH = "path"
    CLAIM = "claim"
    NFS = "nfs"
    CONFIG = "config"
    SECRET = "secret"  # noqa: S105 - a kind of volume
    S3 = "s3"
    SCRATCH = "scratch"
    SHM = "shm"


class Topology(StrEnum):
    """How close together the workers are wanted."""

    ANY = "any"
    PACKED_NODE = "packed-node"
    PACKED_RACK = "packed-rack"
    PACKED_ZONE = "packed-zone"
    SPREAD = "spread"


class Resources(Value, frozen=True, kw_only=True):
    """Resources of one launcher or one worker.

    Amounts have the form `500m`, `2`, `4Gi`. `none` as CPU or memory sets no request and no limit: on a cluster, the
    defaults of the namespace apply.
    """

    cpu: Amount = "1"
    memory: Amount = "1Gi"
    gpu: int = 0
    gpu_kind: str = "nvidia.com/gpu"
    others: Mapping[str, Amount] = {}

    @property
    def cores(self) -> float:
        """How many cores it may use; more than any machine has where no CPU is asked for."""
        return quantity.UNLIMITED_CORES if self.cpu == quantity.NONE else quantity.parse(self.cpu)

    @property
    def memory_bytes(self) -> int:
        """How many bytes it may use; more than any machine has where no memory is asked for."""
        return quantity.UNLIMITED_BYTES if self.memory == quantity.NONE else int(quantity.parse(self.memory))

    @property
    def asked(self) -> Amounts:
        """What is reserved for it: nothing of what it does not ask for."""
        return Amounts(
            0.0 if self.cpu == quantity.NONE else self.cores,
            0 if self.memory == quantity.NONE else self.memory_bytes,
            self.gpu,
        )


class CustomLaunch(Value, frozen=True, kw_only=True):
    """How to start an MPI library without built-in support.

    `command` can contain `{hostfile}`, `{ranks}` and `{agent}`; `host_line` formats one worker of the hostfile from
    `{worker}` and `{slots}`; `tag` is a regular expression with a group `rank` that finds the rank in a line of
    merged output.
    """

    command: tuple[str, ...]
    host_line: str = "{worker} slots={slots}"
    tag: str = ""
    rank_variable: str = ""


class Launch(Value, frozen=True, kw_only=True):
    """How to map, bind and start ranks; each option is translated for the MPI library in use."""

    map_by: str = ""
    bind_to: str = ""
    rankfile: str = ""
    settings: Mapping[str, str] = {}
    flags: tuple[str, ...] = ()
    stdin: str = ""
    custom: CustomLaunch | None = None


class Program(Value, frozen=True, kw_only=True):
    """One of several programs in the same MPI world (MPMD), with its number of ranks."""

    ranks: int
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class GitSource(Value, frozen=True, kw_only=True):
    """A repository at one commit.

    Without `commit`, planning the job resolves the branch or tag (`ref`), or the default branch, and writes the
    commit into the spec.
    """

    url: str = ""
    ref: str = ""
    commit: str = ""


class Code(Value, frozen=True, kw_only=True):
    """Files to upload with the job: a directory (or some paths in it) and inline files.

    With `git`, the files of the repository, or of its directory `path`.
    """

    git: GitSource = GitSource()
    path: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    files: Mapping[str, str] = {}


class Secret(Value, frozen=True, kw_only=True):
    """A secret that ranks get as an environment variable; its value is never in the spec.

    Locally the value is read from the variable or file in `source` (`env:TOKEN`, `file:/run/token`); on a cluster
    from the Secret `source` (`name/key`).
    """

    env: str
    source: str


class Volume(Value, frozen=True, kw_only=True):
    """A directory that every worker and the launcher see at `mount`.

    A volume of kind `s3` has the files of a bucket folder (`source` is CONNECTION/FOLDER): they are downloaded before
    the job starts, and changes are uploaded, unless it is read-only.
    """

    mount: str
    kind: VolumeKind = VolumeKind.PATH
    source: str = ""
    read_only: bool = False
    size: Amount = ""


class Placement(Value, frozen=True, kw_only=True):
    """Where workers may run. Ignored with a notice on one machine."""

    node_selector: Mapping[str, str] = {}
    exclude_nodes: tuple[str, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    affinity: Mapping[str, Any] = {}
    topology: Topology = Topology.ANY


class Network(Value, frozen=True, kw_only=True):
    """Allowed connections of the job's pods on a cluster, besides each other and DNS.

    Each entry of `egress` is `internet`, a network (`10.1.0.0/16`), an address, a service (`minio.data.svc`) or
    `namespace/data`, optionally with a port (`internet:443`). `attachments` are additional networks of the pods
    (Multus), for example for a fast fabric.
    """

    isolated: bool = True
    egress: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()


class WorkerGroup(Value, frozen=True, kw_only=True):
    """Some of the job's workers, with slots, resources or a placement of their own.

    What a group leaves out is as for the other workers; `resources` and `placement` replace the job's as a whole.
    """

    name: str
    workers: int
    slots: int | None = None
    resources: Resources | None = None
    placement: Placement | None = None


class Elastic(Value, frozen=True, kw_only=True):
    """Minimum and maximum number of workers of a job whose command starts its own ranks, as elastic Horovod
    does.

    The command runs once, in the launcher, and gets the workers from the program named by
    `MPIJOB_DISCOVER_HOSTS`.
    """

    max_workers: int
    min_workers: int = 1


class Retry(Value, frozen=True, kw_only=True):
    """Retries of a failed job, with exponential backoff.

    `on` lists the causes to retry after, as keywords (`worker_lost`, `preempted`, `nccl` …) or codes of `mpijob why`;
    if empty, the job is retried after any cause.
    """

    limit: int = 0
    on: tuple[str, ...] = ()
    backoff_seconds: float = 10.0
    factor: float = 2.0
    max_backoff_seconds: float = 600.0

    def __post_init__(self) -> None:
        if isinstance(self.on, list):
            force_setattr(self, "on", tuple(self.on))

    def delay_seconds(self, attempt: int) -> float:
        """Return the pause after the failure of an attempt (the first is 1)."""
        return min(self.backoff_seconds * self.factor ** (attempt - 1), self.max_backoff_seconds)


class Signal(Value, frozen=True, kw_only=True):
    """A signal to every rank before the end (deadline, cancel, preemption), like Slurm's USR1@120."""

    name: str = "TERM"
    seconds_before: float = 0.0


class Concurrency(Value, frozen=True, kw_only=True):
    """Maximum number of running jobs of a group; the others wait.

    The group has all jobs of the namespace with this group name; without a name, the jobs of one array.
    """

    limit: int
    group: str = ""


class Notify(Value, frozen=True, kw_only=True):
    """A receiver of notifications: a mail address, or the name of a callback of the settings.

    `on` lists events: `queued`, `started`, `retried`, `succeeded`, `failed`, `cancelled`, `ended` (with any result).
    """

    to: str
    on: tuple[str, ...] = ("ended",)

    @property
    def is_address(self) -> bool:
        """Whether it is a mail address, and nothing else that a mail's header would take."""
        return re.fullmatch(_MAIL_ADDRESS, self.to) is not None

    def __post_init__(self) -> None:
        if isinstance(self.on, list):
            force_setattr(self, "on", tuple(self.on))


class Retention(Value, frozen=True, kw_only=True):
    """How long data of a finished job is kept."""

    logs_days: float = 7.0
    record_days: float = 30.0


class Model(Value, frozen=True, kw_only=True):
    """The model that a job trains: its name in the model registry, and the path of its files.

    `path` is a path on one of the job's volumes, or in its working directory on one machine.
    """

    name: str
    version: str = ""
    path: str = ""
    format: str = ""


class MPIJob(Value, frozen=True, kw_only=True):
    """One MPI job: a launcher and `workers` workers with `slots` ranks each.

    Name, workers and command are enough; all other fields have defaults.
    """

    name: str
    namespace: str = "default"
    description: str = ""

    workers: int = 4
    slots: int = 1
    ranks: int | None = None
    cores_per_rank: int = 1
    groups: tuple[WorkerGroup, ...] = ()
    elastic: Elastic | None = None

    mpi: Family = Family.AUTO
    launch: Launch = Launch()
    presets: tuple[str, ...] = ()

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    programs: tuple[Program, ...] = ()
    script: str = ""
    code: Code = Code()
    env: Mapping[str, str] = {}
    secrets: tuple[Secret, ...] = ()
    volumes: tuple[Volume, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = ""

    resources: Resources = Resources()
    launcher: Resources = Resources(cpu="100m", memory="256Mi")

    placement: Placement = Placement()
    network: Network = Network()
    after: tuple[str, ...] = ()
    concurrency: Concurrency | None = None
    queue: str = ""
    priority: str | int = 0
    gang_timeout_seconds: float = 300.0

    retry: Retry = Retry()
    deadline_seconds: float | None = None
    signal: Signal = Signal()
    grace_seconds: float = 10.0
    requeue_on_lost_worker: bool = False
    keep_on_failure_seconds: float = 0.0
    retention: Retention = Retention()
    ttl_seconds: float | None = None
    notify: tuple[Notify, ...] = ()
    model: Model | None = None
    census: bool = True
    profile_mpi: bool = False

    labels: Mapping[str, str] = {}
    owner: str = ""
    cost: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        for field, wanted in _COERCED.items():
            value = getattr(self, field)
            if isinstance(value, list) and wanted is tuple:
                force_setattr(self, field, tuple(value))
            elif isinstance(value, dict) and wanted is not tuple:
                force_setattr(self, field, _part(field, value, wanted))

    @property
    def world(self) -> int:
        """Number of ranks of the job."""
        if self.programs:
            return sum(program.ranks for program in self.programs)
        return self.total_slots if self.ranks is None else self.ranks

    @property
    def total_slots(self) -> int:
        """Number of ranks for which the workers have slots."""
        return sum(part.job.workers * part.job.slots for part in self.parts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Workers that are alike, in the order of their numbers: those of no group, then each group.

        A job without groups has one part.
        """
        if not self.groups:
            return (Part("", 0, self),)
        first = max(0, self.workers - sum(group.workers for group in self.groups))
        found = [Part("", 0, self.replace(workers=first, ranks=None, groups=()))] if first else []
        for group in self.groups:
            found.append(Part(group.name, first, self._with_only(group)))
            first += group.workers
        return tuple(found)

    def part_of(self, worker: int) -> Part:
        """Return the workers that are like the one of this number."""
        parts = self.parts
        return next((part for part in reversed(parts) if part.first <= worker), parts[0])

    @property
    def resizable(self) -> Part:
        """The workers whose number changes with that of the job: those of no group, else the last group."""
        parts = self.parts
        return parts[-1] if parts[0].group else parts[0]

    def size_patch(self, workers: int) -> dict[str, Any]:
        """Return what changes in the job for another number of workers."""
        part = self.resizable
        if not part.group:
            return {"workers": workers}
        last = self.groups[-1].replace(workers=workers - (self.workers - part.job.workers))
        return {"workers": workers, "groups": msgspec.to_builtins((*self.groups[:-1], last))}

    def worker_of(self, rank: int) -> int | None:
        """Return the worker of a rank where ranks fill one worker after the other; None beyond the last."""
        for _, first, job in self.parts:
            if rank < job.workers * job.slots:
                return first + rank // job.slots
            rank -= job.workers * job.slots
        return None

    def ranks_of(self, worker: int) -> range:
        """Return the ranks of a worker where ranks fill one worker after the other."""
        part = self.part_of(worker)
        before = sum(one.job.workers * one.job.slots for one in self.parts if one.first < part.first)
        first = before + (worker - part.first) * part.job.slots
        return range(min(first, self.world), min(first + part.job.slots, self.world))

    def _with_only(self, group: WorkerGroup) -> MPIJob:
        return self.replace(
            workers=group.workers,
            slots=self.slots if group.slots is None else group.slots,
            resources=self.resources if group.resources is None else group.resources,
            placement=self.placement if group.placement is None else group.placement,
            ranks=None,
            groups=(),
        )

    @property
    def asked(self) -> Amounts:
        """What the workers and the launcher ask for together."""
        together = self.launcher.asked
        for part in self.parts:
            together = together.plus(part.job.resources.asked.times(part.job.workers))
        return together

    @property
    def has_equal_slots(self) -> bool:
        """Whether all workers have the same number of slots."""
        return len({part.job.slots for part in self.parts}) == 1

    @property
    def most_gpus(self) -> int:
        """Number of GPUs of the workers that have most of them."""
        return max(part.job.resources.gpu for part in self.parts)

    @property
    def gpu_kind(self) -> str:
        """Resource name of the workers' GPUs."""
        having = (part.job.resources for part in self.parts if part.job.resources.gpu)
        return next(having, self.resources).gpu_kind

    @property
    def fewest_workers(self) -> int:
        """Minimum number of workers: all of them, unless the job is elastic."""
        return self.workers if self.elastic is None else self.elastic.min_workers

    @property
    def most_workers(self) -> int:
        """Maximum number of workers: all of them, unless the job is elastic."""
        return self.workers if self.elastic is None else max(self.workers, self.elastic.max_workers)

    @property
    def priority_number(self) -> int:
        """The priority as engines order by it; a class name that only a cluster knows counts as normal."""
        return self.priority if isinstance(self.priority, int) else PRIORITIES.get(self.priority, 0)

    @property
    def group(self) -> str:
        """The concurrency group of the job; empty if it has none."""
        return "" if self.concurrency is None else self.concurrency.group or self.name

    @property
    def argv(self) -> tuple[str, ...]:
        """The command, or the script, with its arguments."""
        return (*(self.command or filter(None, (self.script,))), *self.args)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all its programs."""
        return (
            *self.argv,
            *(word for program in self.programs for word in (*program.command, *program.args)),
        )


class Part(NamedTuple):
    """Workers of a job that are alike: the name of their group, the first one's number, the job with them alone."""

    group: str
    first: int
    job: MPIJob


def _part(field: str, value: dict[str, Any], wanted: Any) -> Any:
    try:
        return codec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise InvalidJob(
            f"{field}: {error}", hint=f"mpijob explain {field} shows its allowed values"
        ) from error


_COERCED: dict[str, Any] = {
    "command": tuple,
    "args": tuple,
    "presets": tuple,
    "programs": tuple,
    "secrets": tuple,
    "volumes": tuple,
    "pull_secrets": tuple,
    "after": tuple,
    "concurrency": Concurrency,
    "notify": tuple,
    "resources": Resources,
    "launcher": Resources,
    "launch": Launch,
    "network": Network,
    "groups": tuple,
    "elastic": Elastic,
    "code": Code,
    "placement": Placement,
    "retry": Retry,
    "signal": Signal,
    "retention": Retention,
    "model": Model,
}
