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


SCHEDULING, SHAPE, MPI, PROGRAM = "Scheduling", "Ranks and elastic workers", "MPI", "Programs and code"
DATA, IMAGE, LAUNCHER, NETWORK = "Data", "Image", "Launcher and other resources", "Network"
FAILING, ENDING, KEEPING = "When it fails", "When it ends", "What is kept, and the model"
LABELS = "Labels and cost"
GROUPS = [SCHEDULING, SHAPE, MPI, PROGRAM, DATA, IMAGE, LAUNCHER, NETWORK, FAILING, ENDING, KEEPING, LABELS]

_PAIRS, _LINES, _YAML = "One key=value a line.", "One a line.", "As YAML, as in a job file."


def _advanced(group: str, label: str, help: str = "", **more: object) -> Place:
    return Place("advanced", label, group, help, **more)  # type: ignore[arg-type]  # handed through


_A = _advanced
PLACES: dict[str, Place] = {
    "name": Place(
        "basics", "Name", help="Lower-case letters, digits and dashes; it is part of the workers' names."
    ),
    "namespace": Place(
        "basics", "Project", help="The namespace that the job belongs to.", kind="project", offered="projects"
    ),
    "description": Place("basics", "Description", help="For you and your team; Markdown.", kind="long"),
    "image": Place(
        "workload", "Image", help="The container image with your program and an MPI library.",
        offered="images", cluster=True,
    ),
    "command": Place(
        "workload", "Command", help="What every rank runs, as you would type it: python train.py --epochs 3",
        kind="command",
    ),
    "code.path": Place(
        "workload", "Code directory",
        help="A directory that goes along with the job; paths start where the server was started.",
    ),
    "env": Place("workload", "Environment", help="One KEY=value a line."),
    "mpi": Place("workload", "MPI library", help="auto takes what is there and fits."),
    "workers": Place(
        "resources", "Workers", help="How many workers run at once; 2 to 100 are usual.", kind="workers"
    ),
    "resources.gpu": Place("resources", "GPUs per worker", kind="gpus"),
    "slots": Place(
        "resources", "Ranks per worker",
        help="How many ranks each worker starts; with GPUs, usually one for each GPU.",
    ),
    "resources.cpu": Place("resources", "CPU per worker", help="Cores: 2, or 500m for half a core."),
    "resources.memory": Place(
        "resources", "Memory per worker", help="For example 512Mi or 4Gi. A worker that uses more is ended."
    ),
    "queue": _A(SCHEDULING, "Queue", offered="queues"),
    "priority": _A(SCHEDULING, "Priority", offered="priorities"),
    "after": _A(SCHEDULING, "Only after these jobs", _LINES),
    "gang_timeout_seconds": _A(SCHEDULING, "Time for all workers to start, seconds"),
    "placement.topology": _A(SCHEDULING, "How close together", cluster=True),
    "placement.node_selector": _A(SCHEDULING, "Only nodes with labels", _PAIRS, cluster=True),
    "placement.exclude_nodes": _A(SCHEDULING, "Not on these nodes", _LINES, cluster=True),
    "placement.tolerations": _A(SCHEDULING, "Tolerations", _YAML, cluster=True),
    "placement.affinity": _A(SCHEDULING, "Affinity", _YAML, cluster=True),
    "ranks": _A(SHAPE, "Ranks in all"),
    "cores_per_rank": _A(SHAPE, "Cores per rank"),
    "elastic.min_workers": _A(SHAPE, "Fewest workers of an elastic job"),
    "elastic.max_workers": _A(SHAPE, "Most workers of an elastic job"),
    "presets": _A(MPI, "Presets", _LINES),
    "launch.map_by": _A(MPI, "Deal ranks out by"),
    "launch.bind_to": _A(MPI, "Bind ranks to"),
    "launch.flags": _A(MPI, "Flags for mpirun", "One a line, as mpirun takes them."),
    "launch.settings": _A(MPI, "Parameters of the MPI library", _PAIRS),
    "launch.rankfile": _A(MPI, "Rankfile"),
    "launch.stdin": _A(MPI, "Standard input of rank 0"),
    "launch.custom.command": _A(MPI, "Launch line of another MPI library", "One word a line."),
    "launch.custom.host_line": _A(MPI, "Its line for a worker in the hostfile"),
    "launch.custom.tag": _A(MPI, "How the rank is found in its output"),
    "launch.custom.rank_variable": _A(MPI, "Its variable with the rank"),
    "census": _A(MPI, "Prove the ranks with a short launch first"),
    "profile_mpi": _A(MPI, "Count MPI calls: time, bytes, who waits for whom"),
    "args": _A(PROGRAM, "More arguments", _LINES),
    "programs": _A(PROGRAM, "Several programs", _YAML),
    "script": _A(PROGRAM, "Script instead of a command"),
    "code.include": _A(PROGRAM, "Only these paths of the code", _LINES),
    "code.exclude": _A(PROGRAM, "Not these paths of the code", _LINES),
    "code.files": _A(PROGRAM, "Small files", _YAML, kind="yaml"),
    "volumes": _A(DATA, "Volumes and data connections", kind="volumes"),
    "secrets": _A(DATA, "Secrets as variables", "One VARIABLE=source a line.", kind="secrets"),
    "pull_policy": _A(
        IMAGE, "When the image is pulled", cluster=True, options=("", "Always", "IfNotPresent", "Never")
    ),
    "pull_secrets": _A(IMAGE, "Secrets for the registry", _LINES, cluster=True),
    "resources.gpu_kind": _A(LAUNCHER, "Kind of GPU"),
    "resources.others": _A(LAUNCHER, "Other resources per worker", _PAIRS),
    "launcher.cpu": _A(LAUNCHER, "CPU of the launcher"),
    "launcher.memory": _A(LAUNCHER, "Memory of the launcher"),
    "launcher.gpu": _A(LAUNCHER, "GPUs of the launcher"),
    "launcher.gpu_kind": _A(LAUNCHER, "Kind of GPU of the launcher"),
    "launcher.others": _A(LAUNCHER, "Other resources of the launcher", _PAIRS),
    "network.isolated": _A(NETWORK, "Only its own workers talk to each other", cluster=True),
    "network.egress": _A(NETWORK, "Where it may go beside", _LINES, cluster=True),
    "network.attachments": _A(NETWORK, "Further networks", _LINES, cluster=True),
    "retry.limit": _A(FAILING, "Retries"),
    "retry.on": _A(FAILING, "Only for these causes", _LINES),
    "retry.backoff_seconds": _A(FAILING, "Pause before the first retry, seconds"),
    "retry.factor": _A(FAILING, "By what the pause grows"),
    "retry.max_backoff_seconds": _A(FAILING, "Longest pause, seconds"),
    "requeue_on_lost_worker": _A(FAILING, "Back to the queue when a machine is lost"),
    "keep_on_failure_seconds": _A(FAILING, "Keep failed workers, seconds"),
    "deadline_seconds": _A(ENDING, "Time limit in seconds"),
    "signal.name": _A(ENDING, "Signal before the end"),
    "signal.seconds_before": _A(ENDING, "How long before the end, seconds"),
    "grace_seconds": _A(ENDING, "Time to end by themselves, seconds"),
    "retention.logs_days": _A(KEEPING, "Keep logs, days"),
    "retention.record_days": _A(KEEPING, "Keep the record, days"),
    "ttl_seconds": _A(KEEPING, "Delete the job after its end, seconds"),
    "notify": _A(ENDING, "Whom to tell", _YAML, kind="yaml"),
    "concurrency.limit": _A(ENDING, "Jobs of the group at once"),
    "concurrency.group": _A(ENDING, "Group of jobs"),
    "model.name": _A(KEEPING, "Model"),
    "model.version": _A(KEEPING, "Version of the model"),
    "model.path": _A(KEEPING, "Where the model is written"),
    "model.format": _A(KEEPING, "Format of the model"),
    "labels": _A(LABELS, "Labels", _PAIRS),
    "cost": _A(LABELS, "Labels for the cost report", _PAIRS),
    "owner": _A(LABELS, "Owner"),
}  # fmt: skip
