"""A writer of the record is killed with SIGKILL at every step that touches the disk; the next one goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.history_support import a_key, a_state, a_voice, after, line, recorded, texts

from mpijob.history import log_writer as capturing
from mpijob.history import retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.import_job import JobImport, import_job
from mpijob.history.log_writer import Capture
from mpijob.history.retention import RetentionSettings
from mpijob.history.storage import chunks
from mpijob.model import JobRef, Phase, Role

LINES = [line(number // 2) for number in range(120)]  # two lines each moment
STEPS = 400  # more than any of these writers takes


class _Steps:
    """Counts what a process does to the disk, and kills it at one of these steps."""

    def __init__(self, fatal: int) -> None:
        self._fatal = fatal
        self._count = 0

    def step(self) -> None:
        self._count += 1
        if self._count == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            self.step()
            answer = call(*arguments, **named)
            self.step()
            return answer

        return stepping

    def torn(self, fd: int, data: Any, at: int) -> int:
        """Write half of it, be killed or not, and let the caller write the rest."""
        self.step()
        written = os.pwrite(fd, bytes(data)[: len(data) // 2 if len(data) > 100 else len(data)], at)
        self.step()
        return written


def _killed_at(fatal: int, work: Callable[[], None], watched: Callable[[], Archive]) -> bool:
    """Do some work in a child that is killed at one step; return whether it came that far."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    steps = _Steps(fatal)
    real = os

    class Os:
        def __getattr__(self, name: str) -> Any:
            if name == "pwrite":
                return steps.torn
            found = getattr(real, name)
            return steps.around(found) if name in ("ftruncate", "fdatasync", "open", "unlink") else found

    for module in (chunks, capturing, retention):
        vars(module)["os"] = Os()  # the child's own
    archive = watched()
    archive._db.set_trace_callback(lambda sql: steps.step() if sql in ("COMMIT", "BEGIN IMMEDIATE") else None)
    work()
    os._exit(0)


def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "BUFFER_BYTES", 700)
    monkeypatch.setattr(capturing, "CHUNK_BYTES", 2500)


def _record(archive: Archive) -> None:
    """Do what a recorder does: go on where the record ends, until the engine has no more."""
    capture = Capture(archive, archive.add_source(a_voice()))
    for one in after(capture.position(), LINES):
        capture.write(one)
    capture.end()


@pytest.mark.thorough
@pytest.mark.req("C-history")
@pytest.mark.parametrize("large_bytes", [64 << 10, 100], ids=["written anew", "sealed as it is"])
def test_a_recorder_killed_at_any_step_loses_nothing_and_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    _small(monkeypatch)
    monkeypatch.setattr(chunks, "LARGE_BYTES", large_bytes)
    for fatal in range(1, STEPS):
        archive = Archive(str(tmp_path / str(fatal)))
        archive.put_job(a_state(), now=1.0)
        archive.close()
        opened: list[Archive] = []

        def watched(directory: str = archive.directory, opened: list[Archive] = opened) -> Archive:
            opened.append(Archive(directory))
            return opened[0]

        killed = _killed_at(fatal, lambda opened=opened: _record(opened[0]), watched)  # type: ignore[misc]  # bound now
        after_it = Archive(archive.directory)
        _record(after_it)
        assert recorded(after_it, "u1") == b"".join(LINES), f"killed at step {fatal}"
        assert after_it.gaps(a_key()) == ()
        retention.apply_retention(after_it, RetentionSettings(), os.stat(after_it.logs).st_mtime + 4000)
        (voice,) = after_it.sources(a_key())
        known = sorted(os.path.basename(chunk.file) for chunk in after_it.chunks(voice.id))
        assert sorted(os.listdir(after_it.job_directory(a_key()))) == known, f"killed at step {fatal}"
        after_it.close()
        if not killed:
            assert fatal > 20
            return
    pytest.fail("the writer never came to its end")


@pytest.mark.thorough
def test_a_recorder_killed_again_and_again_comes_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small(monkeypatch)
    directory = str(tmp_path / "history")
    archive = Archive(directory)
    archive.put_job(a_state(), now=1.0)
    archive.close()
    opened: list[Archive] = []

    def watched() -> Archive:
        opened[:] = [Archive(directory)]
        return opened[0]

    kills = 0
    while _killed_at(30, lambda: _record(opened[0]), watched):
        kills += 1
        assert kills < STEPS
    assert kills > 2
    assert recorded(Archive(directory), "u1") == b"".join(LINES)


@pytest.mark.thorough
def test_a_job_whose_taking_in_is_killed_at_any_step_is_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"".join(LINES))
    whole = JobImport(state=a_state(phase=Phase.SUCCEEDED, finished=2.0, deleted=3.0))
    voice = a_voice(role=Role.RANK, worker=None, rank=0, source="rank-0.log")
    seen = set()
    for fatal in range(1, STEPS):
        opened: list[Archive] = []

        def watched(opened: list[Archive] = opened, fatal: int = fatal) -> Archive:
            opened.append(Archive(str(tmp_path / str(fatal))))
            return opened[0]

        def work(opened: list[Archive] = opened) -> None:
            import_job(opened[0], whole, [(voice, str(log))], 3.0)

        killed = _killed_at(fatal, work, watched)
        archive = Archive(str(tmp_path / str(fatal)))
        past = ArchiveReader(archive)
        there = past.state(JobRef("team", "bert")) is not None
        seen.add(there)
        assert len(texts(past)) == (len(LINES) if there else 0)
        import_job(archive, whole, [(voice, str(log))], 3.0)
        assert len(texts(past)) == len(LINES)
        archive.close()
        if not killed:
            assert seen == {False, True}
            return
    pytest.fail("the writer never came to its end")


@pytest.mark.thorough
def test_an_erasure_killed_at_any_step_can_be_finished(tmp_path: Path) -> None:
    for fatal in range(1, STEPS):
        directory = str(tmp_path / str(fatal))
        archive = Archive(directory)
        archive.put_job(a_state(), now=1.0)
        _record(archive)
        archive.close()
        opened: list[Archive] = []

        def watched(opened: list[Archive] = opened, directory: str = directory) -> Archive:
            opened.append(Archive(directory))
            return opened[0]

        def work(opened: list[Archive] = opened) -> None:
            ArchiveReader(opened[0]).delete_job(JobRef("team", "bert"))

        killed = _killed_at(fatal, work, watched)
        after_it = Archive(directory)
        ArchiveReader(after_it).delete_job(JobRef("team", "bert"))
        assert after_it.read("SELECT count(*) FROM jobs") == [(0,)]
        assert os.listdir(after_it.logs) == []
        if not killed:
            return
    pytest.fail("the erasure never came to its end")
