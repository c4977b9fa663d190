"""Audit entries: who did what to which job, from where, with what result; and never a secret.

`recorder` decides when one is written.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mpijob.errors import HTTP_STATUS, BackendError, MpiJobError
from mpijob.history.audit.chain import new_id
from mpijob.model import Identity, JobRef
from mpijob.model.status.audit import (
    COMPLETE,
    DOMAIN,
    AuditEvent,
    ObjectRef,
    ResponseStatus,
    User,
    Verb,
    stamp,
)

if TYPE_CHECKING:
    from mpijob.model import JobState, LogQuery, MPIJob

_LONGEST = 1000
_SHOWN = frozenset(
    (
        "workers",
        "slots",
        "ranks",
        "image",
        "mpi",
        "queue",
        "priority",
        "resources",
        "launcher",
        "retry",
        "deadline_seconds",
    )
)


class Origin(msgspec.Struct, frozen=True):
    """Source address and user agent of a request; a server sets it for each request."""

    addresses: tuple[str, ...]
    agent: str


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def described(job: MPIJob) -> dict[str, str]:
    """Return the fields of a job that are recorded: its size, image and queue; nothing that could contain a
    secret.
    """
    # A refused job may have a value of any type in any field.
    size, groups = job.resources, cast("object", job.groups)
    told = {
        "workers": job.workers,
        "slots": job.slots,
        "groups": " ".join(map(_group, groups)) if isinstance(groups, tuple) else "",
        "image": _safe(job.image, job) if ":" in str(job.image) and "@" in job.image else job.image,
        "mpi": job.mpi,
        "cpu": getattr(size, "cpu", ""),
        "memory": getattr(size, "memory", ""),
        "gpu": getattr(size, "gpu", ""),
        "queue": job.queue,
        "priority": job.priority,
        "deadline-seconds": job.deadline_seconds,
    }
    return {name: str(value)[:200] for name, value in told.items() if value}


def _group(group: object) -> str:
    return f"{getattr(group, 'name', '')}={getattr(group, 'workers', '')}"


def changed(old: msgspec.Struct, new: msgspec.Struct, shown: Collection[str] | None = _SHOWN) -> str:
    """Return the fields that differ, with their values if these are in `shown` (None: all), else by name only."""
    return "; ".join(_differences(_tree(old), _tree(new), shown))[:_LONGEST]


def _tree(value: Any) -> Any:
    """Return a value as nested dicts, with its defaults."""
    if isinstance(value, msgspec.Struct):
        return {name: _tree(part) for name, part in msgspec.structs.asdict(value).items()}
    return value


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], shown: Collection[str] | None, path: str = ""
) -> Iterator[str]:
    for key in sorted({*before, *after}):
        one, other, name = before.get(key), after.get(key), f"{path}{key}"
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, shown, f"{name}.")
        elif shown is None or name.partition(".")[0] in shown:
            yield f"{name}: {one} → {other}"
        else:
            yield name


def selection(query: LogQuery) -> dict[str, str]:
    """Return which lines of a log are read."""
    told = {
        "workers": spanned(query.workers) if query.workers or not (query.ranks or query.roles) else "",
        "ranks": spanned(query.ranks) if query.ranks else "",
        "roles": ", ".join(query.roles),
        "attempt": str(query.attempt or ""),
        "follow": "true" if query.follow else "",
    }
    return {name: value for name, value in told.items() if value}


def spanned(numbers: tuple[int, ...]) -> str:
    """Return numbers as `0-3,7`; `all` for none."""
    from mpijob.model.status.records import spans

    return spans(numbers) if numbers else "all"


def phase_of(state: JobState) -> dict[str, str]:
    return {"phase": state.phase.value}


def event(
    verb: Verb,
    ref: JobRef,
    who: Identity,
    details: Mapping[str, str],
    stage: str,
    origin: Origin | None,
    resource: str = "jobs",
) -> AuditEvent:
    """Return the first entry of an action."""
    origin = origin or here()
    now = stamp(time.time())
    return AuditEvent(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id=new_id(),
        stage=stage,
        request_uri=f"/apis/{DOMAIN}/v1alpha1/namespaces/{ref.namespace}/{resource}/{ref.name}",
        verb=verb.value,
        user=User(username=who.user, groups=who.groups),
        source_ips=origin.addresses,
        user_agent=origin.agent[:200],
        object_ref=ObjectRef(
            resource=resource,
            namespace=ref.namespace,
            name=ref.name,
            uid=ref.uid,
            api_group=DOMAIN,
            api_version="v1alpha1",
        ),
        received=now,
        time=now,
        annotations={f"{DOMAIN}/{name}": value for name, value in details.items()},
    )


def finished(
    entry: AuditEvent,
    error: MpiJobError | None = None,
    job: MPIJob | None = None,
    more: Mapping[str, str] = {},
) -> AuditEvent:
    """Return the entry for the result of an action."""
    if error is None:
        status = ResponseStatus(status="Success", code=201 if entry.verb == Verb.CREATE else 200)
    else:
        status = ResponseStatus(
            status="Failure",
            message=_safe(error.message, job),
            reason=error.code,
            code=HTTP_STATUS[error.kind],
        )
    notes = {**entry.annotations, **{f"{DOMAIN}/{name}": value for name, value in more.items()}}
    return msgspec.structs.replace(
        entry, stage=COMPLETE, response_status=status, time=stamp(time.time()), annotations=notes
    )


def _safe(message: str, job: MPIJob | None) -> str:
    """Return an error message with secrets masked."""
    from mpijob.observation.redaction import masking

    values = masking.secret_values(job) if job is not None else ()
    return masking.masked_text(message, values)[:_LONGEST]


def broken(error: BaseException) -> MpiJobError:
    """Return the error to record for an exception that is neither a result nor a refusal."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)) or type(error).__name__ == "CancelledError":
        return BackendError("interrupted; the outcome is unknown")
    return MpiJobError(f"a bug in mpijob: {type(error).__name__}")


def here() -> Origin:
    """Return the origin for this process: the address from which its user came by ssh, or loopback."""
    from mpijob import __version__

    came = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    # A user can set the variable to anything: only characters of an address are accepted.
    known = came if came and all(letter in "0123456789abcdefABCDEF.:" for letter in came) else "127.0.0.1"
    program = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return Origin((known,), f"mpijob/{__version__} ({program[:60]})")
