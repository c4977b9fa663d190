"""The `ui` command: the web UI, served from this machine."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import msgspec

from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command
from mpijob.errors import BackendError, InvalidJob, Unsupported
from mpijob.settings import CLUSTER

_PAGE = Path(__file__).parents[2] / "api" / "page" / "index.html"
_LOOPBACK = ("127.0.0.1", "localhost")


@command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port; 0 selects a free port.",
)
@click.option("--browser/--no-browser", default=True, help="Open the web UI in a browser.")
@click.option(
    "--cluster",
    is_flag=True,
    help="Serve all users of the cluster; each user acts with their own permissions.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With --cluster: host name of the web UI; can be repeated.",
)
@click.option(
    "--address", default=_LOOPBACK[0], show_default=True, help="With --cluster: address to listen on."
)
@click.option("--certificate", default="", metavar="FILE", help="With --cluster: TLS certificate.")
@click.option("--key", default="", metavar="FILE", help="With --cluster: TLS key.")
@click.option(
    "--sign-out", default="/oauth/sign_out", show_default=True, help="With --cluster: sign-out URL."
)
@pass_app
def ui(app: App, port: int, browser: bool, cluster: bool, **served: Any) -> None:
    """Open the web UI."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise Unsupported("the web UI requires the extra ui", hint="run: pip install 'mpijob[ui]'")
    if cluster:
        _serve_cluster(app, port, **served)
    else:
        _serve_here(app, port, browser)


def _serve_here(app: App, port: int, browser: bool) -> None:
    listening = _listen(port)
    port, token = listening.getsockname()[1], secrets.token_urlsafe(32)
    address = f"http://{_LOOPBACK[0]}:{port}/#token={token}"
    app.out.line(address)
    if _PAGE.exists():
        app.out.note(
            "open this address in a browser; it works once. Ctrl-C stops the server; jobs keep running"
        )
        if browser:
            _open(address)
    else:
        app.out.note("the web UI is not built in this checkout, so only the API is available: "
                     "press Ctrl-C and run make ui")  # fmt: skip
    options = {
        "socket": listening.fileno(),
        "hosts": [f"{name}:{port}" for name in _LOOPBACK],
        "token": token,
        "settings": app.settings(),
        "namespace": app.namespace,
    }
    _exec_server(msgspec.json.encode(options), listening)


def _serve_cluster(
    app: App, port: int, hosts: tuple[str, ...], address: str, certificate: str, key: str, sign_out: str
) -> None:
    """Serve the users of a cluster: behind its OAuth proxy, or with own TLS certificates."""
    settings = app.settings()
    if settings.engine != CLUSTER:
        raise Unsupported(
            "--cluster requires a cluster context", hint="set MPIJOB_ENGINE=kubernetes, or specify --context"
        )
    if address not in _LOOPBACK and not (certificate and key):
        raise InvalidJob(
            f"the web UI requires TLS to listen on an address other than loopback: {address}",
            hint="set --certificate and --key, or omit --address and use an OAuth proxy",
        )
    listening = _listen(port, address)
    port = listening.getsockname()[1]
    names = hosts or tuple(f"{name}:{port}" for name in _LOOPBACK)
    app.out.line(f"{'https' if certificate else 'http'}://{names[0]}/")
    options = {
        "socket": listening.fileno(),
        "hosts": names,
        "settings": settings,
        "namespace": app.namespace,
        "login": True,
        "sign_out": sign_out,
        "tls": (certificate, key) if certificate else None,
    }
    _exec_server(msgspec.json.encode(options), listening)


def _listen(port: int, address: str = _LOOPBACK[0]) -> socket.socket:
    """Return a listening socket, on loopback by default."""
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Headers are sent at once, and do not wait for the body.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((address, port))
        listening.listen(512)
    except OSError as error:
        hint = "choose another one with --port, or --port 0 for any that is free"
        raise BackendError(f"port {port} cannot be used: {error.strerror}", hint=hint) from error
    return listening


def _open(address: str) -> None:
    """Open the browser."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"):
        return
    import webbrowser

    # Through a file that only this user can read: the arguments of a process are public.
    handle, path = tempfile.mkstemp(prefix="mpijob-ui-", suffix=".html")
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">')
    webbrowser.open(f"file://{path}")


def _exec_server(options: bytes, listening: socket.socket) -> None:
    """Replace this process with the server."""
    # Interfaces do not import each other, and one process is easier to stop than two. The options have a
    # token, so they are passed in an unlinked file and not as arguments.
    with tempfile.TemporaryFile() as handed:
        handed.write(options)
        handed.seek(0)
        os.set_inheritable(handed.fileno(), True)
        listening.set_inheritable(True)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-m", "mpijob.api", str(handed.fileno())])
