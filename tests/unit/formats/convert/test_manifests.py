"""Manifests as people have them, each with what must become of it: amounts, nodes, names, claims, labels."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, convert
from mpijob.formats.kubernetes.metadata.well_known import JOB_LABEL, ROLE_LABEL
from mpijob.model import MPIJob

pytestmark = pytest.mark.req("D-migrate")
SOURCES = Path(__file__).resolve().parents[3] / "fixtures" / "manifests"
POD = "spec.mpiReplicaSpecs.Worker.template.spec"
RUNTIME = "ClusterTrainingRuntime.spec"
NONE = {"resources.cpu": "none", "resources.memory": "none"}
READY, CHECK, BLOCKED = Stage.READY, Stage.CHECK, Stage.BLOCKED
EXACT, CHANGED, DROPPED = FieldOutcome.EXACT, FieldOutcome.CHANGED, FieldOutcome.DROPPED
# file → how far it is, what its job says, and what became of its fields
EXPECTED: dict[str, tuple[Stage, dict[str, Any], dict[str, FieldOutcome]]] = {
    "nothing-asked": (READY, {**NONE, "launcher.memory": "none", "workers": 2}, {}),
    "gpus-alone": (READY, {**NONE, "resources.gpu": 8, "slots": 8}, {}),
    "limit-above-request": (
        READY,
        {"resources.cpu": "4", "resources.memory": "8Gi", "launcher.memory": "none"},
        {f"{POD}.container.resources.requests.memory": CHANGED, f"{POD}.container.resources.limits.memory": EXACT},
    ),
    "request-alone": (
        READY,
        {"resources.cpu": "500m", "resources.memory": "3Gi"},
        {f"{POD}.container.resources.requests.cpu": CHANGED, f"{POD}.container.resources.requests.memory": CHANGED},
    ),
    "device-claims": (
        CHECK,
        {"resources.memory": "2Gi"},
        {f"{POD}.container.resources.claims": DROPPED, f"{POD}.resourceClaims": DROPPED, "other documents": DROPPED},
    ),
    "misspelt-request": (
        CHECK,
        {"resources.cpu": "2", "resources.memory": "none"},
        {f"{POD}.container.resources.request.memory": DROPPED},
    ),
    "misspelt-fields": (
        CHECK,
        {"slots": 1, "retry.limit": 0, "placement.node_selector": {}, "pull_policy": ""},
        {
            "spec.slotPerWorker": DROPPED,
            "spec.runPolicy.backofLimit": DROPPED,
            f"{POD}.nodeSelectors.pool": DROPPED,
            f"{POD}.container.imagePullPolice": DROPPED,
        },
    ),
    "privileged": (CHECK, {}, {f"{POD}.container.securityContext": DROPPED}),
    "root-user": (CHECK, {}, {f"{POD}.container.securityContext": DROPPED}),
    "packed-by-label": (
        CHECK,
        {"labels": {"block": "alpha", "tier": "compute", "team": "cfd"}},
        {f"{POD}.affinity": EXACT, "metadata.labels.block": DROPPED, "metadata.labels.team": EXACT},
    ),
    "packed-by-operator-label": (READY, {}, {f"{POD}.affinity": CHANGED}),
    "with-queues": (CHECK, {"queue": "team-queue", "namespace": "cfd"}, {"other documents": DROPPED}),
    "generated-name": (READY, {"name": "sweep"}, {"metadata.generateName": CHANGED}),
    "launcher-amounts": (
        READY,
        {"launcher.cpu": "500m", "launcher.memory": "512Mi", "resources.cpu": "1"},
        {"spec.mpiReplicaSpecs.Launcher.template.spec.container.resources.limits.cpu": CHANGED},
    ),
    "volumes-of-all-kinds": (
        CHECK,
        {},
        {
            f"{POD}.volumes[data]": EXACT,
            f"{POD}.volumes[nfs]": EXACT,
            f"{POD}.volumes[host]": DROPPED,
            f"{POD}.container.volumeMounts[/part]": DROPPED,
        },
    ),
    "v1alpha1-units": (
        CHECK,
        {"workers": 2, "slots": 4, "resources.cpu": "4", "resources.memory": "none", "retry.limit": 2},
        {
            "spec.processingUnits": CHANGED,
            "spec.processingUnitsPerNode": CHANGED,
            "spec.processingResourceType": CHANGED,
            "spec.launcherOnMaster": DROPPED,
        },
    ),
    "v1alpha2": (CHECK, {"mpi": "intel", "deadline_seconds": 60.0}, {"spec.mpiDistribution": CHANGED}),
    "v1": (CHECK, {"workers": 2}, {"spec.mainContainer": EXACT, "spec.runPolicy.ttlSecondsAfterFinished": DROPPED}),
    "torch-nodes": (
        READY,
        {"workers": 4, "slots": 1, "ranks": None, "env.PET_NNODES": "4", "env.PET_NPROC_PER_NODE": "auto"},
        {f"{RUNTIME}.mlPolicy.torch": CHANGED, f"{RUNTIME}.mlPolicy.numNodes": DROPPED},
    ),
    "torch-plain-python": (
        READY,
        {"workers": 3, "ranks": None, "image": "example/mine:1", "resources.memory": "8Gi",
         "env.PET_NPROC_PER_NODE": "4"},
        {
            "spec.trainer.resourcesPerNode.requests.memory": CHANGED,
            "spec.trainer.resourcesPerNode.limits.memory": EXACT,
        },
    ),
    "flux-tasks": (
        READY,
        {"workers": 3, "slots": 4, "ranks": None, "command": ("lmp", "-in", "in.melt")},
        {f"{RUNTIME}.mlPolicy.flux.numProcPerNode": EXACT},
    ),
    "jax-nodes": (READY, {"workers": 2, "env.JAX_NUM_PROCESSES": "2"}, {f"{RUNTIME}.mlPolicy.jax": CHANGED}),
    "plain-nodes": (READY, {"workers": 5, "ranks": None, "command": ("./shard",)}, {}),
    "torchtune": (BLOCKED, {"workers": 2}, {}),
    "runtime-not-given": (BLOCKED, {"workers": 2, "image": "example/mine:1"}, {"spec.runtimeRef": DROPPED}),
    "initializer": (
        CHECK,
        {"workers": 2},
        {
            "spec.initializer.dataset.storageUri": DROPPED,
            f"{RUNTIME}.template.spec.replicatedJobs[dataset-initializer].template.spec.template.spec.container.image":
                DROPPED,
        },
    ),
}  # fmt: skip


def converted(name: str, **options: Any) -> Conversion:
    (found,) = convert((SOURCES / f"{name}.yaml").read_text(), file=f"{name}.yaml", **options)
    return found


def said(job: MPIJob, path: str) -> Any:
    """Return what a job says in one of its fields, `resources.memory` or `env.NAME`."""
    part, _, rest = path.partition(".")
    value = getattr(job, part)
    return (value[rest] if isinstance(value, Mapping) else getattr(value, rest)) if rest else value


def pod_of(name: str) -> dict[str, Any]:
    """Return the workers' pod of the MPIJob that is written."""
    (document,) = yaml.safe_load_all(converted(name, to="mpijob").texts[0])
    found: dict[str, Any] = document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    return found


