"""Rules about the shape of the world: workers, slots, ranks, cores per rank, resources of each worker.

`admission` decides whether there is capacity; these rules find contradictions only.
"""

from __future__ import annotations

import re

from mpijob.checks.rule import Findings, Limits, at, dns_name, error, notice, warning
from mpijob.model import MPIJob, Resources
from mpijob.model.spec import quantity
from mpijob.model.spec.enums import GPU_KINDS, MIG_PREFIX, choice_hint, shown
from mpijob.model.spec.quantity import Amount, as_bytes, as_count

MAX_SLOTS = 512
MAX_GPUS = 8
_MIB = 1024**2
_GIB = 1024**3
_MIG = re.compile(r"[0-9]g\.[0-9]+gb(\.me)?")
_WITH_B = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([kmgtp])i?b", re.IGNORECASE)
_OVERSUBSCRIBE = re.compile(r"(?<!no)(?<!no-)oversubscribe", re.IGNORECASE)


def workers(job: MPIJob, limits: Limits) -> Findings:
    """Between 1 and the administrator's limit; a single worker is a notice."""
    if not 1 <= job.workers <= limits.max_workers:
        nearest = min(max(job.workers, 1), limits.max_workers)
        message = f"{shown(job.workers)} workers requested; 1 to {limits.max_workers} are allowed"
        yield error("workers", message, f"use workers: {nearest}", {"workers": nearest})
    elif job.workers == 1 and job.world == 1:
        message = "one worker with one rank: nothing is distributed"
        yield warning("workers", message, "use 2 workers or more, or more slots")


def slots(job: MPIJob, limits: Limits) -> Findings:
    """Between 1 and 512 ranks on one worker."""
    if not 1 <= job.slots <= MAX_SLOTS:
        message = f"{shown(job.slots)} slots per worker requested; 1 to {MAX_SLOTS} are allowed"
        yield error("slots", message, "slots is the number of ranks on each worker")


def ranks(job: MPIJob, limits: Limits) -> Findings:
    """At least one rank, and no more than slots unless the job asks for it."""
    room = job.total_slots
    if job.ranks is not None and job.ranks < 1:
        yield error(
            "ranks",
            f"{shown(job.ranks)} ranks requested; at least 1 is required",
            "remove ranks to use every slot",
        )
    elif room >= 1 and job.world > room and not oversubscribed(job):
        message = f"{shown(job.world)} ranks do not fit: {counted_slots(job)} = {shown(room)}"
        yield error("programs" if job.programs else "ranks", message, _more_room(job), _wider(job))


def counted_slots(job: MPIJob) -> str:
    """Return the slots of all workers as a calculation: `2 workers × 4 slots + 1 worker × 8 slots`."""
    return " + ".join(
        f"{_counted(part.job.workers, 'worker')} × {_counted(part.job.slots, 'slot')}" for part in job.parts
    )


def _counted(number: int, what: str) -> str:
    return f"{shown(number)} {what}{'s' * (number != 1)}"


def _more_room(job: MPIJob) -> str:
    wider = "more slots in a group" if job.groups else f"slots: {_slots_needed(job)}"
    return f"use {wider}, fewer ranks, or set launch.flags: [--oversubscribe]"


def _wider(job: MPIJob) -> dict[str, int] | None:
    return None if job.groups else {"slots": _slots_needed(job)}


