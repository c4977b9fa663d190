"""Is the audit as it was written? Every line, its hash, its number, and where the chain begins and ends.

Found for certain: a line that was changed, removed, inserted or moved, and a beginning that was cut off. An end
that was cut off is found by the note of the last hash beside the files, or by an anchor that was kept elsewhere.
Whoever can rewrite every file and that note can make a chain that is sound in itself: only an anchor, or the
API server's own log, shows that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from mpijob import codec
from mpijob.history.audit import chain
from mpijob.history.audit.chain import Head
from mpijob.model.status.audit import AuditEvent, Verb

_MOST = 100


class ChainFault(msgspec.Struct, frozen=True):
    """One place where the audit is not as it was written."""

    file: str
    line: int
    message: str


class ChainResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: how many lines, from which to which, what is wrong, what is merely noteworthy."""

    lines: int
    first: int
    last: int
    head: str
    flaws: tuple[ChainFault, ...] = ()
    remarks: tuple[ChainFault, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaws


class _Walk:
    """One walk along the chain."""

    def __init__(self) -> None:
        self.flaws: list[ChainFault] = []
        self.remarks: list[ChainFault] = []
        self.at = Head()
        self.begun: Head | None = None  # what the first line hangs on
        self.first = 0
        self.lines = 0
        self.pruned: set[str] = set()
        self.hashes: dict[int, str] = {}
        self._garbage: tuple[str, int, int] | None = None

    def take(self, file: str, number: int, line: bytes) -> None:
        parts = chain.unsealed(line)
        if parts is None:
            self._torn_or_foreign(file, number, line)
            return
        self.lines += 1
        sequence, claimed = chain.number_of(line), parts[1]
        if not chain.sound(line):
            self._flaw(file, number, f"entry {sequence} was changed: its hash is not that of its text")
        event = _decoded(line)
        previous = event.note("previous") if event else ""
        self._hang_on(file, number, sequence, previous)
        self._attested(event)
        self.at = Head(sequence, claimed)
        self.hashes[sequence] = claimed

    def _hang_on(self, file: str, number: int, sequence: int, previous: str) -> None:
        if self.begun is None:
            self.begun, self.first = Head(sequence - 1, previous), sequence
            return
        if sequence > self.at.sequence + 1:
            gone = _span(self.at.sequence + 1, sequence - 1)
            self._flaw(file, number, f"{gone} missing before entry {sequence}")
        elif sequence <= self.at.sequence:
            self._flaw(
                file, number, f"entry {sequence} stands behind entry {self.at.sequence}: inserted or moved"
            )
        elif previous != self.at.hash:
            self._flaw(
                file,
                number,
                f"entry {sequence} does not hang on the one before it: that was changed or inserted",
            )

    def _attested(self, event: AuditEvent | None) -> None:
        if event is None:
            return
        if event.verb == Verb.PRUNE:
            self.pruned.add(event.note("removed-up-to"))
        if self._garbage is not None:
            file, number, size = self._garbage
            self._garbage = None
            if event.note("torn-bytes") == str(size):
                self.remarks.append(
                    ChainFault(file, number, f"{size} bytes of an entry whose writer was stopped in it")
                )
            else:
                self._flaw(file, number, f"{size} bytes that are no entry: inserted, or a line was cut")
        if since := event.note("missed-since"):
            text = f"entry {event.note('sequence')}: something could not be written since {since}"
            self.remarks.append(ChainFault("", 0, text))

    def _torn_or_foreign(self, file: str, number: int, line: bytes) -> None:
        if self._garbage is not None:
            self._flaw(*self._garbage[:2], "a line that is no entry: inserted, or an entry was changed")
        self._garbage = (file, number, len(line))

    def _flaw(self, file: str, line: int, message: str) -> None:
        if len(self.flaws) < _MOST:
            self.flaws.append(ChainFault(file, line, message))

    def finish(self, directory: str, anchor: Head | None) -> None:
        """Look at both ends."""
        if self._garbage is not None:
            file, number, size = self._garbage
            self.remarks.append(
                ChainFault(file, number, f"the last {size} bytes are no whole entry: torn in writing")
            )
        self._beginning()
        noted = chain.noted_head(directory)
        if noted is not None and noted.sequence > self.at.sequence:
            self._flaw("head", 1, f"{_span(self.at.sequence + 1, noted.sequence)} missing at the end")
        elif noted is not None and self.hashes.get(noted.sequence, noted.hash) != noted.hash:
            self._flaw(
                "head", 1, f"entry {noted.sequence} is not the one that was noted: the chain was written anew"
            )
        elif noted is None and self.lines:
            self._flaw("head", 0, "the note of the last hash is gone: a cut-off end would not show")
        if anchor is not None and self.hashes.get(anchor.sequence) != anchor.hash:
            what = "differs from" if anchor.sequence in self.hashes else "is missing, which was"
            self._flaw("", 0, f"entry {anchor.sequence} {what} the anchor that was given")

    def _beginning(self) -> None:
        if self.begun is None or self.begun == Head():
            return
        if str(self.begun) not in self.pruned:
            gone = _span(1, self.begun.sequence)
            self._flaw("", 0, f"{gone} missing at the beginning, and no retention told of it")


def verify(directory: str, anchor: Head | None = None) -> ChainResult:
    """Return whether the audit is as it was written; `anchor` is a hash that was kept elsewhere."""
    walk = _Walk()
    for file, number, line in _numbered(directory):
        walk.take(file, number, line)
    walk.finish(directory, anchor)
    return ChainResult(
        lines=walk.lines,
        first=walk.first,
        last=walk.at.sequence,
        head=str(walk.at),
        flaws=tuple(walk.flaws),
        remarks=tuple(walk.remarks),
    )


def _numbered(directory: str) -> Iterator[tuple[str, int, bytes]]:
    for name in chain.files(directory):
        with open(os.path.join(directory, name), "rb") as file:
            for number, line in enumerate(file, 1):
                if line != b"\n":
                    yield name, number, line.rstrip(b"\n")


def _decoded(line: bytes) -> AuditEvent | None:
    try:
        return codec.decode(line, AuditEvent)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _span(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def anchor_of(text: str) -> Head | None:
    """Return an anchor as `verify` printed it, `number:hash`; None for what is none."""
    number, _, digest = text.partition(":")
    if not number.isdecimal() or len(digest) != 64:
        return None
    return Head(int(number), digest)
