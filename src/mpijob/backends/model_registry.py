"""A client of Kubeflow's model registry (REST): the result of a job is registered as a version of a model.

Three objects are created, each only if it does not exist: the model, its version, and the artifact with the
URI of the files. So registering can be repeated, after a failure or by two users at once. When a job is
registered is decided by each engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from mpijob.errors import BackendError, Finding, InvalidJob, MpiJobError, NotAllowed, Severity
from mpijob.model import MPIJob, VolumeKind
from mpijob.outbound import http

UPLOAD_FAILED = "Training completed, but model upload failed. Manual upload required."
_ROOT = "/api/model_registry/v1alpha3"
_SECONDS = 20.0
_MAX_BYTES = 4 << 20


class RegistryEntry(msgspec.Struct, frozen=True):
    """A result to register."""

    model: str
    version: str
    uri: str
    format: str = ""
    author: str = ""
    properties: Mapping[str, str] = {}


class Registered(msgspec.Struct, frozen=True):
    """A registered result, with the ids of its objects in the registry."""

    model: str
    version: str
    uri: str
    model_id: str
    version_id: str
    artifact_id: str


class Registry:
    """A registry at an address; raise InvalidJob if that is not a URL."""

    def __init__(self, address: str, token: str = "") -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidJob(
                f"{address!r} is not the URL of a model registry" if address else "no model registry is set",
                hint='set model_registry = "https://registry.example.org" in the settings',
            )
        self._host, self._base = parts.netloc, address.rstrip("/")
        self._token = token

    def register(self, entry: RegistryEntry) -> Registered:
        """Register a result; objects that exist already stay as they are."""
        model = self._find_or_create(
            "registered_model", {"name": entry.model}, {"name": entry.model, "owner": entry.author}
        )
        properties = {
            key: {"metadataType": "MetadataStringValue", "string_value": text}
            for key, text in entry.properties.items()
        }
        version = self._find_or_create(
            "model_version",
            {"name": entry.version, "parentResourceId": model["id"]},
            {
                "name": entry.version,
                "registeredModelId": model["id"],
                "author": entry.author,
                "customProperties": properties,
            },
        )
        artifact = self._find_or_create(
            "model_artifact",
            {"name": entry.model, "parentResourceId": version["id"]},
            {
                "name": entry.model,
                "artifactType": "model-artifact",
                "uri": entry.uri,
                "modelFormatName": entry.format,
            },
            collection=f"model_versions/{version['id']}/artifacts",
        )
        ids = (str(created["id"]) for created in (model, version, artifact))
        return Registered(entry.model, entry.version, str(artifact.get("uri", entry.uri)), *ids)

    def _find_or_create(
        self, kind: str, key: Mapping[str, str], fields: Mapping[str, Any], collection: str = ""
    ) -> Any:
        query = f"{kind}?{urlencode(key, quote_via=quote)}"
        found = self._request("GET", query)
        if found is not None:
            return found
        body = {name: value for name, value in fields.items() if value not in ("", {})}
        created = self._request("POST", collection or f"{kind}s", body)
        # None is a conflict: another client created it meanwhile, which is as good.
        created = created if created is not None else self._request("GET", query)
        if created is None:
            raise BackendError(f"the model registry {self._host} did not create the {kind.replace('_', ' ')}")
        return created

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded response; None for 404, and for a conflict of a POST."""
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        content = msgspec.json.encode(body) if body is not None else None
        url = f"{self._base}{_ROOT}/{path}"
        try:
            response = http.request(method, url, content, headers, seconds=_SECONDS, max_bytes=_MAX_BYTES)
        except OSError as error:
            raise BackendError(f"the model registry {self._host} did not respond: {error}") from error
        if response.status == 404 or (response.status == 409 and method == "POST"):
            return None
        if response.status in (401, 403):
            raise NotAllowed(
                f"model registry {self._host}: access denied ({response.status})",
                hint="check model_registry_token_file, and ask the administrator of the registry for access",
            )
        if not response.ok:
            raise BackendError(f"the model registry {self._host} {response}")
        try:
            return msgspec.json.decode(response.body)
        except msgspec.DecodeError as error:
            raise BackendError(f"{self._host} is not a model registry: the response is not JSON") from error


def format_registered(registered: Registered) -> str:
    return f"registered version '{registered.version}' of model '{registered.model}': {registered.uri}"


def registration_failed(error: MpiJobError) -> Finding:
    """Return the warning for a model that could not be registered; the job succeeded nevertheless."""
    return Finding(
        code="MODEL_NOT_REGISTERED",
        field="model",
        message=f"{UPLOAD_FAILED} ({error.message})",
        hint="when the registry is reachable: mpijob register JOB",
        severity=Severity.WARNING,
    )


def read_token(path: str) -> str:
    """Return the token in a file, "" without a path; raise InvalidJob if the file cannot be read."""
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise InvalidJob(
            f"the token of the model registry cannot be read: {error.strerror} ({path})",
            hint="check model_registry_token_file in the settings",
        ) from error


def model_uri(
    job: MPIJob, buckets: Mapping[str, tuple[str, str, str, str]], directories: Mapping[str, str]
) -> str:
    """Return the URI from which a model server can load the job's model later.

    `buckets` has endpoint, bucket, region and prefix of the S3 volumes by their sources; `directories` has the
    directories of the other volumes, and the working directory (as ""), on this machine. Raise InvalidJob if the
    model is not on a volume.
    """
    assert job.model is not None
    path = job.model.path
    # The longest mount first: a volume may be mounted below another one.
    for volume in sorted(job.volumes, key=lambda volume: -len(volume.mount)):
        mount = volume.mount.rstrip("/")
        if path != mount and not path.startswith(mount + "/"):
            continue
        rest = path[len(mount) :].strip("/")
        if volume.kind is VolumeKind.S3 and volume.source in buckets:
            return _s3_uri(*buckets[volume.source], volume.source.partition("/")[2], rest)
        if mount in directories:
            return _uri("file", directories[mount], rest)
        if volume.kind is VolumeKind.CLAIM:
            return _uri("pvc", volume.source, rest)
    if "" in directories and not path.startswith("/"):
        return _uri("file", directories[""], path)
    raise InvalidJob(
        f"model.path: {path or 'it'} is not on a volume of the job, and is deleted with its pods",
        hint="write the model to a volume (kind: s3 or claim) and name its path there",
    )


def _uri(scheme: str, base: str, path: str) -> str:
    return f"{scheme}://" + quote("/".join(filter(None, (base, path))))


def _s3_uri(endpoint: str, bucket: str, region: str, prefix: str, folder: str, rest: str) -> str:
    # In the form of `s3_uri_from` of the registry's own Python client.
    key = "/".join(part.strip("/") for part in (prefix, folder, rest) if part.strip("/"))
    return f"s3://{bucket}/{quote(key)}?{urlencode({'endpoint': endpoint, 'defaultRegion': region})}"
