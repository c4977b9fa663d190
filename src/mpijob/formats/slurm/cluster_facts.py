"""What a cluster's answers say for one job: its partition, its account and QOS, the limits that hold, the nodes.

The answers of the single commands are read by `queries`; which command was asked under which name is said here.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpijob.formats.slurm import queries
from mpijob.model import MPIJob
from mpijob.model.platform.slurm import Limit, SlurmFacts
from mpijob.model.spec.enums import PRIORITIES

ASSOCIATIONS, QOS = "accounts", "QOS"


def commands(user: str) -> dict[str, tuple[str, ...]]:
    """Return the commands to ask, by the names under which `read` takes their answers."""
    return {
        "config": ("scontrol", "show", "config"),
        "partitions": ("scontrol", "-o", "show", "partition"),
        "nodes": queries.sinfo(),
        "mpi": ("srun", "--mpi=list"),
        ASSOCIATIONS: queries.associations(user),
        QOS: queries.all_qos(),
    }


def read(job: MPIJob, said: Mapping[str, str], usual: str) -> SlurmFacts:
    """Return what holds for this job, of all that the commands said; `usual` is the partition of the context."""
    partitions = queries.partitions(said["partitions"])
    wanted = job.queue or usual
    chosen = next(
        (
            partition
            for partition in partitions
            if (partition.name == wanted if wanted else partition.default)
        ),
        None,
    )
    config = queries.configuration(said.get("config", ""))
    associations = queries.read_associations(said.get(ASSOCIATIONS, ""))
    every = queries.read_qos(said.get(QOS, ""))
    account = job.cost.get("account", "") or (associations[0].account if associations else "")
    mine = [
        one
        for one in associations
        if one.account == account and one.partition in ("", chosen.name if chosen else "")
    ]
    allowed = tuple(dict.fromkeys(name for one in mine for name in one.qos))
    qos = _qos(job, allowed)
    used = qos or next((one.default_qos for one in mine if one.default_qos), "")
    limits: list[Limit] = [one.limit for one in mine]
    limits += [every[used]] if used in every else []
    return SlurmFacts(
        cluster=config.get("ClusterName", ""),
        version=config.get("SLURM_VERSION", ""),
        partition=chosen,
        partitions=tuple(partition.name for partition in partitions),
        account=account,
        accounts=tuple(dict.fromkeys(one.account for one in associations)),
        qos=qos,
        all_qos=allowed,
        limits=tuple(limits),
        nodes=queries.nodes(said.get("nodes", ""), chosen.name) if chosen else (),
        mpi=queries.launch_plugins(said.get("mpi", "")),
        kill_wait_seconds=float((config.get("KillWait", "30").split() or ["30"])[0]),
        unread=tuple(name for name in (ASSOCIATIONS, QOS, "nodes") if name not in said),
    )


def _qos(job: MPIJob, allowed: tuple[str, ...]) -> str:
    """Return the QOS that a priority means here: the one of that name, else none."""
    names = {number: name for name, number in PRIORITIES.items()}
    name = job.priority if isinstance(job.priority, str) else names.get(job.priority, "")
    known_word = isinstance(job.priority, str) and job.priority not in PRIORITIES
    return name if name and (name in allowed or known_word) and (job.priority_number or known_word) else ""
