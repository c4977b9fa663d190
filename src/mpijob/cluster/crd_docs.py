"""What each field of our resources means, for `kubectl explain`: a sentence by class and field.

`crds` puts them into the definitions; a test fails when a field has none. A field whose value is a part of its own
may leave it to the part's docstring.
"""

from __future__ import annotations

from collections.abc import Mapping

FIELDS: Mapping[str, str] = {
    "Gang.kind": "Who starts all workers of a job together.",
    "Gang.timeout_seconds": "How long the workers may take to start together before the job gives up.",
    "Rates.gpu_hour": "What one GPU costs for an hour.",
    "Rates.cpu_hour": "What one core costs for an hour.",
    "Rates.memory_gib_hour": "What one GiB of memory costs for an hour.",
    "Rates.currency": "The currency of the rates.",
    "Retention.logs_days": "How many days logs are kept after a job's end.",
    "Retention.records_days": "How many days the record of a job is kept after its end.",
    "Retention.audit_days": "How many days audit entries are kept.",
    "Retention.finished_jobs_seconds": "When a finished job's objects are removed from the cluster; never if unset.",
    "Idle.gpu_percent": "Below this share of use a GPU counts as idle.",
    "Idle.after_seconds": "How long GPUs are idle before that is told.",
    "Retirement.stage": "Announce tells it in `mpijob convert --cluster`, Warn at every create, Refuse refuses.",
    "Retirement.until": "The day until which such jobs are taken, in words that users are told.",
    "NamespaceLimits.max_workers": "The most workers that one job may have.",
    "NamespaceLimits.max_gpus": "The most GPUs that one job may have.",
    "NamespaceLimits.concurrent_jobs": "How many jobs may run at once.",
    "NamespaceLimits.max_duration_seconds": "How long a job may run.",
    "NamespaceLimits.allowed_images": "Images that jobs may use, by name or by a pattern with *; all if empty.",
    "NamespaceLimits.allowed_egress": "Where jobs may go, in the words of network.egress (internet:443, 10.1.0.0/16,"
    " namespace/data), or * for anywhere; if empty, users without rights on NetworkPolicies get no way out.",
    "NamespaceLimits.queue": "The queue of jobs that name none.",
    "NamespaceLimits.priority_classes": "Priority classes that jobs may name; all if empty.",
    "NamespaceLimits.enforcement": "What happens to a job that goes beyond a limit.",
    "NamespaceLimits.quota_request_url": "Where users ask for more; told with every refusal for quota.",
    "Engine.management_state": "Whether the engine is installed and kept, left alone, or taken away.",
    "Engine.source": "A directory, a file or an address of its manifests; the platform's own source if empty.",
    "Engine.version": "The version to install, as in the name of its file.",
    "Engine.digest": "What the file of manifests must be, as sha256:…; needed for one that comes from an address.",
    "Engines.jobset": "JobSet, on which Trainer stands.",
    "Engines.trainer": "Kubeflow Trainer, the default engine.",
    "Engines.kueue": "Kueue: queues, quota and gangs.",
    "Engines.mpi_operator": "The MPI Operator, for MPICH and Intel MPI.",
    "Service.management_state": "Whether the service runs.",
    "Service.replicas": "How many of it run; one acts, the others stand by.",
    "Services.controller": "Tells what happens to jobs, tries failed ones again, keeps limits, clears away.",
    "Services.admission": "Checks jobs before anything of them exists.",
    "Services.recorder": "Writes jobs and their logs down, so that they are known when they are gone.",
    "Services.page": "The page in a browser and its API.",
    "Services.broker": "Tells users whether their jobs would start.",
    "Page.host": "The name under which people open the page; the Route's own on OpenShift if empty.",
    "Queue.name": "The name of the ClusterQueue and of its LocalQueues.",
    "Queue.quota": "How much of each resource the queue may give.",
    "Queue.cohort": "The cohort within which queues lend to each other.",
    "Queue.namespaces": "The namespaces that get a LocalQueue for it.",
    "Monitoring.management_state": "Whether metrics are offered to Prometheus.",
    "Monitoring.quota_alert_percent": "From which share of a quota on somebody is told.",
    "Platform.management_state": "Whether the platform is kept, left as it is, or taken away.",
    "Platform.source": "Where the manifests of engines come from: a directory in the operator's pod, or an address.",
    "Platform.registry": "A mirror that stands in front of the images of engines.",
    "Platform.image": "The image of our own services.",
    "Platform.runtimes": "Whether our runtimes for MPI are installed.",
    "Platform.queues": "The queues that are kept.",
    "Platform.defaults": "Limits of namespaces that have none of their own.",
    "Condition.type": "What the statement is about.",
    "Condition.status": "True, False or Unknown.",
    "Condition.reason": "Why, in one word.",
    "Condition.message": "Why, in a sentence.",
    "Condition.last_transition_time": "Since when.",
    "Condition.observed_generation": "Which generation of the spec it speaks of.",
    "Component.name": "Which component.",
    "Component.state": "How it is: Ready, Progressing, Unmanaged …",
    "Component.version": "The version that was found.",
    "Component.wanted": "The version that is asked for.",
    "Component.kept_by": "Who keeps it: us, or somebody else.",
    "Component.message": "What it waits for, or what is wrong.",
    "PlatformStatus.observed_generation": "Which generation of the spec was looked at.",
    "PlatformStatus.conditions": "What is true of the platform as a whole.",
    "PlatformStatus.components": "Each component as it was found.",
}  # fmt: skip


def told(kind: type, field: str) -> str:
    """Return what a field means, also where its class has it from another; "" where nobody said."""
    return next((FIELDS[key] for base in kind.__mro__ if (key := f"{base.__name__}.{field}") in FIELDS), "")
