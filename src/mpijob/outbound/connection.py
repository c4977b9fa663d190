"""One HTTP connection for all clients: TLS, private CAs, proxies, timeouts, limits.

HTTP/1.1 is the standard library's `http.client`; this module adds policy (docs/decisions/0051). An ambiguous
response is rejected, headers and bodies are bounded, a truncated body is an error, and a value cannot inject
a second header. Retries are decided by the callers. The policy for addresses is not applied here: `guard`
passes its own `dial`.
"""

from __future__ import annotations

import base64
import http.client
import io
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from email import errors
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from mpijob.errors import Unsupported

BLOCK_BYTES = 1 << 16
_MAX_HEADER_BYTES = 1 << 16
_MAX_LENGTH_DIGITS = 18
_CONTROL_CHARACTERS = frozenset(map(chr, (*range(9), *range(10, 32), 127)))
_BODILESS = (204, 304)
# The header parser reports these because it looks for the parts of a multipart body after the headers.
_BODY_DEFECTS = (
    errors.NoBoundaryInMultipartDefect,
    errors.StartBoundaryNotFoundDefect,
    errors.MultipartInvariantViolationDefect,
)
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
# A peer that has vanished is noticed within 20 + 3 × 5 seconds, unacknowledged data within 30.
_KEEPALIVE = (
    ("SO_KEEPALIVE", "SOL_SOCKET", 1),
    ("TCP_KEEPIDLE", "IPPROTO_TCP", 20),
    ("TCP_KEEPINTVL", "IPPROTO_TCP", 5),
    ("TCP_KEEPCNT", "IPPROTO_TCP", 3),
    ("TCP_USER_TIMEOUT", "IPPROTO_TCP", 30_000),
)
Dialer = Callable[[str, int, float], socket.socket]


class ProtocolError(http.client.HTTPException):
    """The response is not HTTP, or is ambiguous."""


class BodyTooLong(ProtocolError):
    """The body exceeds its limit."""


class InvalidRequest(ValueError):
    """The request is not valid HTTP, or would be more than one request; nothing was sent."""


class _Reader(io.BufferedReader):
    # `http.client` takes a connection that is cut between two header lines for the end of the headers.
    def __init__(self, raw: Any) -> None:
        super().__init__(raw, BLOCK_BYTES)
        self._lines_size = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        complete = line.endswith(b"\n") or len(line) == size
        if not complete and (line or self._lines_size):
            raise http.client.IncompleteRead(line)
        self._lines_size += len(line)
        if self._lines_size > _MAX_HEADER_BYTES:
            raise ProtocolError(f"response headers larger than {_MAX_HEADER_BYTES} bytes")
        return line

    def read1(self, size: int = -1, /) -> bytes:
        # From here on the end of the connection may be the end of the body.
        self._lines_size = 1
        return super().read1(size)


