"""Keeping the platform over an API server's memory: what is made, adopted, taken away, and killed in between."""

from __future__ import annotations

import copy
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client.api import Document
from mpijob.cluster import crds, manifests
from mpijob.cluster.apply import COMPONENT_LABEL, CRD
from mpijob.cluster.engines import version_of
from mpijob.cluster.reconcile import PlatformReconciler
from mpijob.cluster.status import invalid_status, status
from mpijob.errors import NotFound
from mpijob.model.platform.governance import (
    Component,
    Engine,
    Engines,
    Management,
    OptionalEngine,
    OptionalService,
    Platform,
    PlatformStatus,
    Service,
    Services,
)

ROOT = Path(__file__).resolve().parents[3]
MPI_CRD = "mpijobs.kubeflow.org"
NONE = Service(management_state=Management.REMOVED)
WITHOUT = Engine(management_state=Management.UNMANAGED)
RESOURCES = {
    "v1": [
        ("ConfigMap", "configmaps", True),
        ("Namespace", "namespaces", False),
        ("ServiceAccount", "serviceaccounts", True),
        ("Secret", "secrets", True),
    ],
    "apps/v1": [("Deployment", "deployments", True)],
    "apiextensions.k8s.io/v1": [("CustomResourceDefinition", "customresourcedefinitions", False)],
    "kubeflow.org/v2beta1": [("MPIJob", "mpijobs", True)],
}


class Killed(BaseException):
    """The operator's end at this very moment."""


class Server(Store):
    """An API server that tells its kinds, and makes what is applied."""

    def __init__(self) -> None:
        super().__init__()
        for version, known in RESOURCES.items():
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            listed = [{"kind": kind, "name": plural, "namespaced": own} for kind, plural, own in known]
            self.objects[root] = {"metadata": {}, "resources": listed}

    def list(self, path: str, *, fields: str = "", **more: Any) -> Any:
        found = super().list(path, **more)
        name = fields.removeprefix("metadata.name=")
        return found if not fields else type(found)([one for one in found.items if named(one, name)], "1")

    def patch(self, path: str, body: Any, *, form: str = "merge", **more: Any) -> Document:
        if form == "apply" and path not in self.objects:
            self._asked("PATCH", path)
            made = copy.deepcopy(dict(body))
            made["metadata"] |= {"uid": f"uid-{path}", "generation": 1}
            if made["kind"] == "Deployment":
                made["status"] = {"observedGeneration": 1, "availableReplicas": 1, "updatedReplicas": 1}
            self.objects[path] = made
        else:
            super().patch(path, body, **more)
        self.after("PATCH", path)
        return copy.deepcopy(self.objects[path])

    def delete(self, path: str, **more: Any) -> Document | None:
        gone = super().delete(path, **more)
        self.after("DELETE", path)
        return gone

    @property
    def made(self) -> set[str]:
        return {key for key, one in self.objects.items() if "kind" in one and not key.endswith("inventory")}

    @property
    def writes(self) -> int:
        return sum(method != "GET" for method, _ in self.asked)


def named(document: Document, name: str) -> bool:
    return bool(document["metadata"].get("name") == name)


def an_engine(folder: Path, *, version: str = "", more: str = "") -> None:
    """Write the manifests of a small engine."""
    spec = {
        "group": "kubeflow.org",
        "versions": [{"name": "v2beta1", "served": True}],
        "names": {"plural": "mpijobs"},
    }
    image = f"docker.io/mpioperator/mpi-operator:{version or 'v1'}"
    pods = {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}, "replicas": 1}
    documents: list[Document] = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "mpi-operator", "namespace": "mpi"},
            "spec": pods,
        },
        {"apiVersion": CRD.api, "kind": CRD.name, "metadata": {"name": MPI_CRD}, "spec": spec},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mpi"}},
    ]
    if more:
        documents.append(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": more, "namespace": "mpi"}}
        )
    name = f"mpi-operator-{version}.yaml" if version else "mpi-operator.yaml"
    (folder / name).write_text(yaml.safe_dump_all(documents))


def a_platform(source: Path, **fields: Any) -> Platform:
    version = fields.pop("version", "")
    engine = OptionalEngine(management_state=Management.MANAGED, version=version)
    engines = Engines(jobset=WITHOUT, trainer=WITHOUT, kueue=WITHOUT, mpi_operator=engine)
    services = Services(controller=NONE, admission=NONE)
    return Platform(source=str(source), engines=engines, services=services, **fields)


def keep(server: Server, platform: Platform, folder: Path) -> dict[str, Component]:
    return {one.name: one for one in PlatformReconciler(server, "sys", folder).reconcile(platform)}


