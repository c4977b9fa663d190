"""The admission webhook as a real pod, asked only about the namespaces of one test module.

What is applied is deploy/base/admission with other names and a narrower selector, so that whoever else uses the
cluster is left alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from testbed import services
from testbed.session import uses_another_cluster
from tests.e2e.cluster.support import RESTRICTED, Place, eventually, image, own_place

from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError, Document
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.cluster import crds
from mpijob.cluster.webhook.cache import LIMITS
from mpijob.formats.kubernetes.metadata import well_known

DEPLOY = Path(__file__).parents[3] / "deploy"
TESTED = "mpijob.dev/tested"  # the label of namespaces that the webhook of a test is asked about
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
REFUSED_SECONDS = 2.0


class Governed:
    """The running webhook and how to reach, break and mend it."""

    def __init__(self, api: Api, name: str, namespace: str, asked: str) -> None:
        self.api, self.name, self.namespace, self.asked = api, name, namespace, asked

    @property
    def labels(self) -> dict[str, str]:
        """The labels of a namespace that it is asked about."""
        return RESTRICTED | {TESTED: self.name}

    def scale(self, count: int) -> None:
        """Have so many of it, and wait until that is so."""
        path = DEPLOYMENT.path(self.namespace, self.name)
        self.api.patch(path, {"spec": {"replicas": count}})
        eventually(lambda: self.ready() == count, f"{count} webhooks are ready")
        eventually(lambda: self.acts() == (count > 0), "the API server has noticed")

    def acts(self) -> bool:
        """Return whether the API server reaches it: a dry run comes back with its owner."""
        container = {"name": "m", "image": "none", "command": ["true"]}
        replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        job = {
            "apiVersion": resources.MPI_OPERATOR_API,
            "kind": "MPIJob",
            "metadata": {"name": "probe"},
            "spec": {"mpiReplicaSpecs": {"Launcher": replica, "Worker": replica}},
        }
        try:
            kept = self.api.create(resources.MPIJOB.path(self.asked), job, dry_run=True)
        except ApiError as error:
            if "failed calling webhook" not in error.message:
                raise
            return False
        return well_known.OWNER_LABEL in (kept["metadata"].get("annotations") or {})

    def ready(self) -> int:
        """Return how many are ready."""
        listed = self.api.list(
            resources.POD.path(self.namespace), labels=f"app.kubernetes.io/name={self.name}"
        ).items
        if any(one["metadata"].get("deletionTimestamp") for one in listed):
            return -1
        conditions = [one for pod in listed for one in pod["status"].get("conditions") or ()]
        return sum(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def processes(self) -> list[int]:
        """Return the webhook's processes on this machine."""
        found, pods = [], self.pods()
        for entry in Path("/proc").glob("[0-9]*/cgroup"):
            try:
                words = (entry.parent / "cmdline").read_bytes().split(b"\0")
                group = entry.read_text().replace("_", "-")
            except OSError:
                continue
            if b"mpijob.cluster.webhook.server" in words and any(pod in group for pod in pods):
                found.append(int(entry.parent.name))
        return found

    def replace_restarted(self) -> None:
        """Have a new pod for each that was restarted: one that is killed often is started ever later."""
        labels = f"app.kubernetes.io/name={self.name}"
        for pod in self.api.list(resources.POD.path(self.namespace), labels=labels).items:
            statuses = pod["status"].get("containerStatuses") or ()
            if any(one["restartCount"] or not one["ready"] for one in statuses):
                self.api.delete(resources.POD.path(self.namespace, pod["metadata"]["name"]), grace_seconds=0)

    def pods(self) -> list[str]:
        """Return the uids of its pods."""
        listed = self.api.list(
            resources.POD.path(self.namespace), labels=f"app.kubernetes.io/name={self.name}"
        ).items
        return [one["metadata"]["uid"] for one in listed]

    @contextmanager
    def limits(self, place: Place, **spec: Any) -> Iterator[None]:
        """Set the limits of a namespace for a while; they hold once the webhook has heard of them."""
        body = {
            "apiVersion": LIMITS.api,
            "kind": LIMITS.name,
            "metadata": {"name": place.namespace},
            "spec": spec,
        }
        self.api.create(LIMITS.path(), body)
        try:
            yield
        finally:
            self.api.delete(LIMITS.path("", place.namespace))


def documents(name: str, namespace: str, image: str) -> list[Document]:
    """Return deploy/base/admission for one test: its own names, one pod, and only the namespaces of the test."""
    folder = DEPLOY / "base" / "admission"
    text = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    text = text.replace("mpijob-webhook", name).replace("mpijob-system", namespace)
    return [_narrowed(one, name, image) for one in yaml.safe_load_all(text) if one]


