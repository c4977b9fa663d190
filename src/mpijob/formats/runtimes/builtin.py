"""The runtimes that ship with mpijob, for TrainJobs that users write (kubectl, Kubeflow SDK).

Our own jobs have a runtime each (`trainjob`). MPICH and Intel MPI are MPIJob templates, because Trainer does not
support them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.errors import NotFound
from mpijob.formats.kubernetes import mpijob, pod_template, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape, escape_variables
from mpijob.formats.launch import launcher_script, own_launchers, runtime_scripts
from mpijob.model import Family, MPIJob, Resources
from mpijob.model.spec.enums import choice_hint

KIND = "ClusterTrainingRuntime"
FRAMEWORK_LABEL = "trainer.kubeflow.org/framework"
_MARK = "mpijob-runtime"
# The directory in which the Kubeflow SDK writes a job's function.
_SDK_HOME = "/home/mpiuser"
_OF_ONE_JOB = frozenset(
    {"MPIJOB_NAME", "MPIJOB_NAMESPACE", "MPIJOB_WORLD", "MPIJOB_USED", "MPIJOB_MOST", "MPIJOB_SLOTS"}
    | {"MPIJOB_GPUS", "MPIJOB_CENSUS_WORDS", "MPIJOB_DEVICES_PLANNED"}
)
_HELLO = ("/bin/sh", "-c", 'echo "rank $MPIJOB_RANK of $MPIJOB_WORLD on $(uname -n)"')


class Shipped(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime that ships; its image is a default, for clusters to replace."""

    name: str
    description: str
    image: str
    family: Family = Family.OPENMPI
    framework: str = "mpi"
    resources: Resources = Resources(cpu="1", memory="2Gi")
    env: Mapping[str, str] = {}

    @property
    def kind(self) -> str:
        """Its kind of object on a cluster."""
        return KIND if self.family is Family.OPENMPI else mpijob.KIND


_ONE_GPU = Resources(cpu="4", memory="16Gi", gpu=1)
SHIPPED = (
    Shipped(
        name="mpijob-openmpi",
        description="Open MPI 4 or 5 on CPUs",
        image="mpioperator/openmpi:latest",
    ),
    Shipped(
        name="mpijob-openmpi-gpu",
        description="Open MPI with one GPU for each rank",
        image="mpioperator/openmpi:latest",
        resources=_ONE_GPU,
    ),
    Shipped(
        name="mpijob-horovod",
        description="Horovod: data-parallel training, one GPU for each rank",
        image="horovod/horovod:0.28.1",
        framework="horovod",
        resources=_ONE_GPU,
        env={"HOROVOD_GPU_OPERATIONS": "NCCL", "NCCL_DEBUG": "WARN"},
    ),
    Shipped(
        name="mpijob-deepspeed",
        description="DeepSpeed whose ranks are started by MPI",
        image="deepspeed/deepspeed:latest",
        framework="deepspeed",
        resources=Resources(cpu="8", memory="64Gi", gpu=1),
        env={"NCCL_DEBUG": "WARN"},
    ),
    Shipped(
        name="mpijob-mpich",
        description="MPICH, as an MPIJob of the MPI Operator",
        image="mpioperator/mpich:latest",
        family=Family.MPICH,
    ),
    Shipped(
        name="mpijob-intel",
        description="Intel MPI, as an MPIJob of the MPI Operator",
        image="mpioperator/intel:latest",
        family=Family.INTEL,
    ),
)


def shipped(name: str) -> Shipped:
    """Return a shipped runtime by its name, with or without the prefix `mpijob-`."""
    for runtime in SHIPPED:
        if name in (runtime.name, runtime.name.removeprefix("mpijob-")):
            return runtime
    raise NotFound(
        f"there is no built-in runtime '{name}'",
        hint=choice_hint(name, [runtime.name for runtime in SHIPPED]),
    )


