"""What a script finds in its environment: the job and its workers, in the words of Slurm, PBS and LSF.

The same variables on one machine and on a cluster. The programs that a script calls (`srun`, `scontrol`, …) are in
`scripts/step.sh`, under the names of `PROGRAMS`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

from mpijob.model import Family, MPIJob

STEP = os.path.join(os.path.dirname(__file__), "scripts", "step.sh")
PROGRAMS = (
    "mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun", "prterun", "mpirun.mpich", "mpiexec.mpich",
    "mpiexec.hydra", "mpirun.hydra", "srun", "aprun", "ibrun", "prun", "scontrol", "squeue", "scancel", "sacct",
    "sbatch", "qsub", "bsub", "salloc", "module", "ml", "hostname",
)  # fmt: skip


def job_number(uid: str) -> int:
    """Return a number for a job, for scripts that count with the one that a batch system gives."""
    return 1_000_000 + zlib.crc32(uid.encode()) % 9_000_000


def variables(job: MPIJob, *, uid: str, workers: Sequence[str], nodefile: str) -> dict[str, str]:
    """Return the variables of a batch system, but for the directory, which only the engine knows."""
    number, count = str(job_number(uid)), len(workers)
    tasks, cores = job.slots, job.slots * job.cores_per_rank
    nodelist = compact(workers)
    return {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": nodelist,
        "SLURM_NODELIST": nodelist,
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_NNODES": str(count),
        "SLURM_NTASKS": str(job.world),
        "SLURM_NPROCS": str(job.world),
        "SLURM_NTASKS_PER_NODE": str(tasks),
        "SLURM_TASKS_PER_NODE": f"{tasks}(x{count})" if count > 1 else str(tasks),
        "SLURM_CPUS_PER_TASK": str(job.cores_per_rank),
        "SLURM_CPUS_ON_NODE": str(cores),
        "SLURM_JOB_CPUS_PER_NODE": f"{cores}(x{count})" if count > 1 else str(cores),
        "SLURM_JOB_PARTITION": job.queue or "default",
        "SLURM_CLUSTER_NAME": "mpijob",
        "SLURMD_NODENAME": workers[0],
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "PBS_JOBID": f"{number}.mpijob",
        "PBS_JOBNAME": job.name,
        "PBS_QUEUE": job.queue or "default",
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "PBS_NODEFILE": nodefile,
        "PBS_NUM_NODES": str(count),
        "PBS_NUM_PPN": str(tasks),
        "PBS_NP": str(job.world),
        "NCPUS": str(cores),
        "LSB_JOBID": number,
        "LSB_JOBNAME": job.name,
        "LSB_DJOB_HOSTFILE": nodefile,
        "LSB_DJOB_NUMPROC": str(job.world),
        "LSB_HOSTS": " ".join(name for name in workers for _ in range(tasks)),
        "LSB_MCPU_HOSTS": " ".join(f"{name} {tasks}" for name in workers),
    } | ({"SLURM_GPUS_ON_NODE": str(job.resources.gpu)} if job.resources.gpu else {})


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


def directory(path: str) -> dict[str, str]:
    """Return where a script was submitted from: its working directory."""
    return {"SLURM_SUBMIT_DIR": path, "PBS_O_WORKDIR": path, "LS_SUBCWD": path}


def nodefile(workers: Sequence[str], slots: int) -> str:
    """Return the file of hosts that PBS gives: one line for each rank."""
    return "".join(f"{name}\n" for name in workers for _ in range(slots))


def compact(names: Sequence[str]) -> str:
    """Return hosts as Slurm lists them: `train-worker-[0-3]`."""
    heads = {name.rpartition("-")[0] for name in names}
    numbers = [name.rpartition("-")[2] for name in names]
    if len(names) < 2 or len(heads) > 1 or not all(number.isdigit() for number in numbers):
        return ",".join(names)
    return f"{heads.pop()}-[{numbers[0]}-{numbers[-1]}]"
