"""An engine's facts before a submission; `admission` decides on them."""

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
    """Everything that an engine reports to one user.

    `capacity` is the total, `free` what is available now. `queues` says whether a job waits (True) or is
    refused while capacity is short; `waits_for_quota` says the same for quota. If the user may not see
    capacity, `room_known` is False, and `capacity` and `free` are not set. `may` holds the verbs that the
    user has. `cluster` and `slurm` are facts of these engines only. `recalled` is True if some facts were
    cached for another job a few seconds ago; a second call for the same job reads all of them again.
    `position`, `ahead` and `wait_range_seconds` come from a fit broker: the position of the job in its
    queue, what the jobs before it request, and the range of its start; `wait_basis` names the basis, with
    `wait_sample` finished jobs.
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
