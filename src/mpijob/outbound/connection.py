"""One HTTP connection for every client of ours: TLS, private authorities, proxies, timeouts, limits.

HTTP/1.1 is the standard library's `http.client`; what is added here is policy (docs/decisions/0051). A response
that could be read in two ways is refused, heads and bodies have a limit, a cut is never taken for an end, and a
request cannot smuggle a second header in. What may be repeated is decided by whoever asks. Nothing here needs the
policy about addresses: `guard` hands its own `dial` in.
"""

from __future__ import annotations

import base64
import http.client
import io
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from email.errors import (
    MultipartInvariantViolationDefect,
    NoBoundaryInMultipartDefect,
    StartBoundaryNotFoundDefect,
)
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from mpijob.errors import Unsupported

PIECE = 1 << 16
_LONGEST_HEAD = 1 << 16
_MOST_DIGITS = 18
_CONTROLS = frozenset(map(chr, (*range(9), *range(10, 32), 127)))
_BODILESS = (204, 304)
_DEFECTS_OF_BODIES = (  # the parser of heads looks for parts of a body behind them
    NoBoundaryInMultipartDefect,
    StartBoundaryNotFoundDefect,
    MultipartInvariantViolationDefect,
)
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
# A peer that has vanished is noticed within 20 + 3 × 5 seconds, sent data that nobody confirms within 30.
_KEEPALIVE = (
    ("SO_KEEPALIVE", "SOL_SOCKET", 1),
    ("TCP_KEEPIDLE", "IPPROTO_TCP", 20),
    ("TCP_KEEPINTVL", "IPPROTO_TCP", 5),
    ("TCP_KEEPCNT", "IPPROTO_TCP", 3),
    ("TCP_USER_TIMEOUT", "IPPROTO_TCP", 30_000),
)
Dial = Callable[[str, int, float], socket.socket]


class ProtocolError(http.client.HTTPException):
    """What came is no response in HTTP, or one that could be read in two ways."""


class TooLong(ProtocolError):
    """The body is longer than it may be."""


class InvalidRequest(ValueError):
    """What is to be sent is no request in HTTP, or would be more than one; nothing of it was sent."""


class _Reader(io.BufferedReader):
    """The bytes of a response: `http.client` takes a cut between two lines for the end of a head."""

    def __init__(self, raw: Any) -> None:
        super().__init__(raw, PIECE)
        self._lines_size = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        whole = line.endswith(b"\n") or len(line) == size
        if not whole and (line or self._lines_size):
            raise http.client.IncompleteRead(line)
        self._lines_size += len(line)
        if self._lines_size > _LONGEST_HEAD:
            raise ProtocolError("the response's head does not end")
        return line

    def read1(self, size: int = -1, /) -> bytes:
        self._lines_size = 1  # a new line is no beginning of a response any more
        return super().read1(size)


class Response(http.client.HTTPResponse):
    """A response whose end is certain: by one length, by chunks, or by the end of the connection."""

    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = _Reader(self.fp.detach())

    def begin(self) -> None:
        """Read the head; interim responses are passed over."""
        super().begin()
        while 102 <= self.status < 200:  # `http.client` passes over 100 itself
            self.headers = None  # type: ignore[assignment]  # so it begins anew
            super().begin()
        self._check()

    def _check(self) -> None:
        headers = self.headers
        if self.status == 101:
            raise ProtocolError("the server changes to another protocol, which nobody asked for")
        torn = any(not isinstance(defect, _DEFECTS_OF_BODIES) for defect in headers.defects)
        if torn or any("\n" in value or "\r" in value for value in headers.values()):
            raise ProtocolError("the response's head has a line that is no header")
        lengths = {one.strip(" \t") for one in headers.get_all("content-length", ())}
        codings = headers.get_all("transfer-encoding", ())
        if any(not (one.isascii() and one.isdecimal() and len(one) <= _MOST_DIGITS) for one in lengths):
            raise ProtocolError("the response has no sensible length")
        if len(lengths) > 1:
            raise ProtocolError("the response has two lengths")
        if [one.lower() for one in codings] not in ([], ["chunked"]):
            raise ProtocolError("the response is packed in a way that nobody asked for")
        if self.status in _BODILESS:
            self.chunked = False
        ends = ",".join(headers.get_all("connection", ())).lower()  # `http.client` reads the first one
        if "close" in ends or (codings and lengths):  # of two lengths somebody between us may mean the other
            self.will_close = True

    def piece(self, size: int = PIECE) -> bytes:
        """Return the next bytes of the body as soon as there are some, none at its end; raise where it is cut."""
        try:
            piece = self.read1(size)
        except http.client.IncompleteRead as error:
            if isinstance(error.__context__, ValueError):  # how `http.client` tells of a bad length
                raise ProtocolError("a chunk of the response has no sensible length") from error
            raise
        if self.chunked and (self.chunk_left or 0) < 0:
            raise ProtocolError("a chunk of the response has no sensible length")
        if not piece and self.length:
            raise http.client.IncompleteRead(b"", self.length)
        if not self.chunked and (not piece or self.length == 0):
            self.close()  # so that the connection may be used again
        return piece

    def whole(self, most: int) -> bytes:
        """Return the whole body; raise TooLong where it is longer than that."""
        if (self.length or 0) > most:
            raise TooLong(f"the response has more than {most} bytes")
        pieces, size = [], 0
        while piece := self.piece():
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise TooLong(f"the response has more than {most} bytes")
        return b"".join(pieces)


