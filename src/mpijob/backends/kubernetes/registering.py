"""Writing the model of a cluster's job down in the model registry: where it is, by the job's volumes and Secrets."""

from __future__ import annotations

from mpijob.backends import buckets, models
from mpijob.backends.kubernetes import secretvalues
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.models import Registered
from mpijob.errors import InvalidJob, NotAllowed
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
    """Return endpoint, bucket, region and prefix of a data connection, whose Secret the user must be able to read."""
    name = buckets.parted(source)[0]
    data = secretvalues.values(api, namespace, name)
    if not data:
        raise NotAllowed(
            f"where '{source}' is, is told by the Secret '{name}' in namespace '{namespace}', and you cannot read it",
            hint="ask for 'get secrets' there, or let somebody register the model who has it",
        )
    try:
        one = buckets.from_variables(data)
    except InvalidJob as error:
        raise InvalidJob(f"data connection '{name}': {error.message}", hint=error.hint) from error
    return one.endpoint, one.bucket, one.region, one.prefix
