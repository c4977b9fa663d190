"""Retention of the job history: by age and by size, and erasure on request.

Deletion removes the files and the rows. Log lines removed because of a limit leave a gap. Retention of the
audit log is in `audit/retention`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from mpijob import codec
from mpijob.history.archive import Archive
from mpijob.history.log_writer import make_gap
from mpijob.history.storage import layout, tiering
from mpijob.history.storage.database import storage_errors
from mpijob.model import JobKey, MPIJob
from mpijob.model.spec import quantity
from mpijob.model.spec.job import Retention
from mpijob.settings import KeepSetting, Settings

_DAY = 86_400.0
_BATCH_SIZE = 500
# A file without a row may belong to a process that is writing it now.
_MIN_ORPHAN_AGE_SECONDS = 3600.0


class RetentionDays(msgspec.Struct, frozen=True):
    """How many days logs, records and accounts are kept after a job's end."""

    logs_days: float = Retention().logs_days
    record_days: float = Retention().record_days
    accounts_days: float = KeepSetting().accounts_days


class RetentionSettings(msgspec.Struct, frozen=True):
    """The administrator's settings: days by namespace ("*" for all others), and the size limit of logs in bytes."""

    namespaces: Mapping[str, RetentionDays] = {}
    max_bytes: int = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> RetentionSettings:
        days = {
            name: RetentionDays(setting.logs_days, setting.record_days, setting.accounts_days)
            for name, setting in settings.keep.items()
        }
        return cls(days, int(quantity.parse(settings.history_bytes)))

    def days_for(self, namespace: str, job: MPIJob | None) -> RetentionDays:
        """Return the days for one job: its namespace's, or fewer if the job requests that."""
        requested = Retention() if job is None else job.retention
        namespace_days = self.namespaces.get(namespace) or self.namespaces.get("*")
        if namespace_days is None:
            # Accounts belong to the installation: a job cannot shorten how long they are kept.
            return RetentionDays(requested.logs_days, requested.record_days)
        default = Retention()
        logs = _limit_days(requested.logs_days, default.logs_days, namespace_days.logs_days)
        record = _limit_days(requested.record_days, default.record_days, namespace_days.record_days)
        return RetentionDays(min(logs, record), record, namespace_days.accounts_days)


def _limit_days(requested: float, default: float, maximum: float) -> float:
    # The default is not a request, and may be shorter than what the administrator set.
    return maximum if requested == default else min(requested, maximum)


def apply_retention(archive: Archive, policy: RetentionSettings, now: float) -> int:
    """Remove what has expired, then what exceeds the size limit; return how many jobs lost something."""
    _remove_orphans(archive, now)
    _delete_expired_accounts(archive, policy, now)
    changed = _delete_expired(archive, policy, now) + _enforce_size_limit(archive, policy.max_bytes)
    tiering.move_sealed(archive)
    return changed


def _delete_expired_accounts(archive: Archive, policy: RetentionSettings, now: float) -> None:
    """Remove expired accounts; those of jobs that still have a record stay with it."""
    shortest = min(days_kept.accounts_days for days_kept in (RetentionDays(), *policy.namespaces.values()))
    rows = archive.read(
        "SELECT namespace, uid, ended FROM accounts WHERE ended<? AND NOT EXISTS"
        " (SELECT 1 FROM jobs WHERE jobs.namespace=accounts.namespace AND jobs.uid=accounts.uid)",
        now - shortest * _DAY,
    )
    for namespace, uid, ended in rows:
        if (now - ended) / _DAY >= policy.days_for(namespace, None).accounts_days:
            archive.delete_rows(JobKey(namespace, uid))


def erase(archive: Archive, keys: Iterable[JobKey]) -> None:
    """Delete jobs, and what the database files still hold of them."""
    for key in keys:
        archive.delete_job(key)
    # `secure_delete` overwrites deleted rows in the database file; the write-ahead log still has them.
    with storage_errors(archive.directory):
        archive.read("PRAGMA wal_checkpoint(TRUNCATE)")


