"""TrainJobs whose runtime has no launcher: Trainer starts the command on each node (torch, JAX, XGBoost, Flux).

Here every worker runs the command as one rank, with the variables that Trainer would set; the first worker's address
is looked up when the rank starts. Flux starts the command as tasks of one MPI world, which become ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mpijob.formats.convert.report import Notes
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata.well_known import container_of
from mpijob.formats.kubernetes.pod_reader import from_pods
from mpijob.formats.status.nested_fields import is_gpu
from mpijob.model import MPIJob
from mpijob.model.spec.quantity import NONE

FRAMEWORKS = ("mpi", "torch", "flux", "jax", "xgboost")
# A runtime without a framework: its nodes do not know each other.
PLAIN = "plain"
_SHIPPED = {
    "deepspeed": "mpi",
    "mlx": "mpi",
    "mpi": "mpi",
    "torch": "torch",
    "jax": "jax",
    "xgboost": "xgboost",
}
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_PORT = "29500"
# MPIJOB_WORKER is set on one machine only; a pod's name ends with its worker's number.
_FIRST_WORKER = """\
worker=${MPIJOB_WORKER:-} first=127.0.0.1
if [ -z "$worker" ]; then
  host=$(uname -n)
  worker=${host##*-} host=${host%-*}
  first=$host-0 host=${host%-worker}
  first=$first.${host%-node-0}
fi
"""
_EXPORTS = {
    "torch": 'export PET_NODE_RANK="$worker" PET_MASTER_ADDR="$first"\n',
    "jax": f'export JAX_PROCESS_ID="$worker" JAX_COORDINATOR_ADDRESS="$first:{_PORT}"\n',
    "xgboost": 'export DMLC_TASK_ID="$worker" DMLC_TRACKER_URI="$first"\n',
}


def framework(document: Mapping[str, Any], runtime: Mapping[str, Any] | None) -> str:
    """Return the runtime's framework: one of FRAMEWORKS, PLAIN, or "" if the runtime is unknown."""
    if runtime is not None:
        policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
        return next((name for name in FRAMEWORKS if name in policy), PLAIN)
    name = str((document["spec"].get("runtimeRef") or {}).get("name", ""))
    return next((found for prefix, found in _SHIPPED.items() if name.startswith(prefix)), "")


def on_every_node(
    job: MPIJob, document: Mapping[str, Any], runtime: Mapping[str, Any] | None, name: str, notes: Notes
) -> MPIJob:
    """Return the job in which every worker runs the command, with the framework's variables."""
    trainer = document["spec"].get("trainer") or {}
    pod = trainer_pod(runtime, trainer)
    job = job.replace(**from_pods(pod, pod) | {"launcher": MPIJob(name="x").launcher, "slots": 1})
    if job.argv[:2] == ("tune", "run"):
        note = "Trainer adds the torchtune recipe and its settings to the command when the job starts"
        notes.dropped("spec.trainer.command", "tune run", note, "write the whole command", blocks=True)
        return job
    if name == "flux":
        policy = ((runtime or {"spec": {}})["spec"].get("mlPolicy") or {}).get("flux") or {}
        return job.replace(slots=int(trainer.get("numProcPerNode") or policy.get("numProcPerNode") or 1))
    if name not in _EXPORTS or not job.argv:
        return job
    text = _FIRST_WORKER + _EXPORTS[name] + 'exec "$@"'
    words = ("sh", "-c", text, name, *job.argv)
    return job.replace(command=words, args=(), env=dict(job.env) | _variables(job, name, trainer, runtime))


def _variables(
    job: MPIJob, name: str, trainer: Mapping[str, Any], runtime: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return a framework's variables that are the same on every node."""
    if name == "jax":
        return {"JAX_NUM_PROCESSES": str(job.workers)}
    gpus = job.resources.gpu if is_gpu(job.resources.gpu_kind) else 0
    if name == "xgboost":
        return {"DMLC_NUM_WORKER": str(job.workers * max(1, gpus)), "DMLC_TRACKER_PORT": _PORT}
    policy = ((runtime or {"spec": {}})["spec"].get("mlPolicy") or {}).get("torch") or {}
    processes = trainer.get("numProcPerNode") or policy.get("numProcPerNode") or "auto"
    if processes == "auto" and not gpus:
        processes = 1 if job.resources.cpu == NONE else max(1, int(job.resources.cores))
    return {"PET_NNODES": str(job.workers), "PET_NPROC_PER_NODE": str(processes), "PET_MASTER_PORT": _PORT}


def trainer_pod(runtime: Mapping[str, Any] | None, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's pod as Trainer completes it from the TrainJob."""
    pod = copy.deepcopy(dict((_template(runtime).get("spec")) or {})) or {"containers": [{"name": "node"}]}
    main: Any = container_of(pod)
    for field in ("image", "command", "args"):
        if trainer.get(field):
            main[field] = trainer[field]
    if trainer.get("resourcesPerNode"):
        main["resources"] = trainer["resourcesPerNode"]
    variables = {one.get("name"): one for one in [*(main.get("env") or ()), *(trainer.get("env") or ())]}
    main["env"] = [*variables.values()]
    return pod


def _template(runtime: Mapping[str, Any] | None) -> Mapping[str, Any]:
    templates = trainjob.pod_templates(runtime)
    step = trainer_step(runtime)
    found: Mapping[str, Any] = templates.get(step) or {}
    return found


def trainer_step(runtime: Mapping[str, Any] | None) -> str:
    """Return the name of the replicated job that Trainer completes from the TrainJob."""
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"] if runtime else ()
    labelled = (
        job["name"]
        for job in jobs
        if ((job["template"].get("metadata") or {}).get("labels") or {}).get(STEP_LABEL) == "trainer"
    )
    return next(labelled, "node")
