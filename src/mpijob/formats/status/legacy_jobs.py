"""Jobs of the Training Operator, the kinds of before Trainer v2: what they ask for, as far as our words tell it.

They are read only: a job of theirs that has a launcher moves by `migration`, the others are no MPI jobs.
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
    """Return what a job asks for; the part that leads the others says the command."""
    pods = {
        role: part(one, "template", "spec") for role, one in job_conditions.replica_specs(document).items()
    }
    if not pods:
        kind = document.get("kind")
        raise InvalidJob(f"this {kind} has no replica specs", hint="check its spec with kubectl get -o yaml")
    worker = pods.get("worker") or next(iter(pods.values()))
    first = next((pods[role] for role in ("launcher", "master", "chief") if role in pods), worker)
    about = document["metadata"]
    workers = max(1, job_conditions.of(document, None, None).workers)
    return MPIJob(
        name=about["name"],
        namespace=about.get("namespace") or "default",
        workers=workers,
        **from_pods(worker, first),
    )
