"""What is known about the place before a job is sent there; `admission` judges over it."""

from __future__ import annotations

import msgspec

from mpijob.model.platform.cluster import ClusterFacts
from mpijob.model.platform.slurm import SlurmFacts
from mpijob.model.spec.amounts import Amounts
from mpijob.model.spec.dependencies import Dependency


class Quota(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hard limit for one namespace. None means that there is no limit of that kind."""

    namespace: str
    cores: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    jobs: int | None = None
    used: Amounts = Amounts()
    jobs_running: int = 0
    request_url: str = ""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that a place says about itself to one user.

    `capacity` is all there is, `free` what nobody holds now. `queues` says whether a job that fits
    but finds no room waits (True) or is refused; `waits_for_quota` says the same of one that the quota
    would allow but has no room for now. `room_known` is False where nobody may see how much there is:
    then `capacity` and `free` say nothing. `may` holds the verbs that the user has. `cluster` and `slurm` are what
    only these say. `recalled` is True when some of it was read a few seconds ago for another job;
    asked again for the same job, the place reads everything anew. `position`, `ahead` and `wait_range_seconds` are
    told by a fit broker, where there is one: the place that the job would have in its queue, what those before it
    ask for, and from when to when it may start; `wait_basis` says what that rests on, on `wait_sample` ended jobs.
    """

    place: str
    capacity: Amounts
    free: Amounts
    room_known: bool = True
    queues: bool = True
    waits_for_quota: bool = True
    oversubscribe: bool = False
    quota: Quota | None = None
    max_workers: int = 100
    may: frozenset[str] = frozenset({"create", "get", "list", "delete", "cancel", "logs", "exec"})
    taken_names: frozenset[str] = frozenset()
    waiting_jobs: int = 0
    wait_estimate_seconds: float | None = None
    wait_range_seconds: tuple[float, float] | None = None
    wait_basis: str = ""
    wait_sample: int = 0
    position: int | None = None
    ahead: dict[str, float] = {}
    families: dict[str, str] = {}
    cluster: ClusterFacts | None = None
    slurm: SlurmFacts | None = None
    dependencies: tuple[Dependency, ...] = ()
    recalled: bool = False
