"""Known problems in Trainer's MPI runtimes, each with the change that fixes it.

They were found in the sources of Trainer and JobSet. Most are silent: an affected job ends `Complete`, or hangs. The
shipped runtimes have none (see the tests).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mpijob.errors import Finding
from mpijob.formats.kubernetes import pod_template
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin
from mpijob.formats.runtimes.lint_findings import (
    ERROR,
    NOTICE,
    WARNING,
    deadlock,
    early_launcher,
    finding,
    in_order,
    silent_retries,
    unlisted_hosts,
    unproved_workers,
)

_STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_ISTIO = "sidecar.istio.io/inject"
_JOBS = "spec.template.spec.replicatedJobs"
_HOMELESS = ("", "/root/.ssh")
# The sshd in these images has a file capability.
_CAPABLE_IMAGES = ("mpioperator/",)
Rule = Callable[[Mapping[str, Any]], Iterator[Finding]]


def lint(runtime: Mapping[str, Any], *, openshift: bool = False) -> tuple[Finding, ...]:
    """Return the problems in a (Cluster)TrainingRuntime, the most severe first; none if it is not for MPI."""
    if not builtin.is_mpi(runtime):
        return ()
    found = [one for rule in RULES for one in rule(runtime)]
    found += _fixed_user(runtime, openshift)
    return in_order(found)


def _policy(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((runtime.get("spec") or {}).get("mlPolicy") or {}).get("mpi") or {}


def _jobset(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    return ((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}


def _part(runtime: Mapping[str, Any], name: str) -> Document | None:
    return next((job for job in builtin.replicated_jobs(runtime) if job.get("name") == name), None)


def _main(runtime: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return pod_template.container_of(builtin.pod_specs(runtime).get(name) or {})


def _labels(part: Mapping[str, Any]) -> Mapping[str, str]:
    return (((part.get("template") or {}).get("metadata")) or {}).get("labels") or {}


def _parts(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    """Replicated jobs and containers have the names that Trainer's MPI plugin uses."""
    for name in ("launcher", "node"):
        if _part(runtime, name) is None:
            message = f"there is no replicated job '{name}': Trainer mounts no SSH keys and no hostfile"
            yield finding("RUNTIME_CONTAINER", ERROR, message, f"call the part '{name}'", _JOBS)
            continue
        names = [
            container.get("name") for container in (builtin.pod_specs(runtime)[name].get("containers") or ())
        ]
        if pod_template.CONTAINER not in names:
            called = ", ".join(map(str, names)) or "nothing"
            message = f"the container of '{name}' is called {called}: Trainer ignores it"
            yield finding(
                "RUNTIME_CONTAINER", ERROR, message, "call it 'node', in the launcher too", f"{_JOBS}[{name}]"
            )


