"""Submits a job to Slurm: reserves the name, fills the directory, calls sbatch; all or nothing.

If Slurm did not respond to sbatch, it may have accepted the job: then the directory stays, and the job is
found later by its journal or by its comment in squeue.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from mpijob import atomic_write
from mpijob.backends import code_upload, secrets
from mpijob.backends.common_errors import name_in_use
from mpijob.backends.profiler import library as profiler
from mpijob.backends.slurm.client import SlurmClient, refusal
from mpijob.backends.slurm.jobs.job_files import JobFiles, Place
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.errors import BackendError, MpiJobError
from mpijob.formats.launch import allocation
from mpijob.formats.slurm import batch_script, refusals
from mpijob.model import JobRef, Phase, Plan
from mpijob.model.spec.dependencies import End, parsed


class _Unknown(BackendError):
    """Slurm did not respond, and may have accepted the job."""


def submit(plan: Plan, reader: JobReader, home: Path) -> JobRef:
    """Submit a plan and return the job's reference; the same plan again is the same job."""
    jobs, job = reader.jobs, plan.job
    ref = JobRef(job.namespace, job.name, plan.uid)
    newest = jobs.find(JobRef(job.namespace, job.name))
    if newest is not None and newest.uid == plan.uid:
        return ref
    if newest is not None:
        state = reader.state(jobs.files(newest), findings=False)
        if not state.phase.final:
            raise name_in_use(state.ref, state.phase)
    place = jobs.claim(plan, newest.number if newest else 0)
    if place is None:
        # Another submit took it just now.
        raise name_in_use(JobRef(job.namespace, job.name), Phase.PENDING)
    try:
        files = _fill(plan, place, reader, home)
        # Before sbatch: a job that starts at once must be visible.
        jobs.enter(place)
        number = _sbatch(plan, files, reader.client, _dependencies(plan, reader))
    except _Unknown:
        raise
    except BaseException:
        jobs.remove(place)
        raise
    files.take_number(number)
    return ref


def _fill(plan: Plan, place: Place, reader: JobReader, home: Path) -> JobFiles:
    """Write everything into the job's directory that its processes need."""
    job, host = plan.job, reader.jobs.host
    values = {secret.env: secrets.read_value(secret) for secret in job.secrets}
    host.make(place.folder)
    path = host.root / place.folder
    (path / "work").mkdir(mode=0o700)
    # A script of this machine runs where it is, as with sbatch.
    folder = job.script and job.code.path and not host.name and not job.code.git.url
    work = path / "work"
    uploaded = code_upload.stamps(Path(job.code.path)) if folder else code_upload.copy_into(job.code, work)
    texts = {} if job.script else allocation.texts()
    texts |= {"script": plan.batch_script, "programs": allocation.programs(job)}
    texts |= {"secrets": allocation.exports(values), "layout": batch_script.rank_nodes(plan)}
    for name, text in texts.items():
        if text:
            atomic_write.write(path / name, text.encode())
    if job.profile_mpi and not job.script:
        for machine, shim in profiler.shims_by_machine(home).items():
            atomic_write.write(path / allocation.PROFILER.format(machine), shim)
    atomic_write.write(path / "along.json", msgspec.json.encode(uploaded))
    atomic_write.write(path / "plan.json", msgspec.json.encode(plan))
    host.push(place.folder)
    return JobFiles(host, place)


_DEPENDENCY_TYPES = {End.SUCCEEDED: "afterok", End.ANY: "afterany", End.FAILED: "afternotok"}


def _dependencies(plan: Plan, reader: JobReader) -> str:
    """Return the jobs that this one waits for, as the value of sbatch's `--dependency`."""
    ends = {entry.name: entry.end for entry in map(parsed, plan.entries)}
    clauses = []
    for ref in plan.waits_for:
        place = reader.jobs.find(ref)
        number = reader.jobs.files(place, logs=False).number if place else reader.plain(ref).number
        if not number:
            message = f"{ref} has no Slurm job ID yet, so no job can depend on it"
            raise BackendError(
                message, hint=f"check with mpijob get {ref.name}, and submit again in a minute"
            )
        clauses.append(f"{_DEPENDENCY_TYPES[ends[ref.name]]}:{number}")
    return ",".join(clauses)


def _sbatch(plan: Plan, files: JobFiles, client: SlurmClient, after: str) -> str:
    """Return the ID that Slurm gives the job; raise _Unknown if it did not respond."""
    job, host = plan.job, client.host
    words = ["--parsable", f"--comment={batch_script.comment(job, plan.uid, plan.mpi)}"]
    # Without --kill-on-invalid-dep, Slurm keeps a job whose dependency has failed in the queue.
    words += [f"--dependency={after}", "--kill-on-invalid-dep=yes"] if after else []
    try:
        if not job.script:
            answer = host.call(("sbatch", *words, host.path(files.place.folder, "script")), bare=True)
        else:
            folder = (
                host.path(files.place.folder, "work") if host.name or not job.code.path else job.code.path
            )
            answer = host.call(("env", "-C", folder, "sbatch", *words, *plan.launch[1:]), env=dict(plan.env))
        if answer.code:
            raise refusal("sbatch", answer)
    except BackendError as error:
        if not error.passing or refusals.unsent(error.message):
            raise
        raise _Unknown(
            f"{error.message}; unknown whether Slurm accepted the job",
            hint=f"check in a minute: mpijob get {job.name}; submit again only if the job does not exist",
            passing=True,
        ) from error
    number = answer.out.strip().partition(";")[0]
    if not number.isdigit():
        raise BackendError(f"sbatch printed no job ID: {answer.said[:200]}")
    if job.script:
        _note_output(files, client, number)
    return number


def _note_output(files: JobFiles, client: SlurmClient, number: str) -> None:
    # Slurm forgets the paths some minutes after the job's end (MinJobAge).
    try:
        fields = client.show_job(number)
    except MpiJobError:
        return
    kept = {name: fields[name] for name in ("StdOut", "StdErr", "WorkDir") if name in fields}
    atomic_write.write(files.path / "output.json", msgspec.json.encode(kept))
