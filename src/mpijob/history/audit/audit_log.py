"""The audit: lines that are only ever added, each chained to the one before by its hash.

DIRECTORY/audit-2026-11-15.jsonl   one line for each entry, one file for each day
DIRECTORY/head                     how many lines there are and the last hash, so that a cut-off end shows
DIRECTORY/lock                     held while a line is added
DIRECTORY/missed                   there when something could not be written; the next line tells since when

A line's hash covers its bytes, which hold the hash of the line before (`chain`). So a line that was changed,
removed, inserted or moved is found by `verify_chain`. What a chain cannot show is that somebody who may write the
files has written all of them anew; for that a copy of the last hash is kept elsewhere (`audit_anchor`).

Killed in the middle, a writer leaves at most a torn line at the end; the next one goes on behind it and
says so. Several processes may write at once. What was acted upon is on the disk before the caller hears of
it. Old files go only by `retention`, never before ninety days.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator

import msgspec

from mpijob.errors import BackendError
from mpijob.history.audit.chain import LONGEST, PREVIOUS, SEQUENCE, Head, files, seal, tip
from mpijob.model.status.audit import DOMAIN, AuditEvent, stamp

TORN, MISSED = f"{DOMAIN}/torn-bytes", f"{DOMAIN}/missed-since"
_PATIENCE_SECONDS = 5.0
_COPIES: list[Callable[[bytes], None]] = []


def directory_of(history: str) -> str:
    """Return where the audit of a record is."""
    return os.path.join(history, "audit")


def copy_to(write: Callable[[bytes], None]) -> Callable[[], None]:
    """Let each line that this process adds be written elsewhere too; return what ends that."""
    _COPIES.append(write)
    return lambda: _COPIES.remove(write)


class AuditLog:
    """The audit of one directory, for writers; one without `keep_days` leaves it to others to remove old days."""

    def __init__(self, directory: str, *, keep_days: float | None) -> None:
        self.directory, self._keep_days = directory, keep_days

    def add(self, event: AuditEvent, *, on_disk: bool = True) -> Head:
        """Add a line; return once it is on the disk, or at least handed to the system.

        Raise BackendError where it cannot be written; nothing of it is in the file then.
        """
        try:
            with self._locked():
                handle, head = self._append(event)
            try:
                if on_disk:
                    os.fdatasync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            self._note_missed()
            raise BackendError(
                f"the audit in {self.directory} cannot be written: {error.strerror or error}",
                hint='make room, or give the directory back to this user; `audit = "off"` in the settings ends it',
            ) from error
        return head

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        handle = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)

    def _append(self, event: AuditEvent) -> tuple[int, Head]:
        """Write behind the last line; return the open file and where the chain is now."""
        last, torn = tip(self.directory)
        name = self._file_of(event)
        if last.sequence and not os.path.exists(self._path(name)):
            from mpijob.history.audit import audit_anchor  # once a day: start-up is a feature

            audit_anchor.tell_system(self.directory, last)
            last = last if self._keep_days is None else self._new_day(name, last, self._keep_days)
        handle = os.open(self._path(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            missed = self._missed_since()
            notes = {TORN: str(torn)} if torn else {}
            notes |= {MISSED: stamp(missed)} if missed else {}
            head = self._write(handle, event, last, notes, after_torn=bool(torn))
            if missed:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path("missed"))
        except BaseException:
            os.close(handle)
            raise
        return handle, head

    def _write(
        self, handle: int, event: AuditEvent, last: Head, notes: dict[str, str], *, after_torn: bool
    ) -> Head:
        chain = {SEQUENCE: str(last.sequence + 1), PREVIOUS: last.hash}
        body = msgspec.json.encode(
            msgspec.structs.replace(event, annotations={**event.annotations, **notes, **chain})
        )
        line, digest = seal(body)
        if len(line) > LONGEST:
            raise OSError(errno.EMSGSIZE, "the entry is longer than a line may be")
        before = os.fstat(handle).st_size
        whole = (b"\n" if after_torn else b"") + line + b"\n"
        try:
            written = os.write(handle, whole)
            if written < len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, before)
            raise
        head = Head(last.sequence + 1, digest)
        self._put_head(head)
        for copy in _COPIES:
            copy(line)
        return head

    def _put_head(self, head: Head) -> None:
        """Note how far the chain is; a full disk does not lose a line for want of it."""
        with contextlib.suppress(OSError):
            handle = os.open(self._path("head"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(handle, f"{head.sequence:020d} {head.hash}\n".encode(), 0)
            finally:
                os.close(handle)

    def _file_of(self, event: AuditEvent) -> str:
        """Return the day's file; after a clock was set back, the newest there is: the chain's order is the files'."""
        today = f"audit-{event.time[:10]}.jsonl"
        return max(today, *files(self.directory)[-1:], today)

    def _new_day(self, name: str, last: Head, keep_days: float) -> Head:
        """Remove the days that were kept long enough before a new one begins."""
        from mpijob.history.audit import retention

        gone = retention.due(self.directory, name, keep_days)
        if not gone:
            return last
        note = retention.farewell(self.directory, gone, keep_days)
        handle = os.open(self._path(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            head = self._write(handle, note, last, {}, after_torn=False)
            os.fdatasync(handle)  # what is removed must have been told
        finally:
            os.close(handle)
        for old in gone:
            os.unlink(self._path(old))
        return head

    def _missed_since(self) -> float | None:
        try:
            return os.stat(self._path("missed")).st_mtime
        except OSError:
            return None

    def _note_missed(self) -> None:
        """Leave a mark that needs no room, so that the next line can say that one is missing."""
        with contextlib.suppress(OSError):
            os.close(
                os.open(self._path("missed"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            )

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def _lock(handle: int) -> None:
    """Take the lock; a writer that somebody has stopped does not stop everybody."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock") from None
            time.sleep(0.002)
