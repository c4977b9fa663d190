"""The facts of a Slurm cluster for one job, from the output of the commands that `commands` lists.

`queries` parses the output of each.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpijob.formats.slurm import queries
from mpijob.model import MPIJob
from mpijob.model.platform.slurm import Limit, SlurmFacts
from mpijob.model.spec.enums import PRIORITIES

ASSOCIATIONS, QOS = "accounts", "QOS"


def commands(user: str) -> dict[str, tuple[str, ...]]:
    """Return the commands to run, by the keys under which `read` expects their output."""
    return {
        "config": ("scontrol", "show", "config"),
        "partitions": ("scontrol", "-o", "show", "partition"),
        "nodes": queries.sinfo(),
        "mpi": ("srun", "--mpi=list"),
        ASSOCIATIONS: queries.associations(user),
        QOS: queries.all_qos(),
    }


def read(job: MPIJob, outputs: Mapping[str, str], default_partition: str) -> SlurmFacts:
    """Return the facts for this job. `default_partition` is the one of the context's configuration."""
    partitions = queries.partitions(outputs["partitions"])
    wanted = job.queue or default_partition
    chosen = next(
        (
            partition
            for partition in partitions
            if (partition.name == wanted if wanted else partition.default)
        ),
        None,
    )
    config = queries.configuration(outputs.get("config", ""))
    associations = queries.read_associations(outputs.get(ASSOCIATIONS, ""))
    qos_limits = queries.read_qos(outputs.get(QOS, ""))
    account = job.cost.get("account", "") or (associations[0].account if associations else "")
    usable = [
        association
        for association in associations
        if association.account == account and association.partition in ("", chosen.name if chosen else "")
    ]
    allowed = tuple(dict.fromkeys(name for node in usable for name in node.qos))
    qos = _qos(job, allowed)
    effective_qos = qos or next((node.default_qos for node in usable if node.default_qos), "")
    limits: list[Limit] = [node.limit for node in usable]
    limits += [qos_limits[effective_qos]] if effective_qos in qos_limits else []
    return SlurmFacts(
        cluster=config.get("ClusterName", ""),
        version=config.get("SLURM_VERSION", ""),
        partition=chosen,
        partitions=tuple(partition.name for partition in partitions),
        account=account,
        accounts=tuple(dict.fromkeys(association.account for association in associations)),
        qos=qos,
        all_qos=allowed,
        limits=tuple(limits),
        nodes=queries.nodes(outputs.get("nodes", ""), chosen.name) if chosen else (),
        mpi=queries.launch_plugins(outputs.get("mpi", "")),
        kill_wait_seconds=float((config.get("KillWait", "30").split() or ["30"])[0]),
        unread=tuple(name for name in (ASSOCIATIONS, QOS, "nodes") if name not in outputs),
    )


def _qos(job: MPIJob, allowed: tuple[str, ...]) -> str:
    """Return the QOS for a priority: the one with the same name, else ""."""
    names = {number: name for name, number in PRIORITIES.items()}
    name = job.priority if isinstance(job.priority, str) else names.get(job.priority, "")
    known_word = isinstance(job.priority, str) and job.priority not in PRIORITIES
    return name if name and (name in allowed or known_word) and (job.priority_number or known_word) else ""
