"""The pod templates of launcher and workers, for both engines.

An init container of the user's image writes a passwd file, the ssh configuration and the rank's script into an empty
volume, and the main container runs one of the scripts of `pod_scripts`. Pods meet the restricted Pod Security
Standard, and OpenShift's restricted-v2 if the `Shape` has no user ID and no capability. `pod_reader` is the inverse.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from itertools import starmap

from mpijob.errors import Finding, Severity
from mpijob.formats.kubernetes import placement, s3_sidecars, volumes
from mpijob.formats.kubernetes.metadata import well_known, worker_groups
from mpijob.formats.kubernetes.metadata.well_known import CONTAINER as CONTAINER
from mpijob.formats.kubernetes.metadata.well_known import HOME, Document, Order, Shape, escape_variables
from mpijob.formats.kubernetes.metadata.well_known import container_of as container_of
from mpijob.formats.launch import (
    batch_environment,
    command_line,
    hostfile,
    launcher_script,
    mpi_profile,
    own_launchers,
    pod_scripts,
)
from mpijob.model import Family, Launch, MPIJob, Resources, Role, VolumeKind
from mpijob.model.spec.command import launcher_of
from mpijob.model.spec.enums import FABRIC_DEVICES, MIG_PREFIX, PRIORITIES
from mpijob.model.spec.job import Part
from mpijob.model.spec.quantity import NONE, Amount

PREPARE_CONTAINER = "mpijob-prepare"
POD_ADDRESS = "MPIJOB_POD_IP"
# A placeholder that no user's word equals: arguments cannot contain NUL.
_ADDRESS = "\0address"
# A sidecar that never ends would keep a finished job running, and its proxy does not carry MPI's connections.
_ISTIO = "sidecar.istio.io/inject"
_DEVICES = {
    "nvidia.com/": "/dev/nvidia[0-9]*",
    "amd.com/": "/dev/dri/renderD*",
    "intel.com/": "/dev/dri/renderD*",
    "gpu.intel.com/": "/dev/dri/renderD*",
}


def template(
    job: MPIJob,
    shape: Shape,
    role: Role,
    *,
    order: Order = Order.READY,
    without: frozenset[str] = frozenset(),
) -> Document:
    """Return the pod template of the launcher or of a worker.

    `order` is what the launcher can rely on; variables in `without` are set by the engine itself.
    """
    files = _files(job, shape, role)
    return {"metadata": _metadata(job, shape, role), "spec": _spec(job, shape, role, order, without, files)}


def group_template(part: Part, shape: Shape, secret: str) -> Document:
    """Return the pod template of a group's worker; `secret` is the Secret with the job's key."""
    role, files = Role.WORKER, _files(part.job, shape, Role.WORKER) | {"group.sh": _group_script(part, shape)}
    spec = _spec(part.job, shape, role, Order.READY, frozenset(), files)
    # Trainer mounts the key only into the replicated jobs `node` and `launcher`.
    if part.group:
        spec["volumes"].append(volumes.ssh_key(secret))
        spec["containers"][0]["volumeMounts"].append(volumes.ssh_mount())
    metadata = _metadata(part.job, shape, role)
    metadata["labels"] |= {
        well_known.FIRST_LABEL: str(part.first),
        well_known.SLOTS_LABEL: str(part.job.slots),
        **({well_known.GROUP_LABEL: part.group} if part.group else {}),
    }
    return {"metadata": metadata, "spec": spec}


def _group_script(part: Part, shape: Shape) -> str:
    """Return a shell script with the variables that differ between groups; the rank script sources it."""
    group_variables = {"MPIJOB_SLOTS": str(part.job.slots)} | _gpus(part.job)
    group_variables |= {"MPIJOB_DEVICES_PLANNED": str(_devices(part.job, shape))}
    group_variables |= {command_line.GROUP: part.group} if part.group else {}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in group_variables.items())


def launch_words(job: MPIJob, shape: Shape) -> tuple[list[str], int]:
    """Return the launcher's arguments and how many of them are for the census only.

    The census runs the same launch line. If the user's command has a launcher of its own, it runs unchanged, and a
    line of ours for the census precedes it.
    """
    group_variables = launcher_of(job)
    if group_variables is None:
        return _escaped(_line(job, shape)), 0
    before = _line(job.replace(command=("true",), args=(), programs=()), shape) if job.census else ()
    words = ("/bin/sh", well_known.STEP, "script", *job.argv) if job.script else job.argv
    return _escaped((*before, *words)), len(before)


def notices(job: MPIJob, shape: Shape) -> Iterator[Finding]:
    """Yield notices about how the job runs in pods."""
    inline = any(volume.kind is VolumeKind.NFS for volume in job.volumes) and not shape.nfs_driver
    if inline:
        message = "NFS is mounted directly, which the restricted policy of many namespaces refuses"
        yield _notice("volumes", message, "use a volume claim, or a cluster with a CSI driver for NFS")
    if priority_class(job, shape) == "" and job.priority not in (0, "normal"):
        message = f"priority {job.priority} has no priority class on this cluster and has no effect"
        yield _notice("priority", message, "name a priority class of the cluster instead")
    others = (name for part in job.parts for name in part.job.resources.others)
    if any(name.startswith(FABRIC_DEVICES) for name in others) and not shape.ipc_lock:
        message = "RDMA needs locked memory (IPC_LOCK), which the restricted policy does not give"
        yield _notice("resources.others", message, "ask for a namespace that allows IPC_LOCK")


def _notice(field: str, message: str, hint: str) -> Finding:
    return Finding(code="CLUSTER_NOTICE", field=field, message=message, hint=hint, severity=Severity.NOTICE)


def priority_class(job: MPIJob, shape: Shape) -> str:
    """Return the pods' priority class: the named one, or the cluster's for a priority word; "" for none."""
    if str(job.priority) in shape.priority_classes:
        return shape.priority_classes[str(job.priority)]
    return job.priority if isinstance(job.priority, str) and job.priority not in PRIORITIES else ""


def _escaped(words: tuple[str, ...]) -> list[str]:
    return [f"$({POD_ADDRESS})" if word == _ADDRESS else escape_variables((word,))[0] for word in words]


def _line(job: MPIJob, shape: Shape) -> tuple[str, ...]:
    family = shape.family
    return command_line.line(
        family,
        job,
        launcher="mpirun",
        hostfile=_hostfile(job),
        agent=well_known.AGENT,
        shim=("/bin/sh", well_known.SHIM),
        names=sorted(
            {*_for_ranks(job, shape), *(secret.env for secret in job.secrets), "PATH", "MPIJOB_CENSUS"}
        ),
        address="" if family is Family.OPENMPI else _ADDRESS,
        tagged=True,
    )


def _hostfile(job: MPIJob) -> str:
    return well_known.GROUPS_HOSTFILE if job.groups else well_known.HOSTFILE


def _metadata(job: MPIJob, shape: Shape, role: Role) -> Document:
    labels = well_known.labels(job, shape) | {
        well_known.ROLE_LABEL: role.value,
        _ISTIO: "false",
        "istio.io/dataplane-mode": "none",
    }
    annotations = {_ISTIO: "false", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    annotations |= placement.pod_annotations(job, shape, role)
    if job.network.attachments:
        annotations["k8s.v1.cni.cncf.io/networks"] = ", ".join(job.network.attachments)
    if job.owner:
        annotations[well_known.OWNER_LABEL] = job.owner
    return {"labels": labels, "annotations": annotations}


def _spec(
    job: MPIJob,
    shape: Shape,
    role: Role,
    order: Order,
    without: frozenset[str],
    files: Mapping[str, str],
) -> Document:
    plain = _container_security(shape, main=False)
    storing = s3_sidecars.STORING_SECONDS if s3_sidecars.stores(job) and role is Role.WORKER else 0
    spec: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(job.signal.seconds_before + job.grace_seconds) + storing,
        "securityContext": _pod_security(shape),
        "initContainers": [_prepare(job, shape, role, files), *s3_sidecars.fetching(job, shape, plain)],
        "containers": [
            _container(job, shape, role, order, without),
            *s3_sidecars.keeping(job, shape, role, plain),
        ],
        "volumes": [
            {"name": "mpijob-home", "emptyDir": {}},
            *_code_volume(shape),
            *_profiler_volume(shape, role),
            *volumes.volumes(job, shape),
        ],
    }
    if shape.service_account:
        spec["serviceAccountName"] = shape.service_account
    if job.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in job.pull_secrets]
    if name := priority_class(job, shape):
        spec["priorityClassName"] = name
    if scheduler := shape.scheduler or well_known.SCHEDULERS.get(shape.gang, ""):
        # A pod group counts only pods that its own scheduler has placed.
        spec["schedulerName"] = scheduler
    return spec | placement.pod_fields(job, shape, role)


def _pod_security(shape: Shape) -> Document:
    restricted: Document = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if shape.user is not None:
        restricted |= {"runAsUser": shape.user, "runAsGroup": 0, "fsGroup": shape.user}
    return restricted


def _container_security(shape: Shape, *, main: bool) -> Document:
    capabilities: Document = {"drop": ["ALL"]}
    if shape.ipc_lock and main:
        capabilities["add"] = ["IPC_LOCK"]
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def _image(job: MPIJob, shape: Shape, role: Role) -> str:
    image = shape.launcher_image if role is Role.LAUNCHER and shape.launcher_image else job.image
    if not image:
        raise well_known.refuse(
            "image",
            "the job sets no image, which a cluster requires",
            "for example: image: my/mpi:1",
        )
    return image


def _prepare(job: MPIJob, shape: Shape, role: Role, files: Mapping[str, str]) -> Document:
    init_args = [pod_scripts.sshd_config(), pod_scripts.ssh_config(), pod_scripts.agent(), pod_scripts.RANK]
    init_args += [word for name, text in files.items() for word in (name, text)]
    container: Document = {
        "name": PREPARE_CONTAINER,
        "image": _image(job, shape, role),
        "command": ["/bin/sh", "-c", escape_variables([pod_scripts.PREPARE])[0], "mpijob-prepare"],
        "args": escape_variables(init_args),
        "securityContext": _container_security(shape, main=False),
        "resources": _resources(_without_devices(_resources_of(job, role)), cores=_cores(shape, role)),
        "volumeMounts": [{"name": "mpijob-home", "mountPath": HOME}],
    }
    if job.pull_policy:
        container["imagePullPolicy"] = job.pull_policy
    if shape.code:
        container["volumeMounts"].append(
            {"name": well_known.CODE_VOLUME, "mountPath": well_known.CODE, "readOnly": True}
        )
    return container


def _files(job: MPIJob, shape: Shape, role: Role) -> dict[str, str]:
    """Return additional files of a pod's home, by path."""
    files = {"python/sitecustomize.py": shape.python} if shape.python else {}
    if job.script:
        files["step.sh"] = batch_environment.text(batch_environment.STEP)
        files["step_rank.sh"] = batch_environment.text(batch_environment.STEP_RANK)
    if shape.profiler and role is Role.WORKER:
        files["profile.sh"] = mpi_profile.text()
    if role is Role.LAUNCHER and launcher_of(job) is not None:
        files |= own_launchers.files()
    return files


