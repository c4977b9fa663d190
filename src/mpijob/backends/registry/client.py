"""A registry as the OCI distribution specification has it: manifests and blobs, with the logins that it asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from mpijob.backends.registry.credentials import Login
from mpijob.backends.registry.http import Lines, Reply, Unanswered
from mpijob.backends.registry.manifest import MANIFESTS, Blob
from mpijob.errors import BackendError, InvalidImage, NotAllowed, NotFound
from mpijob.model.spec.image import Reference

_LARGEST_DOCUMENT = 4 << 20  # as registries have it themselves
_PIECE = 1 << 18
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """One image at its registry; a login is looked up when the registry asks for one."""

    def __init__(
        self, reference: Reference, lines: Lines, login: Callable[[], Login | None], *, at: str = ""
    ) -> None:
        self.reference = reference
        self._lines = lines
        self._login = login
        self._authorization = ""
        self._root = f"{at.rstrip('/')}/v2/{reference.path}" if at else ""

    @property
    def name(self) -> str:
        """The image's whole name."""
        return str(self.reference)

    def exists(self) -> bool:
        """Return whether the registry has the image; a HEAD counts in no rate limit."""
        with self._ask(
            "HEAD", f"manifests/{self.reference.version}", {"Accept": ", ".join(MANIFESTS)}
        ) as reply:
            if reply.status == 404:
                return False
            self._expect(reply)
            return True

    def document(self, version: str = "") -> tuple[bytes, str]:
        """Return a manifest or an index, and its type."""
        path = f"manifests/{version or self.reference.version}"
        reply = self._ask("GET", path, {"Accept": ", ".join(MANIFESTS)})
        kind = reply.header("content-type").partition(";")[0].strip()
        data = reply.whole(_LARGEST_DOCUMENT)
        self._expect(reply, data)
        return data, kind

    def pieces(self, blob: Blob) -> Iterator[bytes]:
        """Yield the bytes of a blob."""
        with self._ask("GET", f"blobs/{blob.digest}", {}) as reply:
            self._expect(reply)
            while piece := reply.read(_PIECE):
                yield piece

    def close(self) -> None:
        """Nothing stays open between questions."""

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> Reply:
        if not self._root:
            server = self.reference.server
            self._root = f"{self._lines.scheme(server)}://{server}/v2/{self.reference.path}"
        url = f"{self._root}/{path}"
        reply = self._lines.ask(method, url, self._with_login(headers))
        if reply.status == 401:  # the first time, and when a token has expired meanwhile
            reply.close()
            self._authorization = self._authorize(reply.header("www-authenticate"))
            if not self._authorization:
                raise self._refused(self._login())
            reply = self._lines.ask(method, url, self._with_login(headers))
        return reply

    def _with_login(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **({"Authorization": self._authorization} if self._authorization else {})}

    def _authorize(self, challenge: str) -> str:
        """Return the header that the registry asks for, "" where we have no login that would make it."""
        login = self._login()
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic":
            return login.basic if login and login.user else ""
        if scheme.lower() != "bearer":
            return ""
        told = dict(_CHALLENGE.findall(rest))
        realm = told.get("realm", "")
        if urlsplit(realm).scheme not in ("http", "https"):
            raise InvalidImage(f"the registry {self.reference.server} names no address for its logins")
        if self._root.startswith("https") and not realm.startswith("https"):
            raise InvalidImage(f"the registry {self.reference.server} wants its logins sent in the open")
        asked = {"scope": told.get("scope") or f"repository:{self.reference.path}:pull"}
        asked |= {"service": told["service"]} if told.get("service") else {}
        return self._token(realm, asked, login)

    def _token(self, realm: str, asked: Mapping[str, str], login: Login | None) -> str:
        if login and login.token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": login.token,
                "client_id": "mpijob",
                **asked,
            }
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            reply = self._lines.ask("POST", realm, headers, urlencode(form).encode())
        else:
            headers = {"Authorization": login.basic} if login else {}
            joined = "&" if "?" in realm else "?"
            reply = self._lines.ask("GET", f"{realm}{joined}{urlencode(asked, quote_via=quote)}", headers)
        data = reply.whole(_LARGEST_DOCUMENT)
        if reply.status != 200:
            raise self._refused(login)
        told = _decoded(data)
        token = told.get("token") or told.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise InvalidImage(f"the registry {self.reference.server} hands out no token that can be used")
        return f"Bearer {token}"

    def _refused(self, login: Login | None) -> NotAllowed:
        server = self.reference.server
        if login is None:
            return NotAllowed(
                f"the registry {server} wants a login to show {self.reference.path}",
                hint=f"log in with `podman login {server}` or `docker login {server}`, or name a file with --auth-file",
            )
        return NotAllowed(
            f"the registry {server} does not take the login for {self.reference.path}",
            hint="is the password or token still valid, and may it read this image?",
        )

    def _expect(self, reply: Reply, body: bytes = b"") -> None:
        """Raise for every answer but a good one."""
        if reply.status == 200:
            return
        server = self.reference.server
        if reply.status in (401, 403):
            raise self._refused(self._login())
        if reply.status == 404:
            raise NotFound(
                f"the registry {server} has no image {self.reference.path}:{self.reference.version}".replace(
                    ":sha", "@sha"
                ),
                hint="check the name and the tag; what was pushed last is listed by the registry's own page",
            )
        if reply.status == 429:
            raise Unanswered(
                f"the registry {server} has answered too often and wants to be left alone for a while",
                why="too many questions were asked of it", hint="wait, or log in: many registries then allow more",
            )  # fmt: skip
        said = _said(body)
        raise BackendError(
            f"the registry {server} answered {reply.status}{f': {said}' if said else ''}", passing=True
        )


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _said(body: bytes) -> str:
    errors = _decoded(body).get("errors")
    first = errors[0] if isinstance(errors, list) and errors else {}
    return str(first.get("message", ""))[:200] if isinstance(first, dict) else ""
