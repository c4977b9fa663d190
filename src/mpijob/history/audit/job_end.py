"""The last entry of a job: how it ended and what it has taken. Whoever sees the end writes it, not the user."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable

from mpijob.errors import BackendError
from mpijob.history.audit.audit_log import AuditLog
from mpijob.history.audit.chain import new_id
from mpijob.model import JobState, MPIJob, Sample
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
from mpijob.observation.metrics.consumption import consumed

_log = logging.getLogger(__name__)


def tell_end(
    directory: str, state: JobState, job: MPIJob | None, samples: Iterable[Sample] = (), *, who: str
) -> None:
    """Write how an attempt ended into an audit that is there; where none is kept, none is begun."""
    if not os.path.isdir(directory):
        return
    try:
        AuditLog(directory, keep_days=None).add(ending(state, job, samples, who=who))
    except BackendError as error:
        _log.warning("not recorded: the end of %s: %s", state.ref, error.message)


def ending(state: JobState, job: MPIJob | None, samples: Iterable[Sample] = (), *, who: str) -> AuditEvent:
    """Return that entry; its owner is the user whose job it was."""
    now, ref = stamp(time.time()), state.ref
    notes = {
        "phase": state.phase.value,
        "reason": state.reason,
        "owner": state.owner,
        "attempt": str(state.attempt),
        "workers": str(state.workers_wanted or ""),
        **consumed(state, job, samples).told(),
    }
    return AuditEvent(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id=new_id(),
        stage=COMPLETE,
        request_uri=f"/apis/{DOMAIN}/v1alpha1/namespaces/{ref.namespace}/jobs/{ref.name}/status",
        verb=Verb.END,
        user=User(username=who),
        object_ref=ObjectRef(
            resource="jobs",
            namespace=ref.namespace,
            name=ref.name,
            uid=ref.uid,
            api_group=DOMAIN,
            api_version="v1alpha1",
            subresource="status",
        ),
        response_status=ResponseStatus(status="Success", code=200),
        received=now,
        time=now,
        annotations={f"{DOMAIN}/{name}": value for name, value in notes.items() if value},
    )