def document(runtime: Shipped, *, image: str = "", user: int | None = None, gpu_kind: str = "") -> Document:
    """Return the runtime, or the MPIJob template, as a Kubernetes object.

    `user` is the user ID of pods if the cluster assigns none, as in `well_known.Shape`.
    """
    resources = runtime.resources.replace(gpu_kind=gpu_kind) if gpu_kind else runtime.resources
    job = MPIJob(
        name=runtime.name,
        workers=2,
        image=image or runtime.image,
        command=_HELLO[:1],
        args=_HELLO[1:],
        description=runtime.description,
        env=runtime.env,
        resources=resources,
        launcher=resources if runtime.family is Family.OPENMPI else MPIJob(name="x").launcher,
    )
    shape = Shape(user=user, family=runtime.family, launcher_cores=0.0)
    if runtime.family is not Family.OPENMPI:
        (written,) = mpijob.write(job, shape)
        return written
    return _runtime(runtime, trainjob.write(job, shape)[0])


def _runtime(runtime: Shipped, written: Document) -> Document:
    """Return a job's runtime as one for any job, without that job's values."""
    labels = {FRAMEWORK_LABEL: runtime.framework, well_known.MANAGED_LABEL: well_known.MANAGED_BY}
    spec = written["spec"]
    # Only then does Trainer apply a TrainJob's resources and variables to the workers, too.
    spec["mlPolicy"]["mpi"]["runLauncherAsNode"] = True
    for part in spec["template"]["spec"]["replicatedJobs"]:
        _generalise(part["template"]["spec"]["template"], launching=part["name"] == "launcher")
    metadata = {
        "name": runtime.name,
        "labels": labels,
        "annotations": {f"{well_known.DOMAIN}/description": runtime.description},
    }
    return {"apiVersion": trainjob.API, "kind": KIND, "metadata": metadata, "spec": spec}


def _generalise(template: Document, *, launching: bool) -> None:
    ours = (well_known.JOB_LABEL, well_known.UID_LABEL, well_known.ATTEMPT_LABEL, well_known.OWNER_LABEL)
    labels = template["metadata"]["labels"]
    template["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in ours}
    first, main = template["spec"]["initContainers"][0], template["spec"]["containers"][0]
    main["env"] = [*(item for item in main["env"] if item["name"] not in _OF_ONE_JOB), *_from_pod()]
    main["volumeMounts"].append({"name": "mpijob-home", "mountPath": _SDK_HOME, "subPath": "work"})
    texts = escape_variables([runtime_scripts.agent(), runtime_scripts.LAUNCH, launcher_script.LAUNCHER])
    first["args"][2] = texts[0]
    if launching:
        first["command"][2] += escape_variables([runtime_scripts.OWN_NAME])[0]
        first["args"] += escape_variables([word for item in own_launchers.files().items() for word in item])
        first["env"] = _from_pod()
        main["command"] = ["/bin/sh", "-c", texts[1], _MARK, texts[2]]
        main["args"] = escape_variables(list(_HELLO))
        main["env"] = [item for item in main["env"] if item["name"] != "MPIJOB_NODE"] + _node()


def _from_pod() -> list[Document]:
    fields = {
        "MPIJOB_NAME": "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
        "MPIJOB_NAMESPACE": "metadata.namespace",
    }
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _node() -> list[Document]:
    return [{"name": "MPIJOB_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


def pod_specs(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod specs of a runtime's replicated jobs by name; missing fields are empty."""
    found = {}
    for part in replicated_jobs(runtime):
        template = ((part.get("template") or {}).get("spec") or {}).get("template") or {}
        found[str(part.get("name", ""))] = template.get("spec") or {}
    return found


def replicated_jobs(runtime: Mapping[str, Any]) -> list[Document]:
    template = (runtime.get("spec") or {}).get("template") or {}
    return list((template.get("spec") or {}).get("replicatedJobs") or ())


def is_ours(runtime: Mapping[str, Any]) -> bool:
    """Return whether a runtime's launcher runs our script, which starts a TrainJob's `args` as every rank."""
    launcher = pod_template.container_of(pod_specs(runtime).get("launcher") or {})
    return _MARK in (launcher.get("command") or ())


def is_of_one_job(runtime: Mapping[str, Any]) -> bool:
    """Return whether a runtime was written for one job of ours, and is deleted with it."""
    return well_known.JOB_LABEL in ((runtime.get("metadata") or {}).get("labels") or {})


def is_mpi(runtime: Mapping[str, Any]) -> bool:
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    return policy.get("mpi") is not None