def _delete_expired(archive: Archive, policy: RetentionSettings, now: float) -> int:
    rows = archive.read(
        "SELECT namespace, uid, ended, spec,"
        " (SELECT count(*) FROM chunks WHERE chunks.namespace=jobs.namespace AND chunks.uid=jobs.uid)"
        " FROM jobs WHERE ended IS NOT NULL ORDER BY ended"
    )
    changed = 0
    for namespace, uid, ended, spec, stored in rows:
        key = JobKey(namespace, uid)
        days_kept = policy.days_for(namespace, codec.decode(spec, MPIJob) if spec else None)
        days = (now - ended) / _DAY
        if days >= days_kept.record_days:
            archive.delete_job(key, keep_account=days < days_kept.accounts_days)
        elif days >= days_kept.logs_days and stored:
            _delete_logs(archive, key, f"logs are kept for {days_kept.logs_days:g} days")
        else:
            continue
        changed += 1
    return changed


def _delete_logs(archive: Archive, key: JobKey, reason: str) -> None:
    """Delete all lines of a job and store the reason as gaps."""
    files: list[str] = []
    for source in archive.sources(key):
        stored = archive.chunks(source.id)
        files += (chunk.file for chunk in stored)
        for chunk in stored:
            _delete_chunk(archive, chunk.id, chunk.file)
        if stored:
            archive.add_gap(key, make_gap(source, stored[0].first_ns, stored[-1].last_ns, reason))
    with storage_errors(archive.directory):
        archive.remove_job_directories(key, files)


def _enforce_size_limit(archive: Archive, max_bytes: int) -> int:
    """Delete the oldest sealed chunks until the rest fits the size limit."""
    # Chunks that are still written stay, so the limit may be exceeded by one chunk of each running log.
    total = int(archive.read("SELECT coalesce(sum(size), 0) FROM chunks")[0][0]) if max_bytes else 0
    affected: set[JobKey] = set()
    while total > max_bytes > 0:
        rows = archive.read(
            "SELECT id, voice, namespace, uid, file, first_ns, last_ns, size FROM chunks WHERE sealed=1"
            f" ORDER BY last_ns LIMIT {_BATCH_SIZE}"
        )
        if not rows:
            break
        for chunk_id, source_id, namespace, uid, file, first_ns, last_ns, size in rows:
            if total <= max_bytes:
                break
            key = JobKey(namespace, uid)
            reason = f"the history exceeded {max_bytes} bytes, and the oldest log lines were deleted"
            # Without a match, the job was erased while its log was still being written.
            for source in archive.sources(key):
                if source.id == source_id:
                    archive.add_gap(key, make_gap(source, first_ns, last_ns, reason))
            _delete_chunk(archive, chunk_id, file)
            total -= size
            affected.add(key)
    return len(affected)


def _delete_chunk(archive: Archive, chunk: int, file: str) -> None:
    with storage_errors(archive.directory):
        tiering.remove(archive, file)
    with archive.transaction() as db:
        db.execute("DELETE FROM chunks WHERE id=?", (chunk,))


def _remove_orphans(archive: Archive, now: float) -> None:
    """Remove files without a row: those of a writer that was killed before it registered them."""
    if not os.path.isdir(archive.logs):
        return
    known = {archive.chunk_path(file) for (file,) in archive.read("SELECT file FROM chunks")}
    for namespace, uid in archive.read("SELECT namespace, uid FROM jobs"):
        known.add(archive.job_directory(JobKey(namespace, uid)))
    with storage_errors(archive.directory):
        _remove_orphans_below(archive.logs, known, now)


def _remove_orphans_below(directory: str, known: set[str], now: float) -> None:
    """Remove unknown files below a directory, in both layouts, then empty directories of no job."""
    try:
        entries = [*os.scandir(directory)]
    except FileNotFoundError:
        # Another process has just removed it.
        return
    for entry in entries:
        removable = entry.path not in known and _is_old(entry.path, now)
        if entry.is_dir(follow_symlinks=False):
            _remove_orphans_below(entry.path, known, now)
            if removable:
                layout.remove_if_empty(entry.path)
        elif removable:
            layout.remove_file(entry.path)


def _is_old(path: str, now: float) -> bool:
    try:
        return now - os.stat(path).st_mtime > _MIN_ORPHAN_AGE_SECONDS
    except FileNotFoundError:
        return False
