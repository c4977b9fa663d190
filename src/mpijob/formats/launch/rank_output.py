"""Splits a launcher's merged output by rank, and finds the reports of our own scripts in it.

On a cluster every rank's output goes through mpirun into the launcher's log, with a tag before each piece (a line, or
a part of one). Output without a tag is the launcher's. Lines `mpijob-…` of `pod_scripts` are reports if they come
from the rank that they describe. Engines read the log itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mpijob.model import Family

# A program can print what looks like a tag:
# - Hydra's tags contain a random word, which the launcher prints before any rank starts, and no rank can know.
# - Open MPI 5 writes whole lines, so a tag inside a line is text.
# - Open MPI 4 writes pieces and its tags cannot be changed. A tag is text if its rank is not in this world, or if it
#   directly follows another (a program that prints a log). A forged tag in the middle of a line is not detected.
_OPENMPI = re.compile(rb"\[\d+,(?P<rank>\d{1,6})\]<(?P<stream>stdout|stderr|stddiag)>:(?P<step>)")
_EPILOGUE = re.compile(
    rb"\[proxy:[^\]\s]{1,300}\] (?:HYD_pmcd_pmip_control_cmd_cb \([^)]{1,300}\): assert \(!closed\) failed"
    rb"|HYDT_dmxu_poll_wait_for_event \([^)]{1,300}\): callback returned error status"
    rb"|main \([^)]{1,300}\): demux engine error waiting for event)\s*$"
)
_HYDRA_TAG = rb"\[(?:step (?P<step>\d{1,6}) )?rank (?P<rank>\d{1,6})%s\] (?P<stream>)"
# As set by `command_line` and, with a step, by `scripts/step.sh`.
_HYDRA = re.compile(_HYDRA_TAG % b"")
# Of a longer line, in bytes, the last part is kept.
_LONGEST = 64 * 1024
_REPORT = re.compile(rb"mpijob-(census|ready|world|exit|step|wrong|mpi) ([a-z]+=\S*(?: [a-z]+=\S*)*)$")


def is_epilogue(text: bytes) -> bool:
    """Whether a line is printed by Hydra's proxies when mpiexec has ended: it looks like a crash, and is none."""
    return text.startswith(b"[proxy:") and _EPILOGUE.match(text) is not None


class RankLine(NamedTuple):
    """A piece of output; `rank` is None for the launcher, `step` is None outside a script's steps."""

    rank: int | None
    stream: str
    text: bytes
    step: int | None = None


class Report(NamedTuple):
    """A report of our own scripts: `census`, `ready`, `world`, `exit`, `step`, `wrong` or `mpi`, with its words."""

    kind: str
    words: dict[str, str]

    def number(self, word: str) -> int | None:
        """Return a word as a number, None if it is none."""
        text = self.words.get(word, "")
        return int(text) if text.isdecimal() else None


