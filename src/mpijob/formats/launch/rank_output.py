"""A launcher's merged output, taken apart again: which rank said what, and what our own texts report.

On a cluster every rank's output travels through mpirun into the launcher's log, where mpirun has put a tag
before each piece of it: a line, or a part of one that was written by itself. Whatever carries no tag is the
launcher's. The words of `pod_scripts` (census, world, exit) are reports, not output, if they come from whom they
speak of. Reading the log is the engine's business.

A program can print what looks like a tag. Hydra's tags hold a word that the launcher makes up for the job and
says before any rank speaks, which no rank can know. Open MPI 5 writes whole lines, so that a tag inside one is
text. Open MPI 4 writes what it gets and has nothing to put into its tags: there a tag is text when it names no
rank of this world or stands right behind another, as in a log that a program prints; one that a program puts
in the middle of a line of its own to deceive is believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mpijob.model import Family

_OPENMPI = re.compile(rb"\[\d+,(?P<rank>\d{1,6})\]<(?P<stream>stdout|stderr|stddiag)>:(?P<step>)")
_EPILOGUE = re.compile(
    rb"\[proxy:[^\]\s]{1,300}\] (?:HYD_pmcd_pmip_control_cmd_cb \([^)]{1,300}\): assert \(!closed\) failed"
    rb"|HYDT_dmxu_poll_wait_for_event \([^)]{1,300}\): callback returned error status"
    rb"|main \([^)]{1,300}\): demux engine error waiting for event)\s*$"
)
_HYDRA_TAG = rb"\[(?:step (?P<step>\d{1,6}) )?rank (?P<rank>\d{1,6})%s\] (?P<stream>)"
_HYDRA = re.compile(_HYDRA_TAG % b"")  # as `launch` and a script's steps have hydra write it
_LONGEST = 64 * 1024  # of a line that is never ended its last part is kept
_REPORT = re.compile(rb"mpijob-(census|ready|world|exit|step|wrong|mpi) ([a-z]+=\S*(?: [a-z]+=\S*)*)$")


def is_epilogue(text: bytes) -> bool:
    """Whether a line is what Hydra says when its proxies are left alone: it looks like a crash, and is none."""
    return text.startswith(b"[proxy:") and _EPILOGUE.match(text) is not None


class RankLine(NamedTuple):
    """A piece of output and who wrote it; `rank` is None for the launcher itself, `step` outside a script's."""

    rank: int | None
    stream: str
    text: bytes
    step: int | None = None


class Report(NamedTuple):
    """One of our own texts' reports: `census`, `ready`, `world`, `exit`, `step`, `wrong` or `mpi`, with its words."""

    kind: str
    words: dict[str, str]

    def number(self, word: str) -> int | None:
        """Return one of the words as a number, if it is one."""
        text = self.words.get(word, "")
        return int(text) if text.isdecimal() else None


