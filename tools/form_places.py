"""Where each field of a job stands in the wizard: its step, its group, its label. Data; `tools.form` makes the form."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The place of one field. `kind`, where it is given, is an input of its own instead of the type's."""

    step: str
    label: str
    group: str = ""
    help: str = ""
    kind: str = ""
    options: tuple[str, ...] = ()
    offered: str = ""
    cluster: bool = False


SCHEDULING, MPI, PROGRAM = "Scheduling", "MPI and ranks", "Program and code"
RESOURCES, LIMITS, LABELS = (
    "Launcher, network and other resources",
    "Retries, limits and history",
    "Labels, cost and model",
)
GROUPS = [SCHEDULING, MPI, PROGRAM, RESOURCES, LIMITS, LABELS]

_LINES, _YAML = "One per line.", "As YAML, as in a job file."


def _option(group: str, label: str, help: str = "", **more: object) -> Place:
    return Place("options", label, group, help, **more)  # type: ignore[arg-type]  # handed through


_A = _option
PLACES: dict[str, Place] = {
    "name": Place("workload", "Name", help="Lowercase letters, digits and hyphens. Worker names begin with it."),
    "namespace": Place("workload", "Project", help="The namespace of the job.", kind="project", offered="projects"),
    "image": Place(
        "workload", "Image", help="The container image with your program and an MPI library.",
        offered="images", cluster=True,
    ),
    "command": Place(
        "workload", "Command", help="What every process runs, for example python train.py --epochs 3",
        kind="command",
    ),
    "code.path": Place(
        "workload", "Code folder", help="Folder copied to every worker; the path is relative to the server."
    ),
    "env": Place("workload", "Environment variables"),
    "volumes": Place("workload", "Volumes and data connections", kind="volumes"),
    "mpi": Place("workload", "MPI library", help="Auto picks an installed library that fits the program."),
    "description": Place("workload", "Description", help="For you and your team, in Markdown.", kind="long"),
    "workers": Place("resources", "Workers", help="2–100", kind="workers"),
    "resources.gpu": Place("resources", "GPUs per worker", kind="gpus"),
    "slots": Place(
        "resources", "Processes per worker",
        help="Each process is one MPI rank. With GPUs, usually one process per GPU.",
    ),
    "resources.cpu": Place("resources", "CPU per worker", help="Cores, for example 2 or 0.5.", kind="cpu"),
    "resources.memory": Place(
        "resources", "Memory per worker", help="A worker that exceeds this is stopped.", kind="memory"
    ),
    "queue": _A(SCHEDULING, "Queue", offered="queues"),
    "priority": _A(SCHEDULING, "Priority", offered="priorities"),
    "after": _A(SCHEDULING, "Run after", "Names of jobs that must succeed first, one per line."),
    "gang_timeout_seconds": _A(SCHEDULING, "Start timeout (s)", "All workers must start within this time."),
    "placement.topology": _A(SCHEDULING, "Placement", cluster=True),
    "placement.node_selector": _A(SCHEDULING, "Node selector", cluster=True),
    "placement.exclude_nodes": _A(SCHEDULING, "Excluded nodes", _LINES, cluster=True),
    "placement.tolerations": _A(SCHEDULING, "Tolerations", _YAML, cluster=True),
    "placement.affinity": _A(SCHEDULING, "Affinity", _YAML, cluster=True),
    "ranks": _A(MPI, "Total ranks"),
    "cores_per_rank": _A(MPI, "Cores per rank"),
    "groups": _A(
        RESOURCES,
        "Worker groups",
        "Some of the workers with other resources, as YAML: [{name: cpu, workers: 2, slots: 4, resources: {cpu: 4}}]",
        kind="yaml",
    ),
    "elastic.min_workers": _A(MPI, "Min workers (elastic)"),
    "elastic.max_workers": _A(MPI, "Max workers (elastic)"),
    "presets": _A(MPI, "Presets", _LINES),
    "launch.map_by": _A(MPI, "Map ranks by"),
    "launch.bind_to": _A(MPI, "Bind ranks to"),
    "launch.flags": _A(MPI, "mpirun flags", "One per line."),
    "launch.settings": _A(MPI, "MPI parameters"),
    "launch.rankfile": _A(MPI, "Rankfile"),
    "launch.stdin": _A(MPI, "Standard input of rank 0"),
    "launch.custom.command": _A(MPI, "Custom launch command", "One word per line."),
    "launch.custom.host_line": _A(MPI, "Hostfile line format"),
    "launch.custom.tag": _A(MPI, "Rank pattern in output"),
    "launch.custom.rank_variable": _A(MPI, "Rank environment variable"),
    "census": _A(MPI, "Run a connectivity check first"),
    "profile_mpi": _A(MPI, "Profile MPI calls", "Time, bytes and messages between ranks; adds a little overhead."),
    "args": _A(PROGRAM, "Arguments", _LINES),
    "programs": _A(PROGRAM, "Multiple programs (MPMD)", _YAML),
    "script": _A(PROGRAM, "Script", "A script that starts mpirun itself, instead of a command."),
    "code.git.url": _A(PROGRAM, "Git repository", "Fetched with git on the server; a commit is pinned."),
    "code.git.ref": _A(PROGRAM, "Git branch or tag"),
    "code.git.commit": _A(PROGRAM, "Git commit"),
    "code.include": _A(PROGRAM, "Include paths", _LINES),
    "code.exclude": _A(PROGRAM, "Exclude paths", _LINES),
    "code.files": _A(PROGRAM, "Inline files", _YAML, kind="yaml"),
    "secrets": _A(PROGRAM, "Secret environment variables", kind="secrets"),
    "pull_policy": _A(
        PROGRAM, "Image pull policy", cluster=True, options=("", "Always", "IfNotPresent", "Never")
    ),
    "pull_secrets": _A(PROGRAM, "Image pull secrets", _LINES, cluster=True),
    "resources.gpu_kind": _A(RESOURCES, "GPU resource name"),
    "resources.others": _A(RESOURCES, "Other resources per worker"),
    "launcher.cpu": _A(RESOURCES, "Launcher CPU", kind="cpu"),
    "launcher.memory": _A(RESOURCES, "Launcher memory", kind="memory"),
    "launcher.gpu": _A(RESOURCES, "Launcher GPUs"),
    "launcher.gpu_kind": _A(RESOURCES, "Launcher GPU resource name"),
    "launcher.others": _A(RESOURCES, "Other launcher resources"),
    "network.isolated": _A(RESOURCES, "Isolate network", cluster=True),
    "network.egress": _A(RESOURCES, "Allowed egress", _LINES, cluster=True),
    "network.attachments": _A(RESOURCES, "Additional networks", _LINES, cluster=True),
    "retry.limit": _A(LIMITS, "Retries"),
    "retry.on": _A(LIMITS, "Retry only on", "Failure causes, one per line."),
    "retry.backoff_seconds": _A(LIMITS, "Retry delay (s)"),
    "retry.factor": _A(LIMITS, "Backoff factor"),
    "retry.max_backoff_seconds": _A(LIMITS, "Max retry delay (s)"),
    "requeue_on_lost_worker": _A(LIMITS, "Requeue on node loss"),
    "keep_on_failure_seconds": _A(LIMITS, "Keep failed workers for (s)"),
    "deadline_seconds": _A(LIMITS, "Time limit (s)"),
    "signal.name": _A(LIMITS, "Signal before time limit"),
    "signal.seconds_before": _A(LIMITS, "Signal lead time (s)"),
    "grace_seconds": _A(LIMITS, "Grace period (s)"),
    "retention.logs_days": _A(LIMITS, "Keep logs (days)"),
    "retention.record_days": _A(LIMITS, "Keep history (days)"),
    "ttl_seconds": _A(LIMITS, "Delete the job after (s)", "Counted from its end."),
    "notify": _A(LIMITS, "Notifications", _YAML, kind="yaml"),
    "concurrency.limit": _A(SCHEDULING, "Concurrent jobs in group"),
    "concurrency.group": _A(SCHEDULING, "Concurrency group"),
    "labels": _A(LABELS, "Labels"),
    "cost": _A(LABELS, "Cost labels"),
    "owner": _A(LABELS, "Owner"),
    "model.name": _A(LABELS, "Model name"),
    "model.version": _A(LABELS, "Model version"),
    "model.path": _A(LABELS, "Model path"),
    "model.format": _A(LABELS, "Model format"),
}  # fmt: skip
