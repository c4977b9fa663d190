"""Who said a line of a log: the tags that launchers, kubectl, docker, srun and `mpijob logs` put before lines.

Some have a fixed form. Others are known from the log itself: what stands before a traceback also stands before the
lines of its stack, and a tag of one launcher stands before most lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mpijob.diagnosis.template_fields import worker_of_host
from mpijob.model import Role

MOST_TAGS = 4  # of different programs, before one line
_SAMPLE = 50
_LEAST = 5
_MOST_LINES = 0.6
_TRACEBACK = b"Traceback (most recent call last)"
_TAG = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:(?P<cri>stdout|stderr) [FP] )?"
    rb"|\[Rank-(?P<ours>\d{1,6})\] |\[Worker-(?P<worker>\d{1,6})\] |(?P<launcher>\[Launcher\] )"
    rb"|\[(?:[\w.@-]{1,120},|\d+,)(?P<openmpi>\d{1,6})\]<(?P<stream>stdout|stderr|stddiag)>: ?"
    rb"|\[(?:rank ?|default)(?P<torch>\d{1,6})\]:? "
    rb"|\[pod/(?P<pod>[^/\]]{1,253})/[^\]]{1,253}\] "
)
_OF_MOST = (  # of a launcher that puts it before each line
    re.compile(rb"\[(?P<rank>\d{1,6})\] "),  # mpiexec -l
    re.compile(rb" {0,5}(?P<rank>\d{1,6}): "),  # srun --label
    re.compile(rb"(?P<host>[\w.-]{1,80}) +\| "),  # docker compose
    re.compile(rb"(?P<host>[A-Za-z](?=[\w.-]*\d)[\w.-]{0,80}): "),  # pdsh
    re.compile(rb"(?P<host>\([\w.()-]{1,80} pid=\d+[^)\n]{0,80}\)) "),  # Ray
)
_BEFORE = re.compile(rb"(\S.{0,100}?[\s:|>\])])" + re.escape(_TRACEBACK) + rb":\s*$")
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_RANK = re.compile(rb"(?i)\brank[ =:_-]{0,2}(\d{1,6})|^\W{0,2}(\d{1,6})\W{1,3}$")


class Speaker(NamedTuple):
    """Who said a line; `tag` tells apart those whose number is not known."""

    role: Role
    worker: int | None = None
    rank: int | None = None
    tag: bytes = b""


class Said(NamedTuple):
    """A line without its tags."""

    speaker: Speaker
    stream: str
    text: bytes


class Tags:
    """The tags of one log."""

    def __init__(self, default: Speaker, lines: Sequence[bytes]) -> None:
        self._default = default
        self._own = (*_of_most(lines), *_of_tracebacks(lines))

    def read(self, line: bytes) -> Said:
        """Return who said a line, on which stream, and the line without its tags."""
        speaker, stream, at = self._default, "stdout", 0
        for _ in range(MOST_TAGS):
            if (tag := _TAG.match(line, at)) is None:
                break
            at = tag.end()
            speaker = _of_tag(tag) or speaker
            stream = "stderr" if b"stderr" in (tag["cri"], tag["stream"]) else stream
        for pattern in self._own:
            if (tag := pattern.match(line, at)) is not None:
                return Said(_of_own(tag, speaker), stream, line[tag.end() :])
        return Said(speaker, stream, line[at:])


def _of_tag(tag: re.Match[bytes]) -> Speaker | None:
    """Return whom a tag of a fixed form names."""
    rank = tag["ours"] or tag["openmpi"] or tag["torch"]
    if rank is not None:
        return Speaker(Role.RANK, None, int(rank))
    if tag["worker"] is not None:
        return Speaker(Role.WORKER, int(tag["worker"]))
    worker = worker_of_host(tag["pod"].decode(errors="replace")) if tag["pod"] else None
    return None if worker is None else Speaker(Role.WORKER, worker)


def _of_own(tag: re.Match[bytes], speaker: Speaker) -> Speaker:
    """Return whom a tag of the log's own form names: a rank, a worker, or somebody apart from the others."""
    if speaker.rank is not None:
        return speaker
    found = _RANK.search(tag[0])
    if found is not None:
        return Speaker(Role.RANK, None, int(found[1] or found[2]))
    worker = worker_of_host(tag[0].decode(errors="replace").strip(" |:"))
    if worker is not None:
        return Speaker(Role.WORKER, worker)
    return speaker._replace(tag=_MOMENT.sub(b"", tag[0]))


def _of_most(lines: Sequence[bytes]) -> Iterator[re.Pattern[bytes]]:
    """Yield the tag that most of the first lines have; one such line alone proves nothing."""
    said = [line for line in lines[:_SAMPLE] if line.strip()]
    for pattern in _OF_MOST if len(said) >= _LEAST else ():
        tags = [match[0] for line in said if (match := pattern.match(line))]
        often = len(tags) > _MOST_LINES * len(said)
        if often and ("rank" in pattern.groupindex or len(set(tags)) <= len(tags) / 2):
            yield pattern
            return


def _of_tracebacks(lines: Sequence[bytes]) -> Iterator[re.Pattern[bytes]]:
    """Yield the tags before tracebacks, where the lines of the stack have them, too."""
    heads = (_without_tags(line) for line in lines if _TRACEBACK in line)
    shapes = {_shape(before[1]) for text in heads if (before := _BEFORE.match(text)) is not None}
    frames = [_without_tags(line) for line in lines if shapes and b'File "' in line]
    for shape in sorted(shapes):
        frame = re.compile(shape + rb"\s*File \"")
        if any(map(frame.match, frames)):
            yield re.compile(shape)


def _without_tags(line: bytes) -> bytes:
    at = 0
    while (tag := _TAG.match(line, at)) is not None:
        at = tag.end()
    return line[at:]


def _shape(prefix: bytes) -> bytes:
    """Return a pattern for a prefix whose numbers may differ."""
    numbers = re.split(rb"(\d+)", prefix)
    return b"".join(rb"\d+" if part.isdigit() else re.escape(part) for part in numbers)
