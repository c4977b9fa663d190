"""Verify the audit log: every line, its hash, its sequence number, and both ends of the chain.

Always found: a line that was changed, removed, inserted or moved, and a beginning that was cut off. A
truncated end is found by comparing with the stored head, or with an anchor that was kept elsewhere. A user
who can rewrite every file and the stored head can make a consistent chain: only an anchor, or the API
server's own audit log, shows that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from mpijob import codec
from mpijob.history.audit import chain
from mpijob.history.audit.chain import Head
from mpijob.model.status.audit import AuditEvent, Verb

_MAX_FAULTS = 100


class ChainFault(msgspec.Struct, frozen=True):
    """One place where the audit log is not as it was written."""

    file: str
    line: int
    message: str


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification: number and range of entries, faults, and remarks that are no fault."""

    lines: int
    first: int
    last: int
    head: str
    flaws: tuple[ChainFault, ...] = ()
    remarks: tuple[ChainFault, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.flaws


class _ChainCheck:
    def __init__(self) -> None:
        self.flaws: list[ChainFault] = []
        self.remarks: list[ChainFault] = []
        self.last = Head()
        # The head that the first line is chained to.
        self.start: Head | None = None
        self.first = 0
        self.lines = 0
        self.pruned: set[str] = set()
        self.hashes: dict[int, str] = {}
        self._invalid: tuple[str, int, int] | None = None

    def check_line(self, file: str, number: int, line: bytes) -> None:
        parts = chain.split_hash(line)
        if parts is None:
            self._note_invalid_line(file, number, line)
            return
        self.lines += 1
        sequence, claimed = chain.sequence_of(line), parts[1]
        if not chain.has_valid_hash(line):
            self._add_fault(
                file, number, f"entry {sequence} was modified: its content does not match its hash"
            )
        event = _decode(line)
        previous = event.note("previous") if event else ""
        self._check_link(file, number, sequence, previous)
        self._check_annotations(event)
        self.last = Head(sequence, claimed)
        self.hashes[sequence] = claimed

    def _check_link(self, file: str, number: int, sequence: int, previous: str) -> None:
        if self.start is None:
            self.start, self.first = Head(sequence - 1, previous), sequence
            return
        if sequence > self.last.sequence + 1:
            missing = _span(self.last.sequence + 1, sequence - 1)
            self._add_fault(file, number, f"{missing} missing before entry {sequence}")
        elif sequence <= self.last.sequence:
            self._add_fault(
                file, number, f"entry {sequence} follows entry {self.last.sequence}: inserted or moved"
            )
        elif previous != self.last.hash:
            self._add_fault(
                file,
                number,
                f"hash chain broken before entry {sequence}: the previous entry was modified or inserted",
            )

    def _check_annotations(self, event: AuditEvent | None) -> None:
        if event is None:
            return
        if event.verb == Verb.PRUNE:
            self.pruned.add(event.note("removed-up-to"))
        if self._invalid is not None:
            file, number, size = self._invalid
            self._invalid = None
            # The next writer records in its own entry how many bytes a killed one left (`audit_log`). Without that
            # record, somebody else wrote them.
            if event.note("torn-bytes") == str(size):
                self.remarks.append(
                    ChainFault(file, number, f"{size} bytes of an incomplete entry: its writer was killed")
                )
            else:
                self._add_fault(
                    file, number, f"{size} bytes are not a valid entry: inserted, or a line was truncated"
                )
        if since := event.note("missed-since"):
            text = f"entry {event.note('sequence')}: at least one entry could not be written since {since}"
            self.remarks.append(ChainFault("", 0, text))

    def _note_invalid_line(self, file: str, number: int, line: bytes) -> None:
        if self._invalid is not None:
            self._add_fault(
                *self._invalid[:2], "a line is not a valid entry: inserted, or an entry was modified"
            )
        self._invalid = (file, number, len(line))

    def _add_fault(self, file: str, line: int, message: str) -> None:
        if len(self.flaws) < _MAX_FAULTS:
            self.flaws.append(ChainFault(file, line, message))

    def check_ends(self, directory: str, anchor: Head | None) -> None:
        if self._invalid is not None:
            file, number, size = self._invalid
            text = f"the last {size} bytes are an incomplete entry: its writer was killed"
            self.remarks.append(ChainFault(file, number, text))
        self._check_start()
        # The chain may be longer than the stored head, whose writer can be killed before it stores it.
        stored = chain.stored_head(directory)
        if stored is not None and stored.sequence > self.last.sequence:
            self._add_fault("head", 1, f"{_span(self.last.sequence + 1, stored.sequence)} missing at the end")
        elif stored is not None and self.hashes.get(stored.sequence, stored.hash) != stored.hash:
            text = f"entry {stored.sequence} does not have the stored last hash: the chain was rewritten"
            self._add_fault("head", 1, text)
        elif stored is None and self.lines:
            self._add_fault("head", 0, "the stored head is missing: a truncated end would not be noticed")
        if anchor is not None and self.hashes.get(anchor.sequence) != anchor.hash:
            known = anchor.sequence in self.hashes
            problem = "differs from the anchor" if known else "is the anchor, but is missing"
            self._add_fault("", 0, f"entry {anchor.sequence} {problem}")

    def _check_start(self) -> None:
        if self.start is not None and self.start != Head() and str(self.start) not in self.pruned:
            missing = _span(1, self.start.sequence)
            self._add_fault(
                "", 0, f"{missing} missing at the beginning, and no retention entry records their removal"
            )


def verify(directory: str, anchor: Head | None = None) -> ChainResult:
    """Verify the audit log of a directory; `anchor` is a head that was kept elsewhere."""
    check = _ChainCheck()
    for file, number, line in _numbered_lines(directory):
        check.check_line(file, number, line)
    check.check_ends(directory, anchor)
    return ChainResult(
        lines=check.lines,
        first=check.first,
        last=check.last.sequence,
        head=str(check.last),
        flaws=tuple(check.flaws),
        remarks=tuple(check.remarks),
    )


def _numbered_lines(directory: str) -> Iterator[tuple[str, int, bytes]]:
    for name in chain.daily_files(directory):
        with open(os.path.join(directory, name), "rb") as file:
            for number, line in enumerate(file, 1):
                if line != b"\n":
                    yield name, number, line.rstrip(b"\n")


def _decode(line: bytes) -> AuditEvent | None:
    try:
        return codec.decode(line, AuditEvent)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _span(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def parse_anchor(text: str) -> Head | None:
    """Parse an anchor as `verify` prints it, `number:hash`; return None for other text."""
    number, _, digest = text.partition(":")
    if not number.isdecimal() or len(digest) != 64:
        return None
    return Head(int(number), digest)
