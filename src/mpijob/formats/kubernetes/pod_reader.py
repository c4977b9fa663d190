"""Pod templates, read back: what they say in a job's own words, and what is left when that is taken out.

The inverse of `pod_template`, and lenient: templates that somebody else wrote have no shape of ours, and say only
a part of what a job says. Whatever a job says and no template can is carried by `passthrough`.
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
    plain,
)
from mpijob.formats.kubernetes.pod_template import PREPARE_CONTAINER
from mpijob.formats.launch import command_line
from mpijob.formats.status.nested_fields import is_gpu
from mpijob.model import Family, MPIJob, Resources, Role, Secret
from mpijob.model.spec.quantity import NONE, parse

Read = TypeVar("Read")
_SHAPED = (
    "securityContext",
    "serviceAccountName",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "schedulerName",
)
_TAKEN = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "imagePullSecrets")
_TAKEN_TOO = ("priorityClassName", "restartPolicy", "terminationGracePeriodSeconds")
_CONTAINER_TAKEN = ("image", "imagePullPolicy", "command", "args", "resources", "workingDir", "lifecycle")


def understandable(read: Callable[..., Read]) -> Callable[..., Read]:
    """Turn whatever a document of the wrong form does to its reader into one clear error."""

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
    """Return the fields of a job that two pod specs tell: image, command, variables, volumes and so on."""
    main, front = container_of(worker), container_of(launcher)
    grace = worker.get("terminationGracePeriodSeconds")
    variables = _variables(main) if is_ours(main) else _variables(main) | _variables(front)
    return {
        "image": main.get("image") or front.get("image") or "",
        **_started(front),
        "env": variables,
        "secrets": _secrets_of_both(main, front),
        "volumes": volumes.read(worker, main) or volumes.read(launcher, front),
        "pull_secrets": tuple(secret["name"] for secret in worker.get("imagePullSecrets") or ()),
        "pull_policy": str(main.get("imagePullPolicy") or front.get("imagePullPolicy") or ""),
        "resources": resources(main),
        "launcher": resources(front),
        "placement": placement.read(worker, Shape()),
        "priority": worker.get("priorityClassName") or 0,
        "grace_seconds": 10.0 if grace is None else float(grace),
    }


def _started(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command, or the script with its arguments."""
    words = command(container)
    if words[:3] == ("/bin/sh", STEP, "script") and is_ours(container):
        return {"command": (), "script": words[3], "args": words[4:]}
    return {"command": words}


def command(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the user's command: what stands behind the shim of our own launch line, else all of it."""
    words = [plain(str(word)) for word in container.get("args") or ()]
    if not is_ours(container):
        return (*(plain(str(word)) for word in container.get("command") or ()), *words)
    before = _census_words(container)
    if before:
        return tuple(words[before:])
    if words.count(SHIM) != 1:
        return tuple(words) if SHIM not in words else ()
    return tuple(words[words.index(SHIM) + 1 :])


def _census_words(container: Mapping[str, Any]) -> int:
    found = {variable.get("name"): variable.get("value") for variable in container.get("env") or ()}
    return int(found.get("MPIJOB_CENSUS_WORDS") or 0)


def is_our_variable(one: Mapping[str, Any], *, ours: bool) -> bool:
    """Whether a variable is one that we set; in a container of ours also one of those that start the ranks."""
    name, value = str(one.get("name")), one.get("value")
    return name.startswith("MPIJOB_") or (name, value) == ("HOME", HOME) or (ours and name in _SET_BY_US)


_SET_BY_US = frozenset(
    {name for family in Family for name in command_line.variables(family, hostfile="", agent="", slots=1)}
    | set(command_line.keepalive(Family.OPENMPI))
    | set(command_line.job_variables(MPIJob(name="")))
)


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the user's variables; a worker of ours has no others, a launcher those that start the ranks."""
    ours, names = is_ours(container) and not _is_worker(container), _names(container)
    return {
        variable["name"]: plain(str(variable.get("value", "")))
        for variable in container.get("env") or ()
        if "valueFrom" not in variable and not is_our_variable(variable, ours=ours) and variable not in names
    }


def _is_worker(container: Mapping[str, Any]) -> bool:
    return list(container.get("command") or [])[-1:] == [f"mpijob-{Role.WORKER.value}"]


def _names(container: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the variables by which we name a job's runs elsewhere."""
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


def _secrets_of_both(main: Mapping[str, Any], front: Mapping[str, Any]) -> tuple[Secret, ...]:
    mine = _secrets(main)
    names = {one.env for one in mine}
    return (*mine, *(secret for secret in _secrets(front) if secret.env not in names))


def _secret_key(one: Mapping[str, Any]) -> Mapping[str, Any]:
    key = (one.get("valueFrom") or {}).get("secretKeyRef") or {}
    return key if {"name", "key"} == set(key) else {}


def resources(container: Mapping[str, Any]) -> Resources:
    """Return what a container may use: its limits, filled up by its requests.

    A launcher of ours requests less CPU than it may use, and means what it requests.
    """
    said = container.get("resources") or {}
    limits, requests = dict(said.get("limits") or {}), dict(said.get("requests") or {})
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
        # An API server takes 8000m for 8.
        return math.ceil(parse(amount))


def stripped(template: Mapping[str, Any], *, managed: bool) -> Document:
    """Return a pod template without what a job says itself, its main container called as we call it."""
    rest = copy.deepcopy(dict(template))
    pod = rest.get("spec") or {}
    main: Any = container_of(pod)
    for field in (*_TAKEN, *_TAKEN_TOO, *(_SHAPED if managed else ())):
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
    for field in _CONTAINER_TAKEN:
        main.pop(field, None)
    main["name"] = CONTAINER
    if not main["env"]:
        del main["env"]


def _strip_volumes(pod: MutableMapping[str, Any], main: Any) -> None:
    read = {one.mount for one in volumes.read(pod, main)}
    every = main.get("volumeMounts") or ()
    kept = [one for one in every if one["mountPath"] not in read or "subPath" in one]
    gone = {one["name"] for one in every if one not in kept} - {one["name"] for one in kept}
    used = {
        mount.get("name")
        for other in pod.get("containers") or ()
        if other is not main
        for mount in _mounts(other)
    }
    pod["volumes"] = [volume for volume in pod.get("volumes") or () if volume["name"] not in gone - used]
    main["volumeMounts"] = kept
    for holder, field in ((pod, "volumes"), (main, "volumeMounts")):
        if not holder[field]:
            del holder[field]


def _mounts(container: Mapping[str, Any]) -> Any:
    return container.get("volumeMounts") or ()


def strip_labels(metadata: MutableMapping[str, Any]) -> None:
    """Take the labels and annotations out that a job says itself or that are ours."""
    for field in ("labels", "annotations"):
        if field in metadata:
            kept = {key: value for key, value in metadata[field].items() if not key.startswith(OUR_LABELS)}
            metadata[field] = {key: value for key, value in kept.items() if not key.startswith(COST_PREFIX)}
