"""Commands inside a running job, by a step of Slurm's that overlaps the job's own: exec, and the stacks of ranks."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mpijob.backends.common_errors import wrong_phase
from mpijob.backends.slurm.client import refusal
from mpijob.backends.slurm.host import Host
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.errors import NotFound
from mpijob.formats.launch import stack_dump
from mpijob.model import JobState, Phase, RankStack
from mpijob.model.status.stacks import Lack

_LOOK_SECONDS = 10
_PATIENCE_SECONDS = 120.0
_HOME = 'h=${TMPDIR:-/tmp}; [ -d "$h" ] || h=/tmp; export MPIJOB_HOME=$h/mpijob-%s-%d; '


def _step(number: str, *words: str) -> list[str]:
    return [
        "srun",
        f"--jobid={number}",
        "--overlap",
        "--mpi=none",
        "--mem=0",
        "--cpu-bind=none",
        "--quiet",
        *words,
    ]


def node_of(state: JobState, worker: int | None, rank: int | None) -> str:
    """Return the node that a visit goes to; raise for what is not there."""
    if state.phase is not Phase.RUNNING:
        raise wrong_phase(state, "commands run only in a running job")
    if rank is not None:
        found = next((one for one in state.ranks if one.rank == rank), None)
        if found is None:
            raise NotFound(f"{state.ref} has no rank {rank}: it has {state.world}, numbered from 0")
        worker = found.worker
    index = 0 if worker is None else worker
    if not 0 <= index < state.workers_wanted:
        raise NotFound(f"{state.ref} has no worker {index}: it has {state.workers_wanted}, numbered from 0")
    return next((one.node for one in state.workers if one.index == index), "")


def run(host: Host, number: str, node: str, directory: str, argv: Sequence[str]) -> int:
    """Run a command on a node of the job, with this terminal, and return its status."""
    place = [f"--nodelist={node}"] if node else []
    tty = ["--pty"] if os.isatty(0) and os.isatty(1) else []
    chdir = [f"--chdir={directory}"] if directory else []
    return host.terminal([*_step(number, "--nodes=1", "--ntasks=1", *place, *chdir, *tty), *argv])


def stacks(host: Host, files: JobFiles, state: JobState, ranks: Sequence[int]) -> tuple[RankStack, ...]:
    """Return where the ranks stand: a guest on each node looks at those there, and leaves what it saw in a file."""
    if state.phase is not Phase.RUNNING:
        raise wrong_phase(state, "only a running job has stacks")
    mark = secrets.token_hex(12)
    folder = f"{files.place.folder}/stacks-{mark}"
    host.make(folder)
    nodes = len({one.node for one in state.workers}) or 1
    text = (
        _HOME % (state.ref.uid, state.attempt)
        + 'out=$1 text=$2; shift 2; exec sh -c "$text" "$@" >"$out/$SLURMD_NODENAME"'
    )
    spy = "" if host.name else _pyspy()
    words = [
        "sh",
        "-c",
        text,
        "sh",
        host.path(folder),
        stack_dump.SCRIPT,
        "mpijob-stacks",
        mark,
        spy,
        str(_LOOK_SECONDS),
    ]
    try:
        answer = host.call(
            [*_step(files.number, f"--nodes={nodes}", "--ntasks-per-node=1"), *words],
            seconds=_PATIENCE_SECONDS,
        )
        host.pull(folder, whole=True)
        said = [path.read_text(errors="replace") for path in sorted((host.root / folder).iterdir())]
        if answer.code and not said:
            raise refusal("srun", answer)
    finally:
        host.remove(folder)
    worker_of = {one.rank: one.worker for one in state.ranks}
    seen = {one.rank: one for part in said for one in stack_dump.read(mark, part)}
    found = []
    for rank in sorted(worker_of):
        if not ranks or rank in ranks:
            lost = RankStack(rank=rank, worker=worker_of[rank], lack=Lack.GONE)
            found.append(msgspec.structs.replace(seen.get(rank, lost), worker=worker_of[rank]))
    return tuple(found)


def _pyspy() -> str:
    """Return where py-spy is, which the nodes see as this machine does: on a shared file system."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy") or ""
