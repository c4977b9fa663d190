"""One HTTP request to a registry: which CA to trust, which redirects to follow, what an error means.

Connections are those of `outbound.connection`; requests and credentials are built in `client`.
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
from mpijob.outbound.connection import BodyTooLong, Connection, Response, proxy_for, tls_context

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
_CERTIFICATE_DIRECTORIES = ("/etc/containers/certs.d", "/etc/docker/certs.d")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class NoResponse(BackendError):
    """The registry could not be reached or did not respond in time; `reason` is short, for warnings."""

    def __init__(self, message: str, *, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint, passing=True)
        self.reason = reason


class Reply:
    """The status and headers of a response, and its body as it is read."""

    def __init__(self, connection: Connection, response: Response, url: str) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status
        self.url = url

    def header(self, name: str) -> str:
        """Return a header, "" if there is none."""
        return self._response.getheader(name) or ""

    def read(self, size: int) -> bytes:
        """Return the next available bytes, b"" at the end."""
        with self._translate_errors():
            return self._response.read_block(size)

    def read_all(self, limit: int) -> bytes:
        """Return the whole body; raise InvalidImage if it exceeds the limit."""
        try:
            with self, self._translate_errors():
                return self._response.read_all(limit)
        except BodyTooLong as error:
            raise InvalidImage(f"{self.url}: response larger than {limit} bytes") from error

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BodyTooLong:
            # It is an HTTPException too, but no failure of the connection.
            raise
        except (OSError, http.client.HTTPException) as error:
            host = urlsplit(self.url).netloc
            raise NoResponse(
                f"registry {host}: connection lost: {error}", reason="connection lost", hint="try again"
            ) from error

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RegistryHttp:
    """Sends requests, each over its own connection; `deadline` limits all of them."""

    def __init__(
        self,
        *,
        seconds: float = 20.0,
        plain_http: bool = False,
        ca_file: str = "",
        deadline: float | None = None,
    ) -> None:
        self._seconds = seconds
        self._plain_http = plain_http
        self._ca_file = ca_file
        self._deadline = deadline

    def scheme(self, host: str) -> str:
        """Return the URL scheme of a registry: http only if requested, or for a local registry without TLS."""
        if self._plain_http or (is_loopback(host) and not self._speaks_tls(host)):
            return "http"
        return "https"

    def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """Return the response; redirects are followed, and credentials are sent to the original host only."""
        # Registries redirect downloads of blobs to storage services, with the permission in the URL.
        first = urlsplit(url)
        for _ in range(_MAX_REDIRECTS + 1):
            reply = self._send(method, url, headers, body)
            if reply.status not in _REDIRECT_STATUSES or not reply.header("location"):
                return reply
            reply.close()
            target = urljoin(url, reply.header("location"))
            parts = urlsplit(target)
            if parts.scheme not in ("http", "https") or (first.scheme, parts.scheme) == ("https", "http"):
                raise InvalidImage(
                    f"registry {first.netloc}: redirect to an unsafe URL refused: {parts.scheme}://…"
                )
            if parts.netloc != first.netloc and body is not None:
                raise InvalidImage(f"registry {first.netloc}: redirect of a POST to another host refused")
            if parts.netloc != first.netloc:
                headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
            url = target
        raise InvalidImage(f"registry {first.netloc}: more than {_MAX_REDIRECTS} redirects")

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            connection = Connection(
                url,
                timeout=self._remaining_seconds(),
                tls=self._tls_context(parts.netloc) if parts.scheme == "https" else None,
                proxy=proxy_for(url, os.environ),
            )
            try:
                connection.send_request(
                    method, target or "/", {"User-Agent": "mpijob", **headers}.items(), body
                )
                return Reply(connection, connection.read_response(), url)
            except BaseException:
                connection.close()
                raise
        except ssl.SSLCertVerificationError as error:
            raise NoResponse(
                f"registry {parts.netloc}: certificate not trusted: {error.verify_message}",
                reason="certificate not trusted",
                hint="set the CA with --ca-file, or install it as /etc/docker/certs.d/HOST/ca.crt",
            ) from error
        except TimeoutError as error:
            raise NoResponse(
                f"registry {parts.netloc}: no response",
                reason="no response",
                hint="check that the registry is reachable from here",
            ) from error
        except socket.gaierror as error:
            raise NoResponse(
                f"registry {parts.netloc}: cannot resolve the host name: {error.strerror}",
                reason="cannot resolve the host name",
                hint="check the name; a registry inside a cluster can be resolved only there",
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoResponse(
                f"registry {parts.netloc}: connection failed: {error}",
                reason="connection failed",
                hint="check that it is running and reachable; a registry without TLS needs --plain-http",
            ) from error

    def _remaining_seconds(self) -> float:
        if self._deadline is None:
            return self._seconds
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        return min(remaining, self._seconds)

    def _tls_context(self, netloc: str) -> ssl.SSLContext:
        context = tls_context()
        candidates = (f"{folder}/{netloc}/ca.crt" for folder in _CERTIFICATE_DIRECTORIES)
        for path in [self._ca_file] if self._ca_file else filter(os.path.isfile, candidates):
            try:
                context.load_verify_locations(path)
            except (OSError, ssl.SSLError) as error:
                raise Unsupported(f"cannot load the certificate authority {path}: {error}") from error
        return context

    def _speaks_tls(self, host: str) -> bool:
        # Without verification: nothing is sent on this connection.
        parts = urlsplit(f"https://{host}")
        try:
            with (
                socket.create_connection(
                    (parts.hostname or "", parts.port or 443), min(self._remaining_seconds(), 3.0)
                ) as sock,
                tls_context(insecure=True).wrap_socket(sock),
            ):
                return True
        except OSError:
            return False


def is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    return name in _LOOPBACK or name.startswith("127.") or name.endswith(".localhost")
