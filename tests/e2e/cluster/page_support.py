"""A page for several people on the cluster: accounts with tokens, the server with the rights that are shipped."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml
from tests.e2e.cluster.accounts import BINDING, ROLE, shipped_account
from tests.e2e.cluster.support import PATIENCE, Place, eventually, image

from mpijob.backends.kubernetes.client.api import Document
from mpijob.cluster.webhook import certificates

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "deploy" / "base" / "page"
RIGHTS = SHIPPED / "rights" / "rights.yaml"


def server_account(place: Place) -> AbstractContextManager[Path]:
    """Make the server's account with exactly the rights that are shipped; it is entered by its kubeconfig."""
    return shipped_account(place, "page", RIGHTS)


class Reached(Protocol):
    """Where a page answers, under which name, and whom to trust there."""

    base: str
    host: str
    trust: ssl.SSLContext | None


class Server:
    """`mpijob ui --cluster` as a process that a test may end and start again."""

    host = ""
    trust: ssl.SSLContext | None = None

    def __init__(self, kubeconfig: Path, home: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MPIJOB_")}
        self._env = kept | {"KUBECONFIG": str(kubeconfig), "MPIJOB_ENGINE": "kubernetes", "MPIJOB_HOME": home,
                            "MPIJOB_IMAGE": image("openmpi4")}  # fmt: skip
        self._home = home
        self.start("0")

    def start(self, port: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mpijob", "ui", "--cluster", "--port", port],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=self._home, env=self._env,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.base = self.process.stdout.readline().strip().rstrip("/")

    @property
    def port(self) -> str:
        return self.base.rpartition(":")[2]

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


class Pod:
    """The page as the shipped documents run it, reached through kubectl."""

    def __init__(self, place: Place, service_image: str) -> None:
        self._place = place
        self._name = f"page-{os.urandom(3).hex()}"
        self.host = f"{self._name}.{place.namespace}.svc"
        keys = certificates.renew([self.host])
        self.trust: ssl.SSLContext | None = ssl.create_default_context(cadata=keys.bundle.decode())
        self.trust.check_hostname = False  # kubectl carries it from another address
        self.documents = self._documents(service_image, keys)
        place.apply(*self.documents)
        words = ("wait", "--for=condition=Available", f"deployment/{self._name}", "--timeout=120s")
        place.kubectl(*words)
        argv = ["kubectl", f"--kubeconfig={place.kubeconfig}", f"--namespace={place.namespace}",
                "port-forward", f"deployment/{self._name}", ":8443"]  # fmt: skip
        self._forward = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._forward.stdout is not None
        port = self._forward.stdout.readline().split(" -> ")[0].rpartition(":")[2]
        self.base = f"https://127.0.0.1:{port}"

    def _documents(self, service_image: str, keys: certificates.Keys) -> list[Document]:
        made = subprocess.run(
            ["kubectl", "kustomize", str(SHIPPED)], capture_output=True, text=True, check=True, timeout=60
        )
        text = made.stdout.replace("mpijob-page", self._name).replace("mpijob-system", self._place.namespace)
        found = [one for one in yaml.safe_load_all(text) if one and one["kind"] != "PersistentVolumeClaim"]
        for one in found:
            if one["kind"] == "Deployment":
                for volume in one["spec"]["template"]["spec"]["volumes"]:
                    if volume.pop("persistentVolumeClaim", None):
                        volume["emptyDir"] = {}  # the bed's own volumes are for jobs
                one["spec"]["template"]["spec"]["containers"][0]["image"] = service_image
        tls = {"tls.crt": keys.certificate.decode(), "tls.key": keys.key.decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{self._name}-tls"},
                  "type": "kubernetes.io/tls", "stringData": tls}  # fmt: skip
        return [secret, *found]

    def end(self) -> None:
        self._forward.kill()
        self._forward.wait(PATIENCE)
        for kind in (ROLE, BINDING):
            self._place.api.delete(kind.path("", self._name))


@contextmanager
def a_server(kubeconfig: Path, home: str) -> Iterator[Server]:
    server = Server(kubeconfig, home)
    try:
        yield server
    finally:
        server.end()


class Person:
    """Somebody at the page with their own token, as the OAuth proxy hands it on."""

    def __init__(self, server: Reached, token: str) -> None:
        self.server, self.token = server, token
        self._csrf = ""

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> Any:
        headers = {"x-forwarded-access-token": self.token, **more}
        headers |= {"host": self.server.host} if self.server.host else {}
        if method != "GET":
            self._csrf = self._csrf or self.json("GET", "/session")["csrf"]
            headers |= {"x-mpijob-csrf": self._csrf, "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.server.base}/api/v1{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=PATIENCE, context=self.server.trust)

    def json(self, method: str, path: str, body: Any = None) -> Any:
        return json.load(self.ask(method, path, body))

    def status(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Return the status of an answer and what it says."""
        try:
            with self.ask(method, path, body) as answer:
                said = answer.read()
                return answer.status, json.loads(said) if said else {}
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def names(self) -> list[str]:
        return [one["name"] for one in self.json("GET", "/trainjobs")["items"]]

    def phase(self, name: str) -> str:
        items = self.json("GET", f"/trainjobs?text={name}")["items"]
        return str(items[0]["phase"]) if items else ""


class Listener:
    """Reads a stream of changes in a thread."""

    def __init__(self, person: Person, **headers: str) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._answer = person.ask("GET", "/stream", **headers)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        event = ""
        with suppress(OSError, ValueError, AttributeError):
            for line in self._answer:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                event = value if key == "event" else event
                if key == "data":
                    self.heard.append((event, json.loads(value)))

    def close(self) -> None:
        self._answer.close()

    def first(self) -> tuple[str, dict[str, Any]]:
        """Wait for the first word."""
        eventually(lambda: self.heard, "the stream speaks")
        return self.heard[0]

    @property
    def last(self) -> tuple[str, dict[str, Any]]:
        return self.heard[-1] if self.heard else ("", {})

    @property
    def upserted(self) -> set[str]:
        return {row["name"] for _, told in self.heard for row in told["upsert"]}


class Wire:
    """The way from a server to the cluster's API server, which a test may cut and mend."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        far = urlsplit(cluster["server"])
        self._far = (str(far.hostname), far.port or 443)
        self._near = socket.create_server(("127.0.0.1", 0))
        cluster |= {
            "server": f"https://127.0.0.1:{self._near.getsockname()[1]}",
            "tls-server-name": far.hostname,
        }
        self.kubeconfig = folder / "wire.yaml"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self._cut, self._lines = threading.Event(), list[socket.socket]()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut.set()
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._lines.clear()

    def mend(self) -> None:
        self._cut.clear()

    def close(self) -> None:
        self._near.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._near.accept()
                if self._cut.is_set():
                    line.close()
                    continue
                onward = socket.create_connection(self._far)
                self._lines += [line, onward]
                for one, other in ((line, onward), (onward, line)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for line in (one, other):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
