"""Reading the audit: the entries that were asked for, oldest first, whoever wrote them."""

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
    """Return what was done, each act once: by its result, or as begun where no result was ever written."""
    acts: dict[str, AuditEvent] = {}
    for event in _lines(directory, query):
        known = event.audit_id in acts
        if query.wants(event) if not known else event.stage == COMPLETE:
            acts[event.audit_id] = event
    return list(deque(acts.values(), maxlen=query.limit or None))


def _lines(directory: str, query: AuditQuery) -> Iterator[AuditEvent]:
    first = f"audit-{chain.day(query.since)}.jsonl" if query.since is not None else ""
    for name in chain.files(directory):
        if name < first:
            continue
        with open(os.path.join(directory, name), "rb") as file:
            for line in file:
                try:
                    yield _decoder.decode(line)
                except (msgspec.DecodeError, msgspec.ValidationError):
                    continue  # `audit_verify` tells of it
