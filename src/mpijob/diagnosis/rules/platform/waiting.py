"""Why a job does not run although nothing is wrong with it: it waits for room, for somebody, or for its turn."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="WAITING",
        title="The job waits for its turn",
        why="The job requests more than is free now, or other jobs are ahead of it in the queue. It "
        "starts automatically.",
        trust=Trust.LIMIT,
        facts=("reason:Waiting",),
        causes=("The job waits: {message}.", "The job waits for free resources."),
        example="The job waits: 4 GPUs, position 2, about 25 min.",
        remedies=(
            Remedy("list running jobs and the jobs ahead of it: mpijob queue"),
            Remedy("reduce the number of workers to {fewer_workers}", {"workers": "{fewer_workers}"}),
            Remedy("raise the job's priority", {"priority": "high"}),
        ),
        confidence=1.0,
        yields_to=("*",),
    ),
    Rule(
        id="WAITING_FOR_QUOTA",
        title="The queue has too little free quota for the job",
        why="Kueue admits a job when all requested resources are free in its queue. They are not, so "
        "the job waits.",
        trust=Trust.FACT,
        signs=(
            Sign("couldn't assign flavors", r"(?P<detail>couldn't assign flavors to pod set [^\n]{1,200})"),
            Sign("insufficient unused quota", r"(?P<detail>insufficient unused quota[^\n]{0,160})"),
            Sign("insufficient quota", r"(?P<detail>insufficient quota for [^\n]{1,160})"),
        ),
        causes=("Waiting for quota: {detail}",),
        example="Waiting for quota: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed",
        remedies=(
            Remedy("list running jobs and the jobs ahead of it: mpijob queue"),
            Remedy("reduce the number of workers to {fewer_workers}", {"workers": "{fewer_workers}"}),
            Remedy("choose another queue: kubectl get localqueues"),
        ),
        confidence=0.9,
        while_running=True,
        field="queue",
        yields_to=("QUOTA_TOO_SMALL",),
    ),
    Rule(
        id="SUSPENDED",
        title="The job is suspended",
        why="A user or the queue suspended the job: its processes were stopped, and the job is kept. It "
        "runs again when it is resumed.",
        trust=Trust.DECISION,
        facts=("reason:Suspended",),
        causes=("The job is suspended: {message}.", "The job is suspended."),
        example="The job is suspended.",
        remedies=(Remedy("resume it: mpijob resume JOB"),),
        confidence=1.0,
    ),
    Rule(
        id="BACKING_OFF",
        title="The job waits before its next attempt",
        why="The last attempt failed, and the job allows another one. The pause between attempts "
        "grows each time.",
        trust=Trust.LIMIT,
        facts=("reason:BackingOff", "reason:Retrying"),
        causes=(
            "The job pauses before its next attempt: {message}",
            "The job pauses before its next attempt.",
        ),
        example="The job pauses before its next attempt: attempt 2 begins in 20 s",
        remedies=(
            Remedy("see why the last attempt failed: mpijob events JOB"),
            Remedy("shorten the pause between attempts", {"retry": {"backoff_seconds": 1.0}}),
        ),
        confidence=1.0,
    ),
    Rule(
        id="ENGINE_REPORT",
        title="The cluster's controller only reports that a part of the job failed",
        why="JobSet, Kubeflow Trainer, the MPI Operator and Kubernetes Jobs report that a pod failed, or "
        "failed too often, but not the reason. The reason is in the first failure, not in the last.",
        trust=Trust.GENERIC,
        signs=(
            Sign("jobset failed due to", r"(?P<detail>jobset failed due to one or more job failures)"),
            Sign("backoff limit", r"(?P<detail>Job has reached the specified backoff limit)"),
            Sign("BackoffLimitExceeded", r"(?P<detail>BackoffLimitExceeded)"),
            Sign("MPIJobFailed", r"(?P<detail>MPIJobFailed)"),
            Sign("MPIJobEvict", r"(?P<detail>MPIJobEvicted?)"),
        ),
        causes=("The controller reports only: {detail}. The cause is in the first failed pod.",),
        example="The controller reports only: Job has reached the specified backoff limit. The cause "
        "is in the first failed pod.",
        remedies=(
            Remedy("read the log of the first attempt: mpijob logs JOB --attempt 1"),
            Remedy("list the pods in order of start: kubectl get pods --sort-by=.status.startTime"),
        ),
        confidence=0.3,
    ),
    Rule(
        id="NODE_LOST",
        title="A node stopped responding",
        why="The node of a worker is down or unreachable, or its kubelet does not respond. Every rank "
        "on it is lost, and the other ranks cannot continue without them.",
        trust=Trust.FACT,
        facts=("node-lost",),
        signs=(
            Sign("NodeNotReady", r"NodeNotReady"),
            Sign("NodeStatusUnknown", r"NodeStatusUnknown"),
            Sign("Deleting node", r"Deleting node (?P<node>\S+) because it does not exist"),
        ),
        causes=(
            "Worker {worker} (ranks {ranks_there}) is lost: its node {node} stopped responding.",
            "Node {node} stopped responding; every rank on it is lost.",
            "A node stopped responding; every rank on it is lost.",
        ),
        example="Worker 2 (ranks 8-11) is lost: its node gpu-17 stopped responding.",
        remedies=(
            Remedy("run it again without {node}", {"placement": {"exclude_nodes": ["{node}"]}}),
            Remedy(
                "requeue automatically when a worker is lost",
                {"requeue_on_lost_worker": True},
            ),
            Remedy("see the node's conditions: kubectl describe node {node}"),
        ),
        confidence=0.95,
        field="placement",
    ),
)
