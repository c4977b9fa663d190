"""Where a service's keys are: one Secret that all its pods share; of the webhook's, the bundle in its configurations.

Whoever finds the keys missing or due makes new ones; of two who do so at once the API server lets one win, and the
other takes what it finds. The bundle is written into the configurations before the new pair is served.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError, Document
from mpijob.cluster.webhook import certificates
from mpijob.cluster.webhook.certificates import Keys
from mpijob.cluster.webhook.configuration import MUTATING, NAME, VALIDATING

_FIELDS = {"bundle": "ca.crt", "authority_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}
_TRIES = 5


def ensure(
    api: Api,
    namespace: str,
    names: tuple[str, ...],
    now: datetime | None = None,
    *,
    name: str = NAME,
    secret: str = "",
    labels: Mapping[str, str] | None = None,
) -> Keys:
    """Return keys that are good for a while, made and kept now if need be; `secret` is where, if not `NAME-keys`."""
    path = resources.SECRET.path(namespace, secret or f"{name}-keys")
    for _ in range(_TRIES):
        found = api.find(path)
        keys = read(found) if found else None
        if keys is not None and not certificates.needs_renewal(keys, names, now):
            return keys
        try:
            return _write(api, path, certificates.renewed(names, keys, now=now), found, labels or {})
        except ApiError as error:
            if error.status not in (404, 409):
                raise
    raise ApiError("the Secret of a service's keys comes and goes", status=409, path=path)


def publish(api: Api, bundle: bytes, *, name: str = NAME) -> None:
    """Write the bundle into both configurations, where it differs from what is there."""
    wanted = base64.b64encode(bundle).decode()
    for kind in (MUTATING, VALIDATING):
        path = kind.path("", name)
        found = api.find(path)
        if found is None:
            continue
        webhooks = [_with_bundle(one, wanted) for one in found.get("webhooks") or ()]
        if webhooks != found.get("webhooks"):
            api.patch(path, {"metadata": _version(found), "webhooks": webhooks})


def _with_bundle(webhook: Document, bundle: str) -> Document:
    return webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": bundle}}


def _version(found: Document) -> Document:
    """Return what lets a change fail when somebody else was faster."""
    return {"resourceVersion": found["metadata"].get("resourceVersion", "")}


def read(secret: Document) -> Keys | None:
    """Return the keys of a Secret of ours; None for any other."""
    data = secret.get("data") or {}
    try:
        return Keys(**{field: base64.b64decode(data[key]) for field, key in _FIELDS.items()})
    except (KeyError, ValueError):
        return None


def _write(
    api: Api, path: str, keys: Keys, found: Document | None, labels: Mapping[str, str] | None = None
) -> Keys:
    data = {key: base64.b64encode(getattr(keys, field)).decode() for field, key in _FIELDS.items()}
    if found is None:
        collection, _, name = path.rpartition("/")
        metadata = {"name": name, "labels": {"app.kubernetes.io/part-of": "mpijob", **(labels or {})}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        api.create(collection, body)
    else:
        api.patch(path, {"metadata": _version(found), "data": data})
    return keys
