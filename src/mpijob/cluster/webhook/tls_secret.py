"""Store a service's keys in one Secret that all its pods share, and publish the webhook's CA bundle.

A replica that finds the keys missing or due creates new ones; if two do so at once, the API server accepts
one, and the other uses it. The bundle is published before the new certificate is served.
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
_ATTEMPTS = 5


def ensure_keys(
    api: Api,
    namespace: str,
    names: tuple[str, ...],
    now: datetime | None = None,
    *,
    name: str = NAME,
    secret: str = "",
    labels: Mapping[str, str] | None = None,
) -> Keys:
    """Return valid keys, created and stored if necessary; `secret` is the Secret's name if not `NAME-keys`."""
    path = resources.SECRET.path(namespace, secret or f"{name}-keys")
    # Another replica may create, renew or delete the Secret between our read and our write.
    for _ in range(_ATTEMPTS):
        existing = api.find(path)
        keys = parse_keys(existing) if existing else None
        if keys is not None and not certificates.needs_renewal(keys, names, now):
            return keys
        try:
            return _write(api, path, certificates.renew(names, keys, now=now), existing, labels or {})
        except ApiError as error:
            if error.status not in (404, 409):
                raise
    raise ApiError(
        "could not store the keys: their Secret is repeatedly created and deleted", status=409, path=path
    )


def publish_bundle(api: Api, bundle: bytes, *, name: str = NAME) -> None:
    """Write the bundle into both webhook configurations where it differs."""
    encoded = base64.b64encode(bundle).decode()
    for kind in (MUTATING, VALIDATING):
        path = kind.path("", name)
        configuration = api.find(path)
        if configuration is None:
            continue
        webhooks = [_with_bundle(webhook, encoded) for webhook in configuration.get("webhooks") or ()]
        if webhooks != configuration.get("webhooks"):
            api.patch(path, {"metadata": _version(configuration), "webhooks": webhooks})


def _with_bundle(webhook: Document, bundle: str) -> Document:
    return webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": bundle}}


def _version(existing: Document) -> Document:
    """Return metadata that makes a patch fail if the object was changed meanwhile."""
    return {"resourceVersion": existing["metadata"].get("resourceVersion", "")}


def parse_keys(secret: Document) -> Keys | None:
    """Parse the keys of one of our Secrets; return None for any other Secret."""
    data = secret.get("data") or {}
    try:
        return Keys(**{field: base64.b64decode(data[key]) for field, key in _FIELDS.items()})
    except (KeyError, ValueError):
        return None


def _write(
    api: Api, path: str, keys: Keys, existing: Document | None, labels: Mapping[str, str] | None = None
) -> Keys:
    data = {key: base64.b64encode(getattr(keys, field)).decode() for field, key in _FIELDS.items()}
    if existing is None:
        collection, _, name = path.rpartition("/")
        metadata = {"name": name, "labels": {"app.kubernetes.io/part-of": "mpijob", **(labels or {})}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        api.create(collection, body)
    else:
        api.patch(path, {"metadata": _version(existing), "data": data})
    return keys
