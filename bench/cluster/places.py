"""A namespace of its own for a measurement, with a client, kubectl, and jobs that fit a small node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench import kubectl
from bench.line import Unmeasured
from mpijob import Client, MPIJob, Resources
from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, Document
from mpijob.model import Placement
from mpijob.settings import CLUSTER, load

IMAGE = "testbed.local/openmpi4:1"
PATIENCE_SECONDS = 180.0
_FAKE = "kwok.x-k8s.io/node"


@dataclass(frozen=True)
class Place:
    """A namespace, the environment that leads the command line there, a client and a connection."""

    namespace: str
    environ: dict[str, str]
    client: Client
    api: Api

    @property
    def image(self) -> str:
        """The image that jobs run in."""
        return self.client.settings.image

    @cached_property
    def kubectl(self) -> str:
        """The kubectl that is measured against."""
        return kubectl.find()

    @cached_property
    def mpijob(self) -> str:
        """The command line that is measured."""
        return shutil.which("mpijob", path=self.environ["PATH"]) or "mpijob"

    @cached_property
    def placement(self) -> Placement:
        """On a real machine: some clusters have nodes that exist on paper."""
        nodes = self.api.list(resources.NODE.path()).items
        real = [node for node in nodes if _FAKE not in (node["metadata"].get("annotations") or {})]
        if len(real) == len(nodes):
            return Placement()
        name = real[0]["metadata"]["labels"]["kubernetes.io/hostname"]
        return Placement(node_selector={"kubernetes.io/hostname": name})

    def small_job(self, name: str, workers: int, *command: str, **fields: Any) -> MPIJob:
        """Return a job that asks for next to nothing."""
        fields.setdefault("resources", Resources(cpu="20m", memory="64Mi"))
        fields.setdefault("launcher", Resources(cpu="20m", memory="64Mi"))
        return MPIJob(
            name=name,
            namespace=self.namespace,
            workers=workers,
            command=command,
            placement=self.placement,
            grace_seconds=1.0,
            **fields,
        )

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Hand documents over by kubectl, again and again until all are accepted.

        A TrainJob is refused until Trainer's webhook has heard of its runtime; whoever uses kubectl repeats it.
        """
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        line = (self.kubectl, "apply", "--namespace", self.namespace, "--filename=-")
        until(lambda: _succeeds(line, self.environ, content), "kubectl apply")

    def remove(self, name: str) -> None:
        """Delete a TrainJob and what belongs to it, at once."""
        self.api.delete(resources.TRAINJOB.path(self.namespace, name), grace_seconds=0)

    def cleared(self) -> None:
        """Wait until no pod is left, so that the next round meets a quiet node."""
        pods = resources.POD.path(self.namespace)
        until(lambda: not self.api.list(pods).items, "the end of the pods")

    def launcher_log(self, name: str) -> Sequence[tuple[float, str]]:
        """Return what a job's launcher said, each line with its time."""
        pods = self.api.list(resources.POD.path(self.namespace), labels=f"mpijob.dev/job={name}").items
        launchers = [pod["metadata"]["name"] for pod in pods if "-launcher-" in pod["metadata"]["name"]]
        if not launchers or any(pod["status"]["phase"] == "Pending" for pod in pods):
            return ()
        raw = self.api.raw(resources.POD.path(self.namespace, launchers[0], "log"), timestamps="true")
        stamped = (line.partition(" ") for line in raw.decode(errors="replace").splitlines())
        return [(_seconds(stamp), said) for stamp, _, said in stamped]


def _seconds(stamp: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp()


def _succeeds(argv: Sequence[str], environ: Mapping[str, str], content: str) -> bool:
    done = subprocess.run(argv, env=environ, input=content, capture_output=True, text=True, check=False)
    return done.returncode == 0


def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Unmeasured(f"{what} took longer than {seconds:g} s")
        time.sleep(0.05)


@contextmanager
def place(name: str) -> Iterator[Place]:
    """Give a fresh namespace on the cluster of KUBECONFIG; it is removed with everything in it."""
    namespace = f"bench-{name}-{os.urandom(3).hex()}"
    with tempfile.TemporaryDirectory(prefix="mpijob-bench-") as home:
        environ = _environ(home, namespace)
        settings = load(environ)
        api = Api(kubeconfig.load(path=settings.kubeconfig, context=settings.context, environ=environ))
        _create(api, namespace)
        there = Place(namespace, environ, Client(settings=settings), api)
        try:
            yield there
        finally:
            api.delete(resources.NAMESPACE.path("", namespace))


def _create(api: Api, namespace: str) -> None:
    document: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    api.create(resources.NAMESPACE.path(), document)
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    until(lambda: api.find(account), "the namespace's service account")


def _environ(home: str, namespace: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MPIJOB_")}
    if "KUBECONFIG" not in kept and not os.path.exists(os.path.expanduser("~/.kube/config")):
        raise Unmeasured("no cluster: make bench-cluster starts one, or set KUBECONFIG")
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MPIJOB_SETTINGS": f"{home}/settings.toml",
        "MPIJOB_HOME": f"{home}/state",
        "MPIJOB_ENGINE": CLUSTER,
        "MPIJOB_NAMESPACE": namespace,
        "MPIJOB_IMAGE": os.environ.get("MPIJOB_IMAGE", IMAGE),
    }
