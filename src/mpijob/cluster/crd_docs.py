"""The descriptions of CRD fields for `kubectl explain`, by class and field.

`crds` puts them into the definitions; a test fails when a field has none. A field whose value is a struct may
use that struct's docstring.
"""

from __future__ import annotations

from collections.abc import Mapping

FIELDS: Mapping[str, str] = {
    "Gang.kind": "What performs gang scheduling.",
    "Gang.timeout_seconds": "How long the workers may take to start together before the job fails.",
    "Rates.gpu_hour": "Price of one GPU for one hour.",
    "Rates.cpu_hour": "Price of one core for one hour.",
    "Rates.memory_gib_hour": "Price of one GiB of memory for one hour.",
    "Rates.currency": "The currency of the rates.",
    "Retention.logs_days": "How many days logs are kept after the end of a job.",
    "Retention.records_days": "Days to keep the record of a job after its end.",
    "Retention.audit_days": "How many days audit entries are kept.",
    "Retention.finished_jobs_seconds": "When the objects of a finished job are deleted; never if unset.",
    "Idle.gpu_percent": "A GPU with a lower utilization counts as idle.",
    "Idle.after_seconds": "How long GPUs are idle before it is reported.",
    "Idle.action": "Warn reports it; Suspend, Requeue and Cancel also free the GPUs, after SIGTERM and the grace time.",
    "Retirement.stage": "Announce reports it in `mpijob convert --cluster`, Warn warns at creation, Refuse rejects.",
    "Retirement.until": "The last day on which such jobs are accepted, as shown to users.",
    "NamespaceLimits.max_workers": "Maximum number of workers of one job.",
    "NamespaceLimits.max_gpus": "Maximum number of GPUs of one job.",
    "NamespaceLimits.concurrent_jobs": "Maximum number of running jobs.",
    "NamespaceLimits.max_duration_seconds": "Maximum duration of a job.",
    "NamespaceLimits.allowed_images": "Images that jobs may use, by name or by a pattern with *; all if empty.",
    "NamespaceLimits.allowed_egress": "Allowed destinations, as in network.egress (internet:443, 10.1.0.0/16,"
    " namespace/data), or * for all; if empty, users without permission for NetworkPolicies get no egress.",
    "NamespaceLimits.queue": "The queue of jobs that do not set one.",
    "NamespaceLimits.priority_classes": "Priority classes that jobs may use; all if empty.",
    "NamespaceLimits.enforcement": "Whether jobs beyond a limit are rejected or only cause a warning.",
    "NamespaceLimits.quota_request_url": "Where users request more quota; shown when quota is exceeded.",
    "Engine.management_state": "Whether the engine is managed, left unchanged, or removed.",
    "Engine.source": "Directory, file or URL of its manifests; the platform's source if empty.",
    "Engine.version": "The version to install, as in its file name.",
    "Engine.digest": "Digest of the manifest file, as sha256:…; required for a URL.",
    "Engines.jobset": "JobSet, which Trainer requires.",
    "Engines.trainer": "Kubeflow Trainer, the default engine.",
    "Engines.kueue": "Kueue: queues, quota and gang scheduling.",
    "Engines.mpi_operator": "The MPI Operator, for MPICH and Intel MPI.",
    "Service.management_state": "Whether the service is deployed.",
    "Service.replicas": "Number of replicas; one is active, the others are on standby.",
    "Services.controller": "Publishes job states, retries failed jobs, enforces limits, cleans up.",
    "Services.admission": "Validates jobs before they are created.",
    "Services.recorder": "Records jobs and their logs, which stay available after deletion.",
    "Services.page": "The web UI and its API.",
    "Services.broker": "Reports to users whether their jobs would start.",
    "Page.host": "Host name of the web UI; on OpenShift, the Route's default if empty.",
    "Queue.name": "Name of the ClusterQueue and of its LocalQueues.",
    "Queue.quota": "Quota of each resource.",
    "Queue.cohort": "The cohort within which queues borrow from each other.",
    "Queue.namespaces": "Namespaces that get a LocalQueue.",
    "Monitoring.management_state": "Whether metrics are exposed to Prometheus.",
    "Monitoring.quota_alert_percent": "Share of a quota from which an alert is raised.",
    "Platform.management_state": "Whether the platform is managed, left unchanged, or removed.",
    "Platform.source": "Source of the engines' manifests: a directory in the operator's pod, or a URL.",
    "Platform.registry": "A mirror registry for the images of the engines.",
    "Platform.image": "The image of mpijob's services.",
    "Platform.runtimes": "Whether mpijob's MPI runtimes are installed.",
    "Platform.queues": "The managed queues.",
    "Platform.defaults": "Limits of namespaces without their own.",
    "Condition.type": "What the condition is about.",
    "Condition.status": "True, False or Unknown.",
    "Condition.reason": "The reason, as one word.",
    "Condition.message": "The reason, as a sentence.",
    "Condition.last_transition_time": "When the status last changed.",
    "Condition.observed_generation": "The generation of the spec that the condition is about.",
    "Component.name": "The component's name.",
    "Component.state": "Its state: Ready, Progressing, Unmanaged …",
    "Component.version": "The installed version.",
    "Component.wanted": "The requested version.",
    "Component.kept_by": "What manages it.",
    "Component.message": "What it waits for, or what is wrong.",
    "PlatformStatus.observed_generation": "The generation of the spec that was last reconciled.",
    "PlatformStatus.conditions": "Conditions of the platform as a whole.",
    "PlatformStatus.components": "The observed state of each component.",
}  # fmt: skip


def description(kind: type, field: str) -> str:
    """Return the description of a field, also of an inherited one; "" if there is none."""
    return next((FIELDS[key] for base in kind.__mro__ if (key := f"{base.__name__}.{field}") in FIELDS), "")
