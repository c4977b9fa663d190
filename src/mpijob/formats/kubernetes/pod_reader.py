"""Reads pod templates as a job's fields, and returns templates without those fields.

The inverse of `pod_template`. It also reads templates that were not written here, so every field is optional.
`passthrough` has the fields of a job that no template can express.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeVar

from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import placement, s3_sidecars, volumes
from mpijob.formats.kubernetes.metadata.well_known import (
    CONTAINER,
    COST_PREFIX,
    HOME,
    OUR_LABELS,
    SHIM,
    STEP,
    Document,
    Shape,
    container_of,
    is_ours,
    unescape_variables,
)
from mpijob.formats.kubernetes.pod_template import PREPARE_CONTAINER
from mpijob.formats.launch import command_line
from mpijob.formats.status.nested_fields import is_gpu
from mpijob.model import Family, MPIJob, Resources, Role, Secret
from mpijob.model.spec.quantity import NONE, parse

Read = TypeVar("Read")
_SHAPE_FIELDS = (
    "securityContext",
    "serviceAccountName",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "schedulerName",
)
_POD_FIELDS = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "imagePullSecrets")
_MORE_POD_FIELDS = ("priorityClassName", "restartPolicy", "terminationGracePeriodSeconds")
_CONTAINER_FIELDS = ("image", "imagePullPolicy", "command", "args", "resources", "workingDir", "lifecycle")


def understandable(read: Callable[..., Read]) -> Callable[..., Read]:
    """Decorate a reader of documents: raise InvalidJob for a document that does not match its schema."""

    @functools.wraps(read)
    def reader(*args: Any, **kwargs: Any) -> Read:
        try:
            return read(*args, **kwargs)
        except (AttributeError, TypeError, KeyError, ValueError, IndexError) as error:
            message = f"the manifest does not match the schema of its kind: {type(error).__name__} at {error}"
            raise InvalidJob(
                message, hint="kubectl apply --dry-run=server -f FILE shows the position"
            ) from error

    return reader


def from_pods(worker: Mapping[str, Any], launcher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job that a worker's and a launcher's pod spec express."""
    main, launcher_container = container_of(worker), container_of(launcher)
    grace = worker.get("terminationGracePeriodSeconds")
    # In a pair of ours every variable of the workers is also the launcher's, beside variables that start the ranks.
    variables = _variables(main) if is_ours(main) else _variables(main) | _variables(launcher_container)
    return {
        "image": main.get("image") or launcher_container.get("image") or "",
        **_started(launcher_container),
        "env": variables,
        "secrets": _secrets_of_both(main, launcher_container),
        "volumes": volumes.read(worker, main) or volumes.read(launcher, launcher_container),
        "pull_secrets": tuple(secret["name"] for secret in worker.get("imagePullSecrets") or ()),
        "pull_policy": str(main.get("imagePullPolicy") or launcher_container.get("imagePullPolicy") or ""),
        "resources": resources(main),
        "launcher": resources(launcher_container),
        "placement": placement.read(worker, Shape()),
        "priority": worker.get("priorityClassName") or 0,
        "grace_seconds": 10.0 if grace is None else float(grace),
    }