class Response(http.client.HTTPResponse):
    """A response whose end is certain: by one length, by chunks, or by the end of the connection."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = _Reader(self.fp.detach())

    def begin(self) -> None:
        """Read the headers; interim responses are skipped."""
        super().begin()
        # `http.client` itself skips 100 only; without headers it starts again.
        while 102 <= self.status < 200:
            self.headers = None  # type: ignore[assignment]
            super().begin()
        self._check()

    def _check(self) -> None:
        headers = self.headers
        if self.status == 101:
            raise ProtocolError("unexpected protocol switch (101)")
        malformed = any(not isinstance(defect, _BODY_DEFECTS) for defect in headers.defects)
        if malformed or any("\n" in value or "\r" in value for value in headers.values()):
            raise ProtocolError("invalid header line in the response")
        lengths = {text.strip(" \t") for text in headers.get_all("content-length", ())}
        encodings = headers.get_all("transfer-encoding", ())
        if any(
            not (text.isascii() and text.isdecimal() and len(text) <= _MAX_LENGTH_DIGITS) for text in lengths
        ):
            raise ProtocolError("invalid Content-Length")
        if len(lengths) > 1:
            raise ProtocolError("conflicting Content-Length headers")
        if [text.lower() for text in encodings] not in ([], ["chunked"]):
            raise ProtocolError("unsupported Transfer-Encoding")
        if self.status in _BODILESS:
            self.chunked = False
        # `http.client` reads only the first Connection header.
        connection_tokens = ",".join(headers.get_all("connection", ())).lower()
        # A proxy may have used the other of the two lengths: the connection must not be reused.
        if "close" in connection_tokens or (encodings and lengths):
            self.will_close = True

    def read_block(self, size: int = BLOCK_BYTES) -> bytes:
        """Return the next available bytes of the body, b"" at its end; raise IncompleteRead if it is truncated."""
        try:
            block = self.read1(size)
        except http.client.IncompleteRead as error:
            # This is how `http.client` reports an invalid chunk size.
            if isinstance(error.__context__, ValueError):
                raise ProtocolError("invalid chunk size") from error
            raise
        if self.chunked and (self.chunk_left or 0) < 0:
            raise ProtocolError("invalid chunk size")
        if not block and self.length:
            raise http.client.IncompleteRead(b"", self.length)
        if not self.chunked and (not block or self.length == 0):
            # Closing the response releases the connection for the next request.
            self.close()
        return block

    def read_all(self, limit: int) -> bytes:
        """Return the whole body; raise BodyTooLong if it exceeds the limit."""
        if (self.length or 0) > limit:
            raise BodyTooLong(f"response larger than {limit} bytes")
        blocks, size = [], 0
        while block := self.read_block():
            blocks.append(block)
            size += len(block)
            if size > limit:
                raise BodyTooLong(f"response larger than {limit} bytes")
        return b"".join(blocks)


class Connection(http.client.HTTPConnection):
    """One connection to the server of a URL, directly or through a proxy; encrypted if a TLS context is given."""

    response_class = Response

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        proxy: str = "",
        dial: Dialer | None = None,
        watch: Callable[[socket.socket], None] | None = None,
    ) -> None:
        target = urlsplit(url)
        host, port = target.hostname or "", target.port or _PORTS[target.scheme]
        proxy_url = _parse_proxy(proxy) if proxy else None
        is_http_proxy = proxy_url is not None and proxy_url.scheme == "http"
        address = (
            (proxy_url.hostname or "", _port(proxy_url)) if proxy_url and is_http_proxy else (host, port)
        )
        super().__init__(*address, timeout=timeout)
        self.authority = target.netloc.rpartition("@")[2]
        self._tls = tls
        self._server_name = server_name or host
        # Headers for the proxy, on requests that are not tunnelled.
        self._proxy_headers: dict[str, str] | None = None
        if proxy_url and is_http_proxy and tls:
            self.set_tunnel(host, port, _proxy_auth(proxy_url))
        elif proxy_url and is_http_proxy:
            self._proxy_headers = _proxy_auth(proxy_url)
        dialer = dial or connect_direct
        if proxy_url and not is_http_proxy:
            dialer = _socks_dialer(proxy_url, watch)
        # The function that `http.client` calls below TLS and tunnels.
        self._create_connection = lambda address, timeout, source: dialer(address[0], address[1], timeout)

    def connect(self) -> None:
        try:
            super().connect()
            for name, level, value in _KEEPALIVE:
                # Not every operating system has all of them.
                if hasattr(socket, name):
                    self.sock.setsockopt(getattr(socket, level), getattr(socket, name), value)
            if self._tls:
                self.sock = self._tls.wrap_socket(self.sock, server_hostname=_encode_host(self._server_name))
        except BaseException:
            self.close()
            raise

    def send_request(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None = None
    ) -> None:
        """Send a request; if the server closes the connection early, its response is still read if it has arrived."""
        lines = [("Host", self.authority), *headers]
        if body is not None:
            lines.append(("Content-Length", str(len(body))))
        check_headers(f"{name}: {value}" for name, value in lines)
        if self._proxy_headers is not None:
            target = f"http://{self.authority}{target}"
            lines += self._proxy_headers.items()
        has_encoding = any(name.lower() == "accept-encoding" for name, _ in lines)
        try:
            self.putrequest(method, target, skip_host=True, skip_accept_encoding=has_encoding)
        except (http.client.InvalidURL, ValueError) as error:
            raise InvalidRequest(f"invalid request: {method} {target!a}") from error
        for name, value in lines:
            self.putheader(name, value.encode())
        try:
            self.endheaders(body)
        except ConnectionError:
            # A server that refuses a body by its size responds and closes without reading it.
            if not body or self.sock is None or not has_data(self.sock):
                raise

    def read_response(self) -> Response:
        """Return the response once its status line and headers are read."""
        response = self.getresponse()
        assert isinstance(response, Response)
        return response


def has_data(sock: socket.socket, seconds: float = 0.0) -> bool:
    """Return whether data arrives in this time; on an idle connection that can only be its end."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def check_headers(headers: Iterable[str]) -> None:
    """Reject header values that contain line breaks or other control characters."""
    if not all(_CONTROL_CHARACTERS.isdisjoint(header) for header in headers):
        raise InvalidRequest("a header contains a line break or another control character")


