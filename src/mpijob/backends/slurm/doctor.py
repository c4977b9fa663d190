"""Checks whether a Slurm cluster is ready for this user's jobs: controller, accounting, limits, directory."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.backends.slurm.client import SlurmClient
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.errors import Finding, MpiJobError, Severity
from mpijob.formats.slurm import queries
from mpijob.model.platform.slurm import Limit

_WRITABLE = 'mkdir -p -m 700 "$1" && [ -w "$1" ]'


def report(client: SlurmClient, reader: JobReader, user: str) -> tuple[Finding, ...]:
    return tuple(_report(client, reader, user))


def _report(client: SlurmClient, reader: JobReader, user: str) -> Iterator[Finding]:
    try:
        config = queries.configuration(client.run(("scontrol", "show", "config")))
        partitions = queries.partitions(client.run(("scontrol", "-o", "show", "partition")))
    except MpiJobError as error:
        yield Finding("DOCTOR_SLURM", error.message, error.hint)
        return
    yield _ok(f"Slurm {config.get('SLURM_VERSION', '')}, cluster {config.get('ClusterName', '')}, responds")
    for partition in partitions:
        name = f"partition {partition.name}{' (default)' * partition.default}"
        seconds = partition.max_seconds
        most = "no time limit" if seconds is None else f"at most {seconds / 60:g} minutes"
        yield _ok(f"{name}: {partition.nodes} nodes, {partition.cpus} CPUs, {most}, {partition.state}")
    plugins = queries.launch_plugins("".join(client.host.call(("srun", "--mpi=list"))[1:]))
    if {"pmi2", "pmix"} & {*plugins}:
        yield _ok(f"srun starts MPI programs through {', '.join(plugins)}")
    else:
        message = "srun has no launch plugin for MPI (pmi2, pmix): ranks are started by the MPI library's own launcher"
        yield _warning(message, "no action needed, or ask for Slurm's PMIx plugin")
    yield from _accounts(client, user)
    root = reader.jobs.host.path()
    if reader.jobs.host.call(("sh", "-c", _WRITABLE, "sh", root)).code == 0:
        yield _ok(f"jobs are kept in {root}; each job checks that its nodes can access it")
    else:
        hint = "set MPIJOB_SLURM_DIRECTORY to a shared directory"
        yield Finding("DOCTOR_SLURM", f"{root} cannot be written", hint)


def _accounts(client: SlurmClient, user: str) -> Iterator[Finding]:
    try:
        associations = queries.read_associations(client.run(queries.associations(user)))
        every = queries.read_qos(client.run(queries.all_qos()))
    except MpiJobError as error:
        message = f"Slurm's accounting does not respond: {error.message}"
        hint = "jobs still run, and mpijob shows what their directories contain; ask an administrator to check slurmdbd"
        yield _warning(message, hint)
        return
    for association in associations:
        limit, qos = association.limit, ", ".join(association.qos) or "none"
        yield _ok(f"{limit.owner}{_limits(limit)}; QOS {qos}")
    for name in sorted({name for association in associations for name in association.qos} & every.keys()):
        if text := _limits(every[name]):
            yield _ok(f"QOS {name}{text}")
    if not associations:
        message = f"user {user} has no account here: Slurm refuses jobs where it enforces accounts"
        yield _warning(message, "ask an administrator: sacctmgr add user …")


def _limits(limit: Limit) -> str:
    parts = [
        f"{name.replace('_', ' ')} {value:g}"
        for name in limit.__struct_fields__
        if name not in ("owner", "priority") and (value := getattr(limit, name)) is not None
    ]
    return f": at most {', '.join(parts)}" if parts else ""


def _ok(message: str) -> Finding:
    return Finding("DOCTOR_OK", message, severity=Severity.NOTICE)


def _warning(message: str, hint: str) -> Finding:
    return Finding("DOCTOR_SLURM", message, hint, severity=Severity.WARNING)
