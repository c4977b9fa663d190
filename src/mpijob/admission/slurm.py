"""Reasons for which only Slurm refuses a job, with the numbers; `remarks` adds what is only good to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpijob.admission.capacity import Resource, format_with_name, size_fixes
from mpijob.errors import Finding, Fix, InvalidJob, NotAllowed, QuotaExceeded, Severity
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.slurm import MIB, Layout, Limit, NodeRoom, Partition, SlurmFacts, holding, layouts
from mpijob.model.spec.enums import choice_hint
from mpijob.model.spec.job import Part
from mpijob.model.spec.quantity import as_bytes


# Before the submission: by default Slurm accepts a job above a limit and never starts it (EnforcePartLimits=NO).
def refuse(job: MPIJob, slurm: SlurmFacts) -> None:
    """Raise the first reason for which Slurm would refuse the job or never start it."""
    partition = _partition(job, slurm)
    _names(job, slurm, partition)
    components = [*zip(job.parts, layouts(job, slurm.nodes), strict=True)]
    if found := [
        *(finding for part, shape in components for finding in _over_partition(job, part, partition, shape)),
        *_too_long(job, f"partition '{partition.name}' allows", partition.max_seconds),
        *(finding for limit in slurm.limits for finding in _over_limit(job, limit, components)),
    ]:
        raise QuotaExceeded(
            "\n".join(one.message for one in found), hint=found[0].hint, findings=tuple(found)
        )
    for part, shape in components:
        _nodes(job, part, slurm, partition, shape)
    _nodes_of_all(job, slurm, partition, components)


def _partition(job: MPIJob, slurm: SlurmFacts) -> Partition:
    if slurm.partition is not None:
        return slurm.partition
    wanted = f"there is no partition '{job.queue}'" if job.queue else "this cluster has no default partition"
    raise InvalidJob.of(
        (_finding("SLURM_PARTITION", wanted, choice_hint(job.queue, slurm.partitions), "queue"),)
    )


def _names(job: MPIJob, slurm: SlurmFacts, partition: Partition) -> None:
    """Raise NotAllowed for an account or a QOS that the user may not use in the partition."""
    account = job.cost.get("account", "")
    if account and slurm.accounts and account not in slurm.accounts:
        _not_allowed(f"you have no account '{account}'", choice_hint(account, slurm.accounts), "cost.account")
    if slurm.qos and slurm.all_qos and slurm.qos not in slurm.all_qos:
        message = f"account '{slurm.account}' may not use QOS '{slurm.qos}', which `priority` selects"
        _not_allowed(message, choice_hint(slurm.qos, slurm.all_qos), "priority")
    for what, name, allowed, denied, field in (
        ("account", slurm.account, partition.accounts, partition.denied_accounts, "cost.account"),
        ("QOS", slurm.qos, partition.qos, partition.denied_qos, "priority"),
    ):
        if name and ((allowed and name not in allowed) or name in denied):
            only = f"; it takes {', '.join(allowed)}" if allowed else ""
            others = [one for one in slurm.partitions if one != partition.name]
            message = f"partition '{partition.name}' does not accept jobs of {what} '{name}'{only}"
            _not_allowed(
                message,
                f"use another partition: {', '.join(others)}" if others else "ask an administrator",
                field,
            )


def _not_allowed(message: str, hint: str, field: str) -> None:
    raise NotAllowed(message, hint=hint, findings=(_finding("SLURM_NOT_ALLOWED", message, hint, field),))


def _subject(part: Part) -> str:
    return f"group '{part.group}'" if part.group else "the job"


def _over_partition(job: MPIJob, part: Part, partition: Partition, shape: Layout) -> Iterator[Finding]:
    name = f"partition '{partition.name}'"
    yield from _over(job, part, f"{name} allows one job", nodes=(shape.nodes, partition.max_nodes))
    if shape.nodes < partition.min_nodes:
        message = f"{_subject(part)} requests {shape.nodes} nodes, but {name} requires {partition.min_nodes} or more"
        yield _finding("QUOTA_EXCEEDED", message, f"use at least {partition.min_nodes} workers", "workers")


def _over_limit(job: MPIJob, limit: Limit, components: Sequence[tuple[Part, Layout]]) -> Iterator[Finding]:
    """Yield what exceeds one QOS or account; the limits for all of its jobs together apply to a single one too."""
    # To Slurm, each component of a heterogeneous job is a job of its own.
    alone = (limit.nodes, limit.cpus, limit.gpus, limit.memory_mib)
    for part, shape in components:
        pairs = dict(zip(_ASKED, zip(_asked(shape), alone, strict=True), strict=True))
        yield from _over(job, part, f"{limit.owner} allows one job", **pairs)
    together = [sum(amounts) for amounts in zip(*(_asked(shape) for _, shape in components), strict=True)]
    most = (limit.group_nodes, limit.group_cpus, limit.group_gpus, limit.group_memory_mib)
    pairs = dict(zip(_ASKED, zip(together, most, strict=True), strict=True))
    whole = components[0][0] if len(components) == 1 else None
    yield from _over(job, whole, f"{limit.owner} allows all its jobs together", **pairs)
    yield from _too_long(job, f"{limit.owner} allows", limit.seconds)


_ASKED = ("nodes", "cpus", "gpus", "memory")


def _asked(shape: Layout) -> tuple[int, int, int, int]:
    nodes = shape.nodes
    return nodes, shape.cpus_per_node * nodes, shape.gpus * nodes, (shape.memory_mib or 0) * nodes


def _over(job: MPIJob, part: Part | None, words: str, **pairs: tuple[int, int | None]) -> Iterator[Finding]:
    """Yield the amounts that exceed a limit, of a part of the job or of the whole job (None)."""
    who = "the job" if part is None else _subject(part)
    for what, (asked, most) in pairs.items():
        if most is not None and asked > most:
            fits = 0 if part is None else int(part.job.workers * most / asked)
            hint, fixes = _fewer(job, part, fits, "request less, or use another partition or QOS")
            message = f"{who} requests {_amount(what, asked)}; {words} {_amount(what, most)}"
            yield Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


def _fewer(
    job: MPIJob, part: Part | None, fits: int, otherwise: str, size: str = ""
) -> tuple[str, tuple[Fix, ...]]:
    """Return the advice to use fewer workers in a part of the job, with its fix, or `otherwise`."""
    if part is None or not fits:
        return otherwise, ()
    where = f" in group '{part.group}'" if part.group else " in no group" if job.groups else size
    hint = f"use at most {fits} workers{where}"
    alike = part.group == job.resizable.group
    return hint, size_fixes(job, job.workers - part.job.workers + fits, hint) if alike else ()


def _amount(what: str, number: int) -> str:
    match what:
        case "cpus":
            return format_with_name(Resource.CORES, number)
        case "gpus":
            return format_with_name(Resource.GPUS, number)
        case "memory":
            return format_with_name(Resource.MEMORY, number * MIB)
        case _:
            return f"{number} node{'s' * (number != 1)}"


def _too_long(job: MPIJob, words: str, most: float | None) -> Iterator[Finding]:
    if job.deadline_seconds is not None and most is not None and job.deadline_seconds > most:
        message = f"the job requests {_clock(job.deadline_seconds)}; {words} {_clock(most)}"
        hint = f"use --deadline {most:g}s, or a partition or QOS that allows more"
        fix = Fix(hint, {"deadline_seconds": most})
        yield Finding(
            code="QUOTA_EXCEEDED", message=message, hint=hint, field="deadline_seconds", fixes=(fix,)
        )


def _nodes(job: MPIJob, part: Part, slurm: SlurmFacts, partition: Partition, shape: Layout) -> None:
    """Raise QuotaExceeded for what no nodes of the partition could run, even if they were idle."""
    selector = part.job.placement.node_selector
    features = [one for key, one in selector.items() if key != "reservation"]
    able = tuple(node for node in slurm.nodes if set(features) <= set(node.features))
    fits = holding(tuple(_as_if_up(node) for node in able), shape)
    if not slurm.nodes or fits >= shape.nodes:
        return
    largest = max(slurm.nodes, key=lambda node: (node.gpus, node.cpus, node.memory_mib))
    each = _room(shape.cpus_per_node, shape.memory_mib or 0, shape.gpus)
    asked = f"{shape.nodes} node{'s' * (shape.nodes != 1)} with {each}"
    asked += f" and the feature{'s' * (len(features) > 1)} {', '.join(features)}" if features else ""
    has = f"its largest has {_room(largest.cpus, largest.memory_mib, largest.gpus)}"
    message = f"{_subject(part)} requests {asked}; partition '{partition.name}' has {fits} such, {has}"
    workers = fits * shape.workers_per_node
    hint, fixes = _fewer(job, part, workers, "reduce the resources of a worker", " of this size")
    finding = Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)
    raise QuotaExceeded(message, hint=hint, findings=(finding,))


def _nodes_of_all(
    job: MPIJob, slurm: SlurmFacts, partition: Partition, components: Sequence[tuple[Part, Layout]]
) -> None:
    """Raise QuotaExceeded for groups that need more nodes than there are: Slurm would never start them."""
    wanted, there = sum(shape.nodes for _, shape in components), len(slurm.nodes)
    if len(components) < 2 or not there or wanted <= there:
        return
    message = (
        f"the groups of the job need {wanted} nodes, and two groups never share one; "
        f"partition '{partition.name}' has {there}"
    )
    part, shape = next(component for component in components if component[0].group == job.resizable.group)
    fits = (there - (wanted - shape.nodes)) * shape.workers_per_node
    hint, fixes = _fewer(job, part, max(0, fits), "use fewer groups, or another partition")
    finding = Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)
    raise QuotaExceeded(message, hint=hint, findings=(finding,))


def _as_if_up(node: NodeRoom) -> NodeRoom:
    """Return a node as if it were up: a drained node may be back soon."""
    return NodeRoom(
        name=node.name, cpus=node.cpus, memory_mib=node.memory_mib, gpus=node.gpus, features=node.features
    )


def _room(cpus: int, memory_mib: int, gpus: int) -> str:
    more = f", {format_with_name(Resource.GPUS, gpus)}" if gpus else ""
    return f"{format_with_name(Resource.CORES, cpus)}, {as_bytes(memory_mib * MIB)} of memory{more}"


def remarks(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return notices about a job that is not refused."""
    slurm = facts.slurm
    return () if slurm is None or slurm.partition is None else tuple(_remarks(job, slurm, slurm.partition))


