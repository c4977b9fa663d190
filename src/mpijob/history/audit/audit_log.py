"""The audit log: append-only lines, each chained to the previous one by its hash.

DIRECTORY/audit-2026-11-15.jsonl   one line per entry, one file per day
DIRECTORY/head                     number of entries and last hash, so that a truncated end is noticed
DIRECTORY/lock                     held while a line is appended
DIRECTORY/missed                   exists when an entry could not be written; the next entry says since when

The hash of a line covers its bytes, which contain the hash of the previous line (`chain`), so `verify_chain`
finds a line that was changed, removed, inserted or moved. The chain cannot show that somebody with write
access rewrote all files; for that a copy of the last hash is kept elsewhere (`audit_anchor`).

A writer killed while writing leaves at most an incomplete line at the end; the next one appends behind it and
records that. Several processes may write at once. The entry of an operation is on disk before the caller gets
its result. Old files are removed only by `retention`, never before ninety days.
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
from mpijob.history.audit.chain import (
    MAX_LINE_BYTES,
    PREVIOUS,
    SEQUENCE,
    Head,
    append_hash,
    daily_files,
    read_head,
)
from mpijob.model.status.audit import DOMAIN, AuditEvent, stamp

TORN, MISSED = f"{DOMAIN}/torn-bytes", f"{DOMAIN}/missed-since"
_LOCK_TIMEOUT_SECONDS = 5.0
_COPIES: list[Callable[[bytes], None]] = []


def audit_path(history: str) -> str:
    """Return the directory of the audit log within a history directory."""
    return os.path.join(history, "audit")


def copy_to(write: Callable[[bytes], None]) -> Callable[[], None]:
    """Also pass each line that this process appends to `write`; return a function that stops it."""
    _COPIES.append(write)
    return lambda: _COPIES.remove(write)


class AuditLog:
    """Appends to the audit log of a directory; without `keep_days`, other processes remove old days."""

    def __init__(self, directory: str, *, keep_days: float | None) -> None:
        self.directory, self._keep_days = directory, keep_days

    def add(self, event: AuditEvent, *, on_disk: bool = True) -> Head:
        """Append an entry; return once it is on disk, or handed to the operating system if not `on_disk`.

        Raise BackendError if it cannot be written; the file then holds nothing of it.
        """
        try:
            with self._locked():
                handle, head = self._append(event)
            # After the lock is released: other processes need not wait for this disk.
            try:
                if on_disk:
                    os.fdatasync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            self._note_missed()
            raise BackendError(
                f"cannot write the audit log in {self.directory}: {error.strerror or error}",
                hint='free disk space or fix its permissions; `audit = "off"` in the settings disables it',
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
        """Append after the last line; return the open file and the new head of the chain."""
        last, torn_bytes = read_head(self.directory)
        name = self._file_name(event)
        if last.sequence and not os.path.exists(self._path(name)):
            # Imported once a day only: this module is loaded by every command that changes something.
            from mpijob.history.audit import audit_anchor

            audit_anchor.write_syslog(self.directory, last)
            last = last if self._keep_days is None else self._prune(name, last, self._keep_days)
        handle = os.open(self._path(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            missed_since = self._missed_since()
            annotations = {TORN: str(torn_bytes)} if torn_bytes else {}
            annotations |= {MISSED: stamp(missed_since)} if missed_since else {}
            head = self._write(handle, event, last, annotations, after_torn=bool(torn_bytes))
            if missed_since:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path("missed"))
        except BaseException:
            os.close(handle)
            raise
        return handle, head

    def _write(
        self, handle: int, event: AuditEvent, last: Head, annotations: dict[str, str], *, after_torn: bool
    ) -> Head:
        link = {SEQUENCE: str(last.sequence + 1), PREVIOUS: last.hash}
        body = msgspec.json.encode(
            msgspec.structs.replace(event, annotations={**event.annotations, **annotations, **link})
        )
        line, digest = append_hash(body)
        if len(line) > MAX_LINE_BYTES:
            raise OSError(errno.EMSGSIZE, f"the entry is longer than {MAX_LINE_BYTES} bytes")
        old_size = os.fstat(handle).st_size
        # An incomplete line stays as it is; the newline ends it, so that this entry is a line of its own.
        whole = (b"\n" if after_torn else b"") + line + b"\n"
        try:
            # The write that fills a disk is short; the next one would raise.
            written = os.write(handle, whole)
            if written < len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            # Half a line would be reported as damage.
            with contextlib.suppress(OSError):
                os.ftruncate(handle, old_size)
            raise
        head = Head(last.sequence + 1, digest)
        self._write_head(head)
        for copy in _COPIES:
            copy(line)
        return head

    def _write_head(self, head: Head) -> None:
        # The line is written already: a full disk must not fail it because of this note.
        with contextlib.suppress(OSError):
            handle = os.open(self._path("head"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(handle, f"{head.sequence:020d} {head.hash}\n".encode(), 0)
            finally:
                os.close(handle)

    def _file_name(self, event: AuditEvent) -> str:
        # After the clock was set back this is the newest file: entries are chained in the order of the files.
        today = f"audit-{event.time[:10]}.jsonl"
        return max(today, *daily_files(self.directory)[-1:], today)

    def _prune(self, name: str, last: Head, keep_days: float) -> Head:
        """Remove expired days before a new day begins; return the head after the entry that records it."""
        from mpijob.history.audit import retention

        expired = retention.expired_files(self.directory, name, keep_days)
        if not expired:
            return last
        entry = retention.prune_event(self.directory, expired, keep_days)
        handle = os.open(self._path(name), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            head = self._write(handle, entry, last, {}, after_torn=False)
            # The entry that lists the removed files must be on disk before they are removed.
            os.fdatasync(handle)
        finally:
            os.close(handle)
        for file in expired:
            os.unlink(self._path(file))
        return head

    def _missed_since(self) -> float | None:
        try:
            return os.stat(self._path("missed")).st_mtime
        except OSError:
            return None

    def _note_missed(self) -> None:
        """Create an empty file, so that the next entry reports that one is missing."""
        # It needs no data block, so it works on a full disk.
        with contextlib.suppress(OSError):
            os.close(
                os.open(self._path("missed"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            )

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def _lock(handle: int) -> None:
    """Take the lock, or raise TimeoutError: a stopped process that holds it must not block all others."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    while True:
        # Polled: a blocking flock has no timeout.
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"locked by another process for {_LOCK_TIMEOUT_SECONDS:g} s"
                ) from None
            time.sleep(0.002)
