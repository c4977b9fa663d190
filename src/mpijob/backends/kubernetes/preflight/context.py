"""What the planner must know of a cluster; read once for each call."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mpijob.formats.kubernetes.metadata.well_known import LAUNCHER_CORES, Gang
from mpijob.model import MPIJob


class ClusterContext(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster around a job: served APIs, the user of pods, names in use.

    `user` is the user ID for pods if the cluster does not choose one (OpenShift does), `owner` the submitting
    user as the API server names them. `names` are the engine's objects that a job of this name has or had,
    `last_run` is the number of the last one.
    """

    served: frozenset[str]
    owner: str = ""
    names: frozenset[str] = frozenset()
    last_run: int = 0
    openshift: bool = False
    user: int | None = None
    kueue: bool = False
    gang: Gang = Gang.NONE
    priority_classes: Mapping[str, str] = {}
    workload_priorities: Mapping[str, int] = {}
    topology_aware: bool = False
    prove_gpus: bool = True
    ipc_lock: bool = False
    nfs_driver: str = ""
    launcher_cores: float = LAUNCHER_CORES
    isolates: bool = False
    addresses: tuple[str, ...] = ()
    service_image: str = ""

    def workload_priority(self, job: MPIJob) -> str:
        """Return Kueue's class for the job's priority: the one with that name, else with that value."""
        if not job.queue:
            return ""
        if str(job.priority) in self.workload_priorities:
            return str(job.priority)
        wanted = job.priority_number
        fitting = (name for name, value in self.workload_priorities.items() if value == wanted != 0)
        return next(fitting, "")