def _started(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for the command, or for the script and its arguments."""
    words = command(container)
    if words[:3] == ("/bin/sh", STEP, "script") and is_ours(container):
        return {"command": (), "script": words[3], "args": words[4:]}
    return {"command": words}


def command(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the user's command: what follows our rank script in a launch line of ours, else all of it."""
    words = [unescape_variables(str(word)) for word in container.get("args") or ()]
    if not is_ours(container):
        return (*(unescape_variables(str(word)) for word in container.get("command") or ()), *words)
    census_words = _census_words(container)
    if census_words:
        return tuple(words[census_words:])
    # Several programs: each follows a shim of its own, and `passthrough` reads them.
    if words.count(SHIM) != 1:
        return tuple(words) if SHIM not in words else ()
    return tuple(words[words.index(SHIM) + 1 :])


def _census_words(container: Mapping[str, Any]) -> int:
    found = {variable.get("name"): variable.get("value") for variable in container.get("env") or ()}
    return int(found.get("MPIJOB_CENSUS_WORDS") or 0)


def is_our_variable(one: Mapping[str, Any], *, ours: bool) -> bool:
    """Whether we set a variable; in a container of `ours` also one of those that start the ranks."""
    name, value = str(one.get("name")), one.get("value")
    return name.startswith("MPIJOB_") or (name, value) == ("HOME", HOME) or (ours and name in _SET_BY_US)


_SET_BY_US = frozenset(
    {name for family in Family for name in command_line.variables(family, hostfile="", agent="", slots=1)}
    | set(command_line.keepalive(Family.OPENMPI))
    | set(command_line.job_variables(MPIJob(name="")))
)


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the user's variables of a container."""
    ours, names = is_ours(container) and not _is_worker(container), _names(container)
    return {
        variable["name"]: unescape_variables(str(variable.get("value", "")))
        for variable in container.get("env") or ()
        if "valueFrom" not in variable and not is_our_variable(variable, ours=ours) and variable not in names
    }


def _is_worker(container: Mapping[str, Any]) -> bool:
    return list(container.get("command") or [])[-1:] == [f"mpijob-{Role.WORKER.value}"]


def _names(container: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the variables with default names for a job's runs elsewhere."""
    name = next(
        (
            variable.get("value")
            for variable in container.get("env") or ()
            if variable.get("name") == "MPIJOB_NAME"
        ),
        "",
    )
    return (
        [{"name": key, "value": value} for key, value in command_line.wandb_names(name).items()]
        if name
        else []
    )


def _secrets(container: Mapping[str, Any]) -> tuple[Secret, ...]:
    keys = [
        (variable["name"], _secret_key(variable))
        for variable in container.get("env") or ()
        if _secret_key(variable)
    ]
    return tuple(Secret(env=name, source=f"{key['name']}/{key['key']}") for name, key in keys)


def _secrets_of_both(main: Mapping[str, Any], launcher_container: Mapping[str, Any]) -> tuple[Secret, ...]:
    from_worker = _secrets(main)
    names = {one.env for one in from_worker}
    return (*from_worker, *(secret for secret in _secrets(launcher_container) if secret.env not in names))


def _secret_key(one: Mapping[str, Any]) -> Mapping[str, Any]:
    key = (one.get("valueFrom") or {}).get("secretKeyRef") or {}
    return key if {"name", "key"} == set(key) else {}


def resources(container: Mapping[str, Any]) -> Resources:
    """Return a container's resources: its limits, else its requests."""
    stated = container.get("resources") or {}
    # A launcher of ours has a higher CPU limit than the job asks for (LAUNCHER_CORES): there the request counts.
    limits, requests = dict(stated.get("limits") or {}), dict(stated.get("requests") or {})
    launches = is_ours(container) and not _is_worker(container)
    amounts = limits | requests if launches else requests | limits
    kinds = [name for name in amounts if is_gpu(name)]
    others = {name: str(amounts[name]) for name in amounts if name not in ("cpu", "memory", *kinds[:1])}
    fields: dict[str, Any] = {key: str(amounts.get(key, NONE)) for key in ("cpu", "memory")}
    if kinds:
        fields |= {"gpu": _devices(amounts[kinds[0]]), "gpu_kind": kinds[0]}
    return Resources(**fields, others=others)


def _devices(amount: Any) -> int:
    try:
        return int(amount)
    except ValueError:
        # The API server accepts 8000m for 8.
        return math.ceil(parse(amount))


def stripped(template: Mapping[str, Any], *, managed: bool) -> Document:
    """Return a pod template without what a job expresses; its main container gets our name."""
    rest = copy.deepcopy(dict(template))
    pod = rest.get("spec") or {}
    main: Any = container_of(pod)
    for field in (*_POD_FIELDS, *_MORE_POD_FIELDS, *(_SHAPE_FIELDS if managed else ())):
        pod.pop(field, None)
    _strip_volumes(pod, main)
    if managed:
        pod["initContainers"] = [
            container
            for container in pod.get("initContainers") or ()
            if container["name"] != PREPARE_CONTAINER and not s3_sidecars.is_ours(container["name"])
        ]
        pod["containers"] = [
            container for container in pod["containers"] if not s3_sidecars.is_ours(container["name"])
        ]
        for holder, field in ((pod, "volumes"), (main, "volumeMounts")):
            if field in holder:
                holder[field] = [one for one in holder[field] if one.get("name") != volumes.KEY_VOLUME]
        strip_labels(rest.get("metadata") or {})
        main.pop("securityContext", None)
    _strip_container(main)
    return rest


def _strip_container(main: MutableMapping[str, Any]) -> None:
    ours = is_ours(main)
    kept = [
        variable
        for variable in main.get("env") or ()
        if "valueFrom" in variable and not _secret_key(variable)
    ]
    main["env"] = [one for one in kept if not is_our_variable(one, ours=ours)]
    for field in _CONTAINER_FIELDS:
        main.pop(field, None)
    main["name"] = CONTAINER
    if not main["env"]:
        del main["env"]


def _strip_volumes(pod: MutableMapping[str, Any], main: Any) -> None:
    read = {one.mount for one in volumes.read(pod, main)}
    mounts = main.get("volumeMounts") or ()
    kept = [mount for mount in mounts if mount["mountPath"] not in read or "subPath" in mount]
    unused = {mount["name"] for mount in mounts if mount not in kept} - {one["name"] for one in kept}
    used = {
        mount.get("name")
        for other in pod.get("containers") or ()
        if other is not main
        for mount in _mounts(other)
    }
    pod["volumes"] = [volume for volume in pod.get("volumes") or () if volume["name"] not in unused - used]
    main["volumeMounts"] = kept
    for holder, field in ((pod, "volumes"), (main, "volumeMounts")):
        if not holder[field]:
            del holder[field]


def _mounts(container: Mapping[str, Any]) -> Any:
    return container.get("volumeMounts") or ()


def strip_labels(metadata: MutableMapping[str, Any]) -> None:
    """Remove labels and annotations that are ours or that a job expresses."""
    for field in ("labels", "annotations"):
        if field in metadata:
            kept = {key: value for key, value in metadata[field].items() if not key.startswith(OUR_LABELS)}
            metadata[field] = {key: value for key, value in kept.items() if not key.startswith(COST_PREFIX)}
