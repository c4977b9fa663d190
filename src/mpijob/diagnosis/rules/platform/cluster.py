"""Causes that only a cluster has, before a job runs: images, places, queues, quotas, policies."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="UNSCHEDULABLE",
        title="No node can run a pod",
        why="The scheduler found no node that fits: too few free resources, a taint, a selector, a "
        "volume in another zone. The pod stays pending until a node fits.",
        trust=Trust.FACT,
        facts=("reason:Unschedulable",),
        signs=(
            Sign("Cannot schedule pods", r"(?P<detail>Cannot schedule pods: [^\n]{1,200})"),
            Sign("nodes are available", r"(?P<detail>\d+/\d+ nodes are available: [^\n]{1,240})"),
        ),
        causes=("{message}", "No node can run a pod: {detail}"),
        example="Insufficient GPUs: requested 8, none of the 3 nodes has enough free (worker 3, for 2 min)",
        remedies=(
            Remedy("request less for each worker, or more and smaller workers"),
            Remedy("see the nodes' free resources: mpijob doctor"),
            Remedy("relax the placement: node_selector, tolerations, exclude_nodes"),
        ),
        confidence=0.95,
        field="resources",
        yields_to=("VOLUME_NOT_READY",),
    ),
    Rule(
        id="GANG_TIMEOUT",
        title="The workers did not all start in time",
        why="All workers of a job start together or not at all (gang scheduling). Some had not "
        "started within the timeout, so the job ended and released its resources.",
        trust=Trust.LIMIT,
        facts=("reason:GangTimeout",),
        signs=(
            Sign("PodsReadyTimeout", r"(?P<detail>PodsReadyTimeout[^\n]{0,120})"),
            Sign("enough sibling pods", r"(?P<detail>cannot find enough sibling pods[^\n]{0,120})"),
            Sign("pod group is not ready", r"(?P<detail>pod group is not ready[^\n]{0,120})"),
            Sign("gang unschedulable", r"(?P<detail>gang unschedulable[^\n]{0,120})"),
        ),
        causes=("{message}", "Not all workers could start together: {detail}"),
        example="not all workers had started after 300 s: Pulling image team/mpi:1 (worker 2, for 4 min)",
        remedies=(
            Remedy("allow more time, for example for a large image", {"gang_timeout_seconds": 1800}),
            Remedy("request fewer or smaller workers, or submit the job to a queue"),
        ),
        confidence=1.0,
        field="gang_timeout_seconds",
    ),
    Rule(
        id="SETTINGS_MISSING",
        title="A secret or config map of the job does not exist",
        why="A pod starts only when every secret and config map that it refers to exists in its "
        "namespace, with the requested key.",
        trust=Trust.FACT,
        facts=("reason:SettingsMissing",),
        signs=(
            Sign("not found", r"(?P<detail>(?:secret|configmap|serviceaccount)s? \"[^\"]+\" not found)"),
            Sign("couldn't find key", r"(?P<detail>couldn't find key [^\n]{1,100})"),
        ),
        causes=("{message}", "An object that the job refers to does not exist: {detail}"),
        example="The secret tracking does not exist (all 4 workers)",
        remedies=(
            Remedy("create it in the job's namespace; the pods then start automatically"),
            Remedy("correct its name in the job: secrets or volumes"),
        ),
        confidence=0.95,
        field="secrets",
    ),
    Rule(
        id="VOLUME_NOT_READY",
        title="A volume of the job is not ready",
        why="A claim does not exist or is not bound yet, or the volume cannot be mounted on the node: "
        "it is in use elsewhere, in another zone, or its server is not reachable.",
        trust=Trust.FACT,
        facts=("reason:VolumeNotReady",),
        signs=(
            Sign("persistentvolumeclaim", r"(?P<detail>persistentvolumeclaim \"[^\"]+\" not found)"),
            Sign("PersistentVolumeClaims", r"(?P<detail>unbound immediate PersistentVolumeClaims)"),
            Sign("Multi-Attach error", r"(?P<detail>Multi-Attach error for volume [^\n]{1,160})"),
            Sign(
                "MountVolume.SetUp failed",
                # The kubelet mounts it seconds later when only its cache was behind.
                r"(?P<detail>MountVolume\.SetUp failed for volume (?![^\n]{0,200}failed to sync \w+ cache)[^\n]{1,200}"
                r"(?:\n(?:Mounting|Output|mount)[^\n]{1,200}){0,4})",
            ),
            Sign("FailedAttachVolume", r"(?P<detail>FailedAttachVolume[^\n]{0,200})"),
            Sign(
                "attach or mount volumes", r"(?P<detail>[Uu]nable to attach or mount volumes: [^\n]{4,200})"
            ),
        ),
        causes=("{message}", "A volume of the job is not ready: {detail}"),
        example="The volume claim train-data does not exist (all 4 workers)",
        remedies=(
            Remedy("see the claim's events: kubectl describe pvc NAME"),
            Remedy("for workers on several nodes, use a claim with access mode ReadWriteMany"),
        ),
        confidence=0.9,
        field="volumes",
    ),
    Rule(
        id="QUOTA_TOO_SMALL",
        title="The queue can never admit a job of this size",
        why="The job requests more than the total quota of the queue. It would wait forever.",
        trust=Trust.FACT,
        facts=("reason:QuotaTooSmall",),
        causes=("{message}",),
        example="Insufficient GPUs: requested 32, available 24",
        remedies=(
            Remedy("use fewer workers, or smaller ones"),
            Remedy("use another queue, or request more quota from its administrator"),
        ),
        confidence=1.0,
        field="workers",
    ),
    Rule(
        id="QUEUE_MISSING",
        title="The job's queue does not exist",
        why="The job names a queue that does not exist in its namespace, or the queue has no "
        "ClusterQueue. It waits until the queue is created.",
        trust=Trust.FACT,
        facts=("reason:QueueMissing",),
        signs=(Sign("doesn't exist", r"(?P<detail>(?:Local|Cluster)Queue \S+ doesn't exist)"),),
        causes=("{message}", "The job's queue does not exist: {detail}"),
        example="The queue main does not exist",
        remedies=(
            Remedy("name a queue of the namespace: kubectl get localqueues"),
            Remedy("leave the queue out, if the namespace lets jobs run without one"),
        ),
        confidence=1.0,
        field="queue",
    ),
    Rule(
        id="QUEUE_INACTIVE",
        title="The job's queue is not admitting jobs",
        why="An administrator stopped the queue, or a required object (a resource flavor, an admission "
        "check) is missing.",
        trust=Trust.FACT,
        facts=("reason:QueueClosed",),
        signs=(Sign("Queue ", r"(?P<detail>(?:Local|Cluster)Queue \S+ is (?:inactive|stopped))"),),
        causes=("{message}", "The job's queue is not admitting jobs: {detail}"),
        example="The queue main is inactive and does not admit jobs",
        remedies=(
            Remedy("ask the queue's administrator; the job starts automatically when the queue is active"),
        ),
        confidence=1.0,
        field="queue",
    ),
    Rule(
        id="NOT_RESUMED",
        title="The job is admitted, but its controller has not started it",
        why="When a queue admits a job, or a user resumes it, the controller must start the suspended "
        "parts. Some versions of Kueue and Kubeflow Trainer are incompatible there; the MPI "
        "Operator 0.8.2 lacks a permission that it needs (update of jobs/status). The job stays "
        "suspended.",
        trust=Trust.FACT,
        facts=("reason:NotResumed",),
        causes=("{message}",),
        example="Queue main admitted the job, and it is still suspended (for 3 min)",
        remedies=(
            Remedy("compare the versions: mpijob doctor; Kueue 0.17 and later need Trainer 2.2 or later"),
            Remedy("start a new attempt instead of resuming it: mpijob retry JOB"),
            Remedy("run the job without a queue"),
        ),
        confidence=0.8,
        field="queue",
    ),
    Rule(
        id="PREEMPTED",
        title="The job was preempted",
        why="The queue reassigned the job's resources to a job of higher priority, or reclaimed borrowed "
        "quota. Its pods ended; it waits in the queue and starts again automatically.",
        trust=Trust.DECISION,
        facts=("reason:Preempted", "reason:Requeued"),
        causes=("{message}",),
        example="Pre-empted at 14:02 UTC by team-b/big (priority high); will resume when 8 GPUs are free in queue main",
        remedies=(
            Remedy(
                "write a checkpoint on the signal, and start from it",
                {"signal": {"name": "USR1", "seconds_before": "{signal_before}"}},
            ),
            Remedy("raise the job's priority"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="ENGINE_REFUSED",
        title="The cluster's controller refused the job",
        why="The controller could not create the objects of the job: the API server, a webhook or the "
        "controller itself rejected them. The job's own status does not show it.",
        trust=Trust.FACT,
        facts=("reason:EngineRefused",),
        signs=(
            Sign(
                "denied the request",
                r"admission webhook \"(?P<hook>[^\"]+)\" denied the request: (?P<detail>[^\n]{1,240})",
            ),
        ),
        causes=("{message}", "The cluster refused the job ({hook}): {detail}"),
        example="its controller refused the job: spec.mpiReplicaSpecs[Worker].replicas: Invalid value: 0",
        remedies=(
            Remedy("fix the problem in the message, then submit the job again"),
            Remedy("check the controllers and their versions: mpijob doctor"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="QUOTA_USED_UP",
        title="The pods exceed the namespace's quota",
        why="The namespace has a hard limit (ResourceQuota), and the pods of this job would exceed it. "
        "They are created when other pods have released enough quota.",
        trust=Trust.FACT,
        facts=("reason:QuotaUsedUp",),
        signs=(
            Sign(
                "exceeded quota", r"(?P<detail>exceeded quota: \S+, requested: \S+, used: \S+, limited: \S+)"
            ),
        ),
        causes=("{message}", "The pods exceed the namespace's quota: {detail}"),
        example="the job's pods cannot be created: exceeded quota: team, requested: cpu=2, used: cpu=7, limited: cpu=8",
        remedies=(
            Remedy("wait for other jobs to end, or delete jobs that are not needed"),
            Remedy("use fewer workers, or smaller ones"),
            Remedy("request more quota from an administrator"),
        ),
        confidence=1.0,
        field="workers",
    ),
    Rule(
        id="POLICY_REFUSED",
        title="A policy of the cluster refuses the job",
        why="The namespace enforces a security level, or the cluster has an admission policy, and the "
        "job requests something that it forbids: a user ID, a kind of volume, a capability, too "
        "many workers.",
        trust=Trust.FACT,
        facts=("reason:PolicyRefused",),
        signs=(
            Sign(
                "runAsNonRoot",
                r"(?P<detail>container has runAsNonRoot and image will run as root|container has runAsNonRoot "
                r"and image has non-numeric user[^\n]{0,80})",
            ),
            Sign("violates PodSecurity", r"(?P<detail>violates PodSecurity \"[^\"]+\": [^\n]{1,240})"),
            Sign(
                "security context constraint",
                r"(?P<detail>unable to validate against any security context constraint[^\n]{0,240})",
            ),
            Sign(
                "AdmissionPolicy",
                r"ValidatingAdmissionPolicy '(?P<policy>[^']+)'[^\n]{0,120}? denied request: (?P<detail>[^\n]{1,240})",
            ),
        ),
        causes=(
            "{message}",
            "The admission policy {policy} refuses the job: {detail}",
            "The namespace's security policy refuses the pods: {detail}",
        ),
        example='the job\'s pods cannot be created: violates PodSecurity "restricted:latest": …',
        remedies=(
            Remedy(
                "remove what the message names: NFS volumes, RDMA, a fixed user ID (OpenShift's SCCs "
                "allow none)"
            ),
            Remedy("use a namespace with a different policy; an administrator can create one"),
        ),
        confidence=1.0,
    ),
)
