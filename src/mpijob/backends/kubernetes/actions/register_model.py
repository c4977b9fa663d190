"""Registers the model of a cluster's job in the model registry, with its URI from the job's volumes and Secrets."""

from __future__ import annotations

from mpijob.backends import model_registry, s3_volumes
from mpijob.backends.kubernetes.actions import artifacts
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.model_registry import Registered
from mpijob.model import JobState, Model, MPIJob, VolumeKind
from mpijob.settings import Settings


def register(api: Api, state: JobState, job: MPIJob, model: Model, settings: Settings) -> Registered:
    """Register the model; its author is the job's owner."""
    known = {
        volume.source: _place(api, job.namespace, volume.source)
        for volume in job.volumes
        if volume.kind is VolumeKind.S3 and model.path.startswith(volume.mount.rstrip("/"))
    }
    where = model_registry.model_uri(job.replace(model=model), known, {})
    properties = {"mpijob.job": job.name, "mpijob.namespace": job.namespace, "mpijob.uid": state.ref.uid}
    properties |= {"mpijob.ranks": str(state.world), "mpijob.image": job.image}
    version = model.version or f"{job.name}-{state.ref.uid[:8]}"
    entry = model_registry.RegistryEntry(model.name, version, where, model.format, state.owner, properties)
    return model_registry.Registry(
        settings.model_registry, model_registry.read_token(settings.model_registry_token_file)
    ).register(entry)


def _place(api: Api, namespace: str, source: str) -> tuple[str, str, str, str]:
    connection = artifacts.connection(api, namespace, s3_volumes.split_source(source)[0])
    return connection.endpoint, connection.bucket, connection.region, connection.prefix