def test_every_file_has_its_expectation() -> None:
    assert {path.stem for path in SOURCES.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.thorough
@pytest.mark.parametrize("name", EXPECTED)
def test_a_manifest_becomes_the_job_that_it_means(name: str) -> None:
    stage, fields, fates = EXPECTED[name]
    found = converted(name)
    assert found.stage is stage, found.blockers
    assert {path: said(found.jobs[0], path) for path in fields} == fields
    told: dict[str, set[FieldOutcome]] = {}
    for entry in found.entries:
        told.setdefault(entry.field, set()).add(entry.fate)
    assert {field: told.get(field) for field in fates} == {field: {fate} for field, fate in fates.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", EXPECTED)
def test_a_report_begins_with_what_the_job_asks_for_none_of(name: str) -> None:
    found = converted(name)
    (job,) = found.jobs
    parts = {"resources": job.resources, "launcher": job.launcher}
    none = [
        f"{part}.{one}" for part in parts for one in ("memory", "cpu") if getattr(parts[part], one) == "none"
    ]
    first = found.entries[0]
    assert (first.field == ", ".join(none) and first.ours == "none") if none else first.ours != "none"


def test_a_privileged_container_is_not_forbidden_to_gain_rights() -> None:
    """Kubernetes refuses a container that is privileged and may not gain rights."""
    context = pod_of("privileged")["containers"][0]["securityContext"]
    assert context["privileged"] is True
    assert "allowPrivilegeEscalation" not in context
    root = pod_of("root-user")["containers"][0]["securityContext"]
    assert (root["runAsUser"], root["runAsNonRoot"]) == (0, False)
    assert "allowPrivilegeEscalation" not in root


@pytest.mark.thorough
def test_amounts_and_claims_are_kept_as_they_are_when_an_mpijob_is_written_again() -> None:
    pod = pod_of("device-claims")
    assert pod["containers"][0]["resources"] == {
        "limits": {"memory": "2Gi", "cpu": 1},
        "claims": [{"name": "fabric"}],
    }
    assert pod["resourceClaims"][0]["name"] == "fabric"
    amounts = pod_of("request-alone")["containers"][0]["resources"]
    assert amounts == {"requests": {"cpu": "500m", "memory": "3Gi"}}
    assert pod_of("nothing-asked")["containers"][0]["resources"] == {"requests": {}, "limits": {}}


@pytest.mark.thorough
def test_pods_have_the_labels_that_their_affinity_asks_for() -> None:
    (_, document) = yaml.safe_load_all(converted("packed-by-label", to="trainjob").texts[0])
    assert document["metadata"]["labels"]["block"] == "alpha"
    affinity = converted("packed-by-operator-label").jobs[0].placement.affinity
    (term,) = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {ROLE_LABEL: "worker"}
    assert term["labelSelector"]["matchExpressions"][0]["key"] == JOB_LABEL
    kept = pod_of("packed-by-operator-label")["affinity"]["podAntiAffinity"]
    assert "training.kubeflow.org/job-role" in str(kept)


def test_the_other_objects_of_a_file_are_named_in_one_line() -> None:
    entries = [entry for entry in converted("with-queues").entries if entry.field == "other documents"]
    assert [entry.value for entry in entries] == ["LocalQueue team-queue, ConfigMap settings"]


def test_a_misspelt_field_is_told_with_the_right_one() -> None:
    todos = {entry.field: entry.todo for entry in converted("misspelt-fields").entries}
    assert todos["spec.slotPerWorker"] == "did you mean slotsPerWorker?"
    again = {entry.field: entry for entry in converted("misspelt-request", to="mpijob").entries}
    assert again[f"{POD}.container.resources.request.memory"].fate is CHANGED
    assert again[f"{POD}.container.resources.request.memory"].todo == "did you mean requests?"


def test_a_manifest_without_any_name_is_refused_with_the_field() -> None:
    text = (SOURCES / "nothing-asked.yaml").read_text().replace("{name: nothing-asked}", "{}")
    with pytest.raises(Exception, match="has no name") as caught:
        convert(text)
    assert "metadata.name" in caught.value.hint  # type: ignore[attr-defined]  # every error of ours has one


def test_the_ranks_of_a_torch_job_find_the_first_worker_in_pods_and_on_one_machine(tmp_path: Path) -> None:
    """What a rank runs is shell: it is run here with a pod's name, as both engines give it, and without."""
    words = converted("torch-nodes").jobs[0].argv
    assert words[-2:] == ("torchrun", "train.py")
    show = (*words[:4], "sh", "-c", 'echo "$PET_NODE_RANK $PET_MASTER_ADDR"')
    fake = tmp_path / "uname"
    fake.write_text('#!/bin/sh\necho "$POD"\n')
    fake.chmod(0o755)

    def shown(**variables: str) -> str:
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | variables
        return subprocess.run(show, env=env, check=True, capture_output=True, text=True).stdout.strip()

    assert shown(POD="my-job-node-0-3") == "3 my-job-node-0-0.my-job"
    assert shown(POD="my-job-worker-12") == "12 my-job-worker-0.my-job"
    assert shown(MPIJOB_WORKER="2", POD="laptop") == "2 127.0.0.1"
