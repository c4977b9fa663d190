"""Jobs that somebody gave to sbatch himself: what Slurm knows of them, in the same words as of ours.

They are called after their name and number, `relax-1234`; the number alone finds them too. Their spec is read from
the script that Slurm keeps, their log from the file that it writes.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mpijob.backends.slurm.jobs.derive import REASONS
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.errors import Finding, Severity
from mpijob.formats.convert.header import units
from mpijob.formats.slurm import job_states, pending_reasons
from mpijob.formats.slurm.job_states import JobState as SlurmState
from mpijob.formats.slurm.queries import Row
from mpijob.model import JobRef, JobState, LauncherPhase, LauncherState, MPIJob, Phase, StepState, WorkerState
from mpijob.observation.state.phase import Reason

_NUMBER = re.compile(r"(?:.*-)?(\d+)(?:_(\d+))?")
_PHASES = {
    SlurmState.COMPLETED: Phase.SUCCEEDED,
    SlurmState.CANCELLED: Phase.CANCELLED,
    SlurmState.REVOKED: Phase.CANCELLED,
}
_LAUNCHERS = {Phase.SUCCEEDED: LauncherPhase.SUCCEEDED, Phase.CANCELLED: LauncherPhase.CANCELLED}


def ref(row: Row) -> JobRef:
    """Return the address of a job: its uid is its number in Slurm."""
    words = re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-")[:40] or "job"
    return JobRef("default", f"{words}-{row.array or row.number}".replace("_", "-"), f"slurm-{row.number}")


def number_of(ref: JobRef) -> str | None:
    """Return the number in Slurm that an address means; None where it means none."""
    text = ref.uid.removeprefix("slurm-") if ref.uid.startswith("slurm-") else "" if ref.uid else ref.name
    match = _NUMBER.fullmatch(text)
    return match[1] if match else None


def named(row: Row, wanted: JobRef) -> bool:
    """Whether a job is the one that an address means: by its uid, its number alone, or its name."""
    return bool(wanted.uid) or wanted.name.isdigit() or wanted.name == ref(row).name


def order(row: Row) -> int:
    """Return where a job stands in a list: its time in microseconds, told apart by its number."""
    return int(row.submitted * 1_000_000) + int(row.number) % 1_000_000


def state(row: Row) -> JobState:
    """Return what Slurm says of a job."""
    ending = row.ending
    nodes = units.hosts(row.nodes) or ()
    phase, reason, message = _standing(row)
    code = job_states.exit_code(row.exit)[0] if row.exit else None
    return JobState(
        ref=ref(row), phase=phase, kind="SlurmJob", engine="slurm", owner=row.user, queue=row.partition,
        reason=reason.value, message=message, waiting_for=message if phase is Phase.QUEUED else "",
        priority=0, world=row.cpus, workers_wanted=row.node_count,
        workers=tuple(WorkerState(at, name, phase, node=name) for at, name in enumerate(nodes)),
        created=row.submitted, queued=row.submitted,
        started=row.started if phase is not Phase.QUEUED else None,
        running=row.started if phase is not Phase.QUEUED else None,
        finished=row.ended if ending else None, launcher_exit_code=code if ending else None,
        launcher=_launcher(row, phase, nodes, code),
    )  # fmt: skip


def _launcher(
    row: Row, phase: Phase, nodes: tuple[str, ...] | list[str], code: int | None
) -> LauncherState | None:
    """Return the batch script as the launcher: it runs on the job's first node from the job's start to its end."""
    if phase is Phase.QUEUED or row.started is None:
        return None
    own = LauncherPhase.RUNNING
    if row.ending is not None:
        own = _LAUNCHERS.get(phase, LauncherPhase.FAILED)
    return LauncherState(
        name="batch", phase=own, node=nodes[0] if nodes else "", exit_code=code if row.ending else None,
        scheduled=row.started, started=row.started, ready=row.started, running=row.started,
        finished=row.ended if row.ending else None,
    )  # fmt: skip


def of_ours(row: Row, files: JobFiles) -> JobState:
    """Return the same of a script that we handed to sbatch: Slurm's word, and what the job says of itself."""
    plan, acts = files.plan, files.last_act("suspended", "resumed")
    job, found = plan.job, state(row)
    told: dict[str, Any] = {}
    if acts is not None and acts.verb == "suspended" and row.state.waits:
        told = {
            "phase": Phase.SUSPENDED,
            "reason": Reason.SUSPENDED.value,
            "message": "the job is suspended and holds no resources",
        }
    if row.ending is SlurmState.CANCELLED and "Dependency" in row.reason:
        told = {"phase": Phase.FAILED, "reason": Reason.DEPENDENCY_FAILED.value}
    return msgspec.structs.replace(
        found, ref=files.place.ref, mpi="", owner=job.owner or found.owner, labels=dict(job.labels),
        description=job.description, queue=job.queue, priority=job.priority_number, world=plan.world,
        workers_wanted=job.workers, created=files.place.created_us / 1e6, run=files.place.number,
        estimated=plan.forecast(files.place.created_us / 1e6), **told,
    )  # fmt: skip


