"""Connections to an API server, with its CA and the user's certificate; a failure becomes an `ApiError`.

`http` keeps the connections and sends requests over them; sockets, TLS and proxies are those of
`outbound.connection`.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator

from mpijob.backends.kubernetes.auth.access import Access, Credential
from mpijob.backends.kubernetes.client.api_errors import (
    CERTIFICATE,
    REFUSED,
    TIMEOUT,
    UNKNOWN_HOST,
    UNREACHABLE,
    ApiError,
)
from mpijob.outbound import connection
from mpijob.outbound.connection import Connection

CONNECT_SECONDS = 10.0
# Round trips of a server on this machine or in its network: compressing a response takes longer than sending
# it.
NEAR_SECONDS = 0.003


class Connector:
    """Opens connections to the server of one access."""

    def __init__(self, access: Access) -> None:
        # None: not known before the first connection. Through a proxy, TCP_INFO has the way to the proxy only.
        self.near: bool | None = False if access.proxy else None
        self._access = access
        self._lock = threading.Lock()
        self._context: tuple[str, ssl.SSLContext] | None = None

    def dial(self, proof: Credential, timeout: float = CONNECT_SECONDS) -> Connection:
        """Return a new connection; ApiError if there is none, and then nothing was sent."""
        access = self._access
        opened = Connection(
            access.server,
            timeout=timeout,
            tls=self._tls_context(proof) if access.server.startswith("https:") else None,
            server_name=access.tls_server_name,
            proxy=access.proxy,
            dial=self._dial,
        )
        try:
            opened.connect()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        return opened

    def _dial(self, host: str, port: int, timeout: float) -> socket.socket:
        sock = connection.connect_direct(host, port, timeout)
        if not self._access.proxy:
            self.near = _round_trip_seconds(sock) < NEAR_SECONDS
        return sock

    def _tls_context(self, proof: Credential) -> ssl.SSLContext:
        # One context for all connections, since loading the CAs takes milliseconds; a plugin may hand out a
        # new certificate at any time.
        with self._lock:
            if self._context is None or self._context[0] != proof.certificate:
                self._context = (proof.certificate, self._new_context(proof))
            return self._context[1]

    def _new_context(self, proof: Credential) -> ssl.SSLContext:
        access = self._access
        try:
            context = connection.tls_context(ca=access.ca, insecure=access.insecure)
        except (ssl.SSLError, ValueError) as error:
            raise self._error(
                f"the CA of cluster '{self._access.cluster}' in {self._access.source} is not a PEM certificate",
                CERTIFICATE,
            ) from error
        if proof.certificate:
            self._identify(context, proof)
        return context

    def _identify(self, context: ssl.SSLContext, proof: Credential) -> None:
        try:
            with _as_file(f"{proof.certificate}\n{proof.key}".encode()) as path:
                # An empty password: without one, OpenSSL would ask for it on the terminal.
                context.load_cert_chain(path, password="")
        except (ssl.SSLError, OSError) as error:
            raise self._error(
                f"the certificate of user '{self._access.user}' in {self._access.source} cannot be used: "
                f"certificate and key must be PEM texts that belong together, the key without a password",
                CERTIFICATE,
            ) from error

    def _unreachable(self, error: Exception) -> ApiError:
        proxy = self._access.proxy
        through = f" through the proxy {connection.redact_proxy(proxy)}" if proxy else ""
        where = f"{self._access.server}{through}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._error(
                f"{where} presents a certificate that the kubeconfig does not trust: {error.verify_message}",
                CERTIFICATE,
                hint=_certificate_hint(error.verify_message),
            )
        if isinstance(error, ssl.SSLError):
            return self._error(
                f"{where}: TLS fails: {error.reason or 'the connection was closed'}", UNREACHABLE
            )
        if isinstance(error, socket.gaierror):
            # EAI_AGAIN is a name server that does not answer, and may pass; a name that does not exist will
            # not.
            temporary = error.errno == socket.EAI_AGAIN
            return self._error(
                f"{where}: cannot resolve the host name: {error.strerror}",
                UNREACHABLE if temporary else UNKNOWN_HOST,
            )
        if isinstance(error, TimeoutError):
            return self._error(f"{where} does not respond", TIMEOUT)
        reason = REFUSED if getattr(error, "errno", None) == errno.ECONNREFUSED else UNREACHABLE
        why = getattr(error, "strerror", None) or str(error) or "the connection was closed"
        return self._error(f"{where} cannot be reached: {why}", reason)

    def _error(self, message: str, reason: str, hint: str = "") -> ApiError:
        access = self._access
        default = f"is the cluster up, and the VPN on? The address is that of context '{access.context}'"
        return ApiError(message, reason=reason, server=access.server, hint=hint or default)


def _certificate_hint(why: str) -> str:
    if "not yet valid" in why or "expired" in why:
        return "check this machine's clock; if it is right, renew the server's certificate"
    return "check certificate-authority-data and tls-server-name of the cluster in the kubeconfig"


def _round_trip_seconds(sock: socket.socket) -> float:
    """Return the round trip time of the TCP handshake, infinity if the kernel does not report it."""
    if not hasattr(socket, "TCP_INFO"):
        return float("inf")
    # tcpi_rtt of struct tcp_info (linux/tcp.h), in microseconds: no request is spent on measuring.
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 72)
    return int.from_bytes(info[68:72], sys.byteorder) / 1e6 if len(info) == 72 else float("inf")


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield a path from which OpenSSL, which takes no bytes, can read the data."""
    if hasattr(os, "memfd_create"):
        # In memory: a private key must not be written to a disk.
        fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        import tempfile

        # Created with mode 0600.
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
