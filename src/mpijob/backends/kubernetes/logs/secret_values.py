"""The values of a job's secrets, read back so that they can be masked where its log is shown.

Who may not read a Secret simply does not know its value: then the patterns of `observation/redaction/masking` are all
that protects it.
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

_OURS = ("env:", "file:")  # sources on the machine of whoever submits
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
    """Return the values that can be read; a job that is gone has taken its own Secret along: then of their sources.

    Sources are looked for on this machine only where it is the user's own (`own_machine`): a visitor's job could name
    any file of a server.
    """
    here = read_available(one for one in secrets if one.source.startswith(_OURS)) if own_machine else ()
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
    """Return what a Secret holds, as far as the user may read it."""
    return {key: _decoded(text) for key, text in _data(api, namespace, name).items()}


def addresses(api: Api, job: MPIJob) -> tuple[str, ...]:
    """Return the servers that a job's data connections name: values of secrets called ENDPOINT, URL, URI or HOST."""
    told = [one for one in job.secrets if _ADDRESS.search(one.env) and not one.source.startswith(_OURS)]
    told += [Secret(env=_ENDPOINT, source=f"{name}/{_ENDPOINT}") for name in _connections(job)]
    return read(api, job.namespace, job.name, told) if told else ()


def has_addresses(job: MPIJob) -> bool:
    """Return whether a job's secrets or S3 volumes may name servers."""
    return bool(_connections(job)) or any(
        _ADDRESS.search(one.env) and "/" in one.source for one in job.secrets
    )


def _connections(job: MPIJob) -> list[str]:
    return sorted({one.source.partition("/")[0] for one in job.volumes if one.kind is VolumeKind.S3})


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
