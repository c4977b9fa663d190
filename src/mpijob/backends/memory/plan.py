"""The plan of a simulated job, in the form of a real one; nothing of this machine is read."""

from __future__ import annotations

import msgspec

from mpijob.admission import needs
from mpijob.formats.launch import hostfile
from mpijob.model import Amounts, Facts, Family, MPIJob, Plan
from mpijob.model.spec.dependencies import unmet

_NO_FACTS = Facts(place="memory", capacity=Amounts(), free=Amounts())


def create_plan(job: MPIJob, facts: Facts, uid: str) -> Plan:
    family = Family.MPICH if job.mpi is Family.AUTO else job.mpi
    workers = hostfile.place_ranks(
        _with_known_mapping(job), [f"{job.name}-worker-{index}" for index in range(job.workers)]
    )
    return Plan(
        job=job,
        uid=uid,
        engine="memory",
        family=family,
        family_version="simulated",
        workers=workers,
        world=job.world,
        hostfile=hostfile.text(family, workers, job.launch),
        launch=("mpiexec", "-n", str(job.world), *job.argv),
        env={"MPIJOB_NAME": job.name, "MPIJOB_NAMESPACE": job.namespace, **job.env},
        needs=needs(job),
        free=facts.free,
        capacity=facts.capacity,
        starts_now=needs(job).fits(facts.free) and not facts.waiting_jobs and not unmet(facts.dependencies),
        waits_for=unmet(facts.dependencies),
        wait_estimate_seconds=facts.wait_estimate_seconds,
        wait_range_seconds=facts.wait_range_seconds,
        wait_basis=facts.wait_basis,
        isolation="none",
        guarantee="nothing is started, so nothing can be left running",
        why=("engine memory: the client was made with it",),
    )


def scale_plan(plan: Plan, workers: int) -> Plan:
    """Return the plan of an elastic job with another number of workers and the same world."""
    job = plan.job.replace(workers=workers)
    return msgspec.structs.replace(plan, job=job, workers=create_plan(job, _NO_FACTS, plan.uid).workers)


def _with_known_mapping(job: MPIJob) -> MPIJob:
    """Return the job with a mapping that `place_ranks` knows; ranks of any other are placed slot by slot."""
    known = job.launch.map_by in ("", "slot", "node")
    return job if known else job.replace(launch=job.launch.replace(map_by=""))
