"""What an administrator sets for a whole cluster, and for each namespace of it.

`Platform` says what is installed and kept (engines, runtimes, services, queues), `NamespaceLimits` what the
jobs of one namespace may do. Both are cluster resources (`MPIJobPlatform`, `MPIJobLimits`, group `mpijob.dev`),
so that no tenant can write its own limits; their definitions are made from these values by `cluster.crds`.
A limit that is not set does not limit. Judging by them is the business of `admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from mpijob import codec

GROUP = "mpijob.dev"
VERSION = "v1alpha1"
API = f"{GROUP}/{VERSION}"
# The only name that an MPIJobPlatform may have.
SINGLETON = "default"

Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Days = Annotated[float, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(ge=0)]
AMOUNT = r"^([0-9]{1,18}(\.[0-9]{1,9})?|\.[0-9]{1,9})([mkMGTPE]|[KMGTPE]i)?$"
Digest = Annotated[str, msgspec.Meta(pattern="^(sha256:[0-9a-f]{64})?$")]
Quantity = Annotated[str, msgspec.Meta(pattern=AMOUNT)]


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base class: unknown fields (of a newer version) are ignored."""


class Management(StrEnum):
    """Whether mpijob manages a component, leaves it unmanaged, or removes it."""

    MANAGED = "Managed"
    UNMANAGED = "Unmanaged"
    REMOVED = "Removed"


class Enforcement(StrEnum):
    """What happens to a job that exceeds a limit."""

    ENFORCE = "Enforce"
    WARN = "Warn"


class RetirementStage(StrEnum):
    """How far MPIJobs that mpijob did not make are on their way out: told in the fleet's report, warned of, refused."""

    ANNOUNCE = "Announce"
    WARN = "Warn"
    REFUSE = "Refuse"


class IdleAction(StrEnum):
    """What happens to a job whose GPUs are idle: it keeps them, gives them back, or gives them back and waits again."""

    WARN = "Warn"
    SUSPEND = "Suspend"
    REQUEUE = "Requeue"
    CANCEL = "Cancel"


class GangKind(StrEnum):
    """Who starts all workers of a job together."""

    KUEUE = "Kueue"
    COSCHEDULING = "Coscheduling"
    VOLCANO = "Volcano"
    NONE = "None"


# -- what a namespace may do -------------------------------------------------------------------------
class Gang(Part, frozen=True, kw_only=True):
    """How workers are started together, and how long that may take."""

    kind: GangKind = GangKind.KUEUE
    timeout_seconds: Seconds = 300.0


class Rates(Part, frozen=True, kw_only=True):
    """What an hour costs, in `currency`."""

    gpu_hour: Rate = 0.0
    cpu_hour: Rate = 0.0
    memory_gib_hour: Rate = 0.0
    currency: str = "EUR"


class Retention(Part, frozen=True, kw_only=True):
    """How long things are kept after a job's end; `finished_jobs_seconds` removes its objects from the cluster."""

    logs_days: Days = 7.0
    records_days: Days = 30.0
    audit_days: Days = 90.0
    finished_jobs_seconds: Days | None = None


class Idle(Part, frozen=True, kw_only=True):
    """When a job's GPUs count as idle, and what the controller does then besides its warning."""

    gpu_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 5.0
    after_seconds: Seconds = 1800.0
    action: IdleAction = IdleAction.WARN


class Retirement(Part, frozen=True, kw_only=True):
    """The end of MPIJobs that were written for the MPI Operator; `until` is the day that users are told."""

    stage: RetirementStage = RetirementStage.ANNOUNCE
    until: str = ""


class NamespaceLimits(Part, frozen=True, kw_only=True):
    """What the jobs of one namespace may do: the spec of an `MPIJobLimits`, which is named after the namespace."""

    max_workers: AtLeastOne | None = None
    max_gpus: Count | None = None
    concurrent_jobs: Count | None = None
    max_duration_seconds: Seconds | None = None
    allowed_images: tuple[str, ...] = ()
    allowed_egress: tuple[str, ...] = ()
    queue: str = ""
    priority_classes: tuple[str, ...] = ()
    gang: Gang | None = None
    rates: Rates | None = None
    retention: Retention | None = None
    idle: Idle | None = None
    old_jobs: Retirement | None = None
    enforcement: Enforcement = Enforcement.ENFORCE
    quota_request_url: str = ""


