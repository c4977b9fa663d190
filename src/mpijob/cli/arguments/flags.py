"""The table of flags and the fields that they set, for create, run, plan, alloc, array and clone.

It is data, so that a test can compare it with the model: a new field without a flag fails. `flag_values`
parses the texts of flags; `job_args` merges flags and a file into one job.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import click

from mpijob.cli.arguments import flag_values
from mpijob.cli.lazy_group import help_all_option, help_all_wanted


class Merge(StrEnum):
    """What a flag does to a field that the file has set already."""

    # The flag replaces the value of the file.
    SET = "set"
    # A mapping: keys of the flag are added or replaced.
    KEYS = "keys"
    # A list: all flags together replace it.
    LIST = "list"
    # A list of items with a key: an item with the same key is replaced, others are added.
    BY_KEY = "by key"


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
        Flag(f"--{prefix}cpu", f"{path}.cpu", _A, f"CPU cores of {who}, such as 2 or 500m.", "AMOUNT"),
        Flag(f"--{prefix}memory", f"{path}.memory", _A, f"Memory of {who}, such as 4Gi.", "AMOUNT"),
        Flag(f"--{prefix}gpu", f"{path}.gpu", _N, f"GPUs of {who}.", "N"),
        Flag(
            f"--{prefix}gpu-kind",
            f"{path}.gpu_kind",
            str,
            f"GPU resource name of {who}, such as amd.com/gpu.",
            "NAME",
        ),
        Flag(f"--{prefix}resource", f"{path}.others", _P, f"Other resource of {who}.", "NAME=AMOUNT", _KEYS),
    )


_FLAG_GROUPS: dict[str, tuple[Flag, ...]] = {
    "Job": (
        Flag("--description", "description", str, "Purpose of the job."),
        Flag("--script", "script", str, "Script to run once; each mpirun or srun in it is a step.", "FILE"),
        Flag("--arg", "args", str, "Argument of the command.", "WORD", _LIST),
        Flag(
            "--program",
            "programs",
            flag_values.program,
            "One program of several (MPMD).",
            "RANKS:COMMAND",
            _LIST,
        ),
        Flag("--preset", "presets", str, "Group of settings: infiniband, nccl …", "NAME", _LIST),
        Flag("--label", "labels", _P, "Label of the job.", "KEY=VALUE", _KEYS),
        Flag("--owner", "owner", str, "Owner of the job.", "NAME"),
        Flag("--cost", "cost", _P, "Cost label, for accounting.", "KEY=VALUE", _KEYS),
    ),
    "Size": (
        Flag("--workers", "workers", _N, "Number of workers.", "N"),
        Flag("--slots", "slots", _N, "Ranks per worker.", "N"),
        Flag("--ranks", "ranks", _N, "Total number of ranks, if not workers × slots.", "N"),
        Flag("--cores-per-rank", "cores_per_rank", _N, "Cores per rank (MPI + OpenMP).", "N"),
        Flag(
            "--worker-group",
            "groups",
            flag_values.worker_group,
            "Some of the workers, with their own slots, cpu, memory, gpu, gpu-kind and node.LABEL.",
            "NAME=N[,KEY=VALUE]",
            _BY,
            "name",
        ),
        Flag("--min-workers", "elastic.min_workers", _N, "Minimum number of workers (elastic).", "N"),
        Flag("--max-workers", "elastic.max_workers", _N, "Maximum number of workers (elastic).", "N"),
        *_resources("", "resources", "each worker"),
        *_resources("launcher-", "launcher", "the launcher"),
    ),
    "Files and environment": (
        Flag("--image", "image", str, "Container image.", "IMAGE"),
        Flag("--code", "code.path", str, "Directory to upload as the working directory.", "PATH"),
        Flag("--git", "code.git.url", str, "Git repository to upload.", "URL"),
        Flag("--git-ref", "code.git.ref", str, "Branch or tag of the repository.", "REF"),
        Flag("--git-commit", "code.git.commit", str, "Commit of the repository.", "SHA"),
        Flag("--code-include", "code.include", str, "Upload only matching paths.", "GLOB", _LIST),
        Flag("--code-exclude", "code.exclude", str, "Do not upload matching paths.", "GLOB", _LIST),
        Flag(
            "--code-file",
            "code.files",
            flag_values.file_pair,
            "Additional file to upload.",
            "NAME=PATH",
            _KEYS,
        ),
        Flag(
            "--env", "env", flag_values.variable, "Environment variable of all ranks.", "KEY[=VALUE]", _KEYS
        ),
        Flag(
            "--secret",
            "secrets",
            flag_values.secret,
            "Environment variable from a secret.",
            "ENV=SOURCE",
            _BY,
            "env",
        ),
        Flag(
            "--volume",
            "volumes",
            flag_values.volume,
            "Volume to mount.",
            "[KIND:]SOURCE:MOUNT[:ro]",
            _BY,
            "mount",
        ),
        Flag("--stdin", "launch.stdin", str, "File for the standard input of rank 0.", "PATH"),
        Flag("--pull-secret", "pull_secrets", str, "Secret for the image registry.", "NAME", _LIST),
        Flag(
            "--pull-policy", "pull_policy", str, "Image pull policy: Always, IfNotPresent or Never.", "WORD"
        ),
    ),
    "MPI": (
        Flag(
            "--mpi",
            "mpi",
            str,
            "MPI library: auto, openmpi, mpich, intel or custom; FAMILY@PREFIX selects an installation.",
            "FAMILY",
        ),
        Flag("--map-by", "launch.map_by", str, "How to map ranks, such as node or slot.", "WORD"),
        Flag("--bind-to", "launch.bind_to", str, "What to bind ranks to, such as core or none.", "WORD"),
        Flag("--rankfile", "launch.rankfile", str, "Rankfile.", "PATH"),
        Flag("--set", "launch.settings", _P, "Parameter of the MPI library.", "KEY=VALUE", _KEYS),
        Flag("--flag", "launch.flags", str, "Additional option of mpirun.", "WORD", _LIST),
        Flag(
            "--mpi-command",
            "launch.custom.command",
            flag_values.words,
            "Launch command of a custom MPI.",
            "COMMAND",
        ),
        Flag("--mpi-host-line", "launch.custom.host_line", str, "Format of a hostfile line of a custom MPI."),
        Flag(
            "--mpi-tag", "launch.custom.tag", str, "How a custom MPI marks the rank in its output.", "REGEX"
        ),
        Flag(
            "--mpi-rank-variable",
            "launch.custom.rank_variable",
            str,
            "Environment variable with the rank of a custom MPI.",
            "NAME",
        ),
    ),
    "Scheduling": (
        Flag("--queue", "queue", str, "Queue of the job.", "NAME"),
        Flag("--priority", "priority", _N, "Number, or name of a priority class."),
        Flag(
            "--after",
            "after",
            str,
            "Start after this job has succeeded; any:JOB after any end, failed:JOB after a failure.",
            "JOB",
            _LIST,
        ),
        Flag(
            "--at-once", "concurrency.limit", _N, "Maximum number of running jobs in the group or array.", "N"
        ),
        Flag("--group", "concurrency.group", str, "Concurrency group that --at-once limits.", "NAME"),
        Flag(
            "--gang-timeout",
            "gang_timeout_seconds",
            _S,
            "Time limit for starting all workers together.",
            "TIME",
        ),
        Flag("--node-selector", "placement.node_selector", _P, "Required node label.", "KEY=VALUE", _KEYS),
        Flag("--exclude-node", "placement.exclude_nodes", str, "Node to avoid.", "NAME", _LIST),
        Flag(
            "--toleration",
            "placement.tolerations",
            flag_values.toleration,
            "Taint to tolerate.",
            "KEY[=VALUE][:EFFECT]",
            _LIST,
        ),
        Flag("--affinity", "placement.affinity", flag_values.document, "Affinity, as JSON.", "JSON"),
        Flag(
            "--topology",
            "placement.topology",
            str,
            "Placement of workers: any, packed-node, packed-rack, packed-zone or spread.",
            "WORD",
        ),
        Flag("--egress", "network.egress", str, "Destination that the job may connect to.", "PLACE", _LIST),
        Flag(
            "--attach",
            "network.attachments",
            str,
            "Additional network of the workers (Multus).",
            "NAME",
            _LIST,
        ),
    ),
    "Retries and limits": (
        Flag("--retry", "retry.limit", _N, "Maximum number of retries.", "N"),
        Flag(
            "--retry-on",
            "retry.on",
            str,
            "Retry only after this cause: worker_lost, nccl or a code of `mpijob why`.",
            "CAUSE",
            _LIST,
        ),
        Flag("--backoff", "retry.backoff_seconds", _S, "Delay before the first retry.", "TIME"),
        Flag("--backoff-factor", "retry.factor", _N, "Factor by which the delay grows.", "NUMBER"),
        Flag("--max-backoff", "retry.max_backoff_seconds", _S, "Longest delay between retries.", "TIME"),
        Flag("--deadline", "deadline_seconds", _S, "Time limit of the job.", "TIME"),
        Flag(
            "--signal",
            "signal",
            flag_values.signal,
            "Signal before the time limit: USR1@120 sends USR1 120 s before.",
            "NAME[@TIME]",
        ),
        Flag("--grace", "grace_seconds", _S, "Time between SIGTERM and SIGKILL.", "TIME"),
        Flag("--ttl", "ttl_seconds", _S, "Delete the job this long after it ends; keep its record.", "TIME"),
        Flag(
            "--keep-on-failure",
            "keep_on_failure_seconds",
            _S,
            "Keep the workers of a failed job this long.",
            "TIME",
        ),
        Flag("--keep-logs", "retention.logs_days", flag_values.days, "Log retention in days.", "DAYS"),
        Flag("--keep-record", "retention.record_days", flag_values.days, "Record retention in days.", "DAYS"),
        Flag(
            "--notify",
            "notify",
            flag_values.notify,
            "Notify a mail address or a callback; :failed,ended selects the events.",
            "TO[:WHEN]",
            _LIST,
        ),
    ),
    "Model registry": (
        Flag("--model", "model.name", str, "Name under which to register the trained model.", "NAME"),
        Flag("--model-version", "model.version", str, "Version of the model.", "NAME"),
        Flag("--model-path", "model.path", str, "Path of the model files that the job writes.", "PATH"),
        Flag("--model-format", "model.format", str, "Format of the model: onnx, pytorch …", "NAME"),
    ),
}
FLAGS: tuple[Flag, ...] = tuple(flag for group in _FLAG_GROUPS.values() for flag in group)

SWITCHES: tuple[Switch, ...] = (
    Switch("--no-census", "census", False, "Skip the check of the MPI world before the command starts."),
    Switch("--profile-mpi", "profile_mpi", True, "Count the MPI calls of the ranks (see mpijob profile)."),
    Switch("--no-isolation", "network.isolated", False, "Do not create a network policy for the job."),
    Switch("--requeue", "requeue_on_lost_worker", True, "Queue the job again when a worker is lost."),
)
_SWITCH_GROUPS = {
    "--no-census": "MPI",
    "--profile-mpi": "MPI",
    "--no-isolation": "Scheduling",
    "--requeue": "Retries and limits",
}
_COMMON = {
    *(
        "--workers",
        "--slots",
        "--cpu",
        "--memory",
        "--gpu",
        "--image",
        "--code",
        "--env",
        "--volume",
        "--mpi",
    ),
    *("--preset", "--queue", "--after", "--retry", "--deadline"),
}

# What is said without a flag of the table: the NAME or SCRIPT argument, -n, and the words after `--`.
ELSEWHERE = {"name": "NAME", "script": "SCRIPT", "namespace": "--namespace", "command": "-- COMMAND"}


def job_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add every flag of the table to a command, and --help-all, which lists those that are not common."""
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
    function = click.option(
        "--set-field",
        "set_field",
        multiple=True,
        metavar="PATH=VALUE",
        help="Set any field of the job file by its path; the value is JSON.",
    )(function)
    return help_all_option(function)


