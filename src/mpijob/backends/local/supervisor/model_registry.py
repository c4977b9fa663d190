"""Registration of a local job's model: by the supervisor after success, or by the user later.

The registry's API is in `backends.model_registry`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mpijob import codec
from mpijob.backends import model_registry
from mpijob.backends.local.planning.volumes import Bind
from mpijob.errors import Finding, MpiJobError
from mpijob.model import Model, Plan

if TYPE_CHECKING:
    from mpijob.backends.model_registry import Registered
    from mpijob.backends.s3_volumes import Connection


def entry(
    plan: Plan, work: Path, connections: dict[str, Connection], author: str, model: Model | None = None
) -> model_registry.RegistryEntry:
    """Return the registry entry of the job's model, or of another `model` that the job wrote."""
    model = model or plan.job.model
    assert model is not None
    job = plan.job.replace(model=model)
    binds = [codec.convert(volume, Bind) for volume in plan.volumes]
    directories = {bind.target.rstrip("/"): bind.source for bind in binds} | {"": str(work)}
    buckets = {
        source: (connection.endpoint, connection.bucket, connection.region, connection.prefix)
        for source, connection in connections.items()
    }
    properties = {"mpijob.job": job.name, "mpijob.namespace": job.namespace, "mpijob.uid": plan.uid}
    properties |= {"mpijob.ranks": str(plan.world)}
    version = model.version or f"{job.name}-{plan.uid[:8]}"
    uri = model_registry.model_uri(job, buckets, directories)
    return model_registry.RegistryEntry(model.name, version, uri, model.format, author, properties)


def register(entry: model_registry.RegistryEntry, address: str, token_file: str) -> Registered:
    return model_registry.Registry(address, model_registry.read_token(token_file)).register(entry)


def register_or_finding(entry: model_registry.RegistryEntry, address: str, token_file: str) -> str | Finding:
    """Return a sentence about the registered model, or a warning; the job's success does not depend on it."""
    try:
        return model_registry.format_registered(register(entry, address, token_file))
    except MpiJobError as error:
        return model_registry.registration_failed(error)
