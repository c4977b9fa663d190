"""A model registry that speaks Kubeflow's REST API: the result of a job, written down as a version of a model.

Three things are made, each only where it is not there yet: the model, its version, and the artifact that says where
the files are. So registering is repeated without harm, after a failure or by two people at once.
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
_MOST_BYTES = 4 << 20


class RegistryEntry(msgspec.Struct, frozen=True):
    """What is written down about one result."""

    model: str
    version: str
    uri: str
    format: str = ""
    author: str = ""
    told: Mapping[str, str] = {}


class Registered(msgspec.Struct, frozen=True):
    """Where it is in the registry."""

    model: str
    version: str
    uri: str
    model_id: str
    version_id: str
    artifact_id: str


class Registry:
    """One registry."""

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
        """Write a result down; what is there already stays as it is."""
        model = self._made(
            "registered_model", {"name": entry.model}, {"name": entry.model, "owner": entry.author}
        )
        about = {
            key: {"metadataType": "MetadataStringValue", "string_value": text}
            for key, text in entry.told.items()
        }
        version = self._made(
            "model_version",
            {"name": entry.version, "parentResourceId": model["id"]},
            {
                "name": entry.version,
                "registeredModelId": model["id"],
                "author": entry.author,
                "customProperties": about,
            },
        )
        artifact = self._made(
            "model_artifact",
            {"name": entry.model, "parentResourceId": version["id"]},
            {
                "name": entry.model,
                "artifactType": "model-artifact",
                "uri": entry.uri,
                "modelFormatName": entry.format,
            },
            below=f"model_versions/{version['id']}/artifacts",
        )
        ids = (str(one["id"]) for one in (model, version, artifact))
        return Registered(entry.model, entry.version, str(artifact.get("uri", entry.uri)), *ids)

    def _made(self, kind: str, wanted: Mapping[str, str], fields: Mapping[str, Any], below: str = "") -> Any:
        """Return what is there by this name, or make it; another who made it meanwhile is as good."""
        found = self._ask("GET", f"{kind}?{urlencode(wanted, quote_via=quote)}")
        if found is not None:
            return found
        body = {key: value for key, value in fields.items() if value not in ("", {})}
        made = self._ask("POST", below or f"{kind}s", body)
        made = made if made is not None else self._ask("GET", f"{kind}?{urlencode(wanted, quote_via=quote)}")
        if made is None:
            raise BackendError(f"the model registry {self._host} did not create the {kind.replace('_', ' ')}")
        return made

    def _ask(self, method: str, what: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        content = msgspec.json.encode(body) if body is not None else None
        answer = self._sent(method, f"{self._base}{_ROOT}/{what}", content, headers)
        if answer.status == 404 or (answer.status == 409 and method == "POST"):
            return None
        if answer.status in (401, 403):
            raise NotAllowed(
                f"model registry {self._host}: access denied ({answer.status})",
                hint="check model_registry_token_file, and ask the administrator of the registry for access",
            )
        if not answer.ok:
            raise BackendError(f"the model registry {self._host} {answer}")
        try:
            return msgspec.json.decode(answer.body)
        except msgspec.DecodeError as error:
            raise BackendError(f"{self._host} is not a model registry: the response is not JSON") from error

    def _sent(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> http.Response:
        try:
            return http.request(method, url, content, headers, seconds=_SECONDS, max_bytes=_MOST_BYTES)
        except OSError as error:
            raise BackendError(f"the model registry {self._host} did not answer: {error}") from error


def format_registered(made: Registered) -> str:
    """Return what is said of a model that was written down."""
    return f"registered version '{made.version}' of model '{made.model}': {made.uri}"


def registration_failed(error: MpiJobError) -> Finding:
    """Return what is said of one that was not: the job has succeeded all the same."""
    return Finding(
        code="MODEL_NOT_REGISTERED",
        field="model",
        message=f"{UPLOAD_FAILED} ({error.message})",
        hint="when the registry is reachable: mpijob register JOB",
        severity=Severity.WARNING,
    )


def read_token(path: str) -> str:
    """Return the token in a file, "" where none is named."""
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
    """Return where the model of a job is, for whoever serves it later.

    `buckets` tells endpoint, bucket, region and prefix of the S3 volumes by their sources; `directories` where the
    other volumes, and the working directory (as ""), are on this machine.
    """
    assert job.model is not None
    path = job.model.path
    for volume in sorted(job.volumes, key=lambda one: -len(one.mount)):
        mount = volume.mount.rstrip("/")
        if path != mount and not path.startswith(mount + "/"):
            continue
        rest = path[len(mount) :].strip("/")
        if volume.kind is VolumeKind.S3 and volume.source in buckets:
            return _s3(*buckets[volume.source], volume.source.partition("/")[2], rest)
        if mount in directories:
            return "file://" + quote("/".join(filter(None, (directories[mount], rest))))
        if volume.kind is VolumeKind.CLAIM:
            return "pvc://" + quote("/".join(filter(None, (volume.source, rest))))
    if "" in directories and not path.startswith("/"):
        return "file://" + quote("/".join(filter(None, (directories[""], path))))
    raise InvalidJob(
        f"model.path: {path or 'it'} is not on a volume of the job, and is deleted with its pods",
        hint="write the model to a volume (kind: s3 or claim) and name its path there",
    )


def _s3(endpoint: str, bucket: str, region: str, prefix: str, folder: str, rest: str) -> str:
    key = "/".join(part.strip("/") for part in (prefix, folder, rest) if part.strip("/"))
    return f"s3://{bucket}/{quote(key)}?{urlencode({'endpoint': endpoint, 'defaultRegion': region})}"
