"""What a script finds in its environment: the job and its workers, in the words of Slurm, PBS and LSF.

The same variables on one machine and on a cluster; what names the workers is added by `scripts/step.sh`, which also
is the programs that a script calls (`srun`, `scontrol`, …).
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
    """Return a number for a job, for scripts that count with the one that a batch system gives."""
    return 1_000_000 + zlib.crc32(uid.encode()) % 9_000_000


def variables(job: MPIJob, *, uid: str) -> dict[str, str]:
    """Return the variables of a batch system that need no worker's name.

    In Slurm's words, a job with groups is a heterogeneous one: what it tells of nodes and tasks is of the first part.
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
        | _of_groups(job)
        | ({"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus} if first.resources.gpu else {})
    )


def _of_groups(job: MPIJob) -> dict[str, str]:
    """Return what steps are told of groups: the number of workers of each component of `srun --het-group`."""
    if not job.groups:
        return {}
    parts = job.parts
    sizes = " ".join(str(part.job.workers) for part in parts)
    tasks = {f"SLURM_NTASKS_HET_GROUP_{at}": str(part.job.total_slots) for at, part in enumerate(parts)}
    return {COMPONENT_SIZES: sizes, "SLURM_HET_SIZE": str(len(parts))} | tasks


def outside_batch(family: Family) -> dict[str, str]:
    """Return what keeps a launcher from taking the variables above for a batch system that starts its daemons."""
    if family is not Family.OPENMPI:
        return {"HYDRA_RMK": "user"} if family is Family.MPICH else {"I_MPI_HYDRA_RMK": "user"}
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_ras": "^slurm,tm,lsf",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_ras": "^slurm,pbs,lsf",
    }


def steps(job: MPIJob, family: Family, *, uid: str, directory: str, launcher: str) -> dict[str, str]:
    """Return all that a script and its steps are told; hostfile, wrapper and its part are the engine's."""
    return variables(job, uid=uid) | outside_batch(family) | {
        "MPIJOB_STEPS": directory,
        "MPIJOB_FAMILY": family.value,
        "MPIJOB_LAUNCHER": launcher,
    }  # fmt: skip


def modules(known: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the variable by which `module load` of a script finds what a name stands for: variables by module."""
    cases = "".join(f"{shlex.quote(name)}) {_exports(env)} ;; " for name, env in known.items())
    return {MODULES: f"mpijob_module() {{ case $1 in {cases}*) return 1 ;; esac; }}"} if cases else {}


def _exports(env: Mapping[str, str]) -> str:
    quoted = {name: re.sub(r'(["`\\\\]|\$(?![A-Za-z_{]))', r"\\\1", value) for name, value in env.items()}
    return "; ".join(f'export {name}="{value}"' for name, value in quoted.items()) or ":"


def modules_of(text: str) -> tuple[str, ...]:
    """Return the modules that a script loads by plain words."""
    found = (
        word for words in _LOADS.findall(text) for word in words.split() if not word.startswith(("-", "#"))
    )
    return tuple(dict.fromkeys(found))


def text(path: str) -> str:
    """Return one of the scripts, for a place that has none of our files."""
    with open(path, encoding="utf-8") as file:
        return file.read()
