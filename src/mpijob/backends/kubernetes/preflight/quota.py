"""A namespace's limits, from its ResourceQuotas and LimitRanges, with what a job adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mpijob.formats.kubernetes.metadata.well_known import LAUNCHER_CORES, Document, Shape
from mpijob.formats.sizing import resource_requests
from mpijob.model import Amounts, MPIJob, Quota
from mpijob.model.platform.cluster import Ask, Bound, Ceiling

# Scopes that our pods are never in: they have requests, no activeDeadlineSeconds and no such affinity.
_NOT_OURS = {"BestEffort", "Terminating", "CrossNamespacePodAffinity"}
# `cpu` in a quota means `requests.cpu`.
_SAME = {"cpu": "requests.cpu", "memory": "requests.memory"}


def ceilings(
    quotas: Iterable[Document], wanted: Mapping[str, float], classes: str = ""
) -> tuple[Ceiling, ...]:
    """Return the lines of the quotas that count the job's pods and objects; `classes` is its priority class."""
    return tuple(line for quota in quotas if _counts(quota, classes) for line in _lines(quota, wanted))


def _counts(quota: Document, priority_class: str) -> bool:
    spec = quota.get("spec") or {}
    if _NOT_OURS & set(spec.get("scopes") or ()):
        return False
    rules = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_in_scope(rule, priority_class) for rule in rules)


def _in_scope(rule: Mapping[str, Any], priority_class: str) -> bool:
    scope, operator, values = rule.get("scopeName"), rule.get("operator"), rule.get("values") or ()
    if scope in _NOT_OURS:
        return operator == "DoesNotExist"
    if scope != "PriorityClass":
        return True
    match operator:
        case "In":
            return priority_class in values
        case "NotIn":
            return priority_class not in values
        case "DoesNotExist":
            return not priority_class
    return bool(priority_class)


def _lines(quota: Document, wanted: Mapping[str, float]) -> Iterator[Ceiling]:
    status = quota.get("status") or {}
    hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
    used = status.get("used") or {}
    for resource, amount in hard.items():
        yield Ceiling(
            quota=quota["metadata"]["name"],
            resource=resource,
            hard=resource_requests.number(amount),
            used=resource_requests.number(used.get(resource, 0)),
            wanted=wanted.get(resource, 0.0),
        )


def quota(lines: tuple[Ceiling, ...], job: MPIJob, *, request_url: str = "") -> Quota | None:
    """Return the limits for cores, memory and GPUs in the form that all engines share."""
    tight = {name: _tightest(lines, name) for name in ("requests.cpu", "requests.memory", _gpus(job))}
    cores, memory, gpus = tight["requests.cpu"], tight["requests.memory"], tight[_gpus(job)]
    if cores is None and memory is None and gpus is None:
        return None
    return Quota(
        job.namespace,
        cores=cores.hard if cores else None,
        memory_bytes=int(memory.hard) if memory else None,
        gpus=int(gpus.hard) if gpus else None,
        used=Amounts(
            cores=cores.used if cores else 0.0,
            memory_bytes=int(memory.used) if memory else 0,
            gpus=int(gpus.used) if gpus else 0,
        ),
        request_url=request_url,
    )


def is_whole(line: Ceiling, job: MPIJob) -> bool:
    """Return whether a line is in the quota that all engines have (cores, memory, GPUs)."""
    return _SAME.get(line.resource, line.resource) in ("requests.cpu", "requests.memory", _gpus(job))


def _gpus(job: MPIJob) -> str:
    return f"requests.{job.gpu_kind}"


def _tightest(lines: Iterable[Ceiling], resource: str) -> Ceiling | None:
    # Of several quotas for one resource: one that can never hold the job, else the one with the least free.
    mine = [line for line in lines if _SAME.get(line.resource, line.resource) == resource]
    never = [line for line in mine if line.wanted > line.hard]
    return min(never, key=lambda line: line.hard) if never else min(mine, key=_left, default=None)


def _left(line: Ceiling) -> tuple[float, float]:
    return line.free, line.hard


def bounds(ranges: Iterable[Document]) -> tuple[Bound, ...]:
    """Return the limits of LimitRanges for containers and pods."""
    return tuple(bound for limit_range in ranges for bound in _bounds(limit_range))


def _bounds(limit_range: Document) -> Iterator[Bound]:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") not in ("Container", "Pod"):
            continue
        limits = {field: item.get(field) or {} for field in ("min", "max", "default", "maxLimitRequestRatio")}
        for resource in sorted({name for amounts in limits.values() for name in amounts}):
            yield Bound(
                name=limit_range["metadata"]["name"],
                scope=item["type"].lower(),
                resource=resource,
                least=_number(limits["min"], resource),
                most=_number(limits["max"], resource),
                default=_number(limits["default"], resource),
                ratio=_number(limits["maxLimitRequestRatio"], resource),
            )


def _number(amounts: Mapping[str, Any], resource: str) -> float | None:
    return resource_requests.number(amounts[resource]) if resource in amounts else None


class Counted(NamedTuple):
    """What a job's pods request, the lines of quotas that count it, and the launcher's cores."""

    asks: tuple[Ask, ...]
    lines: tuple[Ceiling, ...]
    launcher_cores: float


def counted(
    job: MPIJob, engine: str, quotas: Sequence[Document], limits: tuple[Bound, ...], class_name: str = ""
) -> Counted:
    """Return what a job counts for with these quotas and limits, which also decide the launcher's limit."""
    cores = launcher_cores(ceilings(quotas, {"limits.cpu": 0.0}, class_name), limits)
    asks = resource_requests.pod_requests(job, Shape(launcher_cores=cores))
    return Counted(
        asks, ceilings(quotas, resource_requests.quota_usage(job, engine, asks), class_name), cores
    )


def launcher_cores(lines: Iterable[Ceiling], limits: Iterable[Bound]) -> float:
    """Return the CPU limit of the launcher; 0 means that it is the request."""
    # A quota on `limits.cpu` counts the limit, and so does a maximum for pods, unless containers get a default limit;
    # a ratio compares it with the request.
    limits = tuple(limits)
    on_cpu = [bound for bound in limits if bound.resource == "cpu" and bound.scope == "container"]
    given = [limit for bound in on_cpu if (limit := bound.default or bound.most) is not None]
    summed = any(
        bound.resource == "cpu" and bound.scope == "pod" and bound.most is not None for bound in limits
    )
    counted = (summed or any(line.resource == "limits.cpu" for line in lines)) and not given
    return 0.0 if counted or any(bound.ratio for bound in on_cpu) else min((LAUNCHER_CORES, *given))
