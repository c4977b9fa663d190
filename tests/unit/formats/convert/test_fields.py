"""An MPIJob with every kind of field: what the report calls exact is in the job, and nothing vanishes in silence."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from mpijob.formats.convert.kubernetes import flat_fields, mpijob_manifests
from mpijob.formats.convert.report import Converted, FieldOutcome

pytestmark = pytest.mark.req("D-migrate")
_STEP = re.compile(r"([A-Za-z]+)(?:\[([^\]]*)\])?\.?")
_KEYS = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "containers": "name",
}


def a_replica(role: str, count: int) -> dict[str, Any]:
    small = role.lower()
    secret = {"secretKeyRef": {"name": "keys", "key": small}}
    container: dict[str, Any] = {
        "name": "main", "image": f"example/{small}:1", "workingDir": "/w", "tty": True,
        "imagePullPolicy": "Always" if role == "Worker" else "IfNotPresent",
        "command": ["mpirun", "./x"] if role == "Launcher" else ["/usr/sbin/sshd"], "ports": [{"containerPort": 22}],
        "env": [{"name": f"OF_{role}", "value": "1"}, {"name": f"KEY_{role}", "valueFrom": secret},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "envFrom": [{"secretRef": {"name": "more"}}], "lifecycle": {"preStop": {}}, "readinessProbe": {"exec": {}},
        "volumeMounts": [{"name": "own", "mountPath": f"/{small}"},
                         {"name": "part", "mountPath": "/p", "subPath": "x"}],
        "resources": {"limits": {"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": 1, "rdma/hca": 1}},
        "volumeDevices": [{"name": "d", "devicePath": "/d"}],
    }  # fmt: skip
    pod = {
        "hostNetwork": True, "serviceAccountName": "sa", "schedulerName": "s", "nodeSelector": {"pool": small},
        "tolerations": [{"key": small}], "affinity": {"podAffinity": {small: 1}}, "imagePullSecrets": [{"name": small}],
        "priorityClassName": small, "terminationGracePeriodSeconds": 30 + count, "hostIPC": True,
        "restartPolicy": "Always", "topologySpreadConstraints": [{"maxSkew": 1}],
        "initContainers": [{"name": "i", "image": "i"}],
        "volumes": [{"name": "own", "persistentVolumeClaim": {"claimName": small}}, {"name": "part", "emptyDir": {}}],
        "containers": [container, {"name": "beside", "image": "b"}],
    }  # fmt: skip
    template = {"metadata": {"labels": {"l": "m"}, "annotations": {"a": "b"}}, "spec": pod}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": template}


def a_document() -> dict[str, Any]:
    policy = {
        "cleanPodPolicy": "All", "suspend": True, "backoffLimit": 2, "ttlSecondsAfterFinished": 9,
        "activeDeadlineSeconds": 60, "managedBy": "kubeflow.org/mpi-operator",
        "schedulingPolicy": {"queue": "q", "priorityClass": "pc", "minAvailable": 2},
    }  # fmt: skip
    spec = {
        "slotsPerWorker": 3, "mpiImplementation": "MPICH", "sshAuthMountPath": "/ssh", "runPolicy": policy,
        "launcherCreationPolicy": "AtStartup",
        "mpiReplicaSpecs": {"Launcher": a_replica("Launcher", 1), "Worker": a_replica("Worker", 2)},
    }  # fmt: skip
    labels = {"team": "cv", "kueue.x-k8s.io/priority-class": "p"}
    metadata = {"name": "every", "namespace": "n", "labels": labels, "annotations": {"note": "x"}}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata, "spec": spec}


def converted(document: dict[str, Any]) -> Converted:
    return mpijob_manifests.read(document, keep=False)


def without(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the document without one field."""
    changed = copy.deepcopy(document)
    place: Any = changed
    steps = _STEP.findall(path)
    for at, (name, key) in enumerate(steps):
        last = at == len(steps) - 1
        if name == "container":
            place = place["containers"][0]
        elif key:
            index = next(
                i for i, one in enumerate(place[name]) if key in (str(one.get(_KEYS.get(name, ""))), str(i))
            )
            if last:
                del place[name][index]
            place = place[name]
        elif last:
            del place[name]
        else:
            place = place[name]
    return changed


def test_every_field_is_in_the_report() -> None:
    document = a_document()
    told = {entry.field for entry in converted(document).entries}
    known = {"apiVersion", "kind"}
    assert {leaf.path for leaf in flat_fields.leaves(document)} - told == known


@pytest.mark.thorough
def test_a_field_that_is_called_exact_is_in_the_job() -> None:
    document = a_document()
    whole = converted(document)
    exact = [
        entry
        for entry in whole.entries
        if entry.fate is FieldOutcome.EXACT and entry.ours and "/" not in entry.field
    ]
    checked = [
        entry for entry in exact if "replicas" not in entry.field and entry.field.startswith("spec.mpi")
    ]
    assert len(checked) > 15
    for entry in checked:
        changed = mpijob_manifests.read(without(document, entry.field), keep=False)
        assert (changed.jobs, changed.family) != (whole.jobs, whole.family), entry.field


@pytest.mark.thorough
def test_a_field_that_is_called_dropped_is_not_in_the_job() -> None:
    document = a_document()
    whole = converted(document)
    dropped = [
        entry for entry in whole.entries if entry.fate is FieldOutcome.DROPPED and "/" not in entry.field
    ]
    assert len(dropped) > 30
    for entry in dropped:
        changed = mpijob_manifests.read(without(document, entry.field), keep=False)
        assert changed.jobs[0].replace(priority=0, secrets=()) == whole.jobs[0].replace(
            priority=0, secrets=()
        ), entry.field


def test_what_is_foreign_is_kept_when_an_mpijob_is_written_again() -> None:
    kept = mpijob_manifests.read(a_document(), keep=True)
    fates = {entry.field: entry.note for entry in kept.entries}
    pod = "spec.mpiReplicaSpecs.Worker.template.spec"
    for field in (
        f"{pod}.hostNetwork",
        f"{pod}.containers[beside]",
        f"{pod}.container.tty",
        "metadata.annotations.note",
    ):
        assert fates[field] == "kept unchanged"
