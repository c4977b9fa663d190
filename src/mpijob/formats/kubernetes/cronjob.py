"""A schedule ⇄ a CronJob whose pods submit the job, and the RBAC objects that they need.

The pod runs our service image: it checks, plans and submits the job as a user would, and exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob import codec
from mpijob.errors import Finding, InvalidJob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.spec.schedule import Schedule

ACCOUNT = "mpijob-schedule"
DOCUMENT, RUN, SINCE = "MPIJOB_SCHEDULE", "MPIJOB_SCHEDULED_NAME", "MPIJOB_SCHEDULED_SINCE"
SCHEDULE_LABEL = f"{well_known.DOMAIN}/schedule"
# Bytes: Linux limits an environment variable to 128 KiB.
_LARGEST = 100_000
_JOB_NAME = "metadata.labels['batch.kubernetes.io/job-name']"


def write(schedule: Schedule, image: str, expression: str, since: float) -> Document:
    """Return the CronJob of a schedule; its pods skip runs that were due before `since`."""
    spec: Document = {
        "schedule": expression,
        "timeZone": schedule.time_zone or "Etc/UTC",
        "suspend": schedule.paused,
        # The pod does not wait for its job, so Kubernetes cannot see an overlap; the pod itself counts the jobs that
        # have the schedule's label.
        "concurrencyPolicy": "Allow",
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 3,
        "jobTemplate": {"spec": _start(schedule, image, since)},
    }
    if schedule.start_within_seconds is not None:
        spec["startingDeadlineSeconds"] = int(schedule.start_within_seconds)
    metadata = {"name": schedule.name, "namespace": schedule.namespace, "labels": _labels(schedule)}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def _labels(schedule: Schedule) -> dict[str, str]:
    return {well_known.MANAGED_LABEL: well_known.MANAGED_BY, SCHEDULE_LABEL: schedule.name}


def _start(schedule: Schedule, image: str, since: float) -> Document:
    pod = {
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(schedule, image, since)],
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }
    metadata = {"labels": {**_labels(schedule), "sidecar.istio.io/inject": "false"}}
    return {"backoffLimit": 2, "activeDeadlineSeconds": 600, "template": {"metadata": metadata, "spec": pod}}


def _container(schedule: Schedule, image: str, since: float) -> Document:
    return {
        "name": "start",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["schedule", "fire"],
        "env": [
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - a directory in the pod, its own
            {"name": "MPIJOB_ENGINE", "value": "kubernetes"},
            {"name": "MPIJOB_NAMESPACE", "value": schedule.namespace},
            {"name": RUN, "valueFrom": {"fieldRef": {"fieldPath": _JOB_NAME}}},
            {"name": SINCE, "value": str(int(since))},
            {"name": DOCUMENT, "value": _document(schedule)},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - as above
    }


def _document(schedule: Schedule) -> str:
    text = msgspec.json.encode(schedule).decode()
    if len(text.encode()) > _LARGEST:
        message = f"the job with its uploaded files is {len(text.encode())} bytes; at most {_LARGEST} fit"
        hint = "build the files into the image, or put them on a volume"
        raise InvalidJob.of((Finding(code="CODE_TOO_LARGE", field="code", message=message, hint=hint),))
    return well_known.escape_variables([text])[0]


def read(document: Mapping[str, Any]) -> Schedule | None:
    """Return the schedule of a CronJob that `write` made, None for any other."""
    spec = document["spec"]
    containers = spec["jobTemplate"]["spec"]["template"]["spec"].get("containers") or [{}]
    written = {variable["name"]: variable.get("value", "") for variable in containers[0].get("env") or ()}
    if DOCUMENT not in written:
        return None
    try:
        schedule = codec.decode(well_known.unescape_variables(written[DOCUMENT]), Schedule)
    except (msgspec.ValidationError, msgspec.DecodeError):
        # Of another version, or changed by hand.
        return None
    return schedule.replace(paused=bool(spec.get("suspend")))


def rights(namespace: str) -> tuple[Document, ...]:
    """Return the service account of all schedules of a namespace, its Role and its RoleBinding."""
    metadata = {
        "name": ACCOUNT,
        "namespace": namespace,
        "labels": {well_known.MANAGED_LABEL: well_known.MANAGED_BY},
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io/v1"
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": _rules()},
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    )


_READ, _WRITE = ["get", "list", "watch"], ["create", "patch", "delete"]
_RULES: tuple[tuple[str, list[str], list[str]], ...] = (
    ("trainer.kubeflow.org", ["trainjobs", "trainingruntimes"], [*_READ, *_WRITE]),
    ("kubeflow.org", ["mpijobs"], [*_READ, *_WRITE]),
    ("jobset.x-k8s.io", ["jobsets"], _READ),
    ("batch", ["jobs"], _READ),
    ("", ["pods"], [*_READ, "delete"]),
    ("", ["events"], _READ),
    ("", ["configmaps"], ["create"]),
    ("", ["resourcequotas", "limitranges", "persistentvolumeclaims"], ["get", "list"]),
    ("networking.k8s.io", ["networkpolicies"], ["get", "list"]),
    ("kueue.x-k8s.io", ["localqueues", "workloads"], _READ),
)


def _rules() -> list[dict[str, Any]]:
    # No reading of Secrets, no exec into pods, nothing outside the namespace.
    return [{"apiGroups": [group], "resources": kinds, "verbs": verbs} for group, kinds, verbs in _RULES]
