"""The page in a cluster, completed by what only the cluster knows: under which name people open it, and the login.

On OpenShift the Route has a name once it is there, so the first look makes it and the second tells the others. The
secrets between the OAuth proxy and OpenShift's login are made here once and kept in `mpijob-page-login`.
"""

from __future__ import annotations

import base64
import secrets
from typing import Any

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.cluster.apply import COMPONENT_LABEL, AppliedObject
from mpijob.formats.kubernetes.metadata.well_known import Document

ROUTE = Kind("route.openshift.io/v1", "Route", "routes")
_COOKIE_BYTES = 32


def login_of(namespace: str) -> AppliedObject:
    """Return where the secrets of the login are."""
    return AppliedObject("v1", "Secret", namespace, "mpijob-page-login")


def completed(api: Api, documents: list[Document], host: str) -> list[Document]:
    """Return the page's documents with its name and, behind OpenShift's login, with its secrets."""
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    namespace = str(deployment["metadata"]["namespace"])
    host = host or _of_route(api, documents)
    client = _client(api, namespace) if any(one["kind"] == "OAuthClient" for one in documents) else ""
    return [_told(one, host, client) for one in documents if host or one["kind"] != "ConsoleLink"]


def _of_route(api: Api, documents: list[Document]) -> str:
    for one in documents:
        if one["kind"] == "Route":
            found = api.find(ROUTE.path(one["metadata"]["namespace"], one["metadata"]["name"])) or {}
            return str((found.get("spec") or {}).get("host") or "")
    return ""


def _told(document: Document, host: str, client: str) -> Document:
    match document["kind"]:
        case "Deployment" if host:
            return _named(document, host)
        case "OAuthClient":
            addresses = [f"https://{host}"] if host else []
            return {**document, "secret": client, "redirectURIs": addresses}
        case "ConsoleLink":
            return {**document, "spec": {**document["spec"], "href": f"https://{host}"}}
    return document


def _named(deployment: Document, host: str) -> Document:
    template: dict[str, Any] = deployment["spec"]["template"]
    containers = [
        {**one, "args": [*filter(_is_fixed, one["args"]), f"--host={host}"]} if one["name"] == "page" else one
        for one in template["spec"]["containers"]
    ]
    changed = {**template, "spec": {**template["spec"], "containers": containers}}
    return {**deployment, "spec": {**deployment["spec"], "template": changed}}


def _is_fixed(word: str) -> bool:
    return not word.startswith("--host=")


def _client(api: Api, namespace: str) -> str:
    """Return the secret that the proxy and OpenShift's login share, made now if there is none."""
    entry = login_of(namespace)
    found = api.find(resources.SECRET.path(namespace, entry.name))
    if found is None:
        made = {name: secrets.token_urlsafe(_COOKIE_BYTES)[:_COOKIE_BYTES] for name in ("client", "cookie")}
        data = {name: base64.b64encode(value.encode()).decode() for name, value in made.items()}
        metadata = {
            "name": entry.name,
            "labels": {"app.kubernetes.io/part-of": "mpijob", COMPONENT_LABEL: "page"},
        }
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        try:
            found = api.create(resources.SECRET.path(namespace), body)
        except ApiError as error:
            if error.status != 409:  # another was quicker: its word counts
                raise
            found = api.get(resources.SECRET.path(namespace, entry.name))
    return base64.b64decode(found["data"]["client"]).decode()