class Connection(http.client.HTTPConnection):
    """One connection to the server of a URL, straight or through a proxy; with a TLS context it is encrypted."""

    response_class = Response

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        proxy: str = "",
        dial: Dial | None = None,
        watch: Callable[[socket.socket], None] | None = None,
    ) -> None:
        to = urlsplit(url)
        host, port = to.hostname or "", to.port or _PORTS[to.scheme]
        via = _usable(proxy) if proxy else None
        is_http_proxy = via is not None and via.scheme == "http"
        at = (via.hostname or "", _port(via)) if via and is_http_proxy else (host, port)
        super().__init__(*at, timeout=timeout)
        self.authority = to.netloc.rpartition("@")[2]
        self._tls = tls
        self._server_name = server_name or host
        self._absolute: dict[str, str] | None = None  # a proxy's headers for requests that are not tunnelled
        if via and is_http_proxy and tls:
            self.set_tunnel(host, port, _login(via))
        elif via and is_http_proxy:
            self._absolute = _login(via)
        way = dial or direct
        if via and not is_http_proxy:
            way = _through_socks(via, watch)
        # the seam of `http.client` below TLS and tunnels
        self._create_connection = lambda address, timeout, source: way(address[0], address[1], timeout)

    def connect(self) -> None:
        """Connect, through the proxy and with TLS where there are."""
        try:
            super().connect()
            for name, level, value in _KEEPALIVE:
                if hasattr(socket, name):  # not every system has each of them
                    self.sock.setsockopt(getattr(socket, level), getattr(socket, name), value)
            if self._tls:
                self.sock = self._tls.wrap_socket(self.sock, server_hostname=_known(self._server_name))
        except BaseException:
            self.close()
            raise

    def send_request(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None = None
    ) -> None:
        """Send a request; one that the server has cut short is sent, too, if its response is there."""
        lines = [("Host", self.authority), *headers]
        if body is not None:
            lines.append(("Content-Length", str(len(body))))
        in_one_line(f"{name}: {value}" for name, value in lines)
        if self._absolute is not None:
            target = f"http://{self.authority}{target}"
            lines += self._absolute.items()
        packed = any(name.lower() == "accept-encoding" for name, _ in lines)
        try:
            self.putrequest(method, target, skip_host=True, skip_accept_encoding=packed)
        except (http.client.InvalidURL, ValueError) as error:
            raise InvalidRequest(f"{method} {target!a} is no request") from error
        for name, value in lines:
            self.putheader(name, value.encode())
        try:
            self.endheaders(body)
        except ConnectionError:
            if not body or self.sock is None or not has_data(self.sock):
                raise

    def response(self) -> Response:
        """Return the beginning of the response."""
        response = self.getresponse()
        assert isinstance(response, Response)
        return response


def has_data(sock: socket.socket, seconds: float = 0.0) -> bool:
    """Return whether something arrives in this time; of an idle connection that can only be its end."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def in_one_line(headers: Iterable[str]) -> None:
    """Refuse a header that would be several, or that no server takes."""
    if not all(_CONTROLS.isdisjoint(header) for header in headers):
        raise InvalidRequest("a header would have more than one line")


def tls_context(*, authority: str = "", insecure: bool = False) -> ssl.SSLContext:
    """Return a context that trusts an authority (PEM), without one the system's."""
    if not authority and not insecure:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority:
        context.load_verify_locations(cadata=authority)
    return context


def direct(host: str, port: int, timeout: float) -> socket.socket:
    """Connect to a host without anything between."""
    return socket.create_connection((_known(host), port), timeout)  # type: ignore[arg-type]  # bytes do as well


def _known(name: str) -> str | bytes:
    """Return a name as the library takes it at once: for a text it would load the code for foreign letters."""
    return name.encode() if name.isascii() else name


# -- proxies -----------------------------------------------------------------------------------------
def proxy_for(url: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY mean for this server, or ""."""
    server = urlsplit(url)
    name = f"{server.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not proxy or _spared(server.hostname or "", server.port or _PORTS[server.scheme], exceptions):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _spared(host: str, port: int, exceptions: str) -> bool:
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return True
    return any(_covers(entry.strip().lower(), host, port) for entry in exceptions.split(",") if entry.strip())


def _covers(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(entry, host)
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and (":" not in name or name.endswith("]")):
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    return host == entry.removeprefix(".") or host.endswith(entry if entry.startswith(".") else f".{entry}")


def _in_network(entry: str, host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def shown(proxy: str) -> str:
    """Return the proxy's address without user and password."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.hostname}:{_port(parts)}"


def _usable(proxy: str) -> SplitResult:
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "socks5", "socks5h") or not parts.hostname or not _port(parts):
        raise Unsupported(
            f"the proxy {shown(proxy)} cannot be used",
            hint="proxies are http://HOST:PORT or socks5://HOST:PORT",
        )
    return parts


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return 0


def _login(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _through_socks(proxy: SplitResult, watch: Callable[[socket.socket], None] | None) -> Dial:
    """Return what connects through a SOCKS5 proxy, which resolves the name."""
    try:
        import socks
    except ImportError as error:
        raise Unsupported(
            f"the proxy {shown(proxy.geturl())} needs the package PySocks, which is not installed",
            hint="pip install 'mpijob[socks]'",
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
