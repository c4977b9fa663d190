"""Faults that a test makes on purpose in the test bed, each mended again before the test is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import control_plane, operators, processes
from testbed.kubectl import is_ready, kubectl
from testbed.shell import wait_for
from tests.e2e.cluster.support import Place, eventually

from mpijob.backends.kubernetes.client import discovery
from mpijob.backends.kubernetes.client import resources as kinds
from mpijob.backends.kubernetes.client.resources import Kind

ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
_REVIEWS = "authorization.k8s.io/v1"
CRD = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
TRAINER = ("kubeflow-system", "kubeflow-trainer-controller-manager")
# An API server that is silent for longer than this costs every engine its leader lease.
LEASE_SECONDS = 10.0


@contextlib.contextmanager
def silent_api_server() -> Iterator[None]:
    """Stop the API server where it is; its lines stay open, and nobody answers."""
    process, begun = processes.process_id("kube-apiserver"), time.monotonic()
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)
        wait_for("an answer of the API server", is_ready, seconds=60)
        if time.monotonic() - begun > LEASE_SECONDS - 1:
            engines_back()


def restart_etcd() -> None:
    """Stop etcd and start it again on its data."""
    processes.stop("etcd")
    control_plane.start_etcd()
    wait_for("an answer of the API server", is_ready, seconds=60)


def engines_back() -> None:
    """Wait until every engine has its lease again and its webhook answers."""
    operators.come_back()
    operators.prove()


@contextlib.contextmanager
def no_trainer() -> Iterator[None]:
    """Take Trainer's controller away, and its webhook with it."""
    namespace, name = TRAINER
    scale = (f"--namespace={namespace}", "scale", f"deployment/{name}")
    pods = (f"--namespace={namespace}", "get", "pods", "--output=name")
    kubectl(*scale, "--replicas=0")
    try:
        wait_for("the end of Trainer's controller", lambda: name not in kubectl(*pods), seconds=60)
        yield
    finally:
        kubectl(*scale, "--replicas=1")
        engines_back()


@contextlib.contextmanager
def not_served(place: Place, *names: str) -> Iterator[None]:
    """Let the API server serve all custom resources of an API no more; their objects stay.

    Their engine needs a while afterwards.
    """
    try:
        _serve(place, names, False)
        yield
    finally:
        _serve(place, names, True)


def _serve(place: Place, names: Sequence[str], served: bool) -> None:
    apis = {_serve_one(place, name, served) for name in names}
    # the list of all APIs lags behind
    told = f"{', '.join(apis)} is{'' if served else ' not'} told"
    eventually(lambda: served is (apis <= discovery.served(place.api)), told, 60.0)


def _serve_one(place: Place, name: str, served: bool) -> str:
    path = CRD.path("", name)
    crd = place.api.get(path)["spec"]
    versions = [one | {"served": served and one["storage"]} for one in crd["versions"]]
    place.api.patch(path, {"spec": {"versions": versions}})
    api = f"{crd['group']}/{next(one['name'] for one in versions if one['storage'])}"

    def settled() -> bool:
        resources = (place.api.find(f"/apis/{api}") or {}).get("resources") or ()
        return served is any(one["name"] == crd["names"]["plural"] for one in resources)

    eventually(settled, f"{name} is{'' if served else ' not'} served", 60.0)
    return api


# -- users ---------------------------------------------------------------------------------------------
def as_user(kubeconfig: Path, user: str, folder: Path, **credentials: str) -> Path:
    """Return a kubeconfig for somebody else: the administrator in disguise, or whoever has the credentials."""
    config = json.loads(kubeconfig.read_text())
    config["users"][0]["user"] = credentials or config["users"][0]["user"] | {"as": user}
    path = folder / f"{user}.yaml"
    path.write_text(json.dumps(config))
    return path


def rules(place: Place, *, without: str = "") -> list[Mapping[str, Any]]:
    """Return what a data scientist of the test bed may do, one resource left out."""
    role = json.loads(place.kubectl("get", "clusterrole", "data-scientist", "--output=json"))
    kept = []
    for rule in role["rules"]:
        left = [one for one in rule["resources"] if one != without]
        if left:
            kept.append(rule | {"resources": left})
    return kept


def allow(place: Place, user: str, allowed: Sequence[Mapping[str, Any]], kind: str = "User") -> None:
    """Let a user do something in the place's namespace; return when the API server knows of it."""
    place.put(ROLE, user, rules=list(allowed))
    subject: dict[str, str] = {"kind": kind, "name": user}
    subject |= {"namespace": place.namespace} if kind == "ServiceAccount" else {"apiGroup": ROLE.group}
    reference = {"apiGroup": ROLE.group, "kind": ROLE.name, "name": user}
    place.put(BINDING, user, roleRef=reference, subjects=[subject])
    named = f"system:serviceaccount:{place.namespace}:{user}" if kind == "ServiceAccount" else user
    eventually(lambda: _may(place, named, allowed[0]), f"{user} may do what the role says")


def _may(place: Place, user: str, rule: Mapping[str, Any]) -> bool:
    asked = {
        "namespace": place.namespace,
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": rule["resources"][0].partition("/")[0],
        "subresource": rule["resources"][0].partition("/")[2],
    }
    review = {"apiVersion": _REVIEWS, "kind": "SubjectAccessReview"}
    body = review | {"spec": {"user": user, "resourceAttributes": asked}}
    return bool(place.api.create(f"/apis/{_REVIEWS}/subjectaccessreviews", body)["status"]["allowed"])


# -- those who follow ----------------------------------------------------------------------------------
class Followers:
    """Commands of users that follow one job while something happens, each in a process of its own."""

    def __init__(self, place: Place, *commands: Sequence[str], **environ: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        told = place.environ(PYTHONUNBUFFERED="1", **environ)
        self._running = {words[0]: self._start(place.argv(*words), words[0], told) for words in commands}

    def _start(self, argv: list[str], name: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        with self._file(name, "out").open("wb") as out, self._file(name, "err").open("wb") as err:
            return subprocess.Popen(argv, env=environ, stdout=out, stderr=err)

    def _file(self, name: str, stream: str) -> Path:
        return Path(self._folder.name, f"{name}.{stream}")

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._running.values():
            one.kill()
            one.wait()
        self._folder.cleanup()

    def said(self, name: str) -> str:
        """Return what a command has written so far."""
        return self._file(name, "out").read_text()

    def alive(self) -> bool:
        """Return whether all of them still follow."""
        return all(one.poll() is None for one in self._running.values())

    def ended(self, seconds: float) -> dict[str, subprocess.CompletedProcess[str]]:
        """Return how each ended and what it said, by the name of its command."""
        for one in self._running.values():
            one.wait(seconds)
        return {name: self._done(name, one.returncode) for name, one in self._running.items()}

    def _done(self, name: str, status: int) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(name, status, self.said(name), self._file(name, "err").read_text())


def left_of(place: Place, name: str) -> list[str]:
    """Return everything in the namespace whose name begins with a job's."""
    wanted = (kinds.TRAINJOB, kinds.TRAINING_RUNTIME, kinds.MPIJOB, kinds.CONFIG_MAP, kinds.SECRET, kinds.POD)
    found = [one for kind in wanted for one in place.api.list(kind.path(place.namespace)).items]
    names = [one["metadata"]["name"] for one in found]
    return [one for one in names if one.startswith(name)]
