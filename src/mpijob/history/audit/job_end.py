"""The last audit entry of a job: its result and its usage, written by the process that observes the end.

All other entries are written by the client (`client/audit`).
"""

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


def write_job_end(
    directory: str, state: JobState, job: MPIJob | None, samples: Iterable[Sample] = (), *, user: str
) -> None:
    """Write the end of an attempt to the audit log if there is one; an error is logged only."""
    # Not created here: without a directory, the audit log is switched off.
    if not os.path.isdir(directory):
        return
    try:
        AuditLog(directory, keep_days=None).add(job_end_event(state, job, samples, user=user))
    except BackendError as error:
        _log.warning("the end of %s is not in the audit log: %s", state.ref, error.message)


def job_end_event(
    state: JobState, job: MPIJob | None, samples: Iterable[Sample] = (), *, user: str
) -> AuditEvent:
    now, ref = stamp(time.time()), state.ref
    annotations = {
        "phase": state.phase.value,
        "reason": state.reason,
        "owner": state.owner,
        "attempt": str(state.attempt),
        "workers": str(state.workers_wanted or ""),
        **consumed(state, job, samples).as_notes(),
    }
    return AuditEvent(
        kind="Event",
        api_version="audit.k8s.io/v1",
        level="Metadata",
        audit_id=new_id(),
        stage=COMPLETE,
        request_uri=f"/apis/{DOMAIN}/v1alpha1/namespaces/{ref.namespace}/jobs/{ref.name}/status",
        verb=Verb.END,
        user=User(username=user),
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
        annotations={f"{DOMAIN}/{name}": value for name, value in annotations.items() if value},
    )
