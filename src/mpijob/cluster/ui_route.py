"""Complete the web UI's manifests with what only the cluster knows: its host name and the login secrets.

On OpenShift the Route gets its host when it is created: the first reconciliation creates it, the second one
uses the host. The secrets shared by the OAuth proxy and OpenShift's login are generated once and stored in
`mpijob-page-login`.
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
_SECRET_LENGTH = 32


def login_secret(namespace: str) -> AppliedObject:
    return AppliedObject("v1", "Secret", namespace, "mpijob-page-login")


def with_host_and_login(api: Api, documents: list[Document], host: str) -> list[Document]:
    """Return the web UI's manifests with its host name and, behind OpenShift's login, with its secrets."""
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    namespace = str(deployment["metadata"]["namespace"])
    host = host or _route_host(api, documents)
    client = (
        _client_secret(api, namespace)
        if any(document["kind"] == "OAuthClient" for document in documents)
        else ""
    )
    # A ConsoleLink without an address is not valid.
    return [
        _complete(document, host, client)
        for document in documents
        if host or document["kind"] != "ConsoleLink"
    ]


def _route_host(api: Api, documents: list[Document]) -> str:
    for document in documents:
        if document["kind"] == "Route":
            metadata = document["metadata"]
            route = api.find(ROUTE.path(metadata["namespace"], metadata["name"])) or {}
            return str((route.get("spec") or {}).get("host") or "")
    return ""


def _complete(document: Document, host: str, client: str) -> Document:
    match document["kind"]:
        case "Deployment" if host:
            return _with_host_argument(document, host)
        case "OAuthClient":
            redirect_uris = [f"https://{host}"] if host else []
            return {**document, "secret": client, "redirectURIs": redirect_uris}
        case "ConsoleLink":
            return {**document, "spec": {**document["spec"], "href": f"https://{host}"}}
    return document


def _with_host_argument(deployment: Document, host: str) -> Document:
    template: dict[str, Any] = deployment["spec"]["template"]
    containers = [
        {**container, "args": [*_without_host(container["args"]), f"--host={host}"]}
        if container["name"] == "page"
        else container
        for container in template["spec"]["containers"]
    ]
    changed = {**template, "spec": {**template["spec"], "containers": containers}}
    return {**deployment, "spec": {**deployment["spec"], "template": changed}}


def _without_host(args: list[str]) -> list[str]:
    return [argument for argument in args if not argument.startswith("--host=")]


def _client_secret(api: Api, namespace: str) -> str:
    """Return the secret shared by the proxy and OpenShift's login, generated if there is none."""
    entry = login_secret(namespace)
    secret = api.find(resources.SECRET.path(namespace, entry.name))
    if secret is None:
        values = {
            name: secrets.token_urlsafe(_SECRET_LENGTH)[:_SECRET_LENGTH] for name in ("client", "cookie")
        }
        data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
        metadata = {
            "name": entry.name,
            "labels": {"app.kubernetes.io/part-of": "mpijob", COMPONENT_LABEL: "page"},
        }
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        try:
            secret = api.create(resources.SECRET.path(namespace), body)
        except ApiError as error:
            # 409: another replica was faster, and its secret is used.
            if error.status != 409:
                raise
            secret = api.get(resources.SECRET.path(namespace, entry.name))
    return base64.b64decode(secret["data"]["client"]).decode()
