"""Jobs of the Training Operator (before Trainer v2), as far as a job's fields can express them.

They are only shown. `convert` migrates MPIJobs; the other kinds are not MPI jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes.pod_reader import from_pods, understandable
from mpijob.formats.status import job_conditions
from mpijob.formats.status.nested_fields import part
from mpijob.model import MPIJob


@understandable
def read(document: Mapping[str, Any]) -> MPIJob:
    """Return a job's fields; the leading replica (launcher, master or chief) has the command."""
    pods = {
        role: part(one, "template", "spec") for role, one in job_conditions.replica_specs(document).items()
    }
    if not pods:
        kind = document.get("kind")
        raise InvalidJob(f"this {kind} has no replica specs", hint="check its spec with kubectl get -o yaml")
    worker = pods.get("worker") or next(iter(pods.values()))
    first = next((pods[role] for role in ("launcher", "master", "chief") if role in pods), worker)
    metadata = document["metadata"]
    workers = max(1, job_conditions.of(document, None, None).workers)
    return MPIJob(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        workers=workers,
        **from_pods(worker, first),
    )
