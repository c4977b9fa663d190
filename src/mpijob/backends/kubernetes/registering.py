"""Writing the model of a cluster's job down in the model registry: where it is, by the job's volumes and Secrets."""

from __future__ import annotations

from mpijob.backends import buckets, models
from mpijob.backends.kubernetes import results
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.models import Registered
from mpijob.model import JobState, Model, MPIJob, VolumeKind
from mpijob.settings import Settings


def register(api: Api, state: JobState, job: MPIJob, model: Model, settings: Settings) -> Registered:
    """Write it down; the author is whoever the job belongs to."""
    known = {
        one.source: _place(api, job.namespace, one.source)
        for one in job.volumes
        if one.kind is VolumeKind.S3 and model.path.startswith(one.mount.rstrip("/"))
    }
    where = models.uri_of(job.replace(model=model), known, {})
    told = {"mpijob.job": job.name, "mpijob.namespace": job.namespace, "mpijob.uid": state.ref.uid}
    told |= {"mpijob.ranks": str(state.world), "mpijob.image": job.image}
    version = model.version or f"{job.name}-{state.ref.uid[:8]}"
    entry = models.Entry(model.name, version, where, model.format, state.owner, told)
    return models.Registry(
        settings.model_registry, models.token_of(settings.model_registry_token_file)
    ).register(entry)


def _place(api: Api, namespace: str, source: str) -> tuple[str, str, str, str]:
    """Return endpoint, bucket, region and prefix of a data connection."""
    one = results.connection(api, namespace, buckets.parted(source)[0])
    return one.endpoint, one.bucket, one.region, one.prefix