def _remarks(job: MPIJob, slurm: SlurmFacts, partition: Partition) -> Iterator[Finding]:
    if partition.state != "UP":
        message = f"partition '{partition.name}' is {partition.state}: the job waits until an administrator opens it"
        yield _finding(
            "SLURM_PARTITION_CLOSED", message, "wait, or use another partition", "queue", Severity.WARNING
        )
    default = partition.default_seconds if partition.default_seconds is not None else partition.max_seconds
    if job.deadline_seconds is None and default is not None:
        usual = f"the DefaultTime of partition '{partition.name}'"
        message = f"no deadline is given: Slurm ends the job after {_clock(default)}, {usual}"
        hint = (
            f"set --deadline, at most {_clock(partition.max_seconds)}"
            if partition.max_seconds
            else "set --deadline"
        )
        yield _finding("SLURM_DEFAULT_TIME", message, hint, "deadline_seconds", Severity.WARNING)
    for part, shape in zip(job.parts, layouts(job, slurm.nodes), strict=True):
        yield from _of_nodes(part, shape, slurm)
    if slurm.unread:
        message = f"not checked, because Slurm did not report it: {', '.join(slurm.unread)}"
        yield _finding(
            "NOT_READ", message, "no action needed: the job is submitted anyway, and Slurm decides", ""
        )


