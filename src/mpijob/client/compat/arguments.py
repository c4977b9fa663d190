"""Translate arguments of other SDKs into an MPIJob: resource names with slashes, runtimes, pod types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.model import Family, LogLine, MPIJob, Phase, Resources, Role
from mpijob.model.spec.enums import choice_hint
from mpijob.model.spec.enums import shown as shown_word

_ROLES = {"": (), "all": (), "launcher": (Role.LAUNCHER,), "worker": (Role.WORKER, Role.RANK)}


def job(
    *,
    name: str,
    workers: int,
    image: str = "",
    command: Sequence[str] = (),
    resources: Resources | Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    runtime: str = "",
) -> MPIJob:
    """Return the job; a worker has as many slots as GPUs, one without any."""
    each = resources if isinstance(resources, Resources) else resources_of(resources or {})
    return MPIJob(
        name=name,
        workers=workers,
        slots=max(1, each.gpu),
        image=image,
        command=(command,) if isinstance(command, str) else tuple(command),
        resources=each,
        env=dict(env or {}),
        mpi=family_of(runtime),
    )


def resources_of(amounts: Mapping[str, Any]) -> Resources:
    """Return resources from names as Kubernetes has them: cpu, memory, nvidia.com/gpu, …"""
    plain = {key: amounts[key] for key in ("cpu", "memory") if key in amounts}
    gpus = [key for key in amounts if key == "gpu" or _is_gpu(key)]
    if len(gpus) > 1:
        raise InvalidJob(
            f"resources name more than one kind of GPU: {', '.join(gpus)}", hint="keep one of them"
        )
    others = {key: amounts[key] for key in amounts if key not in plain and key not in gpus}
    if not gpus:
        return Resources(**plain, others=others)
    kind = Resources().gpu_kind if gpus[0] == "gpu" else gpus[0]
    return Resources(**plain, gpu=_count(gpus[0], amounts[gpus[0]]), gpu_kind=kind, others=others)


def family_of(runtime: str) -> Family:
    """Return the MPI library in a runtime's name, `auto` without one."""
    for family in (Family.OPENMPI, Family.MPICH, Family.INTEL):
        if family.value in runtime.lower().replace("-", "").replace("_", ""):
            return family
    return Family.AUTO


def phases(words: Iterable[str]) -> tuple[Phase, ...]:
    """Return the phases for status names of the Kubeflow SDK; our own names are accepted, too."""
    found = [phase for word in words for phase in _STATUSES.get(word) or (_phase(word),)]
    return tuple(dict.fromkeys(found))


_STATUSES = {"Complete": (Phase.SUCCEEDED,), "Created": (Phase.QUEUED, Phase.PENDING, Phase.INITIALIZING)}


def _phase(word: str) -> Phase:
    try:
        return Phase(word)
    except ValueError as error:
        known = (*_STATUSES, *(phase.value for phase in Phase))
        raise InvalidJob(f"{shown_word(word)} is not a status", hint=choice_hint(word, known)) from error


def roles(pod_type: str) -> tuple[Role, ...]:
    """Return the roles that a pod type of the Kubeflow SDK means."""
    if pod_type.lower() not in _ROLES:
        raise InvalidJob(f"there is no pod type '{pod_type}'", hint="use launcher or worker")
    return _ROLES[pod_type.lower()]


def shown(line: LogLine) -> str:
    """Return a log line as text with its source."""
    return f"[{line.source}] {line.text.decode(errors='replace')}\n"


def _is_gpu(key: str) -> bool:
    from mpijob.model.spec.enums import GPU_KINDS, MIG_PREFIX

    return key in GPU_KINDS or key.startswith(MIG_PREFIX)


def _count(key: str, amount: Any) -> int:
    try:
        return int(amount)
    except (TypeError, ValueError) as error:
        raise InvalidJob(
            f"{key}: {amount!r} is not a whole number of GPUs", hint="write 1, 2, 4 or 8"
        ) from error