def _slots_needed(job: MPIJob) -> int:
    return -(-min(job.world, 1 << 62) // max(1, job.workers))


def oversubscribed(job: MPIJob) -> bool:
    """Return whether the job asks for more ranks than slots."""
    words = (
        *job.launch.flags,
        job.launch.map_by,
        *(f"{key}={value}" for key, value in job.launch.settings.items()),
    )
    return any(_OVERSUBSCRIBE.search(word) for word in words)


def cores(job: MPIJob, limits: Limits) -> Findings:
    """Each rank has at least one core, and a worker as many as its ranks use."""
    if job.cores_per_rank < 1:
        message = f"{shown(job.cores_per_rank)} cores per rank requested; at least 1 is required"
        yield error("cores_per_rank", message, "remove it for one core per rank")
        return
    wanted, given = job.cores_per_rank * job.slots, _amount(job.resources.cpu)
    if given and job.cores_per_rank > 1 and wanted > given:
        counted = f"{shown(job.slots)} ranks × {shown(job.cores_per_rank)} cores = {shown(wanted)} cores"
        message = f"{counted}, but resources.cpu is {as_count(given)}"
        patch = {"resources": {"cpu": wanted}}
        yield warning("cores_per_rank", message, f"use resources.cpu: {shown(wanted)}", patch)


def gpus(job: MPIJob, limits: Limits) -> Findings:
    """Number and kind of GPUs are valid, for workers and launcher."""
    for field, part in (("resources", job.resources), ("launcher", job.launcher)):
        if not 0 <= part.gpu <= MAX_GPUS:
            message = f"{shown(part.gpu)} GPUs requested; 0 to {MAX_GPUS} are allowed on one worker"
            yield error(f"{field}.gpu", message, "distribute the GPUs over more workers")
        if not _gpu_kind(part.gpu_kind):
            known = (*GPU_KINDS, f"{MIG_PREFIX}1g.5gb")
            yield error(
                f"{field}.gpu_kind",
                f"{shown(part.gpu_kind)} is not a valid value",
                choice_hint(part.gpu_kind, known),
            )


def _gpu_kind(kind: str) -> bool:
    if kind.startswith(MIG_PREFIX):
        return _MIG.fullmatch(kind.removeprefix(MIG_PREFIX)) is not None
    return kind in GPU_KINDS


def slots_against_gpus(job: MPIJob, limits: Limits) -> Findings:
    """Each rank has one GPU or several, or several ranks share one evenly."""
    gpu, slot = job.resources.gpu, job.slots
    if not 1 <= gpu <= MAX_GPUS or not 1 <= slot <= MAX_SLOTS:
        return
    if slot > gpu:
        message = f"{slot} slots share {gpu} GPUs on each worker: several ranks use one GPU"
        yield warning("slots", message, f"use slots: {gpu} for one GPU per rank", {"slots": gpu})
    elif gpu % slot:
        message = f"{gpu} GPUs cannot be shared evenly by {slot} slots: {gpu % slot} stay idle on each worker"
        yield warning("slots", message, f"use slots: {gpu} for one GPU per rank", {"slots": gpu})


def amounts(job: MPIJob, limits: Limits) -> Findings:
    """CPU and memory are positive amounts or `none`; other resources are amounts."""
    for field, part in (("resources", job.resources), ("launcher", job.launcher)):
        for name, amount in (("cpu", part.cpu), ("memory", part.memory)):
            if amount != quantity.NONE:
                yield from _positive(f"{field}.{name}", amount)
        yield from _not_bytes_by_mistake(f"{field}.memory", part.memory)
        yield from _others(field, part)
    yield from _small(job)


def _positive(field: str, amount: Amount) -> Findings:
    number = _amount(amount)
    if number is None:
        yield error(field, f"{shown(amount)} is not an amount", _meant(amount) or _AMOUNT_HINT)
    elif number <= 0:
        yield error(field, f"{shown(amount)} is not allowed: it must be more than 0", _AMOUNT_HINT)


def _meant(amount: Amount) -> str:
    """Return a size with a disk's unit (`100GB`) in a valid form."""
    match = _WITH_B.fullmatch(amount) if isinstance(amount, str) else None
    if match is None:
        return ""
    number, unit = match[1], match[2].upper()
    return f"write {number}{unit.replace('K', 'k')} or {number}{unit}i, without the B"


def _not_bytes_by_mistake(field: str, amount: Amount) -> Findings:
    """A plain number means bytes, as in Kubernetes; a small one is a mistake."""
    size = _amount(amount)
    if size and size < _MIB:
        yield error(
            field, f"{shown(amount)} means {as_bytes(size)}: no process fits", f"did you mean {amount}Gi?"
        )


_AMOUNT_HINT = "for example: cpu: 2, cpu: 500m, memory: 4Gi"


def _others(field: str, part: Resources) -> Findings:
    for name, amount in part.others.items():
        prefix, slash, last = name.rpartition("/")
        if not dns_name(last.lower().replace("_", "-")) or (slash and not dns_name(prefix)):
            yield error(
                f"{field}.others", f"{shown(name)} cannot be the name of a resource", "for example: rdma/hca"
            )
        elif name.startswith(GPU_KINDS) or name in ("cpu", "memory"):
            yield error(
                at(f"{field}.others", name),
                f"{name} has its own field",
                f"use {field}.gpu, cpu or memory",
            )
        elif _amount(amount) is None:
            yield from _positive(at(f"{field}.others", name), amount)


def _small(job: MPIJob) -> Findings:
    cpu, memory = _amount(job.resources.cpu), _amount(job.resources.memory)
    if cpu and cpu < 1:
        yield notice(
            "resources.cpu",
            f"CPU per worker ({as_count(cpu)} cores) is below the default (1 core)",
        )
    if memory and memory < _GIB:
        message = f"memory per worker ({as_bytes(memory)}) is below the default (1 GiB)"
        yield notice("resources.memory", message)


def _amount(amount: Amount) -> float | None:
    try:
        number = quantity.parse(amount)
    except ValueError:
        return None
    return number if number < quantity.MOST else None
