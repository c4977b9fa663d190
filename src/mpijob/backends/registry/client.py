"""A client of the OCI distribution API: manifests and blobs, with the authentication that a registry requires.

Connections and redirects are handled in `http`, the content of documents in `manifest`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from mpijob.backends.registry.credentials import Login
from mpijob.backends.registry.http import NoResponse, RegistryHttp, Reply
from mpijob.backends.registry.manifest import MANIFESTS, Blob
from mpijob.errors import BackendError, InvalidImage, NotAllowed, NotFound
from mpijob.model.spec.image import Reference

# The size limit that registries themselves use.
_MAX_DOCUMENT_BYTES = 4 << 20
_BLOCK_BYTES = 1 << 18
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """One image in its registry; credentials are looked up when the registry asks for them."""

    def __init__(
        self,
        reference: Reference,
        client: RegistryHttp,
        get_login: Callable[[], Login | None],
        *,
        mirror: str = "",
    ) -> None:
        self.reference = reference
        self._client = client
        self._get_login = get_login
        self._authorization = ""
        self._root = f"{mirror.rstrip('/')}/v2/{reference.path}" if mirror else ""

    @property
    def name(self) -> str:
        return str(self.reference)

    def exists(self) -> bool:
        # HEAD, because Docker Hub counts a GET of a manifest as a pull.
        with self._request(
            "HEAD", f"manifests/{self.reference.version}", {"Accept": ", ".join(MANIFESTS)}
        ) as reply:
            if reply.status == 404:
                return False
            self._check_status(reply)
            return True

    def document(self, version: str = "") -> tuple[bytes, str]:
        """Return a manifest or an index, and its media type."""
        path = f"manifests/{version or self.reference.version}"
        reply = self._request("GET", path, {"Accept": ", ".join(MANIFESTS)})
        kind = reply.header("content-type").partition(";")[0].strip()
        data = reply.read_all(_MAX_DOCUMENT_BYTES)
        self._check_status(reply, data)
        return data, kind

    def read_blob(self, blob: Blob) -> Iterator[bytes]:
        with self._request("GET", f"blobs/{blob.digest}", {}) as reply:
            self._check_status(reply)
            while block := reply.read(_BLOCK_BYTES):
                yield block

    # Part of `BlobSource`; no connection stays open between requests.
    def close(self) -> None:
        pass

    def _request(self, method: str, path: str, headers: Mapping[str, str]) -> Reply:
        # Late, because finding out the scheme may need a connection.
        if not self._root:
            server = self.reference.server
            self._root = f"{self._client.scheme(server)}://{server}/v2/{self.reference.path}"
        url = f"{self._root}/{path}"
        reply = self._client.request(method, url, self._with_authorization(headers))
        # Without a token yet, or with one that has expired.
        if reply.status == 401:
            reply.close()
            self._authorization = self._authorize(reply.header("www-authenticate"))
            if not self._authorization:
                raise self._access_denied(self._get_login())
            reply = self._client.request(method, url, self._with_authorization(headers))
        return reply

    def _with_authorization(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **({"Authorization": self._authorization} if self._authorization else {})}

    def _authorize(self, challenge: str) -> str:
        """Return the Authorization header for a challenge, "" without suitable credentials."""
        login = self._get_login()
        scheme, _, parameter_text = challenge.partition(" ")
        if scheme.lower() == "basic":
            return login.basic if login and login.user else ""
        if scheme.lower() != "bearer":
            return ""
        parameters = dict(_CHALLENGE.findall(parameter_text))
        # The realm may be another host, as Docker Hub's is: the registry decides where tokens are issued.
        realm = parameters.get("realm", "")
        if urlsplit(realm).scheme not in ("http", "https"):
            raise InvalidImage(
                f"registry {self.reference.server}: the authentication challenge has no valid realm"
            )
        if self._root.startswith("https") and not realm.startswith("https"):
            raise InvalidImage(
                f"registry {self.reference.server} requests credentials over plain HTTP; refused"
            )
        query = {"scope": parameters.get("scope") or f"repository:{self.reference.path}:pull"}
        query |= {"service": parameters["service"]} if parameters.get("service") else {}
        return self._request_token(realm, query, login)

    def _request_token(self, realm: str, query: Mapping[str, str], login: Login | None) -> str:
        if login and login.token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.token,
                "client_id": "mpijob",
                **query,
            }
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            reply = self._client.request("POST", realm, headers, urlencode(form).encode())
        else:
            headers = {"Authorization": login.basic} if login else {}
            separator = "&" if "?" in realm else "?"
            reply = self._client.request(
                "GET", f"{realm}{separator}{urlencode(query, quote_via=quote)}", headers
            )
        data = reply.read_all(_MAX_DOCUMENT_BYTES)
        if reply.status != 200:
            raise self._access_denied(login)
        response = _decode(data)
        token = response.get("token") or response.get("access_token")
        # It becomes a header, which must not contain a line break.
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise InvalidImage(f"registry {self.reference.server} returned an invalid token")
        return f"Bearer {token}"

    def _access_denied(self, login: Login | None) -> NotAllowed:
        server = self.reference.server
        if login is None:
            return NotAllowed(
                f"registry {server}: login required for {self.reference.path}",
                hint=f"log in with `podman login {server}` or `docker login {server}`, or set a file with --auth-file",
            )
        return NotAllowed(
            f"registry {server}: access to {self.reference.path} denied with this login",
            hint="check that the password or token is valid and may read this image",
        )

    def _check_status(self, reply: Reply, body: bytes = b"") -> None:
        if reply.status == 200:
            return
        server = self.reference.server
        if reply.status in (401, 403):
            raise self._access_denied(self._get_login())
        if reply.status == 404:
            raise NotFound(
                f"registry {server} has no image {self.reference.path}:{self.reference.version}".replace(
                    ":sha", "@sha"
                ),
                hint="check name and tag",
            )
        if reply.status == 429:
            raise NoResponse(
                f"registry {server}: rate limit exceeded (429)",
                reason="rate limit exceeded (429)", hint="wait, or log in: many registries then allow more requests",
            )  # fmt: skip
        detail = _error_message(body)
        raise BackendError(
            f"registry {server} returned {reply.status}{f': {detail}' if detail else ''}", passing=True
        )


def _decode(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _error_message(body: bytes) -> str:
    errors = _decode(body).get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    return str(first.get("message", ""))[:200] if isinstance(first, dict) else ""
