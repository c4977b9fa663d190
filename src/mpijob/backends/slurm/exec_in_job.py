"""Commands inside a running job, by a step of Slurm's that overlaps the job's own: exec, and the stacks of ranks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from mpijob.backends.attempts.rank_stacks import add_missing_ranks, find_pyspy, worker_of
from mpijob.backends.common_errors import wrong_phase
from mpijob.backends.slurm.client import refusal
from mpijob.backends.slurm.host import Host
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.formats.launch import stack_dump
from mpijob.model import JobState, Phase, RankStack

_LOOK_SECONDS = 10
_PATIENCE_SECONDS = 120.0
# --overlap and --mem=0: the step shares the resources that the job's own step holds entirely.
_STEP = ("--overlap", "--mpi=none", "--mem=0", "--cpu-bind=none", "--quiet")
# $1 the directory for what each node says, $2 the text that looks
_LOOK = (
    'h=${TMPDIR:-/tmp}; [ -d "$h" ] || h=/tmp; '
    'for d in "$h/mpijob-%s-%d" "$h/mpijob-%s-%d"-*; do export MPIJOB_HOME="$d"; [ ! -d "$d" ] || break; done; '
    'out=$1 text=$2; shift 2; exec sh -c "$text" "$@" >"$out/$SLURMD_NODENAME"'
)


def place_of(state: JobState, worker: int | None, rank: int | None) -> tuple[int, str]:
    """Return a worker, or that of a rank, and its node; raise for what is not there."""
    if state.phase is not Phase.RUNNING:
        raise wrong_phase(state, "commands run only in a running job")
    index = worker_of(state, worker, rank)
    return index, next((one.node for one in state.workers if one.index == index), "")


def run(
    host: Host, number: str, node: str, directory: str, argv: Sequence[str], component: int | None = None
) -> int:
    """Run a command on a node of the job, with this terminal, and return its status.

    Of a heterogeneous job, `component` says of which component the node is.
    """
    place = [f"--nodelist={node}"] if node else []
    place += [] if component is None else [f"--het-group={component}"]
    # srun without --pty gives a program no terminal, and with it merges stdout and stderr.
    tty = ["--pty"] if os.isatty(0) and os.isatty(1) else []
    chdir = [f"--chdir={directory}"] if directory else []
    return host.terminal([*_step(number, "--nodes=1", "--ntasks=1"), *place, *chdir, *tty, *argv])


def stacks(host: Host, files: JobFiles, state: JobState, ranks: Sequence[int]) -> tuple[RankStack, ...]:
    """Return where the ranks stand: a step on each node looks at those there, and leaves what it saw in a file."""
    if state.phase is not Phase.RUNNING:
        raise wrong_phase(state, "only a running job has stacks")
    mark = secrets.token_hex(12)
    folder = f"{files.place.folder}/stacks-{mark}"
    host.make(folder)
    text = _LOOK % (state.ref.uid, state.attempt, state.ref.uid, state.attempt)
    # The nodes see it under the same path, on a shared file system.
    spy = "" if host.name else find_pyspy()
    look = (stack_dump.SCRIPT, "mpijob-stacks", mark, spy, str(_LOOK_SECONDS))
    command = ["sh", "-c", text, "sh", host.path(folder), *look]
    try:
        argv = _on_each_node(files, state, command)
        answer = host.call(argv, seconds=_PATIENCE_SECONDS)
        host.pull(folder, whole=True)
        said = [path.read_text(errors="replace") for path in sorted((host.root / folder).iterdir())]
        if answer.code and not said:
            raise refusal("srun", answer)
    finally:
        host.remove(folder)
    found = [one for part in said for one in stack_dump.read(mark, part)]
    return add_missing_ranks(found, (one for one in state.ranks if not ranks or one.rank in ranks))


def component_of(files: JobFiles, worker: int) -> int | None:
    """Return the component of a worker in a heterogeneous job; None where the job is none."""
    parts = files.plan.job.parts
    return parts.index(files.plan.job.part_of(worker)) if len(parts) > 1 else None


def _on_each_node(files: JobFiles, state: JobState, command: Sequence[str]) -> list[str]:
    """Return the line that runs a command once on each node; of a heterogeneous job, of each component."""
    nodes: dict[int | None, set[str]] = {}
    for worker in state.workers:
        nodes.setdefault(component_of(files, worker.index), set()).add(worker.node)
    argv = [*_step(files.number)]
    for component, names in (nodes or {None: {""}}).items():
        argv += [":"] if component else []
        argv += [] if component is None else [f"--het-group={component}"]
        argv += [f"--nodes={len(names)}", "--ntasks-per-node=1", *command]
    return argv


def _step(number: str, *words: str) -> list[str]:
    return ["srun", f"--jobid={number}", *_STEP, *words]
