"""Opens connections to an API server: addresses, proxies, TLS, and sockets that notice a dead peer."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator

from mpijob.backends.kubernetes.auth.access import Access, Credential
from mpijob.backends.kubernetes.client import proxy_connect, urls
from mpijob.backends.kubernetes.client.api_errors import (
    CERTIFICATE,
    REFUSED,
    TIMEOUT,
    UNKNOWN_HOST,
    UNREACHABLE,
    ApiError,
)

CONNECT_SECONDS = 10.0
NEAR_SECONDS = 0.003
# A peer that has vanished is noticed within 20 + 3 × 5 seconds, sent data that nobody confirms within 30.
_KEEPALIVE = (
    ("SO_KEEPALIVE", "SOL_SOCKET", 1),
    ("TCP_KEEPIDLE", "IPPROTO_TCP", 20),
    ("TCP_KEEPINTVL", "IPPROTO_TCP", 5),
    ("TCP_KEEPCNT", "IPPROTO_TCP", 3),
    ("TCP_USER_TIMEOUT", "IPPROTO_TCP", 30_000),
    ("TCP_NODELAY", "IPPROTO_TCP", 1),
)
Line = socket.socket  # an ssl.SSLSocket is one too


class Connector:
    """Opens lines to the server of one access."""

    def __init__(self, access: Access) -> None:
        server = urls.of(access.server)
        self.host, self.port, self.authority = server.host, server.port, server.authority
        self.near: bool | None = None  # whether packing costs more than the network does; None: not known yet
        self._access = access
        self._encrypted = server.scheme == "https"
        self._lock = threading.Lock()
        self._context: tuple[str, ssl.SSLContext] | None = None

    def dial(self, proof: Credential, timeout: float = CONNECT_SECONDS) -> Line:
        """Return a fresh line; an ApiError says why there is none, and nothing has been sent then."""
        try:
            line = self._connect(timeout)
        except OSError as error:
            raise self._unreachable(error) from error
        for name, level, value in _KEEPALIVE:
            if hasattr(socket, name):  # not every system has each of them
                line.setsockopt(getattr(socket, level), getattr(socket, name), value)
        if not self._encrypted:
            return line
        try:
            return self._secured(proof).wrap_socket(
                line, server_hostname=_known(self._access.tls_server_name or self.host)
            )
        except OSError as error:
            line.close()
            raise self._unreachable(error) from error

    def _connect(self, timeout: float) -> Line:
        if self._access.proxy:
            self.near = False
            return proxy_connect.connect(self._access.proxy, self.host, self.port, timeout)
        line = socket.create_connection((_known(self.host), self.port), timeout)  # type: ignore[arg-type]  # bytes do as well
        self.near = _round_trip_seconds(line) < NEAR_SECONDS
        return line

    def _secured(self, proof: Credential) -> ssl.SSLContext:
        with self._lock:
            if self._context is None or self._context[0] != proof.certificate:
                self._context = (proof.certificate, self._new_context(proof))
            return self._context[1]

    def _new_context(self, proof: Credential) -> ssl.SSLContext:
        access = self._access
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif access.ca:
            self._trust(context)
        else:
            context.load_default_certs()
        if proof.certificate:
            self._identify(context, proof)
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cadata=self._access.ca)
        except (ssl.SSLError, ValueError) as error:
            raise self._error(
                f"the authority of cluster '{self._access.cluster}' in {self._access.source} is no PEM certificate",
                CERTIFICATE,
            ) from error

    def _identify(self, context: ssl.SSLContext, proof: Credential) -> None:
        try:
            with _as_file(f"{proof.certificate}\n{proof.key}".encode()) as path:
                context.load_cert_chain(path, password="")
        except (ssl.SSLError, OSError) as error:
            raise self._error(
                f"the certificate of user '{self._access.user}' in {self._access.source} cannot be used: "
                f"certificate and key must be PEM texts that belong together, the key without a password",
                CERTIFICATE,
            ) from error

    def _unreachable(self, error: OSError) -> ApiError:
        through = (
            f" through the proxy {proxy_connect.shown(self._access.proxy)}" if self._access.proxy else ""
        )
        where = f"{self._access.server}{through}"
        if isinstance(error, proxy_connect.ProxyRefusal):
            return self._error(f"{where} cannot be reached: {error}", UNREACHABLE)
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._error(
                f"{where} is not the server that the kubeconfig means: {error.verify_message}",
                CERTIFICATE,
                hint=_certificate_hint(error.verify_message),
            )
        if isinstance(error, ssl.SSLError):
            return self._error(f"{where}: TLS fails: {error.reason or 'the line was cut'}", UNREACHABLE)
        if isinstance(error, socket.gaierror):
            again = error.errno == socket.EAI_AGAIN
            return self._error(
                f"{where}: the name is unknown: {error.strerror}", UNREACHABLE if again else UNKNOWN_HOST
            )
        if isinstance(error, TimeoutError):
            return self._error(f"{where} does not answer", TIMEOUT)
        reason = REFUSED if error.errno == errno.ECONNREFUSED else UNREACHABLE
        return self._error(f"{where} cannot be reached: {error.strerror or 'the line was cut'}", reason)

    def _error(self, message: str, reason: str, hint: str = "") -> ApiError:
        access = self._access
        default = f"is the cluster up, and the VPN on? The address is that of context '{access.context}'"
        return ApiError(message, reason=reason, server=access.server, hint=hint or default)


def _certificate_hint(why: str) -> str:
    if "not yet valid" in why or "expired" in why:
        return "check this machine's clock; if it is right, the server's certificate has to be renewed"
    return "check certificate-authority-data and tls-server-name of the cluster in the kubeconfig"


def _known(name: str) -> str | bytes:
    """Return a name as the library takes it at once: for a text it would load the code for foreign letters."""
    return name.encode() if name.isascii() else name


def _round_trip_seconds(line: Line) -> float:
    """Return how far the other end is, as the kernel saw it in connecting; very far where it does not tell."""
    if not hasattr(socket, "TCP_INFO"):
        return float("inf")
    info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 72)
    return int.from_bytes(info[68:72], sys.byteorder) / 1e6 if len(info) == 72 else float("inf")


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield a path under which OpenSSL, which takes no bytes, can read the data; not on a disk where possible."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        import tempfile

        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(data)
            file.flush()
            yield file.name
