"""The accounts of jobs: of ours from what their scripts measured, of plain sbatch jobs from Slurm's accounting."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from mpijob.accounting import build
from mpijob.accounting.aggregate import tally
from mpijob.backends.slurm.jobs import plain_jobs
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.errors import BackendError, MpiJobError, NotFound
from mpijob.formats.slurm import batch_script, queries
from mpijob.history import account_store
from mpijob.model import Amounts
from mpijob.model.status.accounts import Account, AccountQuery, Tally


def find(reader: JobReader, query: AccountQuery, now: float) -> tuple[Account, ...]:
    """Return the matching accounts, newest first, at most one more than a page has."""
    ours = [account for account in _ours(reader, now) if account_store.matches(account, query)]
    plain = [account for account in _plain(reader, query, now) if account_store.matches(account, query)]
    return tuple(sorted([*ours, *plain], key=account_store.sort_key, reverse=True)[: query.limit + 1])


def _ours(reader: JobReader, now: float) -> Iterator[Account]:
    for place in reader.jobs.all():
        files = reader.jobs.files(place)
        # Deleted since the directory was listed, or damaged.
        with contextlib.suppress(NotFound, BackendError):
            state, plan = reader.state(files, findings=False), files.plan
            yield build.account(state, plan.job, plan.needs, [*tally(files.samples()).values()], now=now)


def _plain(reader: JobReader, query: AccountQuery, now: float) -> Iterator[Account]:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(query.since)) if query.since else ""
    # All there is without accounting.
    rows = dict(reader.poll.snapshot().rows)
    with contextlib.suppress(MpiJobError):
        # The last try of each job.
        rows |= {row.number: row for row in reader.client.accounting([], since=since)}
    ours = {reader.jobs.files(place, logs=False).number for place in reader.jobs.all()}
    for row in rows.values():
        if row.number.isdigit() and row.number not in ours and not batch_script.read_comment(row.comment):
            needs = Amounts(float(row.cpus), queries.held_memory(row.tres), queries.gpu_count(row.tres))
            cpu, peak = row.used_cpu_seconds, row.memory_bytes
            used = [Tally(0, last=now, cpu_seconds=cpu, peak_bytes=peak, samples=1)] if cpu else []
            yield build.account(plain_jobs.state(row), None, needs, used, now=now)
