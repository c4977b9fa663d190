"""Writing a job's model down in the model registry, by the engine when it has succeeded, or by hand later."""

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
    """Return what is written down about a job that ran here."""
    wanted = model or plan.job.model
    assert wanted is not None
    job = plan.job.replace(model=wanted)
    binds = [codec.convert(volume, Bind) for volume in plan.volumes]
    directories = {bind.target.rstrip("/"): bind.source for bind in binds} | {"": str(work)}
    buckets = {key: (one.endpoint, one.bucket, one.region, one.prefix) for key, one in connections.items()}
    told = {"mpijob.job": job.name, "mpijob.namespace": job.namespace, "mpijob.uid": plan.uid}
    told |= {"mpijob.ranks": str(plan.world)}
    version = wanted.version or f"{job.name}-{plan.uid[:8]}"
    where = model_registry.model_uri(job, buckets, directories)
    return model_registry.RegistryEntry(wanted.name, version, where, wanted.format, author, told)


def register(what: model_registry.RegistryEntry, address: str, token_file: str) -> Registered:
    """Write it down."""
    return model_registry.Registry(address, model_registry.read_token(token_file)).register(what)


def register_or_finding(what: model_registry.RegistryEntry, address: str, token_file: str) -> str | Finding:
    """Return what was written down, or the finding that it could not be: the job has succeeded all the same."""
    try:
        return model_registry.format_registered(register(what, address, token_file))
    except MpiJobError as error:
        return model_registry.registration_failed(error)
