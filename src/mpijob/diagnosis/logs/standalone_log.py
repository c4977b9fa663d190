"""A log that somebody was sent, without a job: what it tells, as evidence.

Who said a line is known from the file's name or from its tags (`line_tags`). In a bare log a program could forge such
tags; there is nothing better to go by, so the answer names the line. Reading the files is the caller's business; the
meaning of what is found that of `ranking`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from mpijob.diagnosis.evidence import Evidence, Window
from mpijob.diagnosis.logs import outcome
from mpijob.diagnosis.logs.error_lines import LITERALS
from mpijob.diagnosis.logs.line_tags import Speaker, Tags
from mpijob.diagnosis.logs.log_windows import Piece, cut
from mpijob.diagnosis.logs.prefilter import Prefilter
from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import RULES
from mpijob.model import Exit, Family, MPIJob, Role

_STAND_IN = MPIJob(name="job", workers=2)
_NAME = re.compile(r"(?:^|[-_.])(rank|worker)[-_.]?(\d{1,6})(?!\d)|(launcher)", re.IGNORECASE)
_STAMP = re.compile(rb"[^\d]{0,24}(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_FAMILIES = (
    (Family.OPENMPI, re.compile(rb"prterun|PRTE|PRRTE|ORTE|OMPI_|Open MPI|\[\d+,\d+\]<std(?:out|err)>:")),
    (Family.INTEL, re.compile(rb"Intel\(R\) MPI|I_MPI_|KILLED BY SIGNAL: |bstrap_proxy")),
    (Family.MPICH, re.compile(rb"hydra|MPICH|EXIT STRING: |HYD_|\[proxy:\d")),
)
_TWO = re.compile(rb"suspicious MPI execution environment|no-pmix-but|No PMIx server was reachable")


class _Said(msgspec.Struct):
    number: int
    time: int
    stream: str
    text: bytes


def read(
    logs: Mapping[str, Iterable[bytes]],
    *,
    family: Family = Family.AUTO,
    exit_code: int | None = None,
    spec: MPIJob | None = None,
    site: tuple[Rule, ...] = (),
) -> Evidence:
    """Return what logs tell, each given by name in blocks of bytes; `exit_code` is the launcher's."""
    sieve = Prefilter((*LITERALS, *(sign.literal for rule in (*site, *RULES) for sign in rule.signs)))
    pieces = {name: cut(blocks, sieve) for name, blocks in logs.items()}
    tags = {name: _tags(name, found) for name, found in pieces.items()}
    windows = [
        window
        for name, found in pieces.items()
        for window in _windows(name, found, tags[name], alone=len(pieces) == 1)
    ]
    launcher = None
    if exit_code is not None:
        launcher = Exit(code=exit_code) if exit_code >= 0 else Exit(signal=-exit_code)
    ends = [
        outcome.End(tags[name].read(line).text for line in found[-1].lines)
        for name, found in pieces.items()
        if found
    ]
    return Evidence(
        spec=spec or _STAND_IN,
        bare=spec is None,
        family=_family(pieces) if family is Family.AUTO else family,
        launcher=launcher,
        shown_end=None if launcher is not None else _shown_end(ends),
        went_on=launcher is None and any(end.went_on for end in ends),
        restarted=launcher is None and any(end.restarted for end in ends),
        windows=tuple(windows),
    )


def _shown_end(ends: list[outcome.End]) -> bool | None:
    """Return whether the ends of all logs show a run that ended well, or any of them one that failed."""
    shown = [end.shown for end in ends]
    if False in shown:
        return False
    return True if shown and all(shown) else None


def _family(pieces: Mapping[str, list[Piece]]) -> Family:
    """Return the MPI library whose words occur, the first in the table that does; none where two are mixed."""
    texts = [b"\n".join(piece.lines) for found in pieces.values() for piece in found]
    if any(map(_TWO.search, texts)):  # the words are the program's library's, and the launcher is another's
        return Family.AUTO
    return next((family for family, sign in _FAMILIES if any(map(sign.search, texts))), Family.AUTO)


def _tags(name: str, pieces: list[Piece]) -> Tags:
    return Tags(_speaker_of_file(name), [line for piece in pieces for line in piece.lines])


def _windows(name: str, pieces: list[Piece], tags: Tags, *, alone: bool) -> list[Window]:
    told: list[tuple[Speaker, list[_Said]]] = []
    time = 0
    for piece in pieces:
        groups: dict[Speaker, list[_Said]] = {}
        for at, line in enumerate(piece.lines):
            number = piece.first + at if piece.first else 0
            time = number * 1_000_000 if alone else _stamp(line) or time
            said = tags.read(line)
            groups.setdefault(said.speaker, []).append(_Said(number, time, said.stream, said.text))
        told += groups.items()
    later: dict[Speaker, int] = {}
    windows: list[Window] = []
    for speaker, lines in reversed(told):
        windows.append(_window(name, speaker, lines, later.get(speaker, 0)))
        later[speaker] = later.get(speaker, 0) + len(lines)
    return windows[::-1]


def _window(name: str, speaker: Speaker, lines: list[_Said], after: int) -> Window:
    numbers, times = tuple(line.number for line in lines), tuple(line.time for line in lines)
    texts = tuple(line.text for line in lines)
    return Window(
        speaker.role, texts, numbers, times, lines[0].stream, speaker.worker, speaker.rank, name, after
    )


def _speaker_of_file(name: str) -> Speaker:
    match = _NAME.search(name.rpartition("/")[2])
    if match is None or match[3]:
        return Speaker(Role.LAUNCHER)
    number = int(match[2])
    if match[1].lower() == "rank":
        return Speaker(Role.RANK, None, number)
    return Speaker(Role.WORKER, number)


def _stamp(line: bytes) -> int | None:
    """Return the time at the beginning of a line in nanoseconds, if there is one."""
    match = _STAMP.match(line[:64])
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1].decode()}T{match[2].decode()}").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 10**9 + int((match[3] or b"0").decode().ljust(9, "0"))
