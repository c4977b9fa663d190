"""A real server that speaks S3, with a bucket, and the data connection to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mpijob.backends.s3_volumes import VARIABLES, Bucket, Connection

from .support import eventually


@contextmanager
def s3_server(
    host: str = "127.0.0.1", bucket: str = "data", within: Sequence[str] = ()
) -> Iterator[Connection]:
    """Start moto's server on a free port, make a bucket, and end it again; `within` enters another network."""
    with socket.socket() as one:
        one.bind(("127.0.0.1" if within else host, 0))
        port = one.getsockname()[1]
    program = os.path.join(os.path.dirname(sys.executable), "moto_server")
    assert os.path.exists(program), "the S3 server is not installed; `make test` does it"
    argv = [*within, program, "-H", host, "-p", str(port)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://{host}:{port}"
        eventually(lambda: _answers(address), "the server answers", 30)
        urllib.request.urlopen(urllib.request.Request(f"{address}/{bucket}", method="PUT")).close()
        yield Connection(address, bucket, "access", "s3cr3t-k3y")
    finally:
        server.terminate()
        server.wait(10)


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/moto-api/").close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def variables(connection: Connection) -> dict[str, str]:
    """Return the connection as a Secret of Open Data Hub holds it."""
    return {name: str(getattr(connection, field)) for field, name in VARIABLES.items()}


def content(connection: Connection, folder: str = "") -> dict[str, bytes]:
    """Return every object of a folder."""
    bucket = Bucket(connection, folder)
    return {name: bucket.get(name) or b"" for name, _ in bucket.names()}
