"""Writing a job's model down in the model registry, by the engine when it has succeeded, or by hand later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mpijob import shapes
from mpijob.backends import models
from mpijob.backends.local.volumes import Bind
from mpijob.errors import Finding, MpiJobError
from mpijob.model import Model, Plan

if TYPE_CHECKING:
    from mpijob.backends.buckets import Connection
    from mpijob.backends.models import Registered


def entry(
    plan: Plan, work: Path, connections: dict[str, Connection], author: str, model: Model | None = None
) -> models.Entry:
    """Return what is written down about a job that ran here."""
    wanted = model or plan.job.model
    assert wanted is not None
    job = plan.job.replace(model=wanted)
    binds = [shapes.convert(volume, Bind) for volume in plan.volumes]
    directories = {bind.target.rstrip("/"): bind.source for bind in binds} | {"": str(work)}
    buckets = {key: (one.endpoint, one.bucket, one.region, one.prefix) for key, one in connections.items()}
    told = {"mpijob.job": job.name, "mpijob.namespace": job.namespace, "mpijob.uid": plan.uid}
    told |= {"mpijob.ranks": str(plan.world)}
    version = wanted.version or f"{job.name}-{plan.uid[:8]}"
    where = models.uri_of(job, buckets, directories)
    return models.Entry(wanted.name, version, where, wanted.format, author, told)


def register(what: models.Entry, address: str, token_file: str) -> Registered:
    """Write it down."""
    return models.Registry(address, models.token_of(token_file)).register(what)


def tried(what: models.Entry, address: str, token_file: str) -> str | Finding:
    """Return what was written down, or the finding that it could not be: the job has succeeded all the same."""
    try:
        return models.told(register(what, address, token_file))
    except MpiJobError as error:
        return models.not_registered(error)