class Output:
    """Takes lines apart, one after the other; it learns from the reports how the tags look.

    Open MPI 5 puts a space behind a tag, 4 does not: `gap`, where that is known from the start. `step` is the one
    that runs, of several the last: Open MPI's tags do not name it.
    """

    def __init__(self, family: Family, *, tagged: bool = True, gap: bool | None = None) -> None:
        self.step: int | None = None
        self._openmpi = family is Family.OPENMPI
        self._tagged = tagged
        self._ranks: int | None = None  # in the world, once it is counted
        self._gap = gap is not False
        self._sure = gap is not None
        self._tag = _OPENMPI if self._openmpi else _HYDRA
        self._begun: dict[
            tuple[int | None, int, str], bytes
        ] = {}  # by who wrote them: lines cut off by another's

    def read(self, line: bytes) -> Iterator[RankLine | Report]:
        """Yield what one line of the launcher's log holds, without its newline."""
        for said in self._whole_lines(line):
            found = _REPORT.search(said.text)
            report = _report(found) if found else None
            if found is None or report is None or not self._believed(report, said.rank):
                yield said
                continue
            before = said.text[: found.start()]
            if before:
                yield said._replace(text=before)
            if report.kind == "world":
                self._learn(report)
            elif report.kind == "step" and "ranks" in report.words:
                self.step, self._ranks = report.number("number"), None
            yield report

    def rest(self) -> Iterator[RankLine]:
        """Yield the lines that were begun and never ended, when the log is over."""
        for (step, rank, stream), text in self._begun.items():
            yield RankLine(rank, stream, text, step)
        self._begun.clear()

    def _believed(self, report: Report, rank: int | None) -> bool:
        """Whether a report comes from whom it speaks of: the launcher counts, each rank tells its own end."""
        if rank is None:
            return not (self._sure and report.kind == "world")
        return report.kind in ("census", "exit", "wrong", "mpi") and report.number("rank") == rank

    def _learn(self, report: Report) -> None:
        self._gap, self._sure = report.words.get("gap") != "0", True
        self._ranks = report.number("ranks")
        if (word := report.words.get("tag", "")) and not self._openmpi:
            self._tag = re.compile(_HYDRA_TAG % (b" " + re.escape(word.encode())))

    def _whole_lines(self, line: bytes) -> Iterator[RankLine]:
        """A line that another rank's cut off goes on with the next piece of its own."""
        *cut, last = self.pieces(line)
        for said in cut:
            if said.rank is None:
                yield said
            else:
                self._begun[said.step, said.rank, said.stream] = self._with_beginning(said).text
        yield self._with_beginning(last)

    def _with_beginning(self, said: RankLine) -> RankLine:
        begun = b"" if said.rank is None else self._begun.pop((said.step, said.rank, said.stream), b"")
        return said._replace(text=begun[-_LONGEST:] + said.text) if begun else said

    def pieces(self, line: bytes) -> Iterator[RankLine]:
        """Yield what the writers of one line have put there; what one rank wrote at a time belongs together."""
        whole: RankLine | None = None
        for piece in self._tagged_pieces(line):
            if whole is not None and piece._replace(text=b"") == whole._replace(text=b""):
                whole = whole._replace(text=whole.text + piece.text)
                continue
            if whole is not None:
                yield whole
            whole = piece
        if whole is not None:
            yield whole

    def _tagged_pieces(self, line: bytes) -> Iterator[RankLine]:
        tags = self._tags(line) if self._tagged else []
        first = tags[0].start() if tags else len(line)
        if first > 0 or not tags:
            yield RankLine(None, "stdout", line[:first])
        ends = [*(tag.start() for tag in tags[1:]), len(line)]
        for tag, end in zip(tags, ends, strict=False):
            text = line[tag.end() : end]
            if not self._sure and not text.startswith(b" "):
                self._gap = False
            gap = self._openmpi and self._gap and text.startswith(b" ")
            stream = "stdout" if tag["stream"] in (b"", b"stdout") else "stderr"
            step = int(tag["step"]) if tag["step"] else self.step
            yield RankLine(int(tag["rank"]), stream, text[1:] if gap else text, step)

    def _tags(self, line: bytes) -> list[re.Match[bytes]]:
        """Return the tags in a line that the launcher has put there, as far as can be known."""
        if self._openmpi and self._sure and self._gap:
            first = (
                self._tag.match(line) if self.step is None else self._tag.search(line)
            )  # a script says the rest
            return [first] if first else []
        tags: list[re.Match[bytes]] = []
        for tag in self._tag.finditer(line):
            beyond = self._ranks is not None and int(tag["rank"]) >= self._ranks
            stranger = self.step is not None and tag["step"] is None  # a step's own tags name it
            if not beyond and not stranger and (not tags or tag.start() > tags[-1].end()):
                tags.append(tag)
        return tags


def ranks_in(log: bytes, family: Family) -> set[int]:
    """Return the ranks whose tags are somewhere in a launcher's log."""
    tags = _OPENMPI if family is Family.OPENMPI else _HYDRA
    return {int(tag["rank"]) for tag in tags.finditer(log)}


def reports(log: bytes, family: Family) -> Iterator[Report]:
    """Yield the reports in a launcher's log, whoever's tags they carry."""
    output = Output(family)
    for line in log.splitlines():
        if b"mpijob-" in line:
            yield from (said for said in output.read(line) if isinstance(said, Report))


def _report(found: re.Match[bytes]) -> Report:
    words = (word.partition("=") for word in found[2].decode(errors="replace").split(" "))
    return Report(found[1].decode(), {key: value for key, _, value in words})
