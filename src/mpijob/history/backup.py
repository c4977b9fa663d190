"""Back up the job history to one file while it is in use, and restore it elsewhere.

Writers are blocked only while the database is copied and the log files are hard-linked; then that state is
packed into the file. A backup is verified before it is restored. Histories in PostgreSQL or an object store
are backed up with the tools of those servers.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

from mpijob.errors import BackendError, Conflict, InvalidJob, Unsupported
from mpijob.history.archive import Archive
from mpijob.history.storage import layout
from mpijob.history.storage.database import storage_errors

_DATABASE, _LOGS = "history.db", "logs"


def backup(archive: Archive, target: str) -> int:
    """Write the whole history to one file; return the number of jobs. Raise Conflict if the file exists."""
    if archive.database or archive.objects is not None:
        raise Unsupported(
            "a history in PostgreSQL or an object store cannot be backed up by mpijob",
            hint=f"back up the database with pg_dump, then the bucket and {archive.logs}, in this order",
        )
    if os.path.lexists(target):
        raise Conflict(f"{target} exists already", hint="choose another file, or remove it")
    with _snapshot(archive) as snapshot, storage_errors(target):
        with closing(sqlite3.connect(os.path.join(snapshot, _DATABASE))) as db:
            files = db.execute("SELECT id, file, size FROM chunks ORDER BY id").fetchall()
            (jobs,) = db.execute("SELECT count(*) FROM jobs").fetchone()
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as raw, tarfile.open(fileobj=raw, mode="w") as tar:
                tar.add(os.path.join(snapshot, _DATABASE), _DATABASE)
                for chunk, file, size in files:
                    name = f"{_LOGS}/{layout.safe_name(file)}"
                    _pack(tar, os.path.join(snapshot, f"{chunk}.log"), name, size)
                raw.flush()
                os.fsync(raw.fileno())
        except BaseException:
            os.unlink(target)
            raise
    return int(jobs)


@contextmanager
def _snapshot(archive: Archive) -> Iterator[str]:
    """Block writers, copy the database and hard-link the log files; yield the directory that holds both."""
    snapshot = os.path.join(archive.directory, f"backup-{os.urandom(6).hex()}")
    with storage_errors(archive.directory):
        os.mkdir(snapshot, 0o700)
    try:
        # Under the write lock: the copy of the database names exactly the files that are linked.
        with archive.transaction():
            for chunk, file in archive.read("SELECT id, file FROM chunks"):
                _link(archive.chunk_path(file), os.path.join(snapshot, f"{chunk}.log"))
            source = sqlite3.connect(os.path.join(archive.directory, _DATABASE))
            copy = sqlite3.connect(os.path.join(snapshot, _DATABASE))
            with closing(source), closing(copy):
                source.backup(copy)
        yield snapshot
    finally:
        shutil.rmtree(snapshot, ignore_errors=True)


def _link(path: str, name: str) -> None:
    try:
        os.link(path, name)
    except FileNotFoundError:
        # The chunk is lost already; reading it reports a gap.
        return
    except OSError:
        # The file system has no hard links: a copy takes longer and does as well.
        shutil.copyfile(path, name)


def _pack(tar: tarfile.TarFile, path: str, name: str, size: int) -> None:
    """Add the valid bytes of a file to the backup; a shorter file is damaged, which reading it reports."""
    try:
        with open(path, "rb") as file:
            # A hard link is the same file: an open chunk keeps growing after the snapshot.
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = min(size, os.fstat(file.fileno()).st_size), 0o600
            tar.addfile(entry, file)
    except FileNotFoundError:
        return


def restore(source: str, directory: str) -> int:
    """Restore a backup into a directory without a history; return the number of jobs."""
    if os.path.exists(os.path.join(directory, _DATABASE)):
        raise Conflict(
            f"{directory} already contains a job history",
            hint="move it away, or restore into another directory",
        )
    # Unpacked beside the target, so that a backup that turns out to be damaged leaves nothing there.
    staging = f"{directory.rstrip('/')}.restoring"
    with storage_errors(source):
        shutil.rmtree(staging, ignore_errors=True)
        os.makedirs(staging, mode=0o700)
    try:
        _unpack(source, staging)
        jobs = _verify(staging, source)
        with storage_errors(directory):
            if os.path.isdir(directory):
                shutil.copytree(staging, directory, dirs_exist_ok=True)
            else:
                os.rename(staging, directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return jobs


def _unpack(source: str, directory: str) -> None:
    try:
        with storage_errors(source), tarfile.open(source) as tar:
            for entry in tar:
                parts = entry.name.split("/")
                # Files of both layouts: UID/FILE and NAMESPACE/UID/FILE.
                is_log = parts[0] == _LOGS and len(parts) in (3, 4)
                is_known = entry.isreg() and (parts == [_DATABASE] or is_log)
                if not is_known or ".." in parts or "" in parts:
                    raise InvalidJob(f"{source} is not a backup of a job history: it contains {entry.name!r}")
                tar.extract(entry, directory, filter="data")
    except tarfile.TarError as error:
        raise InvalidJob(
            f"{source} is not a backup of a job history: {str(error).splitlines()[0]}"
        ) from error


def _verify(directory: str, source: str) -> int:
    """Return the number of jobs in a history; raise BackendError if its database is damaged."""
    path = os.path.join(directory, _DATABASE)
    if not os.path.exists(path):
        raise InvalidJob(f"{source} is not a backup of a job history: it contains no {_DATABASE}")
    try:
        with closing(sqlite3.connect(path)) as db:
            (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.DatabaseError as error:
        raise BackendError(f"the database in {source} is damaged: {error}") from error
    if verdict != "ok":
        raise BackendError(f"the database in {source} is damaged: {verdict}")
    # Opening it also migrates an older format.
    archive = Archive(directory)
    try:
        return int(archive.read("SELECT count(*) FROM jobs")[0][0])
    finally:
        archive.close()
