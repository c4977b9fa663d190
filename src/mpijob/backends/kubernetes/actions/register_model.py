"""Writing the model of a cluster's job down in the model registry: where it is, by the job's volumes and Secrets."""

from __future__ import annotations

from mpijob.backends import model_registry, s3_volumes
from mpijob.backends.kubernetes.actions import artifacts
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.model_registry import Registered
from mpijob.model import JobState, Model, MPIJob, VolumeKind
from mpijob.settings import Settings


def register(api: Api, state: JobState, job: MPIJob, model: Model, settings: Settings) -> Registered:
    """Write it down; the author is whoever the job belongs to."""
    known = {
        one.source: _place(api, job.namespace, one.source)
        for one in job.volumes
        if one.kind is VolumeKind.S3 and model.path.startswith(one.mount.rstrip("/"))
    }
    where = model_registry.model_uri(job.replace(model=model), known, {})
    told = {"mpijob.job": job.name, "mpijob.namespace": job.namespace, "mpijob.uid": state.ref.uid}
    told |= {"mpijob.ranks": str(state.world), "mpijob.image": job.image}
    version = model.version or f"{job.name}-{state.ref.uid[:8]}"
    entry = model_registry.RegistryEntry(model.name, version, where, model.format, state.owner, told)
    return model_registry.Registry(
        settings.model_registry, model_registry.read_token(settings.model_registry_token_file)
    ).register(entry)


def _place(api: Api, namespace: str, source: str) -> tuple[str, str, str, str]:
    """Return endpoint, bucket, region and prefix of a data connection."""
    one = artifacts.connection(api, namespace, s3_volumes.split_source(source)[0])
    return one.endpoint, one.bucket, one.region, one.prefix
