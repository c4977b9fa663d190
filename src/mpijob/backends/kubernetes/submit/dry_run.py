"""The server-side dry run: the API server validates the objects and stores nothing.

Schemas, webhooks and policies check the job's own objects. Its pods, which the engine creates later, are
checked as single pods, so that pod security, limit ranges and quotas are checked before anything exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpijob.backends.kubernetes.client import api_errors, resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.submit import create_objects
from mpijob.errors import Finding, Severity
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import Plan


def dry_run(api: Api, plan: Plan, home: Path) -> tuple[Finding, ...]:
    """Send all objects with dryRun=All; raise what the server refuses, return a notice."""
    accepted = [*_objects(api, plan, home)]
    try:
        pods = [*_pods(api, plan)]
    except ApiError as error:
        if not api_errors.lacks_right(error):
            raise api_errors.translate(error, doing="create the job's pods") from error
        return _notice(
            f"server-side dry run: {_joined(accepted)} accepted, its pods could not be checked: {error.message}"
        )
    return _notice(
        f"server-side dry run: {_joined(accepted)} and the pods {_joined(pods)} accepted; nothing was created"
    )


def _objects(api: Api, plan: Plan, home: Path) -> Iterator[str]:
    for document in create_objects.everything(plan, home):
        kind, name = create_objects.kind_of(document), document["metadata"]["name"]
        try:
            api.create(kind.path(plan.job.namespace), document, dry_run=True)
        except ApiError as error:
            # The runtime does not exist: its own dry run stored nothing.
            if not create_objects.is_unseen_runtime(error):
                raise api_errors.translate(error, doing=f"create {kind.name} {name}") from error
        yield f"{kind.name} {name}"


def _pods(api: Api, plan: Plan) -> Iterator[str]:
    for role, template in (found for document in plan.documents for found in _templates(document)):
        name = f"{plan.documents[-1]['metadata']['name']}-{role}"
        metadata = {**template.get("metadata", {}), "name": name, "namespace": plan.job.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        api.create(resources.POD.path(plan.job.namespace), pod, dry_run=True)
        yield name


def _templates(document: Mapping[str, Any]) -> Iterator[tuple[str, Document]]:
    """Yield role and pod template of a TrainingRuntime or an MPIJob; other objects have none."""
    if document["kind"] == resources.MPIJOB.name:
        for role, replicas in document["spec"]["mpiReplicaSpecs"].items():
            yield role.lower(), replicas["template"]
    elif document["kind"] == resources.TRAINING_RUNTIME.name:
        for job in document["spec"]["template"]["spec"]["replicatedJobs"]:
            yield job["name"], job["template"]["spec"]["template"]


def _joined(names: list[str]) -> str:
    return ", ".join(names)


def _notice(message: str) -> tuple[Finding, ...]:
    return (Finding(code="SERVER_DRY_RUN", message=message, severity=Severity.NOTICE),)
