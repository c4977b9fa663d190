"""Which flag sets which field of a job: one table for create, run, plan, alloc, array and clone.

The table is data, so that a test can hold it against the model: a new field without a flag fails.
How a flag's text is read is in `flag_values`; how flags and a file become one job is in `job_args`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import click

from mpijob.cli.arguments import flag_values


class Merge(StrEnum):
    """What a flag does to a field that the file has set already."""

    SET = "set"  # the flag's value stands
    KEYS = "keys"  # a mapping: the flag's keys are added or replaced
    LIST = "list"  # a list: the flags given, together, stand
    BY_KEY = "by key"  # a list of parts that have a key of their own: same key is replaced, else added


class Flag(NamedTuple):
    """One flag: its name, the field it sets, how its text is read, how it meets the file, and its help."""

    option: str
    path: str
    read: flag_values.Reader
    help: str
    metavar: str = "TEXT"
    merge: Merge = Merge.SET
    key: str = ""

    @property
    def parameter(self) -> str:
        """The name under which click hands the flag's value over."""
        return "flag_" + self.option.lstrip("-").replace("-", "_")


class Switch(NamedTuple):
    """A flag without a value."""

    option: str
    path: str
    value: bool
    help: str

    @property
    def parameter(self) -> str:
        """The name under which click hands the flag's value over."""
        return "flag_" + self.option.lstrip("-").replace("-", "_")


_N, _S, _P, _A = flag_values.number, flag_values.seconds, flag_values.pair, str
_KEYS, _LIST, _BY = Merge.KEYS, Merge.LIST, Merge.BY_KEY


def _resources(prefix: str, path: str, who: str) -> tuple[Flag, ...]:
    return (
        Flag(f"--{prefix}cpu", f"{path}.cpu", _A, f"Cores of {who}: 2, 500m.", "AMOUNT"),
        Flag(f"--{prefix}memory", f"{path}.memory", _A, f"Memory of {who}: 4Gi.", "AMOUNT"),
        Flag(f"--{prefix}gpu", f"{path}.gpu", _N, f"GPUs of {who}.", "N"),
        Flag(f"--{prefix}gpu-kind", f"{path}.gpu_kind", str, f"GPU resource of {who}: amd.com/gpu."),
        Flag(f"--{prefix}resource", f"{path}.others", _P, f"Other resource of {who}.", "NAME=AMOUNT", _KEYS),
    )


