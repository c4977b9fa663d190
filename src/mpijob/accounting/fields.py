"""The fields of an account by name, as in `mpijob acct --format` and CSV files; sacct's names work too."""

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
    """One field: its description, its value, and its display format."""

    description: str
    value: Callable[[Account, Rates], Any]
    format: Callable[[Any], str] = lambda value: "-" if value in (None, "") else str(value)


def _format_time(value: float | None) -> str:
    return "-" if not value else datetime.fromtimestamp(value).strftime("%Y-%m-%dT%H:%M:%S")


def _iso(value: float | None) -> str | None:
    return None if not value else datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")


def _format_iso(value: str | None) -> str:
    return "-" if value is None else _format_time(datetime.fromisoformat(value).timestamp())


def _format_duration(value: float | None) -> str:
    """Format seconds as sacct does: [days-]hours:minutes:seconds."""
    if value is None:
        return "-"
    total = round(value)
    days, rest = divmod(total, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _format_percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _format_bytes(value: float | None) -> str:
    return "-" if not value else as_bytes(value)


# None if nothing was measured: 0 would say that the job used nothing.
def _measured_attribute(name: str) -> Callable[[Account, Rates], Any]:
    return lambda account, _: getattr(account, name) if account.measured else None


def _attribute(name: str) -> Callable[[Account, Rates], Any]:
    return lambda account, _: getattr(account, name)


def _ratio(used: float, held: float, measured: bool) -> float | None:
    return used / held if measured and held else None


def _labels(account: Account, _: Rates) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(account.labels.items()))


FIELDS: dict[str, Field] = {
    "name": Field("the job's name", lambda account, _: account.ref.name),
    "namespace": Field("its namespace", lambda account, _: account.ref.namespace),
    "uid": Field("unique ID; a reused name gets a new one", lambda account, _: account.ref.uid),
    "user": Field("who submitted it", _attribute("owner")),
    "state": Field("current phase, or how it ended", lambda account, _: account.phase.value),
    "queue": Field("the queue it was submitted to", _attribute("queue")),
    "engine": Field("the engine that ran it", _attribute("engine")),
    "mpi": Field("the MPI family", _attribute("mpi")),
    "image": Field("the container image", _attribute("image")),
    "program": Field("id shared by jobs that run the same command", _attribute("program")),
    "labels": Field("its labels", _labels),
    "workers": Field("number of workers", _attribute("workers")),
    "ranks": Field("number of ranks", _attribute("ranks")),
    "nodes": Field("the nodes it ran on", lambda account, _: ",".join(account.nodes)),
    "attempts": Field("number of attempts", _attribute("attempt")),
    "attempt": Field("number of the attempt, if attempts are listed separately", _attribute("attempt")),
    "submit": Field("when it was submitted", lambda account, _: _iso(account.created), _format_iso),
    "start": Field("when its resources were allocated", lambda account, _: _iso(account.started), _format_iso),
    "end": Field("when it ended", lambda account, _: _iso(account.ended), _format_iso),
    "deleted": Field("when it was deleted", lambda account, _: _iso(account.deleted), _format_iso),
    "waited": Field("seconds in the queue", _attribute("queued_seconds"), _format_duration),
    "elapsed": Field("seconds for which it held resources", _attribute("held_seconds"), _format_duration),
    "exit": Field("its exit code", _attribute("exit_code")),
    "reason": Field("the engine's reason for its final phase", _attribute("reason")),
    "cause": Field("the message code of the cause of its failure", _attribute("cause")),
    "message": Field("how it ended, as a sentence", _attribute("message")),
    "cores": Field("allocated cores", _attribute("cores"), _format_number),
    "memory": Field("allocated memory in bytes", _attribute("memory_bytes"), _format_bytes),
    "gpus": Field("allocated GPUs", _attribute("gpus")),
    "core_hours": Field("allocated core-hours", _attribute("core_hours"), _format_number),
    "core_hours_used": Field("core-hours used", _measured_attribute("core_hours_used"), _format_number),
    "cpu_efficiency": Field(
        "fraction of the allocated cores that was used",
        lambda account, _: _ratio(account.core_hours_used, account.core_hours, account.measured), _format_percent,
    ),
    "gib_hours": Field("allocated GiB-hours of memory", _attribute("gib_hours"), _format_number),
    "gib_hours_used": Field("GiB-hours of memory used", _measured_attribute("gib_hours_used"), _format_number),
    "peak_memory": Field("peak memory of one worker in bytes", _measured_attribute("peak_bytes"), _format_bytes),
    "gpu_hours": Field("allocated GPU-hours", _attribute("gpu_hours"), _format_number),
    "gpu_hours_used": Field("GPU-hours used", _measured_attribute("gpu_hours_used"), _format_number),
    "gpu_efficiency": Field(
        "fraction of the allocated GPUs that was used",
        lambda account, _: _ratio(account.gpu_hours_used, account.gpu_hours, account.measured), _format_percent,
    ),
    "cost": Field("cost of the allocated resources", costs.cost, _format_number),
    "currency": Field("currency of the cost", lambda account, rates: costs.rate(rates, account.ref.namespace).currency),
}  # fmt: skip
# sacct's names in lower case and without underscores, for formats that users have in scripts. There, an account
# is what pays for a job: a namespace here.
_SACCT_NAMES = {
    "jobname": "name", "jobid": "uid", "jobidraw": "uid", "account": "namespace", "partition": "queue",
    "ntasks": "ranks", "nnodes": "workers", "nodelist": "nodes", "exitcode": "exit", "elapsedraw": "elapsed",
    "reserved": "waited", "planned": "waited", "maxrss": "peak_memory", "alloccpus": "cores", "ncpus": "cores",
    "reqmem": "memory", "eligible": "submit", "cputimeraw": "core_hours", "totalcpu": "core_hours_used",
    "comment": "message",
}  # fmt: skip
DEFAULT_FIELDS = (
    "name", "user", "state", "exit", "start", "waited", "elapsed", "workers", "core_hours", "cpu_efficiency",
    "gpu_hours", "cost", "cause",
)  # fmt: skip


def parse_fields(text: str) -> tuple[str, ...]:
    """Parse a list such as `name,user,elapsed`; raise InvalidJob for an unknown field."""
    fields = []
    # sacct's format may have a width, as in `jobname%30`.
    for field in (part.strip().lower().partition("%")[0] for part in text.split(",")):
        name = _SACCT_NAMES.get(field.replace("_", ""), field.replace("-", "_"))
        if name not in FIELDS:
            suggestion = did_you_mean(name, list(FIELDS))
            raise InvalidJob(
                f"no field '{field}'" + (f"; did you mean '{suggestion}'?" if suggestion else ""),
                hint=f"the fields are {', '.join(FIELDS)}",
            )
        fields.append(name)
    return tuple(fields)


def values(account: Account, names: tuple[str, ...], rates: Rates) -> dict[str, Any]:
    """Return fields of an account as data."""
    return {name: FIELDS[name].value(account, rates) for name in names}


def format_values(account: Account, names: tuple[str, ...], rates: Rates) -> tuple[str, ...]:
    """Return fields of an account as text."""
    return tuple(FIELDS[name].format(FIELDS[name].value(account, rates)) for name in names)
