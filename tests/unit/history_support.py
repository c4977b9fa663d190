"""Archives for tests: jobs to write down, lines as an engine gives them, and a writer that can be killed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec

from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.log_writer import Capture
from mpijob.history.records import LogFormat, LogSource, Position
from mpijob.history.storage import chunks, tiering
from mpijob.model import JobKey, JobRef, JobState, LogQuery, MPIJob, Phase, Role
from mpijob.observation.logs import cri

START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000  # a line each millisecond


def a_state(name: str = "bert", uid: str = "u1", phase: Phase = Phase.RUNNING, **fields: Any) -> JobState:
    known: dict[str, Any] = {"created": START_NS / 1e9, "world": 2, "workers_wanted": 1}
    return JobState(ref=JobRef("team", name, uid), phase=phase, **known | fields)


def a_spec(**fields: Any) -> MPIJob:
    return MPIJob(name="bert", namespace="team", workers=1, command=("true",)).replace(**fields)


def a_key(uid: str = "u1") -> JobKey:
    return JobKey("team", uid)


def a_voice(uid: str = "u1", **fields: Any) -> LogSource:
    known: dict[str, Any] = {
        "key": a_key(uid),
        "role": Role.WORKER,
        "worker": 0,
        "source": "pod-0",
        "format": LogFormat.CRI,
    }
    return LogSource(**known | fields)


def line(number: int, text: str = "") -> bytes:
    """Return the stored line with this number."""
    return cri.format_line(START_NS + number * STEP_NS, "stdout", (text or f"line {number}").encode(), False)


def after(position: Position, lines: list[bytes]) -> list[bytes]:
    """Return what an engine still has behind a position, as the recorder asks for it."""
    if not position.stamp:
        return lines
    left = [one for one in lines if one.partition(b" ")[0] >= position.stamp]
    return left[position.repeats :]


def texts(past: ArchiveReader, name: str = "bert", **query: Any) -> list[str]:
    wanted = LogQuery(**query)
    return [one.text.decode() for one in past.logs(JobRef("team", name), wanted)]


def stored_lines(archive: Archive, source: LogSource) -> list[bytes]:
    """Return the stored lines of one log source, each with its newline, as the engine wrote them."""
    blocks = (
        block
        for chunk in archive.chunks(source.id)
        for block in chunks.read(tiering.local_path(archive, chunk.file), chunk.size)
    )
    return [*io.BytesIO(b"".join(blocks))]


def recorded(archive: Archive, uid: str) -> bytes:
    """Return all stored lines of a job as they were given."""
    return b"".join(raw for source in archive.sources(a_key(uid)) for raw in stored_lines(archive, source))


def said(archive: Archive, count: int, **voice: Any) -> Capture:
    """Let a voice say so many lines; they are taken, and not yet written to their end."""
    capture = Capture(archive, archive.add_source(a_voice(**voice)))
    for number in range(count):
        capture.write(line(number))
    return capture


def encoded(spec: MPIJob) -> bytes:
    """Return a job as an archive keeps it."""
    return msgspec.json.encode(spec)


def archived(tmp_path: Path) -> Archive:
    """The fixture `archive` of those who want it."""
    return Archive(str(tmp_path / "history"))


def shared_archive(tmp_path: Path) -> Archive:
    """The fixture `archive` of those whose threads use it together."""
    return Archive(str(tmp_path / "history"), shared=True)
