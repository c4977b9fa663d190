"""The audit: lines that are only ever added, each chained to the one before by its hash.

DIRECTORY/audit-2026-11-15.jsonl   one line for each entry, one file for each day
DIRECTORY/head                     how many lines there are and the last hash, so that a cut-off end shows
DIRECTORY/lock                     held while a line is added
DIRECTORY/missed                   there when something could not be written; the next line tells since when

A line's hash covers its bytes, which hold the hash of the line before. So a line that was changed, removed,
inserted or moved is found by `verify_chain`. What a chain cannot show is that somebody who may write the
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
from hashlib import sha256

import msgspec

from mpijob.errors import BackendError
from mpijob.model.status.audit import DOMAIN, AuditEvent, stamp

GENESIS = "0" * 64
SEQUENCE, PREVIOUS, HASH = f"{DOMAIN}/sequence", f"{DOMAIN}/previous", f"{DOMAIN}/hash"
TORN, MISSED = f"{DOMAIN}/torn-bytes", f"{DOMAIN}/missed-since"
LONGEST = 64 * 1024
_PATIENCE_SECONDS = 5.0
_SEAL, _END = f',"{HASH}":"'.encode(), b'"}}'
_NUMBER = f'"{SEQUENCE}":"'.encode()
_SEALED = len(_SEAL) + 64 + len(_END)
_FILE = "audit-0000-00-00.jsonl"
_HEXADECIMAL = frozenset(b"0123456789abcdef")
_COPIES: list[Callable[[bytes], None]] = []


class Head(msgspec.Struct, frozen=True):
    """Where a chain has come to: its last line's number and hash."""

    sequence: int = 0
    hash: str = GENESIS

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


def directory_of(history: str) -> str:
    """Return where the audit of a record is."""
    return os.path.join(history, "audit")


def files(directory: str) -> list[str]:
    """Return the days' files, the oldest first."""
    try:
        return sorted(name for name in os.listdir(directory) if _is_day(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_day(name: str) -> bool:
    """Return whether a file is a day's; without patterns, which take longer to make ready than a line to write."""
    shape = "".join("0" if letter in "0123456789" else letter for letter in name)
    return shape == _FILE


def seal(body: bytes) -> tuple[bytes, str]:
    """Return a line from its bytes, and its hash, which is the last thing in it."""
    digest = sha256(body).hexdigest()
    return body[:-2] + f',"{HASH}":"{digest}"}}}}'.encode(), digest


def unsealed(line: bytes) -> tuple[bytes, str] | None:
    """Return the bytes that a line's hash covers, and the hash that it claims; None for what is no such line."""
    body, tail = line[:-_SEALED], line[-_SEALED:]
    digest = tail[len(_SEAL) : -len(_END)]
    if not (
        tail.startswith(_SEAL)
        and tail.endswith(_END)
        and len(digest) == 64
        and _HEXADECIMAL.issuperset(digest)
    ):
        return None
    return body + b"}}", digest.decode()


def sound(line: bytes) -> bool:
    """Return whether a line is as it was written."""
    parts = unsealed(line)
    return parts is not None and sha256(parts[0]).hexdigest() == parts[1]


def number_of(line: bytes) -> int:
    """Return the number that a line claims; 0 where it claims none. The last one counts: notes come before it."""
    at = line.rfind(_NUMBER)
    digits = line[at + len(_NUMBER) :].partition(b'"')[0] if at >= 0 else b""
    return int(digits) if digits.isdigit() and len(digits) < 19 else 0


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


def tip(directory: str) -> tuple[Head, int]:
    """Return where the chain is, and how many bytes behind it are no whole line."""
    torn = 0
    for index, name in enumerate(reversed(files(directory))):
        data = _end_of(os.path.join(directory, name))
        *lines, rest = data.split(b"\n")
        torn = len(rest) if index == 0 else torn
        for line in reversed(lines):
            if (parts := unsealed(line)) is not None and (number := number_of(line)):
                return Head(number, parts[1]), torn
    return Head(), torn


def _end_of(path: str) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4 * LONGEST))
        return file.read()


def noted_head(directory: str) -> Head | None:
    """Return how far the chain was when it was last written, by the note beside it."""
    try:
        with open(os.path.join(directory, "head"), encoding="ascii") as file:
            number, digest = file.read(200).split()
        return Head(int(number), digest)
    except (OSError, ValueError):
        return None


def new_id() -> str:
    """Return a fresh audit id."""
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def day(moment: float) -> str:
    """Return a time's day as files are named."""
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