def _standing(row: Row) -> tuple[Phase, Reason, str]:
    if row.ending is not None:
        phase = _PHASES.get(row.ending, Phase.FAILED)
        reason = (
            Reason.COMPLETED if phase is Phase.SUCCEEDED else REASONS.get(row.ending, Reason.LAUNCHER_FAILED)
        )
        code = (
            f" (exit code {row.exit.partition(':')[0]})"
            if row.exit and row.ending is SlurmState.FAILED
            else ""
        )
        return phase, reason, row.sentence() + code
    if row.state.waits:
        meaning = pending_reasons.explain(row.reason)
        reason = Reason.NEVER_STARTS if meaning.outlook is pending_reasons.Outlook.NEVER else Reason.WAITING
        return Phase.QUEUED, reason, f"partition {row.partition}: {meaning.message} ({row.reason})"
    if row.state is SlurmState.SUSPENDED:
        return Phase.SUSPENDED, Reason.SUSPENDED, "Slurm has suspended the job; it keeps its nodes"
    text = f"runs on {row.nodes or 'its nodes'}"
    return (
        Phase.RUNNING,
        Reason.RUNNING,
        text if row.state is SlurmState.RUNNING else f"{text} ({row.state.value})",
    )


def spec(row: Row, script: str) -> MPIJob:
    """Return what was asked for, as far as the script's header tells; without it, what Slurm counts."""
    from mpijob.formats.convert import batch_script  # start-up is a feature

    address = ref(row)
    if script:
        job = batch_script.read(script, "script.sh").jobs[0]
        whole = max(1, row.node_count)
        return job.replace(
            name=address.name,
            namespace=address.namespace,
            workers=whole,
            slots=max(1, row.cpus // whole),
            ranks=None,
        )
    return MPIJob(
        name=address.name,
        workers=max(1, row.node_count),
        script=row.command or "script.sh",
        queue=row.partition,
    )


def warnings(state: JobState) -> tuple[Finding, ...]:
    """Return that a job waits for what does not come by itself."""
    if state.phase is not Phase.QUEUED or state.reason not in (Reason.NEVER_STARTS.value, Reason.HELD.value):
        return ()
    hint = "cancel it, and submit it within these limits: mpijob why shows them"
    return (
        Finding(
            "SLURM_NEVER_STARTS",
            f"the job cannot start unchanged: {state.message}",
            hint,
            severity=Severity.WARNING,
        ),
    )


def steps(rows: list[Row]) -> tuple[StepState, ...]:
    """Return the steps of a job from the accounting: what each srun or mpirun in its script started."""
    found = []
    for row in rows:
        number = row.number.partition(".")[2]
        if number.isdigit():
            code = job_states.exit_code(row.exit)[0] if row.state.final else None
            found.append(StepState(int(number), row.name, row.cpus, started=row.started or 0.0, finished=row.ended,
                                   exit_code=code, peak_bytes=row.memory_bytes))  # fmt: skip
    return tuple(found)
