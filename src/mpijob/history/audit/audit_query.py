"""Query the audit log: matching entries of all users, oldest first."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

import msgspec

from mpijob import codec
from mpijob.history.audit import chain
from mpijob.model.status.audit import COMPLETE, AuditEvent, AuditQuery

_decoder = codec.decoder(AuditEvent)


def entries(directory: str, query: AuditQuery) -> list[AuditEvent]:
    """Return each operation once: its result, or its start if no result was written."""
    # An operation has two lines with one id: its request and its result (docs/decisions/0026).
    by_id: dict[str, AuditEvent] = {}
    for event in _events(directory, query):
        is_known = event.audit_id in by_id
        if query.wants(event) if not is_known else event.stage == COMPLETE:
            by_id[event.audit_id] = event
    return list(deque(by_id.values(), maxlen=query.limit or None))


def _events(directory: str, query: AuditQuery) -> Iterator[AuditEvent]:
    first = f"audit-{chain.day(query.since)}.jsonl" if query.since is not None else ""
    for name in chain.daily_files(directory):
        if name < first:
            continue
        with open(os.path.join(directory, name), "rb") as file:
            for line in file:
                try:
                    yield _decoder.decode(line)
                except (msgspec.DecodeError, msgspec.ValidationError):
                    # `verify_chain` reports it.
                    continue
