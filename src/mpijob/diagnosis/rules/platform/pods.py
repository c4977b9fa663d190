"""Causes in the pods of a job on a cluster: how they end for a reason of their own, and how they are lost."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

_AGAIN = Remedy("run it again: mpijob retry JOB")
_SURVIVE = Remedy(
    "requeue automatically when a worker is lost",
    {"requeue_on_lost_worker": True},
)

RULES = (
    Rule(
        id="NO_SSHD",
        title="A worker has no ssh server",
        why="Workers run the image's own sshd as a non-root user. The image has no sshd, or a non-root "
        "user cannot start it.",
        trust=Trust.FACT,
        facts=("reason:NoSshServer",),
        causes=("{message}",),
        example="worker 0: the image has no sshd: install openssh-server in it",
        remedies=(
            Remedy("install openssh-server in the image"),
            Remedy("use one of the images that come with mpijob"),
        ),
        confidence=1.0,
        field="image",
    ),
    Rule(
        id="NO_KEY",
        title="The job's ssh key cannot be read",
        why="mpijob creates a key for every job and mounts it into each pod. The pod's user could not "
        "read it: the secret does not exist, or its files belong to another user.",
        trust=Trust.FACT,
        facts=("reason:NoKey",),
        causes=("{message}",),
        example="worker 0: the job's key cannot be read in /mpijob/ssh",
        remedies=(
            Remedy("check that the secret exists: kubectl get secrets"),
            Remedy("do not set securityContext or a custom sshAuthMountPath for the pods"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="NO_PROGRAM",
        title="The launcher cannot find the program to run",
        why="Before it starts anything, the launcher looks in the image for mpirun, for the job's "
        "command and for its input file. One of them does not exist.",
        trust=Trust.FACT,
        facts=("reason:NoProgram",),
        causes=("{message}",),
        example="the launcher: the image has no program 'mpirun'",
        remedies=(
            Remedy("use an image that has the MPI library of the job on its PATH"),
            Remedy("use the full path of the command in the image"),
        ),
        confidence=1.0,
        field="image",
    ),
    Rule(
        id="WORLD_NOT_STARTED",
        title="The ranks could not be started",
        why="Before the program runs, mpijob counts the ranks with a short launch (the census). This "
        "launch failed, so the program was not started. The reason is in the lines just before, if "
        "the launcher gave one.",
        trust=Trust.GENERIC,
        facts=("reason:WorldNotStarted",),
        causes=("{message}",),
        example="the launcher: the world could not be started: mpirun exited with 255",
        remedies=(
            Remedy("read the launcher's log: mpijob logs JOB --role launcher"),
            Remedy("allow traffic between the launcher and all workers, in both directions"),
        ),
        confidence=0.6,
        yields_to=("*",),
    ),
    Rule(
        id="POD_NOT_STARTED",
        title="Kubernetes could not start a pod",
        why="The node's kubelet could not set up the pod's network or start its container. The program "
        "did not run. The kubelet retries with increasing delays, so the pod may look as if it were "
        "only waiting.",
        signs=(
            Sign(
                "FailedCreatePodSandBox",
                r"FailedCreatePodSandBox [^\n]{0,80}?kubelet (?P<detail>[^\n]{4,400})",
            ),
            Sign(
                "kubelet",
                r"Warning Failed [^\n]{0,60}kubelet Error: (?P<detail>(?!ErrImage|ImagePull)[^\n]{4,400})",
            ),
            Sign(
                "BackOff",
                r"(?P<detail>(?:CrashLoopBackOff|RunContainerError|CreateContainerError|CreateContainerConfigError"
                r"|[Bb]ack-off restarting failed container)[^\n]{0,80})",
            ),
            Sign("ContainerError", r"(?P<detail>(?:RunContainer|CreateContainer)Error[^\n]{0,80})"),
        ),
        causes=("Kubernetes could not start a pod: {detail}",),
        example="Kubernetes could not start a pod: failed to setup network for sandbox: …",
        remedies=(
            Remedy("see the pod's events in full: kubectl describe pod NAME"),
            Remedy(
                "fix the problem in the message: a security setting, a network attachment, a device "
                "or a command"
            ),
        ),
        confidence=0.7,
        yields_to=(
            *(
                "SETTINGS_MISSING",
                "MISSING_EXECUTABLE",
                "NOT_EXECUTABLE",
                "VOLUME_NOT_READY",
                "POLICY_REFUSED",
                "OOM_KILLED",
            ),
            *(
                "IMAGE_NOT_FOUND",
                "IMAGE_REFUSED",
                "IMAGE_PULL_FAILED",
                "IMAGE_NAME_INVALID",
                "CONTAINER_FAILED",
            ),
        ),
    ),
    Rule(
        id="WORKER_EVICTED",
        title="A worker was evicted from its node",
        why="The node was low on memory, disk or process IDs and evicted pods, starting with those that "
        "use more than they request; or the node was shut down.",
        trust=Trust.FACT,
        facts=("reason:WorkerEvicted",),
        signs=(
            Sign("low on resource", r"(?P<detail>The node was low on resource: [\w-]+[^\n]{0,120})"),
            Sign(
                "usage exceeds the total limit",
                r"(?P<detail>Pod ephemeral local storage usage exceeds [^\n]{0,120})",
            ),
            Sign("Evicted", r"Reason: (?P<evicted>Evicted)"),
        ),
        causes=(
            "{message}",
            "A worker was evicted from its node: {detail}",
            "A worker was evicted from its node.{evicted:.0}",
        ),
        example="worker 1 was evicted from its node gpu-17: The node was low on resource: memory.",
        remedies=(
            Remedy("request as much memory as the worker actually uses, so that the node reserves it"),
            Remedy("write large files to a volume, not into the container"),
            _SURVIVE,
        ),
        confidence=0.95,
        field="resources.memory",
    ),
    Rule(
        id="WORKER_PREEMPTED",
        title="A worker was removed for a pod of higher priority",
        why="A pod with a higher priority class needed the resources, so the scheduler removed a pod "
        "of this job. The other ranks cannot continue without it.",
        trust=Trust.FACT,
        facts=("reason:WorkerPreempted",),
        signs=(
            Sign("PreemptionByScheduler", r"(?P<detail>PreemptionByScheduler)"),
            Sign("Preempted by", r"(?P<detail>Preempted by [^\n]{1,120})"),
        ),
        causes=("{message}", "A worker was removed for a pod of higher priority: {detail}"),
        example="worker 1 was removed for a pod of higher priority",
        remedies=(_AGAIN, _SURVIVE, Remedy("raise the job's priority")),
        confidence=0.95,
        field="priority",
    ),
    Rule(
        id="LAUNCHER_MEMORY",
        title="The launcher used more memory than its limit",
        why="The launcher runs mpirun and forwards all output. With many ranks, or if the command itself "
        "does work in the launcher, the small default limit is not enough.",
        trust=Trust.FACT,
        facts=("reason:LauncherMemoryExceeded",),
        causes=("{message}",),
        example="the launcher used more memory than its limit and was killed",
        remedies=(
            Remedy("raise the launcher's memory", {"launcher": {"memory": "1Gi"}}),
            Remedy("reduce the output of the ranks"),
        ),
        confidence=1.0,
        field="launcher.memory",
    ),
)
