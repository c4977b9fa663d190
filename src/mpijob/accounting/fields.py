"""The fields of an account by name, as `mpijob acct --format` and CSV files show them; sacct's names work too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mpijob.accounting import costs
from mpijob.errors import InvalidJob
from mpijob.model.spec.enums import did_you_mean
from mpijob.model.spec.quantity import as_bytes
from mpijob.model.status.accounts import Account
from mpijob.settings import RateSetting

Rates = Mapping[str, RateSetting]


class Field(NamedTuple):
    """One field: its sentence, its value, and how people read it."""

    text: str
    value: Callable[[Account, Rates], Any]
    shown: Callable[[Any], str] = lambda value: "-" if value in (None, "") else str(value)


def _moment(value: float | None) -> str:
    return "-" if not value else datetime.fromtimestamp(value).strftime("%Y-%m-%dT%H:%M:%S")


def _iso(value: float | None) -> str | None:
    return None if not value else datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")


def _local(value: str | None) -> str:
    return "-" if value is None else _moment(datetime.fromisoformat(value).timestamp())


def _span(value: float | None) -> str:
    """Return seconds as sacct writes them: [days-]hours:minutes:seconds."""
    if value is None:
        return "-"
    whole = round(value)
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _bytes(value: float | None) -> str:
    return "-" if not value else as_bytes(value)


def _used(name: str) -> Callable[[Account, Rates], Any]:
    return lambda one, _: getattr(one, name) if one.measured else None


def _of(name: str) -> Callable[[Account, Rates], Any]:
    return lambda one, _: getattr(one, name)


def _share(used: float, held: float, measured: bool) -> float | None:
    return used / held if measured and held else None


def _labels(one: Account, _: Rates) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(one.labels.items()))


FIELDS: dict[str, Field] = {
    "name": Field("the job's name", lambda one, _: one.ref.name),
    "namespace": Field("its namespace", lambda one, _: one.ref.namespace),
    "uid": Field("its own number, also when the name was used again", lambda one, _: one.ref.uid),
    "user": Field("who submitted it", _of("owner")),
    "state": Field("where it stands, or how it ended", lambda one, _: one.phase.value),
    "queue": Field("the queue it waited in", _of("queue")),
    "engine": Field("what ran it", _of("engine")),
    "mpi": Field("the MPI family", _of("mpi")),
    "image": Field("the container image", _of("image")),
    "program": Field("the same for jobs that run the same command", _of("program")),
    "labels": Field("its labels", _labels),
    "workers": Field("how many workers", _of("workers")),
    "ranks": Field("how many ranks", _of("ranks")),
    "nodes": Field("the nodes it ran on", lambda one, _: ",".join(one.nodes)),
    "attempts": Field("how often it was tried", _of("attempt")),
    "attempt": Field("which attempt it is, where each has an account of its own", _of("attempt")),
    "submit": Field("when it was submitted", lambda one, _: _iso(one.created), _local),
    "start": Field("when it got its room", lambda one, _: _iso(one.started), _local),
    "end": Field("when it ended", lambda one, _: _iso(one.ended), _local),
    "deleted": Field("when it was deleted", lambda one, _: _iso(one.deleted), _local),
    "waited": Field("seconds in the queue", _of("queued_seconds"), _span),
    "elapsed": Field("seconds for which it held its room", _of("held_seconds"), _span),
    "exit": Field("its exit code", _of("exit_code")),
    "reason": Field("the engine's word for its end", _of("reason")),
    "cause": Field("the code of what made it fail", _of("cause")),
    "message": Field("how it ended, in a sentence", _of("message")),
    "cores": Field("cores held", _of("cores"), _number),
    "memory": Field("bytes of memory held", _of("memory_bytes"), _bytes),
    "gpus": Field("GPUs held", _of("gpus")),
    "core_hours": Field("core-hours held", _of("core_hours"), _number),
    "core_hours_used": Field("core-hours busy", _used("core_hours_used"), _number),
    "cpu_efficiency": Field(
        "share of the held cores that was busy",
        lambda one, _: _share(one.core_hours_used, one.core_hours, one.measured), _percent,
    ),
    "gib_hours": Field("GiB-hours of memory held", _of("gib_hours"), _number),
    "gib_hours_used": Field("GiB-hours of memory used", _used("gib_hours_used"), _number),
    "peak_memory": Field("most bytes that one worker used", _used("peak_bytes"), _bytes),
    "gpu_hours": Field("GPU-hours held", _of("gpu_hours"), _number),
    "gpu_hours_used": Field("GPU-hours busy", _used("gpu_hours_used"), _number),
    "gpu_efficiency": Field(
        "share of the held GPUs that was busy",
        lambda one, _: _share(one.gpu_hours_used, one.gpu_hours, one.measured), _percent,
    ),
    "cost": Field("what the room that it held costs", costs.cost, _number),
    "currency": Field("of the cost", lambda one, rates: costs.rate(rates, one.ref.namespace).currency),
}  # fmt: skip
_SACCT = {
    "jobname": "name", "jobid": "uid", "jobidraw": "uid", "account": "namespace", "partition": "queue",
    "ntasks": "ranks", "nnodes": "workers", "nodelist": "nodes", "exitcode": "exit", "elapsedraw": "elapsed",
    "reserved": "waited", "planned": "waited", "maxrss": "peak_memory", "alloccpus": "cores", "ncpus": "cores",
    "reqmem": "memory", "eligible": "submit", "cputimeraw": "core_hours", "totalcpu": "core_hours_used",
    "comment": "message",
}  # fmt: skip
USUAL = ("name", "user", "state", "exit", "start", "waited", "elapsed", "workers", "core_hours", "cpu_efficiency",
         "gpu_hours", "cost", "cause")  # fmt: skip


def named(text: str) -> tuple[str, ...]:
    """Return the fields in `name,user,elapsed`; refuse a word that is none."""
    found = []
    for word in (part.strip().lower().partition("%")[0] for part in text.split(",")):
        name = _SACCT.get(word.replace("_", ""), word.replace("-", "_"))
        if name not in FIELDS:
            meant = did_you_mean(name, list(FIELDS))
            raise InvalidJob(
                f"there is no field '{word}'" + (f"; did you mean '{meant}'?" if meant else ""),
                hint=f"the fields are {', '.join(FIELDS)}",
            )
        found.append(name)
    return tuple(found)


def values(one: Account, names: tuple[str, ...], rates: Rates) -> dict[str, Any]:
    """Return some fields of an account as a program reads them."""
    return {name: FIELDS[name].value(one, rates) for name in names}


def shown(one: Account, names: tuple[str, ...], rates: Rates) -> tuple[str, ...]:
    """Return some fields of an account as people read them."""
    return tuple(FIELDS[name].shown(FIELDS[name].value(one, rates)) for name in names)
