"""A launcher's merged output, taken apart again: which rank said what, and what our own texts report.

On a cluster every rank's output travels through mpirun into the launcher's log, where mpirun has put a tag
before each line. The tag is mpirun's own and stands first, so a rank that prints one of its own fools
nobody. Lines without a tag are the launcher's. The words of `shell` (census, world, exit) are reports, not
output. Reading the log is the engine's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mpijob.model import Family

_OPENMPI = re.compile(rb"\[\d+,(\d+)\]<(stdout|stderr|stddiag)>:")
_HYDRA = re.compile(rb"^\[(\d+)\] ")
_REPORT = re.compile(rb"mpijob-(census|world|exit) ([a-z]+=\S*(?: [a-z]+=\S*)*)$")


class Said(NamedTuple):
    """A piece of output and who wrote it; `rank` is None for the launcher itself."""

    rank: int | None
    stream: str
    text: bytes


class Report(NamedTuple):
    """One of our own texts' reports: `census`, `world` or `exit`, with its words."""

    kind: str
    words: dict[str, str]

    def number(self, word: str) -> int | None:
        """Return one of the words as a number, if it is one."""
        text = self.words.get(word, "")
        return int(text) if text.isdecimal() else None


class Output:
    """Takes lines apart, one after the other; it learns from the reports how the tags look."""

    def __init__(self, family: Family, *, tagged: bool = True) -> None:
        self._openmpi = family is Family.OPENMPI
        self._tagged = tagged
        self._gap = True

    def read(self, line: bytes) -> Iterator[Said | Report]:
        """Yield what one line of the launcher's log holds, without its newline."""
        for said in self._pieces(line):
            found = _REPORT.search(said.text)
            if found is None:
                yield said
                continue
            before = said.text[: found.start()]
            if before:
                yield Said(said.rank, said.stream, before)
            report = _report(found)
            if report.kind == "world":
                self._gap = report.words.get("gap") != "0"
            yield report

    def _pieces(self, line: bytes) -> Iterator[Said]:
        if not self._tagged:
            yield Said(None, "stdout", line)
        elif self._openmpi:
            yield from self._openmpi_pieces(line)
        else:
            tag = _HYDRA.match(line)
            yield Said(int(tag[1]), "stdout", line[tag.end() :]) if tag else Said(None, "stdout", line)

    def _openmpi_pieces(self, line: bytes) -> Iterator[Said]:
        """A rank's text without a newline may be followed by another's tag in the same line."""
        tags = [*_OPENMPI.finditer(line)]
        if not tags or tags[0].start() > 0:
            yield Said(None, "stdout", line[: tags[0].start()] if tags else line)
        ends = [*(tag.start() for tag in tags[1:]), len(line)]
        for tag, end in zip(tags, ends, strict=False):
            text = line[tag.end() : end]
            gap = self._gap and text.startswith(b" ")
            stream = "stdout" if tag[2] == b"stdout" else "stderr"
            yield Said(int(tag[1]), stream, text[1:] if gap else text)


def reports(log: bytes, family: Family) -> Iterator[Report]:
    """Yield the reports in a launcher's log, whoever's tags they carry."""
    output = Output(family)
    for line in log.splitlines():
        if b"mpijob-" in line:
            yield from (said for said in output.read(line) if isinstance(said, Report))


def _report(found: re.Match[bytes]) -> Report:
    words = (word.partition("=") for word in found[2].decode(errors="replace").split(" "))
    return Report(found[1].decode(), {key: value for key, _, value in words})