def _profiler_mount(shape: Shape) -> list[Document]:
    mount = {"name": "mpijob-profiler", "mountPath": well_known.PROFILER, "readOnly": True}
    return [mount] if shape.profiler else []


def _profiler_volume(shape: Shape, role: Role) -> list[Document]:
    if not shape.profiler or role is not Role.WORKER:
        return []
    return [{"name": "mpijob-profiler", "configMap": {"name": shape.profiler}}]


def _code_volume(shape: Shape) -> list[Document]:
    if not shape.code:
        return []
    if shape.code_parts == 1:
        return [{"name": well_known.CODE_VOLUME, "configMap": {"name": shape.code}}]
    names = well_known.code_parts(shape.code, shape.code_parts)
    sources = [
        {"configMap": {"name": name, "items": [{"key": "archive", "path": f"archive.{at:02}"}]}}
        for at, name in enumerate(names)
    ]
    return [{"name": well_known.CODE_VOLUME, "projected": {"sources": sources}}]


def _container(job: MPIJob, shape: Shape, role: Role, order: Order, without: frozenset[str]) -> Document:
    launching = role is Role.LAUNCHER
    text = launcher_script.LAUNCHER if launching else pod_scripts.WORKER
    variables = _launcher_env(job, shape, order) if launching else _worker_env(job)
    # Each name once: the user's values win.
    given = without | {secret.env for secret in job.secrets}
    container: Document = {
        "name": CONTAINER,
        "image": _image(job, shape, role),
        "command": ["/bin/sh", "-c", escape_variables([text])[0], f"mpijob-{role.value}"],
        "env": [*_values(variables, given), *_secrets(job, shape), *_from_pod(launching)],
        "securityContext": _container_security(shape, main=True),
        "resources": _resources(_resources_of(job, role), cores=_cores(shape, role)),
        "volumeMounts": [
            {"name": "mpijob-home", "mountPath": HOME},
            {"name": "mpijob-home", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
            *volumes.mounts(job),
        ],
    }
    if job.pull_policy:
        container["imagePullPolicy"] = job.pull_policy
    if shape.code:
        container["workingDir"] = well_known.WORK
    if not launching:
        container |= _sshd_port()
        container["volumeMounts"] += _profiler_mount(shape)
    if job.signal.seconds_before > 0:
        container["lifecycle"] = _pre_stop(job, launching)
    return container


def _sshd_port() -> Document:
    # Not a readiness probe, which would open a connection every few seconds for the job's whole time: sshd starts a
    # process for each.
    probe = {"tcpSocket": {"port": well_known.SSH_PORT}, "periodSeconds": 1, "failureThreshold": 120}
    return {"ports": [{"name": "ssh", "containerPort": well_known.SSH_PORT}], "startupProbe": probe}


def _pre_stop(job: MPIJob, launching: bool) -> Document:
    # Workers signal their ranks. The launcher only waits (signal 0), because its end would kill the ranks at once.
    signal = "0" if launching else job.signal.name.removeprefix("SIG")
    seconds = str(math.ceil(job.signal.seconds_before))
    return {
        "preStop": {"exec": {"command": ["/bin/sh", "-c", pod_scripts.STOP, "mpijob-stop", signal, seconds]}}
    }


def _resources_of(job: MPIJob, role: Role) -> Resources:
    return job.launcher if role is Role.LAUNCHER else job.resources


def _without_devices(resources: Resources) -> Resources:
    return Resources(cpu=resources.cpu, memory=resources.memory)


def _cores(shape: Shape, role: Role) -> float:
    # A throttled launcher would start a large world slowly; afterwards it needs little.
    return shape.launcher_cores if role is Role.LAUNCHER else 0.0


def _resources(resources: Resources, *, cores: float = 0.0) -> Document:
    """Return requests and limits; `cores` is a CPU limit above the request."""
    asked = {"cpu": resources.cpu, "memory": resources.memory}
    amounts = {name: quantity(amount) for name, amount in asked.items() if amount != NONE}
    if resources.gpu:
        amounts[resources.gpu_kind] = str(resources.gpu)
    amounts |= {name: quantity(amount) for name, amount in resources.others.items()}
    limits = amounts | ({"cpu": quantity(cores)} if _is_less(resources, cores) else {})
    return {"requests": amounts, "limits": limits}


def _is_less(resources: Resources, cores: float) -> bool:
    try:
        return resources.cores < cores
    except ValueError:
        # A malformed amount is written unchanged; `checks` reports it.
        return False


def quantity(amount: Amount) -> str:
    """Return an amount in Kubernetes' syntax."""
    if isinstance(amount, float):
        return f"{amount:.9f}".rstrip("0").rstrip(".")
    return str(amount)


def _values(variables: Mapping[str, str], without: frozenset[str]) -> list[Document]:
    kept = {name: value for name, value in variables.items() if name not in without}
    return [{"name": name, "value": escape_variables((value,))[0]} for name, value in kept.items()]


def _secrets(job: MPIJob, shape: Shape) -> list[Document]:
    return [
        {
            "name": secret.env,
            "valueFrom": {
                "secretKeyRef": _secret_key(well_known.secret_name(job, shape), secret.env, secret.source)
            },
        }
        for secret in job.secrets
    ]


def _secret_key(ours: str, variable: str, source: str) -> Document:
    if source.startswith(("env:", "file:")):
        return {"name": ours, "key": variable}
    name, _, key = source.partition("/")
    return {"name": name, "key": key}


def _from_pod(launching: bool) -> list[Document]:
    name, path = (POD_ADDRESS, "status.podIP") if launching else ("MPIJOB_NODE", "spec.nodeName")
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}]


