"""The environment of a user's script: the job and its workers in the variables of Slurm, PBS and LSF.

The variables are the same on every engine. Variables with workers' names are added by `scripts/step.sh`, which also
implements the commands that scripts call (`srun`, `scontrol`, …).
"""

from __future__ import annotations

import os
import re
import shlex
import zlib
from collections.abc import Mapping

from mpijob.model import Family, MPIJob

STEP = os.path.join(os.path.dirname(__file__), "scripts", "step.sh")
_LOADS = re.compile(r"^[ \t]*(?:module[ \t]+(?:load|add)|ml(?:[ \t]+load)?)[ \t]+([^;&|#\n]+)", re.MULTILINE)
MODULES = "MPIJOB_MODULES"
COMPONENT_SIZES = "MPIJOB_COMPONENT_SIZES"
STEP_RANK = os.path.join(os.path.dirname(STEP), "step_rank.sh")


def job_number(uid: str) -> int:
    """Return a seven-digit number for a job: scripts calculate with the number that a batch system gives."""
    return 1_000_000 + zlib.crc32(uid.encode()) % 9_000_000


def variables(job: MPIJob, *, uid: str) -> dict[str, str]:
    """Return the batch system's variables that contain no worker's name.

    To Slurm a job with groups is a heterogeneous job, whose variables without a suffix describe the first component.
    """
    number, first = str(job_number(uid)), job.parts[0].job
    count, world = first.workers, first.total_slots if job.groups else job.world
    tasks, cores, gpus = first.slots, first.slots * job.cores_per_rank, str(first.resources.gpu)
    return (
        {
            "SLURM_JOB_ID": number,
            "SLURM_JOBID": number,
            "SLURM_JOB_NUM_NODES": str(count),
            "SLURM_NNODES": str(count),
            "SLURM_NTASKS": str(world),
            "SLURM_NPROCS": str(world),
            "SLURM_NTASKS_PER_NODE": str(tasks),
            "SLURM_TASKS_PER_NODE": f"{tasks}(x{count})" if count > 1 else str(tasks),
            "SLURM_CPUS_PER_TASK": str(job.cores_per_rank),
            "SLURM_CPUS_ON_NODE": str(cores),
            "SLURM_JOB_CPUS_PER_NODE": f"{cores}(x{count})" if count > 1 else str(cores),
            "SLURM_JOB_PARTITION": job.queue or "default",
            "SLURM_JOB_ACCOUNT": job.cost.get("account", "default"),
            "SLURM_CLUSTER_NAME": "mpijob",
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            "SLURM_NODEID": "0",
            "PBS_JOBID": f"{number}.mpijob",
            "PBS_QUEUE": job.queue or "default",
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_NUM_NODES": str(job.workers),
            "PBS_NUM_PPN": str(tasks),
            "PBS_NP": str(job.world),
            "NCPUS": str(cores),
            "LSB_JOBID": number,
            "LSB_DJOB_NUMPROC": str(job.world),
        }
        | _group_variables(job)
        | ({"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus} if first.resources.gpu else {})
    )


def _group_variables(job: MPIJob) -> dict[str, str]:
    """Return the variables for `srun --het-group`: the number of components, and workers and tasks of each."""
    if not job.groups:
        return {}
    parts = job.parts
    sizes = " ".join(str(part.job.workers) for part in parts)
    tasks = {f"SLURM_NTASKS_HET_GROUP_{at}": str(part.job.total_slots) for at, part in enumerate(parts)}
    return {COMPONENT_SIZES: sizes, "SLURM_HET_SIZE": str(len(parts))} | tasks


def outside_batch(family: Family) -> dict[str, str]:
    """Return the variables that keep a launcher from starting its daemons through a batch system."""
    # Launchers detect a batch system by the variables above, and would call its srun, tm or lsf instead of our agent.
    if family is not Family.OPENMPI:
        return {"HYDRA_RMK": "user"} if family is Family.MPICH else {"I_MPI_HYDRA_RMK": "user"}
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_ras": "^slurm,tm,lsf",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_ras": "^slurm,pbs,lsf",
    }


def steps(job: MPIJob, family: Family, *, uid: str, directory: str, launcher: str) -> dict[str, str]:
    """Return the variables for a script and its steps; hostfile and wrapper are added by the engine."""
    return variables(job, uid=uid) | outside_batch(family) | {
        "MPIJOB_STEPS": directory,
        "MPIJOB_FAMILY": family.value,
        "MPIJOB_LAUNCHER": launcher,
    }  # fmt: skip


def modules(known: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return a variable with a shell function that sets a module's variables; empty without modules."""
    cases = "".join(f"{shlex.quote(name)}) {_exports(env)} ;; " for name, env in known.items())
    return {MODULES: f"mpijob_module() {{ case $1 in {cases}*) return 1 ;; esac; }}"} if cases else {}


def _exports(env: Mapping[str, str]) -> str:
    # Double quotes, in which `$PATH` and the like are expanded; every other special character is escaped.
    quoted = {name: re.sub(r'(["`\\\\]|\$(?![A-Za-z_{]))', r"\\\1", value) for name, value in env.items()}
    return "; ".join(f'export {name}="{value}"' for name, value in quoted.items()) or ":"


def modules_of(text: str) -> tuple[str, ...]:
    """Return the modules that a script loads with literal names."""
    found = (
        word for words in _LOADS.findall(text) for word in words.split() if not word.startswith(("-", "#"))
    )
    return tuple(dict.fromkeys(found))


def text(path: str) -> str:
    """Return the content of one of the scripts, for a machine without this package."""
    with open(path, encoding="utf-8") as file:
        return file.read()