# Trainer applies a runtime's numNodes to the replicated job with the trainer label, which is the launcher; the number
# of workers follows the TrainJob's numNodes only.
def _nodes(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    number = ((runtime.get("spec") or {}).get("mlPolicy") or {}).get("numNodes") or 1
    if int(number) > 1:
        message = f"numNodes is {number}: a TrainJob without numNodes gets {number} launchers and 1 worker"
        hint = "set spec.mlPolicy.numNodes to 1, and the number in every TrainJob (spec.trainer.numNodes)"
        yield finding("RUNTIME_NODES", ERROR, message, hint, "spec.mlPolicy.numNodes")


def _implementation(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    named = _policy(runtime).get("mpiImplementation", "OpenMPI")
    if named != "OpenMPI":
        message = (
            f"mpiImplementation is '{named}': Trainer starts Open MPI only, and reports it only as an event"
        )
        hint = "set OpenMPI; MPICH and Intel MPI are run by the MPI Operator (mpi: mpich in a job of mpijob)"
        yield finding("RUNTIME_MPI", ERROR, message, hint, "spec.mlPolicy.mpi.mpiImplementation")


# Trainer sets image, command and arguments of the replicated jobs with this label (trainer#2825).
def _step(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    marked = [
        job.get("name")
        for job in builtin.replicated_jobs(runtime)
        if _labels(job).get(_STEP_LABEL) == "trainer"
    ]
    if "node" in marked:
        message = "the workers carry the label of the trainer step: a TrainJob's command replaces their sshd"
        yield finding(
            "RUNTIME_STEP", ERROR, message, f"leave {_STEP_LABEL} on the launcher alone", f"{_JOBS}[node]"
        )
    if "launcher" not in marked and _part(runtime, "launcher") is not None:
        message = (
            "the launcher does not carry the label of the trainer step: a TrainJob's command has no effect"
        )
        yield finding(
            "RUNTIME_STEP", ERROR, message, f"label its job {_STEP_LABEL}: trainer", f"{_JOBS}[launcher]"
        )


# A TrainJob's image does not reach the workers, which do not have the label (trainer#4030).
def _image(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    worker, launcher = (str(_main(runtime, name).get("image", "")) for name in ("node", "launcher"))
    if worker and launcher and worker != launcher:
        message = f"the launcher runs {launcher} and the workers {worker}: their MPI libraries may differ"
        yield finding(
            "RUNTIME_IMAGE", WARNING, message, "use one image, by digest, in both", f"{_JOBS}[node]"
        )
    elif worker:
        message = f"a TrainJob's own image reaches the launcher only: the workers keep {worker}"
        hint = "make one runtime for each image; a job of mpijob has its own"
        yield finding("RUNTIME_IMAGE", NOTICE, message, hint, "spec.trainer.image")


def _retries(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    part = _part(runtime, "launcher")
    if part is None:
        return
    job = (part.get("template") or {}).get("spec") or {}
    # JobSet's default for pods is OnFailure, Kubernetes' default backoffLimit is 6.
    restart = builtin.pod_specs(runtime)["launcher"].get("restartPolicy") or "OnFailure"
    limit = job.get("backoffLimit", 6)
    if restart != "Never" or limit != 0:
        hint = "set restartPolicy: Never and backoffLimit: 0 for the launcher"
        yield silent_retries(restart, limit, hint, f"{_JOBS}[launcher].template.spec")


# Both gang plugins of Trainer count the launcher in the gang (like mpi-operator#608).
def _gang(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    policy = (runtime.get("spec") or {}).get("podGroupPolicy")
    part = _part(runtime, "launcher") or {}
    if policy and part.get("dependsOn"):
        hint = "remove dependsOn and let the launcher wait for the workers, or use Kueue for gang scheduling"
        yield deadlock(hint, "spec.podGroupPolicy")


def _order(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    parts = builtin.replicated_jobs(runtime)
    launcher = _part(runtime, "launcher")
    if launcher is None or _part(runtime, "node") is None:
        return
    if parts[0].get("dependsOn"):
        message = f"'{parts[0].get('name')}' is the first part and depends on another: JobSet refuses that"
        yield finding("RUNTIME_ORDER", ERROR, message, "put 'node' before 'launcher'", _JOBS)
    if not launcher.get("dependsOn"):
        if not (runtime.get("spec") or {}).get("podGroupPolicy") and not builtin.is_ours(runtime):
            yield early_launcher("add dependsOn: [{name: node, status: Ready}]", f"{_JOBS}[launcher]")
    elif not ({"readinessProbe", "startupProbe"} & set(_main(runtime, "node"))):
        yield unproved_workers(f"{_JOBS}[node]")


def _names(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    network = _jobset(runtime).get("network") or {}
    for field in ("publishNotReadyAddresses", "enableDNSHostnames"):
        if network.get(field) is False:
            message = (
                f"network.{field} is false: launcher and workers cannot resolve each other while they start"
            )
            yield finding(
                "RUNTIME_NAMES", ERROR, message, "set it to true", f"spec.template.spec.network.{field}"
            )


def _success(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    policy = _jobset(runtime).get("successPolicy") or {}
    if "launcher" not in (policy.get("targetReplicatedJobs") or ()):
        message = "the job ends only when the workers' sshd exits, which it never does"
        hint = "set successPolicy: {operator: All, targetReplicatedJobs: [launcher]}"
        yield finding("RUNTIME_SUCCESS", ERROR, message, hint, "spec.template.spec.successPolicy")


# Without a hostfile Open MPI 5 starts every rank on the launcher, and the job succeeds (trainer#4028).
def _hostfile(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    found = unlisted_hosts(_main(runtime, "launcher"), f"{_JOBS}[launcher]")
    yield from () if found is None else (found,)


# Trainer applies a TrainJob's resources and variables to the labelled job, and to `node` only with runLauncherAsNode.
def _sharing(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    if not _policy(runtime).get("runLauncherAsNode"):
        message = (
            "resources and variables of a TrainJob reach the launcher only: the workers keep the runtime's"
        )
        hint = "set runLauncherAsNode: true, or set those of the workers in the runtime"
        yield finding("RUNTIME_SHARE", WARNING, message, hint, "spec.mlPolicy.mpi.runLauncherAsNode")


def _users(runtime: Mapping[str, Any], name: str) -> tuple[bool, int | None]:
    """Return whether a replicated job runs as a non-root user, and its user ID if that is set."""
    pod = builtin.pod_specs(runtime).get(name) or {}
    security_context = dict(pod.get("securityContext") or {}) | dict(
        _main(runtime, name).get("securityContext") or {}
    )
    user = security_context.get("runAsUser")
    return bool(user or security_context.get("runAsNonRoot")), user


def _keys(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    ordinary, _ = _users(runtime, "node")
    place = str(_policy(runtime).get("sshAuthMountPath") or "")
    field = "spec.mlPolicy.mpi.sshAuthMountPath"
    if ordinary and place in _HOMELESS:
        message = "the job's ssh keys are mounted in /root/.ssh, which the pods' user may not enter"
        yield finding(
            "RUNTIME_KEYS", ERROR, message, "set sshAuthMountPath to a place that the user may read", field
        )
    if not ordinary and _part(runtime, "node") is not None:
        message = "sshd runs as root: ssh refuses a key that others may read, and restricted namespaces refuse the pod"
        hint = f"run as an ordinary user (runAsNonRoot: true), sshd on port {well_known.SSH_PORT}"
        yield finding("RUNTIME_SSHD", WARNING, message, hint, f"{_JOBS}[node].securityContext")


def _sshd(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    main = _main(runtime, "node")
    dropped = (((main.get("securityContext") or {}).get("capabilities")) or {}).get("drop") or ()
    words = [str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ()))]
    plain = any(word.endswith("/sshd") for word in words)
    if plain and "ALL" in dropped and str(main.get("image", "")).startswith(_CAPABLE_IMAGES):
        message = (
            "sshd of this image carries a file capability: it cannot start where all capabilities are dropped"
        )
        hint = "use an image without setcap on sshd, or start a copy of it (cp /usr/sbin/sshd ~/sshd)"
        yield finding("RUNTIME_SSHD", ERROR, message, hint, f"{_JOBS}[node].image")
    ports = {port.get("containerPort") for port in main.get("ports") or ()}
    if 22 in ports:
        message = "sshd listens on port 22, which a non-root user cannot bind"
        yield finding(
            "RUNTIME_SSHD",
            WARNING,
            message,
            f"use port {well_known.SSH_PORT} on both sides",
            f"{_JOBS}[node].ports",
        )


def _mesh(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    for part in builtin.replicated_jobs(runtime):
        template = ((part.get("template") or {}).get("spec") or {}).get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        if labels.get(_ISTIO) != "false":
            message = f"'{part.get('name')}' may get an Istio sidecar, through which MPI does not work"
            yield finding(
                "RUNTIME_MESH",
                NOTICE,
                message,
                f'label its pods {_ISTIO}: "false"',
                f"{_JOBS}[{part.get('name')}]",
            )


def _label(runtime: Mapping[str, Any]) -> Iterator[Finding]:
    labels = (runtime.get("metadata") or {}).get("labels") or {}
    if builtin.FRAMEWORK_LABEL not in labels:
        message = f"it has no label {builtin.FRAMEWORK_LABEL}: the Kubeflow SDK ignores it"
        yield finding(
            "RUNTIME_LABEL", WARNING, message, f"label it {builtin.FRAMEWORK_LABEL}: mpi", "metadata.labels"
        )


def _fixed_user(runtime: Mapping[str, Any], openshift: bool) -> list[Finding]:
    fixed = {user for name in ("node", "launcher") if (user := _users(runtime, name)[1]) is not None}
    if not fixed:
        return []
    message = (
        f"pods run as user {', '.join(map(str, sorted(fixed)))}, which OpenShift's restricted-v2 refuses"
    )
    hint = "on OpenShift leave runAsUser and fsGroup out: the namespace gives them"
    severity = ERROR if openshift else NOTICE
    return [finding("RUNTIME_USER", severity, message, hint, f"{_JOBS}[*].securityContext.runAsUser")]


RULES: tuple[Rule, ...] = (
    _parts, _nodes, _implementation, _step, _image, _retries, _gang, _order, _names, _success, _hostfile,
    _sharing, _keys, _sshd, _mesh, _label,
)  # fmt: skip
