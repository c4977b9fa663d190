"""Rules about elastic jobs: limits that agree with the workers, and a command that supports it."""

from __future__ import annotations

from mpijob.checks.rule import Findings, Limits, error, warning
from mpijob.model import Elastic, MPIJob
from mpijob.model.spec.command import OwnLauncher, own_launcher
from mpijob.model.spec.command_options import DISCOVERY_OPTION
from mpijob.model.spec.enums import shown

_DISCOVERY = "$MPIJOB_DISCOVER_HOSTS"


def elastic(job: MPIJob, limits: Limits) -> Findings:
    """1 ≤ min_workers ≤ workers ≤ max_workers, and the command starts its ranks itself."""
    if job.elastic is None:
        return
    yield from _bounds(job, job.elastic, limits)
    if job.programs:
        message = "an elastic job starts its own ranks: set one command instead of programs"
        yield error("programs", message, "set the program that starts the ranks, such as horovodrun")
    if job.ranks is not None:
        message = (
            f"ranks is {shown(job.ranks)}, but the number of ranks of an elastic job changes with its workers"
        )
        yield error("ranks", message, "leave ranks out", {"ranks": None})
    own = own_launcher(job.argv) if not job.programs else None
    if own is not None:
        yield from _launcher(own)


def _bounds(job: MPIJob, wanted: Elastic, limits: Limits) -> Findings:
    least, most = wanted.min_workers, wanted.max_workers
    if least < 1:
        yield error("elastic.min_workers", f"{shown(least)} workers requested; at least 1 is required")
    if most > limits.max_workers:
        message = f"up to {shown(most)} workers requested; {limits.max_workers} are allowed"
        yield error("elastic.max_workers", message, f"use max_workers: {limits.max_workers}")
    if not least <= job.workers <= most:
        message = f"workers is {shown(job.workers)}, but elastic allows {shown(least)} to {shown(most)}"
        yield error("elastic", message, "choose min_workers ≤ workers ≤ max_workers")


def _launcher(own: OwnLauncher) -> Findings:
    if own.kind == "horovodrun":
        if own.hosts_option != DISCOVERY_OPTION:
            message = "horovodrun has no option to discover workers that join later"
            hint = f"add {DISCOVERY_OPTION} with the value of {_DISCOVERY}: on a cluster /etc/mpi/discover_hosts.sh"
            yield warning("command", message, hint)
    else:
        message = f"{own.program} starts a fixed number of ranks: workers that join later stay idle"
        hint = f"use a launcher that calls {_DISCOVERY} repeatedly, such as horovodrun"
        yield warning("command", message, hint)
