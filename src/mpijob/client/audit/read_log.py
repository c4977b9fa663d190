"""Read and verify the audit log of an engine; `recorder` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpijob.client.audit.recorder import audit_directory
from mpijob.errors import BackendError, InvalidJob
from mpijob.history.audit import audit_query, verify_chain
from mpijob.model.status.audit import AuditEvent, AuditQuery

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.history.audit.verify_chain import ChainResult
    from mpijob.settings import Settings


def entries(backend: Backend, settings: Settings, query: AuditQuery | None = None) -> tuple[AuditEvent, ...]:
    """Return the matching entries, oldest first."""
    directory = audit_directory(backend, settings)
    try:
        return tuple(audit_query.entries(directory, query or AuditQuery()))
    except OSError as error:
        raise _unreadable(directory, error) from error


def verify(backend: Backend, settings: Settings, anchor: str = "") -> ChainResult:
    """Verify the hash chain of the audit log."""
    kept = verify_chain.parse_anchor(anchor) if anchor else None
    if anchor and kept is None:
        raise InvalidJob(
            f"'{anchor}' is not an anchor",
            hint="it is what `mpijob audit verify` prints as head: NUMBER:HASH",
        )
    directory = audit_directory(backend, settings)
    try:
        return verify_chain.verify(directory, kept)
    except OSError as error:
        raise _unreadable(directory, error) from error


def _unreadable(directory: str, error: OSError) -> BackendError:
    return BackendError(f"the audit in {directory} cannot be read: {error.strerror}")
