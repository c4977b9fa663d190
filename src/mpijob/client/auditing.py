"""Asking the audit of an engine; `witness` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.client.witness import audit_directory
from mpijob.errors import BackendError, InvalidJob
from mpijob.history import audit_reading, audit_verify
from mpijob.model.audit import AuditEvent, AuditQuery

if TYPE_CHECKING:
    from mpijob.backends.base import Backend
    from mpijob.history.audit_verify import Verdict
    from mpijob.settings import Settings


def entries(backend: Backend, settings: Settings, query: AuditQuery | None = None) -> tuple[AuditEvent, ...]:
    """Return the entries that are wanted, the oldest first."""
    directory = audit_directory(backend, settings)
    try:
        return tuple(audit_reading.entries(directory, query or AuditQuery()))
    except OSError as error:
        raise _unreadable(directory, error) from error


def verify(backend: Backend, settings: Settings, anchor: str = "") -> Verdict:
    """Return whether the audit is as it was written."""
    kept = audit_verify.anchor_of(anchor) if anchor else None
    if anchor and kept is None:
        raise InvalidJob(
            f"'{anchor}' is no anchor", hint="it is what `mpijob audit verify` prints as head: NUMBER:HASH"
        )
    directory = audit_directory(backend, settings)
    try:
        return audit_verify.verify(directory, kept)
    except OSError as error:
        raise _unreadable(directory, error) from error


def _unreadable(directory: str, error: OSError) -> BackendError:
    return BackendError(f"the audit in {directory} cannot be read: {error.strerror}")
