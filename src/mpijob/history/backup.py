"""A record in one file: taken while it is written, and put back somewhere else.

For a moment nobody may write: the database is copied and the files of lines get a second name. Then writers go on,
and what was there at that moment is packed. What is put back is checked before it counts.
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
from mpijob.history.storage.database import telling

_DATABASE, _LOGS = "history.db", "logs"


def backup(archive: Archive, target: str) -> int:
    """Write everything into one file; return how many jobs are in it. Raise Conflict for a file that exists."""
    if archive.database or archive.objects is not None:
        raise Unsupported(
            "a record in PostgreSQL or an object store is backed up by their own means",
            hint=f"pg_dump the database; then copy the bucket and {archive.logs}: lines without their rows do no harm",
        )
    if os.path.lexists(target):
        raise Conflict(f"{target} exists already", hint="name another file, or remove it")
    with _moment(archive) as place, telling(target):
        with closing(sqlite3.connect(os.path.join(place, _DATABASE))) as db:
            files = db.execute("SELECT id, file, size FROM chunks ORDER BY id").fetchall()
            (jobs,) = db.execute("SELECT count(*) FROM jobs").fetchone()
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as raw, tarfile.open(fileobj=raw, mode="w") as packed:
                packed.add(os.path.join(place, _DATABASE), _DATABASE)
                for chunk, file, size in files:
                    name = f"{_LOGS}/{layout.checked(file)}"
                    _pack(packed, os.path.join(place, f"{chunk}.log"), name, size)
                raw.flush()
                os.fsync(raw.fileno())
        except BaseException:
            os.unlink(target)
            raise
    return int(jobs)


@contextmanager
def _moment(archive: Archive) -> Iterator[str]:
    """Hold everybody up, copy the database, give the files a second name; yield where both are."""
    place = os.path.join(archive.directory, f"backup-{os.urandom(6).hex()}")
    with telling(archive.directory):
        os.mkdir(place, 0o700)
    try:
        with archive.transaction():
            for chunk, file in archive.read("SELECT id, file FROM chunks"):
                _link(archive.path(file), os.path.join(place, f"{chunk}.log"))
            source = sqlite3.connect(os.path.join(archive.directory, _DATABASE))
            copy = sqlite3.connect(os.path.join(place, _DATABASE))
            with closing(source), closing(copy):
                source.backup(copy)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _link(path: str, name: str) -> None:
    try:
        os.link(path, name)
    except FileNotFoundError:  # it is damaged already, which reading tells
        return
    except OSError:  # no second names here: a copy takes longer and does as well
        shutil.copyfile(path, name)


def _pack(packed: tarfile.TarFile, path: str, name: str, size: int) -> None:
    """Put as much of a file as counts into the archive; one that is shorter is damaged, which reading tells."""
    try:
        with open(path, "rb") as file:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = min(size, os.fstat(file.fileno()).st_size), 0o600
            packed.addfile(entry, file)
    except FileNotFoundError:
        return


def restore(source: str, directory: str) -> int:
    """Put a backup back where no record is; return how many jobs are in it."""
    if os.path.exists(os.path.join(directory, _DATABASE)):
        raise Conflict(
            f"there is a record in {directory} already",
            hint="move it away, or restore into another directory",
        )
    fresh = f"{directory.rstrip('/')}.restoring"
    with telling(source):
        shutil.rmtree(fresh, ignore_errors=True)
        os.makedirs(fresh, mode=0o700)
    try:
        _unpack(source, fresh)
        jobs = _checked(fresh, source)
        with telling(directory):
            if os.path.isdir(directory):
                shutil.copytree(fresh, directory, dirs_exist_ok=True)
            else:
                os.rename(fresh, directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return jobs


def _unpack(source: str, place: str) -> None:
    try:
        with telling(source), tarfile.open(source) as packed:
            for entry in packed:
                parts = entry.name.split("/")
                of_logs = parts[0] == _LOGS and len(parts) in (3, 4)  # both layouts
                plain = entry.isreg() and (parts == [_DATABASE] or of_logs)
                if not plain or ".." in parts or "" in parts:
                    raise InvalidJob(f"{source} is no backup of a record: it holds {entry.name!r}")
                packed.extract(entry, place, filter="data")
    except tarfile.TarError as error:
        raise InvalidJob(f"{source} is no backup of a record: {str(error).splitlines()[0]}") from error


def _checked(place: str, source: str) -> int:
    """Return how many jobs a record holds; refuse one whose database is damaged."""
    path = os.path.join(place, _DATABASE)
    if not os.path.exists(path):
        raise InvalidJob(f"{source} is no backup of a record: it holds no {_DATABASE}")
    try:
        with closing(sqlite3.connect(path)) as db:
            (sound,) = db.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.DatabaseError as error:
        raise BackendError(f"the database in {source} is damaged: {error}") from error
    if sound != "ok":
        raise BackendError(f"the database in {source} is damaged: {sound}")
    archive = Archive(place)  # brings an older format forward
    try:
        return int(archive.read("SELECT count(*) FROM jobs")[0][0])
    finally:
        archive.close()