# -- what is installed -------------------------------------------------------------------------------
class Engine(Part, frozen=True, kw_only=True):
    """One engine: whether it is ours to keep, and where its manifests come from.

    `source` is a directory, a file or an address of manifests; "" takes the platform's own source, in which the
    file is called `<engine>.yaml` or `<engine>-<version>.yaml`. `digest` is what the manifests must be; what comes
    from an address is installed only with one.
    """

    management_state: Management = Management.MANAGED
    source: str = ""
    version: str = ""
    digest: Digest = ""


class OptionalEngine(Engine, frozen=True, kw_only=True):
    """An engine that is used where it is there, and installed only on request."""

    management_state: Management = Management.UNMANAGED


class Engines(Part, frozen=True, kw_only=True):
    """The engines that jobs run on."""

    jobset: Engine = Engine()
    trainer: Engine = Engine()
    kueue: Engine = Engine()
    mpi_operator: OptionalEngine = OptionalEngine()


class Service(Part, frozen=True, kw_only=True):
    """One of our own services, and how many of it run."""

    management_state: Management = Management.MANAGED
    replicas: AtLeastOne = 2


class OptionalService(Service, frozen=True, kw_only=True):
    """A service that runs only on request, and once."""

    management_state: Management = Management.REMOVED
    replicas: AtLeastOne = 1


class Page(OptionalService, frozen=True, kw_only=True):
    """The page for everybody; `host` is the name under which people open it, on OpenShift the Route's by default."""

    host: str = ""


class Services(Part, frozen=True, kw_only=True):
    """Our own services in the cluster."""

    controller: Service = Service()
    admission: Service = Service()
    recorder: OptionalService = OptionalService()
    page: Page = Page()
    broker: OptionalService = OptionalService()


class Queue(Part, frozen=True, kw_only=True):
    """A ClusterQueue with its quota, and the namespaces that get a LocalQueue of the same name for it."""

    name: str
    quota: Mapping[str, Quantity] = {}
    cohort: str = ""
    namespaces: tuple[str, ...] = ()


class Monitoring(Part, frozen=True, kw_only=True):
    """Whether metrics are offered to Prometheus, and from which share of a quota on somebody is told."""

    management_state: Management = Management.UNMANAGED
    quota_alert_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 90.0


class Platform(Part, frozen=True, kw_only=True):
    """What is installed in a cluster and kept there: the spec of the one `MPIJobPlatform`, named `default`.

    `image` is the image of our services, `registry` a mirror that stands in front of the images of engines.
    `defaults` hold for namespaces without an `MPIJobLimits` of their own.
    """

    management_state: Management = Management.MANAGED
    source: str = ""
    registry: str = ""
    image: str = ""
    engines: Engines = Engines()
    services: Services = Services()
    runtimes: Management = Management.MANAGED
    queues: tuple[Queue, ...] = ()
    defaults: NamespaceLimits = NamespaceLimits()
    monitoring: Monitoring = Monitoring()


# -- what is seen ------------------------------------------------------------------------------------
class Condition(Part, frozen=True, kw_only=True):
    """One statement about a resource, as Kubernetes words them."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Component(Part, frozen=True, kw_only=True):
    """One component as it is found: its version, who keeps it, and whether it works."""

    name: str
    state: str
    version: str = ""
    wanted: str = ""
    kept_by: str = ""
    message: str = ""


class PlatformStatus(Part, frozen=True, kw_only=True):
    """What was found at the last look; `components` is the matrix of versions."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    components: tuple[Component, ...] = ()


def platform_of(document: Mapping[str, Any]) -> Platform:
    """Return what an `MPIJobPlatform` asks for; raise msgspec.ValidationError where it cannot be understood."""
    return codec.convert(document.get("spec") or {}, Platform)


def limits_of(document: Mapping[str, Any] | None) -> NamespaceLimits:
    """Return what an `MPIJobLimits` allows, and no limit where there is none."""
    return codec.convert((document or {}).get("spec") or {}, NamespaceLimits)


def effective(own: NamespaceLimits | None, defaults: NamespaceLimits) -> NamespaceLimits:
    """Return the limits that hold: what the namespace's own leave open is filled by the cluster's defaults."""
    if own is None:
        return defaults
    empty = NamespaceLimits()
    changes = {
        name: getattr(defaults, name)
        for name in NamespaceLimits.__struct_fields__
        if getattr(own, name) == getattr(empty, name)
    }
    return msgspec.structs.replace(own, **changes)