class Output:
    """Splits the lines of one launcher's log, in order; it learns the form of tags from the reports.

    Open MPI 5 puts a space after a tag, 4 does not: `gap`, None if unknown. `step` is the one that runs, the last of
    several: Open MPI's tags do not name it.
    """

    def __init__(self, family: Family, *, tagged: bool = True, gap: bool | None = None) -> None:
        self.step: int | None = None
        self._openmpi = family is Family.OPENMPI
        self._tagged = tagged
        # The size of the world, once the census has counted it.
        self._ranks: int | None = None
        self._gap = gap is not False
        self._is_gap_known = gap is not None
        self._tag = _OPENMPI if self._openmpi else _HYDRA
        # Incomplete lines by writer: another rank's output came between.
        self._incomplete: dict[tuple[int | None, int, str], bytes] = {}

    def read(self, line: bytes) -> Iterator[RankLine | Report]:
        """Yield what one line of the launcher's log contains; `line` has no newline."""
        for piece in self._whole_lines(line):
            found = _REPORT.search(piece.text)
            report = _report(found) if found else None
            if found is None or report is None or not self._is_trusted(report, piece.rank):
                yield piece
                continue
            before = piece.text[: found.start()]
            if before:
                yield piece._replace(text=before)
            if report.kind == "world":
                self._learn(report)
            elif report.kind == "step" and "ranks" in report.words:
                self.step, self._ranks = report.number("number"), None
            yield report

    def rest(self) -> Iterator[RankLine]:
        """Yield the incomplete lines at the end of the log."""
        for (step, rank, stream), text in self._incomplete.items():
            yield RankLine(rank, stream, text, step)
        self._incomplete.clear()

    def _is_trusted(self, report: Report, rank: int | None) -> bool:
        # Programs may print any text: only the launcher reports about the world (once), and a rank about itself.
        if rank is None:
            return not (self._is_gap_known and report.kind == "world")
        return report.kind in ("census", "exit", "wrong", "mpi") and report.number("rank") == rank

    def _learn(self, report: Report) -> None:
        self._gap, self._is_gap_known = report.words.get("gap") != "0", True
        self._ranks = report.number("ranks")
        if (word := report.words.get("tag", "")) and not self._openmpi:
            self._tag = re.compile(_HYDRA_TAG % (b" " + re.escape(word.encode())))

    def _whole_lines(self, line: bytes) -> Iterator[RankLine]:
        """Yield complete lines: the rest of a line that another rank interrupted follows with a later tag."""
        *cut, last = self.pieces(line)
        for piece in cut:
            if piece.rank is None:
                yield piece
            else:
                self._incomplete[piece.step, piece.rank, piece.stream] = self._completed(piece).text
        yield self._completed(last)

    def _completed(self, piece: RankLine) -> RankLine:
        beginning = (
            b"" if piece.rank is None else self._incomplete.pop((piece.step, piece.rank, piece.stream), b"")
        )
        return piece._replace(text=beginning[-_LONGEST:] + piece.text) if beginning else piece

    def pieces(self, line: bytes) -> Iterator[RankLine]:
        """Yield the parts of a line by writer; adjacent parts of one writer are joined."""
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
            if not self._is_gap_known and not text.startswith(b" "):
                self._gap = False
            gap = self._openmpi and self._gap and text.startswith(b" ")
            stream = "stdout" if tag["stream"] in (b"", b"stdout") else "stderr"
            step = int(tag["step"]) if tag["step"] else self.step
            yield RankLine(int(tag["rank"]), stream, text[1:] if gap else text, step)

    def _tags(self, line: bytes) -> list[re.Match[bytes]]:
        """Return the tags in a line that the launcher has written, as far as that can be decided."""
        if self._openmpi and self._is_gap_known and self._gap:
            # A step's output may follow text that the script itself has printed without a newline.
            first = self._tag.match(line) if self.step is None else self._tag.search(line)
            return [first] if first else []
        tags: list[re.Match[bytes]] = []
        for tag in self._tag.finditer(line):
            beyond = self._ranks is not None and int(tag["rank"]) >= self._ranks
            # A step's own tags name it.
            stranger = self.step is not None and tag["step"] is None
            if not beyond and not stranger and (not tags or tag.start() > tags[-1].end()):
                tags.append(tag)
        return tags


def ranks_in(log: bytes, family: Family) -> set[int]:
    """Return the ranks whose tags occur in a launcher's log."""
    tags = _OPENMPI if family is Family.OPENMPI else _HYDRA
    return {int(tag["rank"]) for tag in tags.finditer(log)}


def reports(log: bytes, family: Family) -> Iterator[Report]:
    """Yield the reports in a launcher's log."""
    output = Output(family)
    for line in log.splitlines():
        if b"mpijob-" in line:
            yield from (piece for piece in output.read(line) if isinstance(piece, Report))


def _report(found: re.Match[bytes]) -> Report:
    words = (word.partition("=") for word in found[2].decode(errors="replace").split(" "))
    return Report(found[1].decode(), {key: value for key, _, value in words})