@pytest.mark.req("FR-001")
def test_an_engine_is_installed_in_order_and_everything_bears_our_mark(tmp_path: Path) -> None:
    an_engine(tmp_path)
    server = Server()
    told = keep(server, a_platform(tmp_path, registry="mirror.example.org/m"), tmp_path)["mpi-operator"]
    assert (told.state, told.version, told.kept_by) == ("Ready", "v1", "mpijob")
    applied = [path for method, path in server.asked if method == "PATCH" and "/mpi" in path]
    assert [path.rpartition("/")[2] for path in applied][-3:] == ["mpi", MPI_CRD, "mpi-operator"]
    found = server.objects["/apis/apps/v1/namespaces/mpi/deployments/mpi-operator"]
    assert found["metadata"]["labels"][COMPONENT_LABEL] == "mpi-operator"
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "mirror.example.org/m/mpioperator/mpi-operator:v1"


@pytest.mark.req("FR-001")
def test_an_engine_of_somebody_else_is_adopted_and_never_touched(tmp_path: Path) -> None:
    an_engine(tmp_path)
    server = Server()
    theirs = {"metadata": {"name": MPI_CRD, "managedFields": [{"manager": "helm"}]}, "kind": CRD.name}
    server.objects[CRD.path("", MPI_CRD)] = theirs
    for state in (Management.MANAGED, Management.REMOVED):
        told = keep(server, a_platform(tmp_path, management_state=state), tmp_path)["mpi-operator"]
        assert (told.state, told.kept_by) == ("Adopted", "another manager (helm)")
    assert server.objects[CRD.path("", MPI_CRD)] == theirs


def a_job(server: Server, ended: bool) -> str:
    path = "/apis/kubeflow.org/v2beta1/namespaces/cv/mpijobs/bert"
    condition = [{"type": "Succeeded", "status": "True"}] if ended else []
    server.objects[path] = {
        "metadata": {"name": "bert", "namespace": "cv", "uid": "j"},
        "status": {"conditions": condition},
    }
    return path


@pytest.mark.req("E-component")
def test_removal_waits_for_running_jobs_and_definitions_for_the_last_object(tmp_path: Path) -> None:
    an_engine(tmp_path)
    server = Server()
    keep(server, a_platform(tmp_path), tmp_path)
    job, removed = a_job(server, ended=False), a_platform(tmp_path, management_state=Management.REMOVED)
    before = server.made
    told = keep(server, removed, tmp_path)["mpi-operator"]
    assert told.state == "Removing"
    assert "1 unfinished jobs to end: cv/bert" in told.message
    assert server.made == before
    a_job(server, ended=True)
    for _ in range(3):
        told = keep(server, removed, tmp_path)["mpi-operator"]
    assert "CRDs stay" in told.message
    assert CRD.path("", MPI_CRD) in server.made
    assert not any("deployments" in path for path in server.made)
    del server.objects[job]
    told = keep(server, removed, tmp_path)["mpi-operator"]
    assert told.state == "Removing"  # told as it is, and looked at again soon
    assert told.message == "deleting 1 objects"
    for _ in range(3):
        told = keep(server, removed, tmp_path)["mpi-operator"]
    assert (told.state, told.message) == ("Absent", "")
    assert CRD.path("", MPI_CRD) not in server.made