def _of_nodes(part: Part, shape: Layout, slurm: SlurmFacts) -> Iterator[Finding]:
    if shape.workers_per_node > 1:
        message = f"{part.job.workers} workers share {shape.nodes} nodes, {shape.workers_per_node} each: no more nodes"
        yield _finding("SLURM_NOTICE", message, "nothing, or use fewer workers with more slots", "workers")
    if slurm.nodes and (now := holding(slurm.nodes, shape, now=True)) < shape.nodes:
        most = now * shape.workers_per_node
        room = f"{most} worker{'s' * (most != 1)} of this size would start now"
        down = sum(not node.usable for node in slurm.nodes)
        unavailable = (
            f"; {down} of {len(slurm.nodes)} nodes are down or drained (sinfo -R says why)" if down else ""
        )
        message = f"{now} of {shape.nodes} nodes that {_subject(part)} needs are free now{unavailable}"
        yield _finding(
            "WILL_WAIT", message, f"the job waits in the queue and starts automatically; {room}", ""
        )


def _finding(code: str, message: str, hint: str, field: str, severity: Severity = Severity.NOTICE) -> Finding:
    return Finding(code=code, message=message, hint=hint, field=field, severity=severity)


def _clock(seconds: float) -> str:
    """Return a time limit in words."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}{'s' * (seconds != length)}"
    return f"{seconds:g} s"