def tls_context(*, ca: str = "", insecure: bool = False) -> ssl.SSLContext:
    """Return a context that trusts a CA (PEM); without one, the system's."""
    # Without the system's certificate authorities: loading them takes time, and they must not be trusted here.
    own_context = ca or insecure
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if own_context else ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca:
        context.load_verify_locations(cadata=ca)
    return context


def connect_direct(host: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((_encode_host(host), port), timeout)  # type: ignore[arg-type]  # bytes do as well


def _encode_host(name: str) -> str | bytes:
    # As bytes: for a str Python imports the codec for international names, which costs start-up time.
    return name.encode() if name.isascii() else name


# -- proxies -----------------------------------------------------------------------------------------
def proxy_for(url: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY define for a URL, or ""."""
    server = urlsplit(url)
    name = f"{server.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not proxy or _bypasses_proxy(server.hostname or "", server.port or _PORTS[server.scheme], exceptions):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _bypasses_proxy(host: str, port: int, exceptions: str) -> bool:
    # A proxy would reach its own loopback interface.
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return True
    return any(
        _entry_matches(entry.strip().lower(), host, port) for entry in exceptions.split(",") if entry.strip()
    )


def _entry_matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(entry, host)
    name, colon, entry_port = entry.rpartition(":")
    if colon and entry_port.isdigit() and (":" not in name or name.endswith("]")):
        if int(entry_port) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    return host == entry.removeprefix(".") or host.endswith(entry if entry.startswith(".") else f".{entry}")


def _in_network(entry: str, host: str) -> bool:
    # Imported here because few NO_PROXY entries are networks.
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def redact_proxy(proxy: str) -> str:
    """Return a proxy's URL without user and password."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.hostname}:{_port(parts)}"


def _parse_proxy(proxy: str) -> SplitResult:
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "socks5", "socks5h") or not parts.hostname or not _port(parts):
        raise Unsupported(
            f"unsupported proxy {redact_proxy(proxy)}",
            hint="use http://HOST:PORT or socks5://HOST:PORT",
        )
    return parts


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return 0


def _proxy_auth(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _socks_dialer(proxy: SplitResult, watch: Callable[[socket.socket], None] | None) -> Dialer:
    """Return a dialer for a SOCKS5 proxy, which resolves the host name."""
    try:
        import socks
    except ImportError as error:
        raise Unsupported(
            f"the proxy {redact_proxy(proxy.geturl())} needs PySocks, which is not installed",
            hint="run: pip install 'mpijob[socks]'",
        ) from error

    def dial(host: str, port: int, timeout: float) -> socket.socket:
        sock: socket.socket = socks.create_connection(
            (host, port),
            timeout,
            proxy_type=socks.SOCKS5,
            proxy_addr=proxy.hostname,
            proxy_port=_port(proxy),
            proxy_rdns=True,
            proxy_username=unquote(proxy.username) if proxy.username else None,
            proxy_password=unquote(proxy.password or "") if proxy.username else None,
        )
        if watch:
            watch(sock)
        return sock

    return dial