FLAGS: tuple[Flag, ...] = (
    Flag("--description", "description", str, "What the job is for."),
    Flag("--workers", "workers", _N, "Number of workers.", "N"),
    Flag("--slots", "slots", _N, "Ranks on each worker.", "N"),
    Flag("--ranks", "ranks", _N, "Ranks in all, where not workers × slots.", "N"),
    Flag("--cores-per-rank", "cores_per_rank", _N, "Cores of each rank (MPI + OpenMP).", "N"),
    Flag("--min-workers", "elastic.min_workers", _N, "Go on with so few (elastic).", "N"),
    Flag("--max-workers", "elastic.max_workers", _N, "Let it be scaled up to so many (elastic).", "N"),
    Flag(
        "--mpi",
        "mpi",
        str,
        "auto, openmpi, mpich, intel or custom; FAMILY@PREFIX names an installation.",
        "FAMILY",
    ),
    Flag("--map-by", "launch.map_by", str, "How ranks are laid out."),
    Flag("--bind-to", "launch.bind_to", str, "What ranks are bound to."),
    Flag("--rankfile", "launch.rankfile", str, "A rankfile.", "PATH"),
    Flag("--set", "launch.settings", _P, "Setting of the MPI library.", "KEY=VALUE", _KEYS),
    Flag("--flag", "launch.flags", str, "Extra word for the launch line.", "WORD", _LIST),
    Flag("--stdin", "launch.stdin", str, "File that rank 0 reads.", "PATH"),
    Flag(
        "--mpi-command", "launch.custom.command", flag_values.words, "Launch line of a custom MPI.", "COMMAND"
    ),
    Flag("--mpi-host-line", "launch.custom.host_line", str, "Hostfile line of a custom MPI."),
    Flag("--mpi-tag", "launch.custom.tag", str, "How a custom MPI tags ranks in output.", "REGEX"),
    Flag("--mpi-rank-variable", "launch.custom.rank_variable", str, "Rank variable of a custom MPI.", "NAME"),
    Flag("--preset", "presets", str, "Settings that belong together: infiniband, nccl …", "NAME", _LIST),
    Flag("--image", "image", str, "Container image."),
    Flag("--arg", "args", str, "Argument after the command.", "WORD", _LIST),
    Flag("--program", "programs", flag_values.program, "One of several programs.", "RANKS:COMMAND", _LIST),
    Flag("--script", "script", str, "A script that runs once; its launchers are steps.", "FILE"),
    Flag("--code", "code.path", str, "Directory that goes along.", "PATH"),
    Flag("--git", "code.git.url", str, "Repository that goes along.", "URL"),
    Flag("--git-ref", "code.git.ref", str, "Branch or tag of it.", "REF"),
    Flag("--git-commit", "code.git.commit", str, "Commit of it.", "SHA"),
    Flag("--code-include", "code.include", str, "Only these paths of it.", "GLOB", _LIST),
    Flag("--code-exclude", "code.exclude", str, "Not these paths of it.", "GLOB", _LIST),
    Flag("--code-file", "code.files", flag_values.file_pair, "One more file.", "NAME=PATH", _KEYS),
    Flag("--env", "env", flag_values.variable, "Variable of every rank.", "KEY[=VALUE]", _KEYS),
    Flag(
        "--secret", "secrets", flag_values.secret, "Secret variable and its source.", "ENV=SOURCE", _BY, "env"
    ),
    Flag("--volume", "volumes", flag_values.volume, "Volume.", "[KIND:]SOURCE:MOUNT[:ro]", _BY, "mount"),
    Flag("--pull-secret", "pull_secrets", str, "Secret for the image registry.", "NAME", _LIST),
    Flag("--pull-policy", "pull_policy", str, "Always, IfNotPresent or Never.", "WORD"),
    *_resources("", "resources", "a worker"),
    *_resources("launcher-", "launcher", "the launcher"),
    Flag("--node-selector", "placement.node_selector", _P, "Label a node must have.", "KEY=VALUE", _KEYS),
    Flag("--exclude-node", "placement.exclude_nodes", str, "Node not to be used.", "NAME", _LIST),
    Flag(
        "--toleration",
        "placement.tolerations",
        flag_values.toleration,
        "Taint to bear.",
        "KEY[=VALUE][:EFFECT]",
        _LIST,
    ),
    Flag("--affinity", "placement.affinity", flag_values.document, "Affinity, as JSON.", "JSON"),
    Flag("--topology", "placement.topology", str, "any, packed-node, packed-rack, packed-zone, spread."),
    Flag("--egress", "network.egress", str, "Place that the job may reach.", "PLACE", _LIST),
    Flag("--after", "after", str, "Job that must have succeeded before; any:JOB, failed:JOB.", "JOB", _LIST),
    Flag(
        "--at-once",
        "concurrency.limit",
        _N,
        "At most so many jobs of the group, or of the array, at once.",
        "N",
    ),
    Flag("--group", "concurrency.group", str, "Group of which only --at-once jobs run.", "NAME"),
    Flag("--attach", "network.attachments", str, "Further network of the workers (Multus).", "NAME", _LIST),
    Flag("--queue", "queue", str, "Queue to wait in.", "NAME"),
    Flag("--priority", "priority", _N, "A number, or the name of a priority class."),
    Flag(
        "--gang-timeout", "gang_timeout_seconds", _S, "How long workers may take to start together.", "TIME"
    ),
    Flag("--retry", "retry.limit", _N, "How often a failed job is tried again.", "N"),
    Flag(
        "--retry-on",
        "retry.on",
        str,
        "Only for this cause: worker_lost, nccl, a code …",
        "CAUSE",
        _LIST,
    ),
    Flag("--backoff", "retry.backoff_seconds", _S, "First pause between attempts.", "TIME"),
    Flag("--backoff-factor", "retry.factor", _N, "How the pause grows.", "NUMBER"),
    Flag("--max-backoff", "retry.max_backoff_seconds", _S, "Longest pause between attempts.", "TIME"),
    Flag("--ttl", "ttl_seconds", _S, "Delete the job so long after its end; its record stays.", "TIME"),
    Flag(
        "--notify",
        "notify",
        flag_values.notify,
        "Tell ADDRESS or NAME; :failed,ended says when.",
        "TO[:WHEN]",
        _LIST,
    ),
    Flag("--deadline", "deadline_seconds", _S, "End the job after this time.", "TIME"),
    Flag(
        "--signal", "signal", flag_values.signal, "Signal before the end, and when: USR1@120.", "NAME[@TIME]"
    ),
    Flag("--grace", "grace_seconds", _S, "Time between the signal and the end.", "TIME"),
    Flag(
        "--keep-on-failure", "keep_on_failure_seconds", _S, "Keep a failed job's workers this long.", "TIME"
    ),
    Flag("--keep-logs", "retention.logs_days", flag_values.days, "Keep logs this many days.", "DAYS"),
    Flag(
        "--keep-record", "retention.record_days", flag_values.days, "Keep the record this many days.", "DAYS"
    ),
    Flag("--model", "model.name", str, "Name in the model registry for what the job makes.", "NAME"),
    Flag("--model-version", "model.version", str, "Version of the model there.", "NAME"),
    Flag("--model-path", "model.path", str, "Where the job writes the model.", "PATH"),
    Flag("--model-format", "model.format", str, "Format of the model: onnx, pytorch …", "NAME"),
    Flag("--label", "labels", _P, "Label.", "KEY=VALUE", _KEYS),
    Flag("--owner", "owner", str, "Whose job it is."),
    Flag("--cost", "cost", _P, "Cost label.", "KEY=VALUE", _KEYS),
)

SWITCHES: tuple[Switch, ...] = (
    Switch("--no-census", "census", False, "Do not prove the world before the command runs."),
    Switch("--profile-mpi", "profile_mpi", True, "Count the ranks' MPI calls (mpijob profile)."),
    Switch("--no-isolation", "network.isolated", False, "No network policy for the job."),
    Switch("--requeue", "requeue_on_lost_worker", True, "Queue again when a worker is lost."),
)

# What is said without a flag of the table: the NAME or SCRIPT argument, -n, and the words after `--`.
ELSEWHERE = {"name": "NAME", "script": "SCRIPT", "namespace": "--namespace", "command": "-- COMMAND"}


def job_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add every flag of the table to a command."""
    for flag in reversed(FLAGS):
        function = click.option(
            flag.option,
            flag.parameter,
            metavar=flag.metavar,
            help=flag.help,
            multiple=flag.merge is not Merge.SET,
        )(function)
    for switch in reversed(SWITCHES):
        function = click.option(switch.option, switch.parameter, is_flag=True, help=switch.help)(function)
    return click.option(
        "--set-field",
        "set_field",
        multiple=True,
        metavar="PATH=VALUE",
        help="Any field by its path; value as JSON.",
    )(function)
