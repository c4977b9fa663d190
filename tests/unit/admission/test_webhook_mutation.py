"""What is added to a job on its way into a cluster: its owner, and what keeps its pods safe."""

from __future__ import annotations

import json

import pytest
from tests.unit.incoming_support import a_job, a_review, applied, documents

from mpijob.formats.admission import pod_templates, request_reader
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document


def by_hand() -> Document:
    """Return an MPIJob as somebody writes it who knows nothing of us."""
    container = {"name": "m", "image": "x/y:1", "command": ["mpirun", "true"]}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "hand", "namespace": "cv", "labels": {well_known.OWNER_LABEL: "somebody-else"}},
        "spec": {"mpiReplicaSpecs": {"Launcher": replica, "Worker": json.loads(json.dumps(replica))}},
    }


@pytest.mark.req("E-webhook", "D-istio", "FR-024")
def test_a_job_written_by_hand_gets_its_owner_no_mesh_no_token_and_restricted_pods() -> None:
    changed = applied(by_hand(), request_reader.patches(a_review(by_hand(), raw=True)))
    assert changed["metadata"]["labels"][well_known.OWNER_LABEL] == "jane-example.org"
    assert changed["metadata"]["labels"]["cost.mpijob.dev/user"] == "jane-example.org"
    assert changed["metadata"]["annotations"][well_known.OWNER_LABEL] == "jane@example.org"
    for role in ("Launcher", "Worker"):
        template = changed["spec"]["mpiReplicaSpecs"][role]["template"]
        assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
        assert template["metadata"]["labels"]["istio.io/dataplane-mode"] == "none"
        assert template["metadata"]["labels"][well_known.OWNER_LABEL] == "jane-example.org"
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert spec["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    again = request_reader.patches(a_review(changed, raw=True))
    assert again == []  # an API server may ask twice


def test_where_pods_may_be_root_an_image_that_needs_it_is_left_alone() -> None:
    changed = applied(by_hand(), request_reader.patches(a_review(by_hand(), raw=True), restricted=False))
    spec = changed["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    assert "securityContext" not in spec
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_a_job_of_ours_gets_only_its_owner(kind: str) -> None:
    for document in documents(a_job(), kind):
        paths = {one["path"] for one in request_reader.patches(a_review(document, raw=True))}
        assert all("mpijob.dev" in path or path == "/metadata/annotations" for path in paths), paths


def test_a_shared_runtime_is_nobodys() -> None:
    runtime, _ = documents(a_job())
    runtime["metadata"]["labels"] = {}
    for _, template in pod_templates.templates(runtime, "TrainingRuntime"):
        template["metadata"]["labels"] = {}
    changed = applied(runtime, request_reader.patches(a_review(runtime, raw=True)))
    for _, template in pod_templates.templates(changed, "TrainingRuntime"):
        assert template["metadata"]["labels"].get(well_known.OWNER_LABEL) is None


def test_the_owner_that_admission_wrote_is_the_jobs_owner() -> None:
    *runtime, document = documents(a_job(owner="forged"))
    changed = applied(document, request_reader.patches(a_review(document, raw=True)))
    assert trainjob.read([*runtime, changed]).job.owner == "jane@example.org"