def _narrowed(document: Document, name: str, image: str) -> Document:
    metadata, kind, spec = document["metadata"], document["kind"], document.get("spec") or {}
    ours = {"key": TESTED, "operator": "In", "values": [name]}
    for webhook in document.get("webhooks") or ():
        webhook["namespaceSelector"]["matchExpressions"].append(ours)
    if kind.startswith("ValidatingAdmissionPolicy"):
        metadata["name"] += f"-{name}"
        if kind.endswith("Binding"):
            spec["policyName"] += f"-{name}"
        else:
            selector = spec["matchConstraints"]["namespaceSelector"]
            selector.setdefault("matchExpressions", []).append(ours)
    if kind == "Deployment":
        spec["replicas"] = 1
        pod = spec["template"]["spec"]
        pod["containers"][0] |= {
            "image": image,
            "args": ["webhook", "--port=8443", f"--service-name={name}", f"--service-namespace={metadata['namespace']}",
                     "--renew-every=2"],
        }  # fmt: skip
        del pod["priorityClassName"]  # which is for the system's own namespaces where quotas say so
    return document


@contextmanager
def governed(kubeconfig: Path) -> Iterator[Governed]:
    """Run the webhook, and take away everything that was put there for it."""
    image = os.environ.get("MPIJOB_TEST_SERVICE_IMAGE") or _image()
    name = f"mpijob-webhook-{os.urandom(3).hex()}"
    labels = RESTRICTED | {TESTED: name}
    with (
        own_place(kubeconfig, "adm-service") as service,
        own_place(kubeconfig, "adm-probe", labels) as probe,
        Api(load(path=str(kubeconfig))) as api,
    ):
        apply(kubeconfig, *crds.documents())
        made = documents(name, service.namespace, image)
        try:
            apply(kubeconfig, *made)
            found = Governed(api, name, service.namespace, probe.namespace)
            eventually(lambda: found.ready() == 1, "the webhook is ready", 90)
            eventually(found.acts, "the API server asks it")
            yield found
        finally:
            listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
            words = ("delete", "--ignore-not-found", "--wait=false", "--filename=-")
            run(kubeconfig, *words, stdin=listed)


def _image() -> str:
    assert not uses_another_cluster(), (
        "MPIJOB_TEST_SERVICE_IMAGE names the services' image of another cluster"
    )
    return services.provide()


def apply(kubeconfig: Path, *items: Mapping[str, Any]) -> None:
    """Apply documents on the server's side."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    done = run(kubeconfig, "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=listed)
    assert done.returncode == 0, done.stderr


def run(
    kubeconfig: Path, *words: str, stdin: str = "", namespace: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run kubectl as the owner of a kubeconfig."""
    argv = [
        "kubectl",
        f"--kubeconfig={kubeconfig}",
        *([f"--namespace={namespace}"] if namespace else ()),
        *words,
    ]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False, timeout=120)


def scientist(place: Place, user: str) -> None:
    """Let a user of the bed work in a place as a data scientist does."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "data-scientist"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    place.put(ROLE_BINDING, f"scientist-{user}", roleRef=reference, subjects=[subject])


def by_hand(name: str, workers: int = 2, **pod: Any) -> Document:
    """Return an MPIJob as somebody writes it who knows nothing of us; it never runs, for it rests."""
    security = {"runAsUser": well_known.PLAIN_USER}
    container = {
        "name": "main",
        "image": image("mpich"),
        "command": ["true"],
        "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "50m"}},
    }
    spec = {"containers": [container], "securityContext": security} | pod
    replica = {"restartPolicy": "Never", "template": {"spec": spec}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "mpiImplementation": "MPICH",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"suspend": True, "cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": {
                "Launcher": replica | {"replicas": 1},
                "Worker": replica | {"replicas": workers},
            },
        },
    }


def plainly(text: str) -> str:
    """Return what kubectl says without the names of the webhook."""
    return re.sub(r"\s+", " ", text)


def create(place: Place, document: Document) -> tuple[int, str]:
    """Create a document as the place's user would with kubectl; return its status and what it said."""
    done = run(
        place.kubeconfig, "create", "--filename=-", stdin=json.dumps(document), namespace=place.namespace
    )
    return done.returncode, plainly(done.stdout + done.stderr)


def refusal(place: Place, document: Document) -> str:
    """Return what is said when a document is refused; limits hold once the webhook has heard of them."""

    def look() -> str | None:
        status, text = create(place, document)
        if status == 0:
            place.kubectl("delete", document["kind"], document["metadata"]["name"])
            return None
        return text

    return eventually(look, "it is refused")


def asked(kubeconfig: Path) -> Iterator[Governed]:
    """The fixture `webhook` of those who want it, for a whole module."""
    with governed(kubeconfig) as made:
        yield made


def judged(kubeconfig: Path, webhook: Governed) -> Iterator[Place]:
    """The fixture `place` of those who want it, for a whole module: alice and bob work there."""
    with own_place(kubeconfig, "adm", webhook.labels) as made:
        for user in ("alice", "bob"):
            scientist(made, user)
        yield made
