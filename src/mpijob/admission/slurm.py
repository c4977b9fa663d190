"""What only Slurm can refuse, and mostly does not at once: a job beyond a limit is accepted and waits for ever.

Partition, account and QOS are judged before anything is submitted, with the numbers. What is merely worth knowing
(how long it may run, how many nodes would start it now) is told by `remarks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.admission.capacity import Resource, format_with_name
from mpijob.errors import Finding, Fix, InvalidJob, NotAllowed, QuotaExceeded, Severity
from mpijob.model import Facts, MPIJob
from mpijob.model.platform.slurm import MIB, Layout, Limit, NodeRoom, Partition, SlurmFacts, holding, layout
from mpijob.model.spec.enums import choice_hint
from mpijob.model.spec.quantity import as_bytes


def refuse(job: MPIJob, slurm: SlurmFacts) -> None:
    """Raise the first reason for which Slurm would refuse the job, or let it wait for ever."""
    partition = _partition(job, slurm)
    _names(job, slurm, partition)
    shape = layout(job, slurm.nodes)
    if found := [
        *_of_partition(job, partition, shape),
        *(one for limit in slurm.limits for one in _of_limit(job, limit, shape)),
    ]:
        raise QuotaExceeded(
            "\n".join(one.message for one in found), hint=found[0].hint, findings=tuple(found)
        )
    _nodes(job, slurm, partition, shape)


def _partition(job: MPIJob, slurm: SlurmFacts) -> Partition:
    if slurm.partition is not None:
        return slurm.partition
    wanted = f"there is no partition '{job.queue}'" if job.queue else "this cluster has no default partition"
    raise InvalidJob.of(
        (_finding("SLURM_PARTITION", wanted, choice_hint(job.queue, slurm.partitions), "queue"),)
    )


def _names(job: MPIJob, slurm: SlurmFacts, partition: Partition) -> None:
    """Refuse an account or a QOS that the user may not use there."""
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


def _of_partition(job: MPIJob, partition: Partition, shape: Layout) -> Iterator[Finding]:
    name = f"partition '{partition.name}'"
    yield from _over(job, f"{name} allows one job", nodes=(shape.nodes, partition.max_nodes))
    yield from _too_long(job, f"{name} allows", partition.max_seconds)
    if shape.nodes < partition.min_nodes:
        message = f"the job requests {shape.nodes} nodes, but {name} requires {partition.min_nodes} or more"
        yield _finding("QUOTA_EXCEEDED", message, f"use at least {partition.min_nodes} workers", "workers")


def _of_limit(job: MPIJob, limit: Limit, shape: Layout) -> Iterator[Finding]:
    """Yield what one QOS or account does not allow; what all its jobs may have together counts for one, too."""
    nodes, memory = shape.nodes, (shape.memory_mib or 0) * shape.nodes
    cpus, gpus = shape.cpus_per_node * nodes, shape.gpus * nodes
    asked = {"nodes": nodes, "cpus": cpus, "gpus": gpus, "memory": memory}
    for words, most in (
        (f"{limit.owner} allows one job", (limit.nodes, limit.cpus, limit.gpus, limit.memory_mib)),
        (
            f"{limit.owner} allows all its jobs together",
            (limit.group_nodes, limit.group_cpus, limit.group_gpus, limit.group_memory_mib),
        ),
    ):
        yield from _over(
            job, words, **{what: (asked[what], there) for what, there in zip(asked, most, strict=True)}
        )
    yield from _too_long(job, f"{limit.owner} allows", limit.seconds)


def _over(job: MPIJob, words: str, **pairs: tuple[int, int | None]) -> Iterator[Finding]:
    for what, (asked, most) in pairs.items():
        if most is not None and asked > most:
            fits = int(job.workers * most / asked)
            hint = f"use at most {fits} workers" if fits else "request less, or use another partition or QOS"
            fixes = (Fix(hint, {"workers": fits}),) if fits else ()
            message = f"the job requests {_amount(what, asked)}; {words} {_amount(what, most)}"
            yield Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)


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


def _nodes(job: MPIJob, slurm: SlurmFacts, partition: Partition, shape: Layout) -> None:
    """Refuse what no nodes of the partition could take, even if nothing else ran."""
    wanted = [*job.placement.node_selector.values()] if job.placement.node_selector else []
    features = (
        [one for key, one in job.placement.node_selector.items() if key != "reservation"] if wanted else []
    )
    able = tuple(node for node in slurm.nodes if set(features) <= set(node.features))
    fits = holding(tuple(_whole(node) for node in able), shape)
    if not slurm.nodes or fits >= shape.nodes:
        return
    largest = max(slurm.nodes, key=lambda node: (node.gpus, node.cpus, node.memory_mib))
    each = _room(shape.cpus_per_node, shape.memory_mib or 0, shape.gpus)
    asked = f"{shape.nodes} node{'s' * (shape.nodes != 1)} with {each}"
    asked += f" and the feature{'s' * (len(features) > 1)} {', '.join(features)}" if features else ""
    has = f"its largest has {_room(largest.cpus, largest.memory_mib, largest.gpus)}"
    message = f"the job requests {asked}; partition '{partition.name}' has {fits} such, {has}"
    hint = (
        f"use at most {fits * shape.workers_per_node} workers of this size"
        if fits
        else "reduce the resources of a worker"
    )
    fixes = (Fix(hint, {"workers": fits * shape.workers_per_node}),) if fits else ()
    told = Finding(code="QUOTA_EXCEEDED", message=message, hint=hint, field="workers", fixes=fixes)
    raise QuotaExceeded(message, hint=hint, findings=(told,))


def _whole(node: NodeRoom) -> NodeRoom:
    """Return a node as if it were up: one that is drained today takes the job tomorrow."""
    return NodeRoom(
        name=node.name, cpus=node.cpus, memory_mib=node.memory_mib, gpus=node.gpus, features=node.features
    )


def _room(cpus: int, memory_mib: int, gpus: int) -> str:
    more = f", {format_with_name(Resource.GPUS, gpus)}" if gpus else ""
    return f"{format_with_name(Resource.CORES, cpus)}, {as_bytes(memory_mib * MIB)} of memory{more}"


def remarks(job: MPIJob, facts: Facts) -> tuple[Finding, ...]:
    """Return what is worth knowing of a job that is not refused."""
    slurm = facts.slurm
    return () if slurm is None or slurm.partition is None else tuple(_remarks(job, slurm, slurm.partition))


def _remarks(job: MPIJob, slurm: SlurmFacts, partition: Partition) -> Iterator[Finding]:
    shape = layout(job, slurm.nodes)
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
    if shape.workers_per_node > 1:
        message = (
            f"{job.workers} workers share {shape.nodes} nodes, {shape.workers_per_node} each: no more nodes"
        )
        yield _finding("SLURM_NOTICE", message, "nothing, or use fewer workers with more slots", "workers")
    if slurm.nodes and (now := holding(slurm.nodes, shape, now=True)) < shape.nodes:
        most = now * shape.workers_per_node
        room = f"{most} worker{'s' * (most != 1)} of this size would start now"
        down = sum(not node.usable for node in slurm.nodes)
        gone = f"; {down} of {len(slurm.nodes)} nodes are down or drained (sinfo -R says why)" if down else ""
        message = f"{now} of {shape.nodes} nodes that the job needs are free now{gone}"
        yield _finding(
            "WILL_WAIT", message, f"the job waits in the queue and starts automatically; {room}", ""
        )
    if slurm.unread:
        message = f"not checked, because Slurm did not report it: {', '.join(slurm.unread)}"
        yield _finding(
            "NOT_READ", message, "no action needed: the job is submitted anyway, and Slurm decides", ""
        )


def _finding(code: str, message: str, hint: str, field: str, severity: Severity = Severity.NOTICE) -> Finding:
    return Finding(code=code, message=message, hint=hint, field=field, severity=severity)


def _clock(seconds: float) -> str:
    """Return a time limit as people say it."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}{'s' * (seconds != length)}"
    return f"{seconds:g} s"