def _worker_env(job: MPIJob) -> dict[str, str]:
    return {"HOME": HOME} | dict(job.env)


def _for_ranks(job: MPIJob, shape: Shape) -> dict[str, str]:
    """Return the variables for every rank, except secrets."""
    ours = {"MPIJOB_SLOTS": str(job.slots), "MPIJOB_ATTEMPT": str(shape.attempt)} | _gpus(job)
    if job.launch.stdin:
        ours["MPIJOB_STDIN"] = job.launch.stdin
    family = command_line.in_pods(shape.family) | dict(
        command_line.settings_as_variables(shape.family, job.launch)
    )
    return command_line.job_variables(job) | ours | family | dict(job.env)


def _gpus(job: MPIJob) -> dict[str, str]:
    """Return the variables about a worker's GPUs. In a job with groups each worker has its own (`group.sh`)."""
    kind = job.resources.gpu_kind
    devices = next((path for name, path in _DEVICES.items() if kind.startswith(name)), "")
    return {"MPIJOB_GPUS": str(job.resources.gpu), "MPIJOB_DEVICES": devices if job.resources.gpu else ""}


def _devices(job: MPIJob, shape: Shape) -> int:
    """Return the least number of devices that a rank must see in the census."""
    # A node may offer several MIG slices of one device.
    gpus, kind = job.resources.gpu, job.resources.gpu_kind
    whole = gpus if not kind.startswith(MIG_PREFIX) else min(gpus, 1)
    return whole if shape.prove_gpus else 0