@pytest.mark.thorough
@pytest.mark.req("C-history")
def test_a_recorder_that_is_taken_away_leaves_what_it_has_recorded(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy" / "base" / "recorder", tmp_path / "base" / "recorder")
    server = Server()
    more = {
        "/api/v1": [("PersistentVolumeClaim", "persistentvolumeclaims", True), ("Service", "services", True)],
        "/apis/rbac.authorization.k8s.io/v1": [
            ("ClusterRole", "clusterroles", False),
            ("ClusterRoleBinding", "clusterrolebindings", False),
        ],
        "/apis/networking.k8s.io/v1": [("NetworkPolicy", "networkpolicies", True)],
    }
    for root, known in more.items():
        told = [{"kind": kind, "name": plural, "namespaced": own} for kind, plural, own in known]
        found = server.objects.setdefault(root, {"metadata": {}, "resources": []})
        found["resources"] += told

    def state(management: Management) -> str:
        services = Services(
            controller=NONE, admission=NONE, recorder=OptionalService(management_state=management)
        )
        platform = Platform(
            engines=Engines(jobset=WITHOUT, trainer=WITHOUT, kueue=WITHOUT), services=services, image="i:1"
        )
        return keep(server, platform, tmp_path)["recorder"].state

    assert state(Management.MANAGED) == "Ready"
    claim = "/api/v1/namespaces/mpijob-system/persistentvolumeclaims/mpijob-record"
    assert claim in server.made
    for _ in range(3):
        gone = state(Management.REMOVED)
    assert gone == "Absent"
    assert [path for path in server.made if "mpijob-recorder" in path] == []
    assert claim in server.made
    pod = ("spec", "template", "spec", "securityContext")

    def group() -> int | None:
        assert state(Management.MANAGED) == "Ready"
        found: Any = next(
            one for key, one in server.objects.items() if key.endswith("deployments/mpijob-recorder")
        )
        for word in pod:
            found = found[word]
        return found.get("fsGroup")  # type: ignore[no-any-return]  # plain JSON

    assert group() == 1000
    for _ in range(3):
        state(Management.REMOVED)
    server.objects["/apis/security.openshift.io"] = {"metadata": {}}
    assert group() is None, "OpenShift gives a group out of its range"


def test_an_upgrade_prunes_what_is_no_longer_wanted(tmp_path: Path) -> None:
    an_engine(tmp_path, more="old")
    an_engine(tmp_path, version="v2", more="new")
    server = Server()
    keep(server, a_platform(tmp_path), tmp_path)
    told = keep(server, a_platform(tmp_path, version="v2"), tmp_path)["mpi-operator"]
    accounts = [path.rpartition("/")[2] for path in server.made if "serviceaccounts" in path]
    assert accounts == ["new"]
    assert told.state == "Ready"


@pytest.mark.thorough
@pytest.mark.req("C-ha")
def test_killed_at_any_step_the_platform_comes_to_the_same_end(tmp_path: Path) -> None:
    an_engine(tmp_path, more="old")
    an_engine(tmp_path, version="v2", more="new")
    lives = (
        a_platform(tmp_path),
        a_platform(tmp_path, version="v2"),
        a_platform(tmp_path, version="v2", management_state=Management.REMOVED),
    )
    whole = Server()
    wanted = [settled(whole, platform, tmp_path) for platform in lives]
    for step in range(whole.writes):
        for heard in (False, True):
            server, count = Server(), itertools.count()

            def die(method: str, path: str, count: Any = count, step: int = step) -> None:
                if method != "GET" and next(count) == step:
                    raise Killed

            if heard:
                server.after = die
            else:
                server.before = die
            assert [settled(server, platform, tmp_path) for platform in lives] == wanted, (step, heard)


def settled(server: Server, platform: Platform, folder: Path) -> set[str]:
    """Return what is there after an operator was killed, perhaps, and others looked as often as it takes."""
    for _ in range(3):
        try:
            keep(server, platform, folder)
        except Killed:
            continue
    return server.made


def test_what_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    told = keep(Server(), a_platform(tmp_path), tmp_path)
    assert told["mpi-operator"].state == "Failed"
    assert "no manifests of mpi-operator" in told["mpi-operator"].message
    assert told["crds"].state == "Ready"
    after = status(PlatformStatus(), told.values(), 3)
    ready = next(one for one in after.conditions if one.type == "Ready")
    assert (ready.status, ready.reason, ready.observed_generation) == ("False", "Failed", 3)
    assert {one.type for one in after.conditions} >= {"MpiOperatorReady", "CrdsReady", "TrainerReady"}
    again = status(after, told.values(), 4)
    assert again.conditions[0].last_transition_time == after.conditions[0].last_transition_time
    assert invalid_status(after, "no such word", 5).conditions[0].reason == "Invalid"


def test_sources_are_files_directories_and_addresses(tmp_path: Path) -> None:
    an_engine(tmp_path, version="v2")
    assert len(manifests.manifests(str(tmp_path), "mpi-operator", "v2")) == 3
    assert len(manifests.manifests(str(tmp_path / "mpi-operator-v2.yaml"), "mpi-operator", "")) == 3
    with pytest.raises(NotFound, match=r"mpi-operator-v3.yaml or mpi-operator.yaml"):
        manifests.manifests(str(tmp_path), "mpi-operator", "v3")
    assert (
        manifests._manifest_url("https://m.example.org/k", "trainer", "v2")
        == "https://m.example.org/k/trainer-v2.yaml"
    )


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("registry.k8s.io/jobset/jobset:v1", "m.org/x/jobset/jobset:v1"),
        ("localhost:5000/a:1", "m.org/x/a:1"),
        ("mpioperator/mpi-operator", "m.org/x/mpioperator/mpi-operator"),
        ("busybox@sha256:00", "m.org/x/busybox@sha256:00"),
    ],
)
def test_images_come_from_the_mirror(image: str, wanted: str) -> None:
    assert manifests.mirror_name(image, "m.org/x/") == wanted


def test_a_version_is_the_images_tag() -> None:
    def deployed(image: str, **labels: str) -> Document:
        return {
            "metadata": {"labels": labels},
            "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
        }

    assert version_of(deployed("r.org:5000/a/b:v1@sha256:0")) == "v1"
    assert version_of(deployed("r.org:5000/a/b", **{"app.kubernetes.io/version": "v3"})) == "v3"


@pytest.mark.thorough
def test_our_definitions_are_what_the_folder_holds() -> None:
    folder = Path(__file__).resolve().parents[3] / "deploy" / "base" / "crds"
    assert manifests.read_kustomization(folder) == [*crds.documents()]
