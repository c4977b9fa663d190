"""The engine for a job on a cluster, Kubeflow Trainer or the MPI Operator, with reasons for the plan.

Both run the same pods (`pod_template`), so the choice depends only on what each of them supports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum

import msgspec

from mpijob.errors import Unsupported
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.model import Family, MPIJob
from mpijob.model.spec.command import launcher_of

JOBSET_API = "jobset.x-k8s.io/v1alpha2"


class Engine(StrEnum):
    """An engine that runs jobs on a cluster."""

    TRAINER = "trainer"
    MPI_OPERATOR = "mpi-operator"


class Choice(msgspec.Struct, frozen=True):
    """The engine and the MPI library of a job, with a reason for each."""

    engine: Engine
    family: Family
    reasons: tuple[str, ...]


def choose(job: MPIJob, served: Collection[str], *, launcher_image: str = "") -> Choice:
    """Return the engine for a job, given the API versions that the cluster serves (`group/version`)."""
    family, why = _family(job)
    needed = tuple(_only_operator(family, launcher_image, job.elastic is not None))
    if job.groups and needed:
        raise _no_groups(needed[0].partition(": ")[2])
    trainer = {trainjob.API, JOBSET_API} <= set(served)
    operator = mpijob.API in served
    if job.groups and operator and not trainer:
        raise _no_groups(f"{_missing(served)} is not installed on this cluster")
    if operator and (needed or not trainer):
        reasons = needed or (f"engine mpi-operator: {_missing(served)} is not installed on this cluster",)
        return Choice(Engine.MPI_OPERATOR, family, (*reasons, why))
    if trainer and not needed:
        reason = "engine trainer: Kubeflow Trainer runs Open MPI, with a runtime created for the job"
        return Choice(Engine.TRAINER, family, (reason, why))
    raise nowhere(served, needed)


def _no_groups(reason: str) -> Unsupported:
    return Unsupported(
        f"groups require Kubeflow Trainer, because {mpijob.ALL_ALIKE}; {reason}",
        hint="remove groups, or use mpi: openmpi on a cluster with Kubeflow Trainer",
    )


def _family(job: MPIJob) -> tuple[Family, str]:
    """Return the MPI library: the requested one, the one of the command's launcher, else Open MPI."""
    if job.mpi is Family.CUSTOM:
        raise Unsupported(
            "mpi: custom runs on this machine only: a cluster's engine writes the hostfile in its own form",
            hint="use openmpi, mpich or intel on a cluster",
        )
    if job.mpi is not Family.AUTO:
        return job.mpi, f"mpi {job.mpi.value}: set in the job"
    own = launcher_of(job)
    if own is not None and own.families and Family.OPENMPI.value not in own.families:
        return Family.MPICH, f"mpi mpich: the command is started by {own.program}"
    return Family.OPENMPI, "mpi openmpi: the default on a cluster, and the command requires no other"


def _only_operator(family: Family, launcher_image: str, elastic: bool) -> Iterator[str]:
    if family is not Family.OPENMPI:
        yield f"engine mpi-operator: Trainer starts Open MPI only, and the job uses {family.value}"
    if launcher_image:
        yield f"engine mpi-operator: the launcher has a separate image, {launcher_image}"
    if elastic:
        yield "engine mpi-operator: the job is elastic, which Trainer does not support"


def _missing(served: Collection[str]) -> str:
    if trainjob.API in served:
        return f"JobSet ({JOBSET_API}), which Kubeflow Trainer needs,"
    return f"Kubeflow Trainer ({trainjob.API})"


def nowhere(served: Collection[str], needed: tuple[str, ...] = ()) -> Unsupported:
    """Return the refusal of a cluster without an engine for the job."""
    old = next((one for one in sorted(served) if one == "kubeflow.org/v1"), "")
    note = f"; MPIJob is served as {old}, which is the old Training Operator's" if old else ""
    if needed:
        reason = needed[0].partition(": ")[2]
        return Unsupported(
            f"the MPI Operator ({mpijob.API}) is not installed on this cluster{note}: {reason}",
            hint="ask an administrator for the MPI Operator, or use mpi: openmpi with an image that has it",
        )
    return Unsupported(
        f"neither {_missing(served)} nor the MPI Operator ({mpijob.API}) is installed on this cluster{note}",
        hint="ask an administrator for Kubeflow Trainer 2.2 or the MPI Operator 0.8; mpijob doctor shows what is there",
    )