def _launcher_env(job: MPIJob, shape: Shape, order: Order) -> dict[str, str]:
    family = shape.family
    start = command_line.variables(family, hostfile=_hostfile(job), agent=well_known.AGENT, slots=job.slots)
    start |= (
        command_line.keepalive(family) | command_line.unbound(family, job.launch) | _census_plan(job, shape)
    )
    start |= {"MPIJOB_ORDER": order.value, "MPIJOB_PATIENCE": str(math.ceil(job.gang_timeout_seconds))}
    if job.script:
        start |= batch_environment.steps(
            job, family, uid=shape.uid, directory=f"{HOME}/steps", launcher="mpirun"
        )
        start |= {"MPIJOB_HOSTFILE": _hostfile(job), "MPIJOB_SHIM": well_known.SHIM}
        start |= batch_environment.modules(shape.modules)
    if job.groups:
        start |= {"MPIJOB_HOSTFILE": _hostfile(job), "MPIJOB_GROUPS": _groups(job)}
    if job.elastic is not None:
        start[command_line.DISCOVER] = well_known.DISCOVERY
    if job.keep_on_failure_seconds > 0:
        start["MPIJOB_KEEP"] = str(math.ceil(job.keep_on_failure_seconds))
    return {"HOME": HOME} | start | _for_ranks(job, shape)


