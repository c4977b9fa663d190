"""A log that somebody was sent, without a job: what it tells, as evidence.

Who said a line is known from the file's name or from the tags that launchers, kubectl and `mpijob logs` put
before lines. In a bare log a program could forge such tags; there is nothing better to go by, so the answer
names the line. Reading the files is the caller's business; the meaning of what is found that of `ranking`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from mpijob.diagnosis.evidence import Evidence, Window
from mpijob.diagnosis.logs import outcome
from mpijob.diagnosis.logs.error_lines import LITERALS
from mpijob.diagnosis.logs.log_windows import Piece, cut
from mpijob.diagnosis.logs.prefilter import Prefilter
from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import RULES
from mpijob.diagnosis.template_fields import worker_of_host
from mpijob.model import Exit, Family, MPIJob, Role

_STAND_IN = MPIJob(name="job", workers=2)
_NAME = re.compile(r"(?:^|[-_.])(rank|worker)[-_.]?(\d{1,6})(?!\d)|(launcher)", re.IGNORECASE)
_TAG = re.compile(
    rb"(?:(?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z) (?:(?P<cri>stdout|stderr) [FP] )?)?"
    rb"(?:\[Rank-(?P<ours>\d{1,6})\] |\[Worker-(?P<worker>\d{1,6})\] |\[Launcher\] "
    rb"|\[\d+,(?P<openmpi>\d{1,6})\]<(?P<stream>stdout|stderr|stddiag)>: ?"
    rb"|\[rank ?(?P<torch>\d{1,6})\]:? |\[pod/(?P<pod>[^/\]]{1,253})/[^\]]{1,253}\] )?"
)
_HYDRA = re.compile(rb"\[(\d{1,6})\] ")
_STAMP = re.compile(rb"[^\d]{0,24}(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_FAMILIES = (
    (Family.OPENMPI, re.compile(rb"prterun|PRTE|PRRTE|ORTE|OMPI_|Open MPI|\[\d+,\d+\]<std(?:out|err)>:")),
    (Family.INTEL, re.compile(rb"Intel\(R\) MPI|I_MPI_|KILLED BY SIGNAL: |bstrap_proxy")),
    (Family.MPICH, re.compile(rb"hydra|MPICH|EXIT STRING: |HYD_|\[proxy:\d")),
)
_TWO = re.compile(rb"suspicious MPI execution environment|no-pmix-but|No PMIx server was reachable")
_Speaker = tuple[Role, int | None, int | None]


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
    windows = [
        window for name, found in pieces.items() for window in _windows(name, found, alone=len(pieces) == 1)
    ]
    launcher = None
    if exit_code is not None:
        launcher = Exit(code=exit_code) if exit_code >= 0 else Exit(signal=-exit_code)
    return Evidence(
        spec=spec or _STAND_IN,
        bare=spec is None,
        family=_family(pieces) if family is Family.AUTO else family,
        launcher=launcher,
        shown_end=None if launcher is not None else _shown_end(pieces),
        went_on=launcher is None
        and any(outcome.went_on(found[-1].lines) for found in pieces.values() if found),
        windows=tuple(windows),
    )


def _shown_end(pieces: Mapping[str, list[Piece]]) -> bool | None:
    """Return whether the ends of all logs show a run that ended well, or any of them one that failed."""
    ends = [outcome.shown(found[-1].lines) for found in pieces.values() if found]
    if False in ends:
        return False
    return True if ends and all(ends) else None


def _family(pieces: Mapping[str, list[Piece]]) -> Family:
    """Return the MPI library whose words occur, the first in the table that does; none where two are mixed."""
    texts = [b"\n".join(piece.lines) for found in pieces.values() for piece in found]
    if any(map(_TWO.search, texts)):  # the words are the program's library's, and the launcher is another's
        return Family.AUTO
    return next((family for family, sign in _FAMILIES if any(map(sign.search, texts))), Family.AUTO)


def _windows(name: str, pieces: list[Piece], *, alone: bool) -> list[Window]:
    default, hydra = _speaker_of_file(name), _has_hydra_tags(pieces)
    told: list[tuple[_Speaker, list[_Said]]] = []
    time = 0
    for piece in pieces:
        groups: dict[_Speaker, list[_Said]] = {}
        for at, line in enumerate(piece.lines):
            number = piece.first + at if piece.first else 0
            time = number * 1_000_000 if alone else _stamp(line) or time
            speaker, stream, text = _taken_apart(line, default, hydra=hydra)
            groups.setdefault(speaker, []).append(_Said(number, time, stream, text))
        told += groups.items()
    later: dict[_Speaker, int] = {}
    windows: list[Window] = []
    for speaker, lines in reversed(told):
        windows.append(_window(name, speaker, lines, later.get(speaker, 0)))
        later[speaker] = later.get(speaker, 0) + len(lines)
    return windows[::-1]


def _window(name: str, speaker: _Speaker, lines: list[_Said], after: int) -> Window:
    role, worker, rank = speaker
    numbers, times = tuple(line.number for line in lines), tuple(line.time for line in lines)
    texts = tuple(line.text for line in lines)
    return Window(role, texts, numbers, times, lines[0].stream, worker, rank, name, after)


def _speaker_of_file(name: str) -> _Speaker:
    match = _NAME.search(name.rpartition("/")[2])
    if match is None or match[3]:
        return Role.LAUNCHER, None, None
    number = int(match[2])
    if match[1].lower() == "rank":
        return Role.RANK, None, number
    return Role.WORKER, number, None


def _has_hydra_tags(pieces: list[Piece]) -> bool:
    """Whether most lines begin with a rank as mpiexec -l writes it; a single such line proves nothing."""
    lines = [line for piece in pieces[:1] for line in piece.lines[:50] if line.strip()]
    return len(lines) > 4 and sum(_HYDRA.match(line) is not None for line in lines) > len(lines) * 0.6


def _taken_apart(line: bytes, default: _Speaker, *, hydra: bool) -> tuple[_Speaker, str, bytes]:
    """Return who said a line, on which stream, and the line without its tag."""
    if hydra and (match := _HYDRA.match(line)):
        return (Role.RANK, None, int(match[1])), "stdout", line[match.end() :]
    tag = _TAG.match(line)
    assert tag is not None  # every part of it may be missing
    text, stream = line[tag.end() :], "stderr" if b"stderr" in (tag["cri"], tag["stream"]) else "stdout"
    rank = tag["ours"] or tag["openmpi"] or tag["torch"]
    if rank is not None:
        return (Role.RANK, None, int(rank)), stream, text
    if tag["worker"] is not None:
        return (Role.WORKER, int(tag["worker"]), None), stream, text
    if tag["pod"] is not None and (worker := worker_of_host(tag["pod"].decode(errors="replace"))) is not None:
        return (Role.WORKER, worker, None), stream, text
    return default, stream, text


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
