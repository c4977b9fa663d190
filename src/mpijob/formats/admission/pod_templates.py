"""The pod templates in a request, and what they grant beyond what jobs need.

`request_reader` reads the rest of the request, `pod_reader` reads jobs from templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mpijob.model.platform.admission_request import Pods

_AUTOMOUNT = "automountServiceAccountToken"
_HOST = {
    "hostNetwork": "the host's network",
    "hostPID": "the host's processes",
    "hostIPC": "the host's memory",
}


def templates(document: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield a document's pod templates with their paths."""
    spec = document.get("spec") or {}
    if kind == "MPIJob":
        for role, replica in (spec.get("mpiReplicaSpecs") or {}).items():
            if (replica or {}).get("template") is not None:
                yield f"/spec/mpiReplicaSpecs/{role}/template", replica["template"]
    elif kind.endswith("TrainingRuntime"):
        jobs = ((spec.get("template") or {}).get("spec") or {}).get("replicatedJobs") or ()
        for index, one in enumerate(jobs):
            template = ((one.get("template") or {}).get("spec") or {}).get("template")
            if template is not None:
                yield f"/spec/template/spec/replicatedJobs/{index}/template/spec/template", template


def _laid_over(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the partial pod templates with which a TrainJob patches its runtime."""
    spec = document.get("spec") or {}
    for index, patch in enumerate(spec.get("runtimePatches") or ()):
        over = {"spec": patch.get("trainingRuntimeSpec") or {}}
        for path, template in templates(over, "TrainingRuntime"):
            yield f"/spec/runtimePatches/{index}{path.removeprefix('/spec')}", template
    # Trainer 2.1's name.
    for index, one in enumerate(spec.get("podTemplateOverrides") or ()):
        yield f"/spec/podTemplateOverrides/{index}", one
    # Trainer 2.0's name.
    for index, one in enumerate(spec.get("podSpecOverrides") or ()):
        yield f"/spec/podSpecOverrides/{index}", {"spec": one}


def secrets(part: Any) -> Iterator[str]:
    """Yield the names of Secrets that a document gives to pods or to image pulls."""
    for key, value in _pairs(part):
        if key in ("secretKeyRef", "secret") or key.lower().endswith("secretref"):
            yield from _names(value)
        elif key == "imagePullSecrets" and isinstance(value, list):
            yield from (name for one in value for name in _names(one))


def config_maps(part: Any) -> Iterator[str]:
    """Yield the names of ConfigMaps that a document gives to pods."""
    for key, value in _pairs(part):
        if key in ("configMap", "configMapRef", "configMapKeyRef"):
            yield from _names(value)


def _pairs(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of a document with its value, at any depth."""
    waiting = [part]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            for key, value in one.items():
                yield str(key), value
                waiting.append(value)
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)


def _names(reference: Any) -> Iterator[str]:
    """Yield the names in a reference: `secretName` in volumes, `name` elsewhere; both if both are set."""
    if isinstance(reference, Mapping):
        yield from (str(reference[key]) for key in ("secretName", "name") if reference.get(key))


def read(document: Mapping[str, Any], kind: str, runtime: Mapping[str, Any] | None = None) -> Iterator[Pods]:
    """Yield what each template of a document grants to its pods; `runtime` is the one that a TrainJob names."""
    below = [template.get("spec") or {} for _, template in templates(runtime or {}, "TrainingRuntime")]
    for part, template in templates(document, kind):
        yield _pods(part, template, _accounts(template.get("spec") or {}))
    for part, template in _laid_over(document):
        yield _pods(part, template, _accounts_over(template.get("spec") or {}, below))


def _pods(part: str, template: Mapping[str, Any], accounts: Iterable[str]) -> Pods:
    spec = template.get("spec") or {}
    containers = _containers(spec)
    return Pods(
        part=part,
        images=tuple(_images(spec, containers)),
        labels=(template.get("metadata") or {}).get("labels") or {},
        accounts=tuple(sorted(set(accounts))),
        priority_class=spec.get("priorityClassName") or "",
        privileges=tuple(_privileges(spec, containers)),
    )


def _accounts(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the service accounts whose token a pod gets: the named one, or the namespace's default.

    A template that sets neither gets no token (`request_reader._harmless`).
    """
    # The deprecated field is still supported.
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    asks = spec.get(_AUTOMOUNT) is True or _projects(spec)
    if asks or (name and spec.get(_AUTOMOUNT) is not False):
        yield str(name or "default")


def _accounts_over(spec: Mapping[str, Any], below: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the service accounts whose token pods get by patches of a TrainJob."""
    over = {key: spec[key] for key in ("serviceAccountName", "serviceAccount", _AUTOMOUNT) if key in spec}
    if not over and not _projects(spec):
        # The runtime's own account was granted by its author.
        return
    for under in below or [{}]:
        volumes = [*(under.get("volumes") or ()), *(spec.get("volumes") or ())]
        yield from _accounts({**under, **over, "volumes": volumes})


def _projects(spec: Mapping[str, Any]) -> bool:
    sources = ((volume.get("projected") or {}).get("sources") or () for volume in spec.get("volumes") or ())
    return any("serviceAccountToken" in source for some in sources for source in some)


def _images(spec: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the images of containers, and images mounted as volumes."""
    mounted = (
        {"image": (volume.get("image") or {}).get("reference")} for volume in spec.get("volumes") or ()
    )
    yield from (str(one["image"]) for one in (*containers, *mounted) if one.get("image"))


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _privileges(spec: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from (words for field, words in _HOST.items() if spec.get(field))
    pod = spec.get("securityContext") or {}
    yield from (f"the kernel setting {sysctl.get('name')}" for sysctl in pod.get("sysctls") or ())
    yield from _unconfined(pod)
    yield from (
        f"the host's directory {volume['hostPath'].get('path')}"
        for volume in spec.get("volumes") or ()
        if volume.get("hostPath")
    )
    for container in containers:
        yield from (
            f"the host's port {port['hostPort']}"
            for port in container.get("ports") or ()
            if port.get("hostPort")
        )
        security = container.get("securityContext") or {}
        yield from _unconfined(security)
        if security.get("procMount") not in (None, "", "Default"):
            yield f"the mount {security['procMount']} of /proc"
        if security.get("privileged"):
            yield "a privileged container"
        if security.get("allowPrivilegeEscalation"):
            yield "privilege escalation"
        added = set((security.get("capabilities") or {}).get("add") or ()) - {"NET_BIND_SERVICE", "IPC_LOCK"}
        yield from (f"the capability {name}" for name in sorted(added))


def _unconfined(security: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ways in which a security context weakens a pod's isolation."""
    for field, words in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        if (security.get(field) or {}).get("type") == "Unconfined":
            yield f"a container without {words}"
    if (security.get("windowsOptions") or {}).get("hostProcess"):
        yield "a process of the host"
