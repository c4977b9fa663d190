"""Submission of a job: its files, values of secrets, and its row in the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from mpijob import atomic_write
from mpijob.backends import code_upload, secrets
from mpijob.backends.local.queue import disk_full
from mpijob.backends.local.queue.store import NEVER, EarlierRuns, Store, decode_state
from mpijob.backends.local.storage import job_files
from mpijob.backends.local.storage.paths import SCRIPTS, Home
from mpijob.backends.profiler import library as profiler
from mpijob.backends.state_home import cannot_write
from mpijob.errors import Conflict
from mpijob.model import Identity, JobState, MPIJob, Plan, VolumeKind
from mpijob.model.spec import dependencies
from mpijob.settings import LOCAL, Settings, history_directory

if TYPE_CHECKING:
    from mpijob.backends.s3_volumes import Connection


def queue_job(store: Store, home: Home, settings: Settings, plan: Plan, who: Identity) -> None:
    """Write a job's files and queue it; raise Conflict, and remove the files, if the name is in use."""
    # A link in the code folder may lead to the database. POSIX locks are lost when a process closes any descriptor of
    # the file, so copying it while it is open would unlock it (docs/decisions/0007).
    if plan.job.code.path:
        store.close()
    # The files first: a runner may claim the job as soon as the row is there.
    write_files(home, plan, settings)
    held_until = NEVER if plan.waits_for else 0.0
    try:
        store.add(
            plan,
            first_state(plan, who),
            encode_labels(plan.job),
            plan.job.priority_number,
            held_until,
            deleted=_archived_runs(settings, plan.job),
        )
    except Conflict:
        remove_files(home, plan)
        raise


def _archived_runs(settings: Settings, job: MPIJob) -> EarlierRuns:
    """Return the runs of a job's name in the archive of deleted jobs."""
    # By one query, because the import of `history` would delay every submit.
    path = os.path.join(history_directory(settings, LOCAL), "history.db")
    if not os.path.exists(path):
        return EarlierRuns()
    of_name, values = "FROM jobs WHERE namespace=? AND name=?", (job.namespace, job.name)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as db:
            (count,) = db.execute(f"SELECT count(*) {of_name}", values).fetchone()
            newest = db.execute(f"SELECT state {of_name} ORDER BY created DESC LIMIT 1", values).fetchone()
    # An archive that cannot be read must not prevent a submit.
    except sqlite3.Error:
        return EarlierRuns()
    return EarlierRuns(count, decode_state(newest[0]).run if newest else 0)


def write_files(home: Home, plan: Plan, settings: Settings) -> None:
    """Write all files that the job's processes need; raise BackendError if one cannot be written."""
    connections = find_connections(plan.job, settings)
    values = {secret.env: secrets.read_value(secret) for secret in plan.job.secrets}
    work = home.work(plan.uid)
    try:
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk_full.ensure_reserve(home)
        _install_agent(home)
        if plan.job.profile_mpi and profiler.find_shim(home.root) is not None:
            profiler.ensure_shim(home.root)
        job_files.write_secrets(home, plan.uid, values)
        job_files.write_connections(home, plan.uid, connections)
        job_files.write_uploaded(home, plan.uid, code_upload.copy_into(plan.job.code, work))
    except OSError as error:
        raise cannot_write(work, str(error.strerror)) from error


def find_connections(job: MPIJob, settings: Settings) -> dict[str, Connection]:
    """Return the data connections of a job's S3 volumes, by the volumes' sources."""
    sources = [volume.source for volume in job.volumes if volume.kind is VolumeKind.S3]
    if not sources:
        return {}
    from mpijob.backends import s3_volumes

    return {
        source: s3_volumes.find_connection(
            s3_volumes.split_source(source)[0], settings.connections, os.environ
        )
        for source in sources
    }


def remove_files(home: Home, plan: Plan) -> None:
    """Remove the files of a job that was not queued."""
    shutil.rmtree(home.job(plan.uid), ignore_errors=True)


def first_state(plan: Plan, who: Identity) -> JobState:
    return msgspec.structs.replace(
        plan.first_state(who.user, time.time()),
        reason=dependencies.WAITING if plan.waits_for else "WaitingForResources",
        message=dependencies.sentence(plan.entries) if plan.waits_for else "waiting in the queue",
    )


def encode_labels(job: MPIJob) -> str:
    """Return a job's labels as the store has them, in JSON."""
    return msgspec.json.encode(dict(job.labels)).decode()


def _install_agent(home: Home) -> None:
    # A copy: files of an installed package need not be executable.
    if not home.agent.exists():
        atomic_write.write(home.agent, (Path(SCRIPTS) / "agent.sh").read_bytes(), 0o700)
