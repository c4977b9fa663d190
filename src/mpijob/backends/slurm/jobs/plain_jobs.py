"""Jobs that users submitted with plain sbatch: Slurm's facts about them in the terms of our own jobs.

Their names are name and ID, `relax-1234`; the ID alone finds them, too. Their specification is read from the
script that Slurm has stored, their log from the file that it writes.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mpijob.backends.slurm.jobs.derive import REASONS, pending
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.errors import Finding, Severity
from mpijob.formats.convert.header import units
from mpijob.formats.slurm import job_states
from mpijob.formats.slurm.job_states import JobState as SlurmState
from mpijob.formats.slurm.queries import Row
from mpijob.model import JobRef, JobState, LauncherPhase, LauncherState, MPIJob, Phase, WorkerState
from mpijob.observation.state.phase import PhaseResult, Reason

_NUMBER = re.compile(r"(?:.*-)?(\d+)(?:_(\d+))?")
_PHASES = {
    SlurmState.COMPLETED: Phase.SUCCEEDED,
    SlurmState.CANCELLED: Phase.CANCELLED,
    SlurmState.REVOKED: Phase.CANCELLED,
}
_LAUNCHERS = {Phase.SUCCEEDED: LauncherPhase.SUCCEEDED, Phase.CANCELLED: LauncherPhase.CANCELLED}


def ref(row: Row) -> JobRef:
    """Return the reference of a job; its uid is its Slurm ID."""
    words = re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")[:40] or "job"
    return JobRef("default", f"{words}-{row.array or row.number}".replace("_", "-"), f"slurm-{row.number}")


def number_of(ref: JobRef) -> str | None:
    """Return the Slurm ID in a reference; None if it has none."""
    text = ref.uid.removeprefix("slurm-") if ref.uid.startswith("slurm-") else "" if ref.uid else ref.name
    match = _NUMBER.fullmatch(text)
    return match[1] if match else None


def named(row: Row, wanted: JobRef) -> bool:
    """Return whether a reference means this job: by its uid, its ID alone, or its name."""
    return bool(wanted.uid) or wanted.name.isdigit() or wanted.name == ref(row).name


def order(row: Row) -> int:
    """Return a job's order in lists: its time in microseconds, made unique by its ID."""
    return int(row.submitted * 1_000_000) + int(row.number) % 1_000_000


def state(row: Row) -> JobState:
    """Return a job's state; its batch script is the launcher, which runs on the first node."""
    phase, reason, message = _standing(row)
    nodes = units.hosts(row.nodes) or ()
    started = None if phase is Phase.QUEUED else row.started
    finished = row.ended if row.ending else None
    code = job_states.exit_code(row.exit)[0] if row.exit and row.ending else None
    launcher = LauncherState(
        name="batch", phase=_LAUNCHERS.get(phase, LauncherPhase.FAILED) if row.ending else LauncherPhase.RUNNING,
        node=nodes[0] if nodes else "", exit_code=code, scheduled=started, started=started, ready=started,
        running=started, finished=finished,
    )  # fmt: skip
    return JobState(
        ref=ref(row), phase=phase, kind="SlurmJob", engine="slurm", owner=row.user, queue=row.partition,
        reason=reason.value, message=message, waiting_for=message if phase is Phase.QUEUED else "",
        priority=0, world=row.cpus, workers_wanted=row.node_count,
        workers=tuple(WorkerState(at, name, phase, node=name) for at, name in enumerate(nodes)),
        created=row.submitted, queued=row.submitted, started=started, running=started, finished=finished,
        launcher_exit_code=code, launcher=None if started is None else launcher,
    )  # fmt: skip


def of_ours(row: Row, files: JobFiles) -> JobState:
    """Return the state of a script that mpijob submitted: Slurm's facts, and those of the job's own files."""
    plan, job, found = files.plan, files.plan.job, state(row)
    told: dict[str, Any] = {}
    if files.suspended and row.state.waits:
        message = "the job is suspended and holds no resources"
        told = {"phase": Phase.SUSPENDED, "reason": Reason.SUSPENDED.value, "message": message}
    if row.ending is SlurmState.CANCELLED and "Dependency" in row.reason:
        told = {"phase": Phase.FAILED, "reason": Reason.DEPENDENCY_FAILED.value}
    return msgspec.structs.replace(
        found, ref=files.place.ref, mpi="", owner=job.owner or found.owner, labels=dict(job.labels),
        description=job.description, queue=job.queue, priority=job.priority_number, world=plan.world,
        workers_wanted=job.workers, created=files.place.created, run=files.place.number,
        estimated=plan.forecast(files.place.created), **told,
    )  # fmt: skip


def _standing(row: Row) -> PhaseResult:
    if row.ending is not None:
        phase = _PHASES.get(row.ending, Phase.FAILED)
        reason = REASONS.get(row.ending, Reason.LAUNCHER_FAILED)
        failed = row.exit and row.ending is SlurmState.FAILED
        code = f" (exit code {row.exit.partition(':')[0]})" if failed else ""
        return PhaseResult(
            phase, Reason.COMPLETED if phase is Phase.SUCCEEDED else reason, row.sentence() + code
        )
    if row.state.waits:
        return pending(row)
    if row.state is SlurmState.SUSPENDED:
        message = "Slurm has suspended the job; it keeps its nodes"
        return PhaseResult(Phase.SUSPENDED, Reason.SUSPENDED, message)
    state = "" if row.state is SlurmState.RUNNING else f" ({row.state.value})"
    return PhaseResult(Phase.RUNNING, Reason.RUNNING, f"runs on {row.nodes or 'its nodes'}{state}")


def spec(row: Row, script: str) -> MPIJob:
    """Return the specification from the script's header; without a script, from Slurm's row."""
    from mpijob.formats.convert import batch_script

    name, workers = ref(row).name, max(1, row.node_count)
    if not script:
        return MPIJob(name=name, workers=workers, script=row.command or "script.sh", queue=row.partition)
    job = batch_script.read(script, "script.sh").jobs[0]
    slots = max(1, row.cpus // workers)
    return job.replace(name=name, namespace=ref(row).namespace, workers=workers, slots=slots, ranks=None)


def warnings(state: JobState) -> tuple[Finding, ...]:
    """Return a warning for a job that waits for something that does not happen by itself."""
    hints = {
        Reason.NEVER_STARTS.value: "cancel it, and submit it within these limits: mpijob why shows them",
        Reason.HELD.value: "release it with: scontrol release NUMBER",
    }
    if state.phase is not Phase.QUEUED or state.reason not in hints:
        return ()
    message = f"the job cannot start unchanged: {state.message}"
    return (Finding("SLURM_NEVER_STARTS", message, hints[state.reason], severity=Severity.WARNING),)
