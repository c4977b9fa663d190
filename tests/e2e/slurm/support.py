"""Jobs for the fault tests, patient conditions, and the faults: each is brought back by who made it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from testbed.slurm import control

from mpijob import Client, Job, JobState, MPIJob, Phase
from mpijob.model import Resources

PATIENCE = 150.0
_FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
_SPOOL = "/var/spool/slurm"
T = TypeVar("T")


def job(name: str, script: str, workers: int = 2, **fields: object) -> MPIJob:
    """Return a small job of the shell."""
    fields.setdefault("resources", Resources(cpu="1", memory="100Mi"))
    fields.setdefault("grace_seconds", 1.0)
    return MPIJob(name=name, command=("sh", "-c", script), workers=workers, **fields)  # type: ignore[arg-type]  # any field


def running(client: Client, wanted: MPIJob) -> Job:
    """Return the job once it runs."""
    handle = client.submit(wanted)
    handle.wait(PATIENCE, {Phase.RUNNING})
    return handle


def ended(handle: Job, seconds: float = PATIENCE) -> JobState:
    """Return the state of a job once it has ended."""
    return handle.wait(seconds)


def eventually(what: str, look: Callable[[], T], seconds: float = 60.0) -> T:
    """Return what is looked for, once it is there."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"{what} did not come within {seconds:g} s"
        time.sleep(0.2)
    return found


def codes(state: JobState) -> list[str]:
    """Return the codes of a job's findings."""
    return [finding.code for finding in state.findings]


@contextmanager
def switched_off(node: str) -> Iterator[None]:
    """Cut a node's power, and bring it back."""
    control.ask("off", node)
    try:
        yield
    finally:
        control.ask("on", node)
        eventually("the node", lambda: idle(node))


@contextmanager
def without(machine: str, daemon: str, *, kill: bool = False) -> Iterator[None]:
    """Stop a daemon, and start it again."""
    control.ask("daemon", "kill" if kill else "stop", machine, daemon)
    try:
        yield
    finally:
        control.ask("daemon", "start", machine, daemon)
        if daemon == "slurmctld":
            eventually("the controller", answers)


@contextmanager
def clock_behind(node: str, seconds: int) -> Iterator[None]:
    """Let all that starts on a node live some seconds in the past; slurmd, which runs already, does not."""
    wrong = f"echo -{seconds}s >/etc/faketimerc; echo {_FAKETIME} >/etc/ld.so.preload"
    control.call(node, "sh", "-c", wrong)
    try:
        yield
    finally:
        control.call(node, "rm", "-f", "/etc/ld.so.preload", "/etc/faketimerc")


@contextmanager
def spool_full(node: str) -> Iterator[None]:
    """Let slurmd find its spool directory full."""
    fill = f"mount -t tmpfs -o size=8k tmpfs {_SPOOL} && head -c 8192 /dev/zero >{_SPOOL}/rest"
    control.call(node, "sh", "-c", fill)
    try:
        yield
    finally:
        control.call(node, "umount", "--lazy", _SPOOL)


def answers() -> bool:
    """Whether the controller answers."""
    return "UP" in control.call("ctl", "sh", "-c", "scontrol ping || true")


def node_state(node: str) -> str:
    """Return a node's state as Slurm says it."""
    return control.admin("sinfo", "-h", "-N", "-n", node, "-p", "main", "-o", "%T").strip()


def idle(node: str) -> bool:
    """Whether a node is back, with nothing on it."""
    state = node_state(node)
    if state not in ("idle", "mixed", "allocated", "completing"):
        control.call("ctl", "sh", "-c", f"scontrol update nodename={node} state=resume || true")
    return state == "idle"
