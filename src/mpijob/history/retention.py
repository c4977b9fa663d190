"""How long what was is kept: by age, by the room that there is, and no longer when somebody wants it erased.

Deleting is real: the files are gone and so are the rows. What goes for want of room is told as a gap.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from mpijob.history.archive import Archive, decoded
from mpijob.history.log_writer import gap_of
from mpijob.history.storage import layout, tiering
from mpijob.history.storage.database import telling
from mpijob.model import JobKey, MPIJob
from mpijob.model.spec import quantity
from mpijob.model.spec.job import Retention
from mpijob.settings import KeepSetting, Settings

_DAY = 86_400.0
_AT_ONCE = 500
_YOUNG_SECONDS = 3600.0  # a file that nobody knows yet may be somebody's who is just writing it


class RetentionPolicy(msgspec.Struct, frozen=True):
    """How many days logs, records and accounts are kept after a job's end."""

    logs_days: float = Retention().logs_days
    record_days: float = Retention().record_days
    accounts_days: float = KeepSetting().accounts_days


class Policy(msgspec.Struct, frozen=True):
    """What an administrator has set: days by namespace ("*" for all others), and the room for logs in bytes."""

    namespaces: Mapping[str, RetentionPolicy] = {}
    most_bytes: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """Return what is set."""
        days = {
            name: RetentionPolicy(keep.logs_days, keep.record_days, keep.accounts_days)
            for name, keep in settings.keep.items()
        }
        return cls(days, int(quantity.parse(settings.history_bytes)))

    def keep(self, namespace: str, job: MPIJob | None) -> RetentionPolicy:
        """Return the days for one job: its namespace's; a job that asks for fewer days itself gets its wish."""
        own = Retention() if job is None else job.retention
        named = self.namespaces.get(namespace) or self.namespaces.get("*")
        if named is None:
            return RetentionPolicy(own.logs_days, own.record_days)  # an account is the place's, not the job's
        usual = Retention()
        logs = named.logs_days if own.logs_days == usual.logs_days else min(own.logs_days, named.logs_days)
        record = (
            named.record_days
            if own.record_days == usual.record_days
            else min(own.record_days, named.record_days)
        )
        return RetentionPolicy(min(logs, record), record, named.accounts_days)


def tidy(archive: Archive, policy: Policy, now: float) -> int:
    """Remove what was kept long enough, then what there is no room for; return how many jobs lost something."""
    _sweep(archive, now)
    _forget_accounts(archive, policy, now)
    changed = _forget_old(archive, policy, now) + _make_room(archive, policy.most_bytes)
    tiering.move(archive)
    return changed


def _forget_accounts(archive: Archive, policy: Policy, now: float) -> None:
    """Remove the accounts that were kept long enough; those of records that are still there stay with them."""
    least = min(keep.accounts_days for keep in (RetentionPolicy(), *policy.namespaces.values()))
    rows = archive.read(
        "SELECT namespace, uid, ended FROM accounts WHERE ended<? AND NOT EXISTS"
        " (SELECT 1 FROM jobs WHERE jobs.namespace=accounts.namespace AND jobs.uid=accounts.uid)",
        now - least * _DAY,
    )
    for namespace, uid, ended in rows:
        if (now - ended) / _DAY >= policy.keep(namespace, None).accounts_days:
            archive.forget_rows(JobKey(namespace, uid))


def erase(archive: Archive, keys: Iterable[JobKey]) -> None:
    """Erase jobs, and what the database's own files still hold of them."""
    for key in keys:
        archive.forget(key)
    with telling(archive.directory):
        archive.read("PRAGMA wal_checkpoint(TRUNCATE)")


def _forget_old(archive: Archive, policy: Policy, now: float) -> int:
    rows = archive.read(
        "SELECT namespace, uid, ended, spec,"
        " (SELECT count(*) FROM chunks WHERE chunks.namespace=jobs.namespace AND chunks.uid=jobs.uid)"
        " FROM jobs WHERE ended IS NOT NULL ORDER BY ended"
    )
    changed = 0
    for namespace, uid, ended, spec, stored in rows:
        key = JobKey(namespace, uid)
        keep = policy.keep(namespace, decoded(MPIJob, spec) if spec else None)
        days = (now - ended) / _DAY
        if days >= keep.record_days:
            archive.forget(key, keep_account=days < keep.accounts_days)
        elif days >= keep.logs_days and stored:
            _drop(archive, key, f"logs are kept for {keep.logs_days:g} days")
        else:
            continue
        changed += 1
    return changed


def _drop(archive: Archive, key: JobKey, reason: str) -> None:
    """Remove all lines of a job and say why they are not there."""
    files: list[str] = []
    for voice in archive.voices(key):
        found = archive.chunks(voice.id)
        files += (chunk.file for chunk in found)
        for chunk in found:
            _remove(archive, chunk.id, chunk.file)
        if found:
            archive.add_gap(key, gap_of(voice, found[0].first_ns, found[-1].last_ns, reason))
    with telling(archive.directory):
        archive.remove_folders(key, files)


def _make_room(archive: Archive, most_bytes: int) -> int:
    """Remove the oldest chunks until the rest fits; those that are still written stay."""
    total = int(archive.read("SELECT coalesce(sum(size), 0) FROM chunks")[0][0]) if most_bytes else 0
    touched: set[JobKey] = set()
    while total > most_bytes > 0:
        rows = archive.read(
            "SELECT id, voice, namespace, uid, file, first_ns, last_ns, size FROM chunks WHERE sealed=1"
            f" ORDER BY last_ns LIMIT {_AT_ONCE}"
        )
        if not rows:
            break
        for number, speaker, namespace, uid, file, first_ns, last_ns, size in rows:
            if total <= most_bytes:
                break
            key = JobKey(namespace, uid)
            reason = f"the record had grown beyond {most_bytes} bytes, and the oldest lines went first"
            for voice in archive.voices(key):
                if voice.id == speaker:  # none: its job was erased while it still spoke
                    archive.add_gap(key, gap_of(voice, first_ns, last_ns, reason))
            _remove(archive, number, file)
            total -= size
            touched.add(key)
    return len(touched)


def _remove(archive: Archive, chunk: int, file: str) -> None:
    with telling(archive.directory):
        tiering.remove(archive, file)
    with archive.transaction() as db:
        db.execute("DELETE FROM chunks WHERE id=?", (chunk,))


def _sweep(archive: Archive, now: float) -> None:
    """Remove files that nobody knows: of a writer that was killed before it could count them."""
    if not os.path.isdir(archive.logs):
        return
    known = {archive.path(file) for (file,) in archive.read("SELECT file FROM chunks")}
    for namespace, uid in archive.read("SELECT namespace, uid FROM jobs"):
        known.add(archive.folder(JobKey(namespace, uid)))
    with telling(archive.directory):
        _sweep_directory(archive.logs, known, now)


def _sweep_directory(directory: str, known: set[str], now: float) -> None:
    """Remove unknown files below a directory, in both layouts, and the directories of no job that are empty then."""
    try:
        entries = [*os.scandir(directory)]
    except FileNotFoundError:  # another process has just removed it
        return
    for entry in entries:
        removable = entry.path not in known and _is_old(entry.path, now)
        if entry.is_dir(follow_symlinks=False):
            _sweep_directory(entry.path, known, now)
            if removable:
                layout.remove_if_empty(entry.path)
        elif removable:
            layout.remove_file(entry.path)


def _is_old(path: str, now: float) -> bool:
    try:
        return now - os.stat(path).st_mtime > _YOUNG_SECONDS
    except FileNotFoundError:
        return False