class JobCommand(click.Command):
    """A command whose help begins with the common flags of a job; --help-all lists the others in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the flags of a job."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (OWN, COMMON, *_HEADINGS)}
        for option in sorted(self.get_params(ctx), key=lambda one: one.opts[-1].startswith("--help")):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                sections[section_of(option.opts[0])].append(record)
        for heading, rows in sections.items():
            if rows and (heading not in _HEADINGS or help_all_wanted(ctx)):
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if not help_all_wanted(ctx):
            count = sum(len(sections[heading]) for heading in _HEADINGS)
            formatter.write_paragraph()
            formatter.write_text(f"--help-all lists {count} more options: {', '.join(_FLAG_GROUPS).lower()}.")


OWN, COMMON = "Options", "Common job options"


def section_of(option: str) -> str:
    """Return the heading under which the help of a command lists an option."""
    return _SECTIONS.get(option, OWN)


_HEADINGS = tuple(f"{group} options" for group in _FLAG_GROUPS)
_SECTIONS = {
    option: COMMON if option in _COMMON else f"{group} options"
    for group, options in {
        group: (
            *(flag.option for flag in flags),
            *(option for option, other in _SWITCH_GROUPS.items() if other == group),
            *(["--set-field"] if group == "Job" else []),
        )
        for group, flags in _FLAG_GROUPS.items()
    }.items()
    for option in options
}
