"""Why a job does not run although nothing is wrong with it: it waits for room, for somebody, or for its turn."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="WAITING",
        title="The job waits in the queue",
        why="The job asks for more than is free now, or others stand before it in the queue. It starts by itself.",
        trust=Trust.LIMIT,
        facts=("reason:Waiting",),
        causes=("Queued: {message}.", "Queued: waiting for free resources."),
        example="Queued: 4 GPUs, position 2, about 25 min.",
        remedies=(
            Remedy("view the queue: mpijob queue"),
            Remedy("reduce to {fewer_workers} workers", {"workers": "{fewer_workers}"}),
            Remedy("raise the job's priority", {"priority": "high"}),
        ),
        confidence=1.0,
        yields_to=("*",),
    ),
    Rule(
        id="WAITING_FOR_QUOTA",
        title="The queue has no quota free for the job",
        why="Kueue admits a job when all that it asks for is free in its queue. It is not, so the job waits.",
        trust=Trust.FACT,
        signs=(
            Sign("couldn't assign flavors", r"(?P<detail>couldn't assign flavors to pod set [^\n]{1,200})"),
            Sign("insufficient unused quota", r"(?P<detail>insufficient unused quota[^\n]{0,160})"),
            Sign("insufficient quota", r"(?P<detail>insufficient quota for [^\n]{1,160})"),
        ),
        causes=("Waiting for quota: {detail}",),
        example="Waiting for quota: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed",
        remedies=(
            Remedy("view the queue: mpijob queue"),
            Remedy("reduce to {fewer_workers} workers", {"workers": "{fewer_workers}"}),
            Remedy("name another queue: kubectl get localqueues"),
        ),
        confidence=0.9,
        while_running=True,
        field="queue",
        yields_to=("QUOTA_TOO_SMALL",),
    ),
    Rule(
        id="SUSPENDED",
        title="The job is suspended",
        why="Somebody, or a queue, ended its processes and kept the job. It runs again when it is resumed.",
        trust=Trust.DECISION,
        facts=("reason:Suspended",),
        causes=("The job is suspended: {message}.", "The job is suspended."),
        example="The job is suspended.",
        remedies=(Remedy("resume the job: mpijob resume JOB"),),
        confidence=1.0,
    ),
    Rule(
        id="BACKING_OFF",
        title="The job waits before its next attempt",
        why="The last attempt failed, and the job allows another one. Between attempts it pauses, longer each time.",
        trust=Trust.LIMIT,
        facts=("reason:BackingOff", "reason:Retrying"),
        causes=(
            "The job pauses before its next attempt: {message}",
            "The job pauses before its next attempt.",
        ),
        example="The job pauses before its next attempt: attempt 2 begins in 20 s",
        remedies=(
            Remedy("see why the last attempt failed: mpijob events JOB"),
            Remedy("pause less between attempts", {"retry": {"backoff_seconds": 1.0}}),
        ),
        confidence=1.0,
    ),
    Rule(
        id="ENGINE_REPORT",
        title="The cluster's engine only says that a part of the job failed",
        why="JobSet, Kubeflow Trainer, the MPI Operator and Kubernetes' own Job report that a pod failed, or failed "
        "too often, and not why. The reason is in the first failure, not in the last.",
        trust=Trust.GENERIC,
        signs=(
            Sign("jobset failed due to", r"(?P<detail>jobset failed due to one or more job failures)"),
            Sign("backoff limit", r"(?P<detail>Job has reached the specified backoff limit)"),
            Sign("BackoffLimitExceeded", r"(?P<detail>BackoffLimitExceeded)"),
            Sign("MPIJobFailed", r"(?P<detail>MPIJobFailed)"),
            Sign("MPIJobEvict", r"(?P<detail>MPIJobEvicted?)"),
        ),
        causes=("The engine reports only: {detail}. Look at the first failure.",),
        example="The engine reports only: Job has reached the specified backoff limit. Look at the first failure.",
        remedies=(
            Remedy("read what the first attempt said: mpijob logs JOB --attempt 1"),
            Remedy("see the pods in order of their end: kubectl get pods --sort-by=.status.startTime"),
        ),
        confidence=0.3,
    ),
    Rule(
        id="NODE_LOST",
        title="A node stopped answering",
        why="The machine of a worker is down, cut off, or its kubelet does not answer. Every rank on it is lost, and "
        "the others cannot go on without them.",
        trust=Trust.FACT,
        facts=("node-lost",),
        signs=(
            Sign("NodeNotReady", r"NodeNotReady"),
            Sign("NodeStatusUnknown", r"NodeStatusUnknown"),
            Sign("node-controller", r"Deleting node (?P<node>\S+) because it does not exist"),
        ),
        causes=(
            "Worker {worker} is gone with its node {node} (ranks {ranks_there}): the node stopped answering.",
            "Node {node} stopped answering; every rank on it is lost.",
            "A node stopped answering; every rank on it is lost.",
        ),
        example="Worker 2 is gone with its node gpu-17 (ranks 8-11): the node stopped answering.",
        remedies=(
            Remedy("run it again elsewhere: leave out {node}", {"placement": {"exclude_nodes": ["{node}"]}}),
            Remedy(
                "let the job survive this by itself: queue it again when a worker is lost",
                {"requeue_on_lost_worker": True},
            ),
            Remedy("see what the node says: kubectl describe node {node}"),
        ),
        confidence=0.95,
        field="placement",
    ),
)