def _census_plan(job: MPIJob, shape: Shape) -> dict[str, str]:
    """Return the plan for the census; 0 if only the MPI library knows where ranks go."""
    placed = () if _has_own_mapping(job.launch) else hostfile.rank_counts(job)
    _, words = launch_words(job, shape)
    return {
        "MPIJOB_PROVE": "1" if job.census else "0",
        "MPIJOB_CENSUS_WORDS": str(words),
        "MPIJOB_USED": str(sum(workers for ranks, workers in placed if ranks)),
        "MPIJOB_MOST": str(max((ranks for ranks, _ in placed), default=0)),
        "MPIJOB_DEVICES_PLANNED": str(0 if job.groups else _devices(job, shape)),
    } | ({"MPIJOB_RANKS_PLANNED": " ".join(starmap("{}:{}".format, placed))} if job.groups and placed else {})


def _groups(job: MPIJob) -> str:
    """Return the groups as `NAME:WORKERS:SLOTS`, from which the launcher writes its hostfile."""
    return " ".join(f"{one.replicated_job}:{one.number}:{one.slots}" for one in worker_groups.of(job))


def _has_own_mapping(launch: Launch) -> bool:
    """Whether the user's settings or flags decide where ranks go."""
    return bool(launch.rankfile or launch.flags or any("rmaps" in key for key in launch.settings))
