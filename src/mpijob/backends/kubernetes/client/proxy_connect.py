"""Which proxy stands between us and a server, as curl and kubectl choose it, and how to pass through it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client import urls
from mpijob.errors import BackendError, Unsupported

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


class ProxyRefusal(OSError):
    """The proxy did not let us through."""


def address(url: str, where: str) -> str:
    """Return a server's address without its last slash, or say what is wrong with it."""
    if urls.plain(url):
        return url.rstrip("/")
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BackendError(f"{where} has no usable server address", hint="it looks like https://HOST:6443")
    if parts.username or parts.query or parts.fragment:
        raise BackendError(f"{where}: a server address holds no user, query or fragment")
    return url.rstrip("/")


def choose(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY mean for this server, or ""."""
    name = "https_proxy" if server.startswith("https:") else "http_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not proxy or _spared(urls.of(server), exceptions):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _spared(server: urls.Address, exceptions: str) -> bool:
    host, port = server.host, server.port
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
    parts = _split(proxy)
    return f"{parts.scheme}://{parts.hostname}:{_port(parts)}"


def connect(proxy: str, host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection to host and port through the proxy."""
    parts = _split(proxy)
    if parts.scheme not in ("http", "socks5", "socks5h") or not parts.hostname:
        raise Unsupported(
            f"the proxy {shown(proxy)} cannot be used",
            hint="proxies are http://HOST:PORT or socks5://HOST:PORT",
        )
    line = socket.create_connection((parts.hostname, _port(parts)), timeout)
    try:
        (_tunnel if parts.scheme == "http" else _socks)(line, parts, host, port)
    except BaseException:
        line.close()
        raise
    return line


def _split(proxy: str) -> SplitResult:
    from urllib.parse import urlsplit  # only for those behind a proxy: start-up is a feature

    return urlsplit(proxy)


def _secret(proxy: SplitResult) -> tuple[bytes, bytes]:
    """Return user and password as they were before they were put into an address."""
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(proxy.username or ""), unquote_to_bytes(proxy.password or "")


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS.get(parts.scheme, 0)


def _tunnel(line: socket.socket, proxy: SplitResult, host: str, port: int) -> None:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n"
    if proxy.username:
        import base64

        secret = b":".join(_secret(proxy))
        head += f"Proxy-Authorization: Basic {base64.b64encode(secret).decode()}\r\n"
    line.sendall(f"{head}\r\n".encode("latin-1"))
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to TLS
        piece = line.recv(1)
        if not piece or len(answer) > 65536:
            raise ProxyRefusal("the proxy hung up")
        answer += piece
    status = answer.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or status[1] != b"200":
        told = b" ".join(status[1:]).decode("latin-1", "replace")
        raise ProxyRefusal(f"the proxy answered: {told[:200]}")


def _socks(line: socket.socket, proxy: SplitResult, host: str, port: int) -> None:
    line.sendall(b"\x05\x01\x02" if proxy.username else b"\x05\x01\x00")
    chosen = _exactly(line, 2)[1]
    if chosen == 2 and proxy.username:
        user, secret = _secret(proxy)
        line.sendall(b"\x01" + bytes([len(user)]) + user + bytes([len(secret)]) + secret)
        chosen = _exactly(line, 2)[1]
    if chosen != 0:
        raise ProxyRefusal("the proxy does not accept the login")
    name = host.encode("ascii" if host.isascii() else "idna")
    line.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + port.to_bytes(2, "big"))
    answer = _exactly(line, 4)
    if answer[1] != 0:
        raise ProxyRefusal(f"the proxy cannot reach {host}:{port} (SOCKS error {answer[1]})")
    rest = {1: 4, 4: 16}.get(answer[3]) or _exactly(line, 1)[0]
    _exactly(line, rest + 2)


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = line.recv(size - len(data))
        if not piece:
            raise ProxyRefusal("the proxy hung up")
        data += piece
    return data
