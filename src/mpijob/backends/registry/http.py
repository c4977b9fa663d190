"""One question to a registry over HTTP: whom to trust, which redirects to follow, what a failure means.

Connections are those of `outbound.connection`; what is asked, and with which login, is `client`'s business.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urljoin, urlsplit

from mpijob.errors import BackendError, InvalidImage, Unsupported
from mpijob.outbound.connection import Connection, Response, TooLong, proxy_for, tls_context

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5
_CERTIFICATES = ("/etc/containers/certs.d", "/etc/docker/certs.d")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Unanswered(BackendError):
    """The registry was not reached, or did not answer in time; `why` says it in a few words."""

    def __init__(self, message: str, *, why: str, hint: str = "") -> None:
        super().__init__(message, hint=hint, passing=True)
        self.why = why


class Reply:
    """The beginning of an answer, and its body as it is read."""

    def __init__(self, line: Connection, answer: Response, url: str) -> None:
        self._line = line
        self._answer = answer
        self.status = answer.status
        self.url = url

    def header(self, name: str) -> str:
        """Return a header, "" where there is none."""
        return self._answer.getheader(name) or ""

    def read(self, size: int) -> bytes:
        """Return the next bytes as soon as there are some, none at the end."""
        with self._told():
            return self._answer.piece(size)

    def whole(self, most: int) -> bytes:
        """Return the whole body, refused where it is longer than that."""
        try:
            with self, self._told():
                return self._answer.whole(most)
        except TooLong as error:
            raise InvalidImage(
                f"{self.url} answers with more than {most} bytes where a short document is due"
            ) from error

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except TooLong:
            raise
        except (OSError, http.client.HTTPException) as error:
            host = urlsplit(self.url).netloc
            raise Unanswered(
                f"the registry {host} broke off: {error}", why="it broke off", hint="try again"
            ) from error

    def close(self) -> None:
        """Give the line up."""
        self._answer.close()
        self._line.close()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lines:
    """Asks servers, each question over a line of its own; `deadline` ends them all."""

    def __init__(
        self, *, seconds: float = 20.0, plain: bool = False, ca_file: str = "", deadline: float | None = None
    ) -> None:
        self._seconds = seconds
        self._plain = plain
        self._ca_file = ca_file
        self._deadline = deadline

    def scheme(self, host: str) -> str:
        """Return how a registry is spoken to: in the open only where that was asked for, or it is this machine."""
        if self._plain or (is_loopback(host) and not self._speaks_tls(host)):
            return "http"
        return "https"

    def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Return the answer; redirects are followed, and a login is told to no other host than the one asked."""
        first = urlsplit(url)
        for _ in range(_MOST_REDIRECTS + 1):
            reply = self._once(method, url, headers, body)
            if reply.status not in _REDIRECTS or not reply.header("location"):
                return reply
            reply.close()
            there = urljoin(url, reply.header("location"))
            parts = urlsplit(there)
            if parts.scheme not in ("http", "https") or (first.scheme, parts.scheme) == ("https", "http"):
                raise InvalidImage(
                    f"the registry {first.netloc} leads to an address that is not safe: {parts.scheme}://…"
                )
            if parts.netloc != first.netloc and body is not None:
                raise InvalidImage(f"the registry {first.netloc} leads what is sent to it to another host")
            if parts.netloc != first.netloc:
                headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
            url = there
        raise InvalidImage(f"the registry {first.netloc} leads from one address to the next and to no end")

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            line = Connection(
                url,
                timeout=self._left(),
                tls=self._trust(parts.netloc) if parts.scheme == "https" else None,
                proxy=proxy_for(url, os.environ),
            )
            try:
                line.send_request(method, target or "/", {"User-Agent": "mpijob", **headers}.items(), body)
                return Reply(line, line.response(), url)
            except BaseException:
                line.close()
                raise
        except ssl.SSLCertVerificationError as error:
            raise Unanswered(
                f"the registry {parts.netloc} shows a certificate that nobody here trusts: {error.verify_message}",
                why="its certificate is not trusted here",
                hint="give its authority with --ca-file, or put it in /etc/docker/certs.d/HOST/ca.crt",
            ) from error
        except TimeoutError as error:
            raise Unanswered(
                f"the registry {parts.netloc} does not answer",
                why="it does not answer",
                hint="is it reachable from here?",
            ) from error
        except socket.gaierror as error:
            raise Unanswered(
                f"the registry {parts.netloc} is not known here: {error.strerror}",
                why="its name is not known here",
                hint="check the name; a registry inside a cluster is known only there",
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unanswered(
                f"the registry {parts.netloc} cannot be asked: {error}",
                why="it cannot be reached",
                hint="is it up, and reachable from here? A registry without TLS needs --plain-http",
            ) from error

    def _left(self) -> float:
        if self._deadline is None:
            return self._seconds
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left")
        return min(left, self._seconds)

    def _trust(self, netloc: str) -> ssl.SSLContext:
        context = tls_context()
        named = (f"{folder}/{netloc}/ca.crt" for folder in _CERTIFICATES)
        for path in [self._ca_file] if self._ca_file else filter(os.path.isfile, named):
            try:
                context.load_verify_locations(path)
            except (OSError, ssl.SSLError) as error:
                raise Unsupported(f"{path} cannot be used as a certificate authority: {error}") from error
        return context

    def _speaks_tls(self, host: str) -> bool:
        parts = urlsplit(f"https://{host}")
        try:
            with (
                socket.create_connection(
                    (parts.hostname or "", parts.port or 443), min(self._left(), 3.0)
                ) as line,
                tls_context(insecure=True).wrap_socket(line),
            ):
                return True
        except OSError:
            return False


def is_loopback(host: str) -> bool:
    """Whether a registry is on this machine."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name in _LOOPBACK or name.startswith("127.") or name.endswith(".localhost")
