"""The values of a job's secrets, which are masked where its log is shown.

Of Secrets that the user may not read, the values are unknown, and only the patterns of
`observation/redaction/masking` protect them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.secrets import read_available
from mpijob.errors import NotFound
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import JobRef, MPIJob, Secret, VolumeKind

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.status.job_objects import Found

# Sources on the machine of the user who submits.
_OURS = ("env:", "file:")
_ENDPOINT = "AWS_S3_ENDPOINT"
_ADDRESS = re.compile(r"(ENDPOINT|URL|URI|HOST)(_URL)?$")


def known(
    api: Api,
    ref: JobRef,
    secrets: tuple[Secret, ...],
    find: Callable[[JobRef], Found],
    *,
    own_machine: bool,
) -> tuple[str, ...]:
    """Return the values that can be read; the Secret of a deleted job is gone, then those of its sources.

    Sources are read only on the user's own machine (`own_machine`): a visitor's job could name any file of a
    server.
    """
    here = (
        read_available(secret for secret in secrets if secret.source.startswith(_OURS)) if own_machine else ()
    )
    try:
        job = find(ref)
        return tuple(dict.fromkeys((*read(api, job.ref.namespace, job.first, secrets), *here)))
    except NotFound:
        return (*read(api, ref.namespace, ref.name, secrets), *here)


def read(api: Api, namespace: str, first: str, secrets: Iterable[Secret]) -> tuple[str, ...]:
    """Return the values that can be read, each once; `first` is the name of the first attempt's object."""
    ours = first + well_known.SECRETS_SUFFIX
    wanted = {_place(ours, secret) for secret in secrets}
    data = {name: _data(api, namespace, name) for name in {name for name, _ in wanted}}
    return tuple(filter(None, (_decoded(data[name].get(key, "")) for name, key in sorted(wanted))))


def values(api: Api, namespace: str, name: str) -> dict[str, str]:
    """Return the keys and values of a Secret; {} if the user may not read it."""
    return {key: _decoded(text) for key, text in _data(api, namespace, name).items()}


def addresses(api: Api, job: MPIJob) -> tuple[str, ...]:
    """Return the servers in a job's data connections: values of secrets named ENDPOINT, URL, URI or HOST."""
    named = [
        secret
        for secret in job.secrets
        if _ADDRESS.search(secret.env) and not secret.source.startswith(_OURS)
    ]
    named += [Secret(env=_ENDPOINT, source=f"{name}/{_ENDPOINT}") for name in _connections(job)]
    return read(api, job.namespace, job.name, named) if named else ()


def has_addresses(job: MPIJob) -> bool:
    """Return whether a job's secrets or S3 volumes may name servers."""
    return bool(_connections(job)) or any(
        _ADDRESS.search(secret.env) and "/" in secret.source for secret in job.secrets
    )


def _connections(job: MPIJob) -> list[str]:
    return sorted({volume.source.partition("/")[0] for volume in job.volumes if volume.kind is VolumeKind.S3})


def _place(ours: str, secret: Secret) -> tuple[str, str]:
    if secret.source.startswith(_OURS):
        return ours, secret.env
    name, _, key = secret.source.partition("/")
    return name, key


def _data(api: Api, namespace: str, name: str) -> dict[str, str]:
    try:
        found = api.find(resources.SECRET.path(namespace, name))
    except ApiError:
        return {}
    return (found or {}).get("data") or {}


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode(errors="replace")
    except binascii.Error:
        return ""
