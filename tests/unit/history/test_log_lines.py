"""The lines of a record: found again byte for byte and never twice, and told where damage has left none."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.history_support import (
    START_NS,
    STEP_NS,
    a_key,
    a_spec,
    a_state,
    a_voice,
    after,
    archived,
    encoded,
    line,
    recorded,
    said,
    texts,
)
from tests.unit.properties import examples

from mpijob.errors import BackendError
from mpijob.history import log_writer as capturing
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.import_job import JobImport, import_job
from mpijob.history.log_writer import Capture
from mpijob.history.records import Gap, format_numbers, parse_numbers
from mpijob.history.storage import chunks
from mpijob.model import JobRef, LogQuery, Phase, Role
from mpijob.observation.logs import cri

archive = pytest.fixture(archived)


# -- lines -----------------------------------------------------------------------------------------
@pytest.mark.req("US2-3")
def test_lines_come_back_byte_for_byte(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "BUFFER_BYTES", 500)
    monkeypatch.setattr(capturing, "CHUNK_BYTES", 3000)
    archive.put_job(a_state(), now=1.0)
    capture = said(archive, 200)
    capture.end()
    assert recorded(archive, "u1") == b"".join(line(number) for number in range(200))
    stored = archive.chunks(capture.source.id)
    assert len(stored) > 2
    assert sum(chunk.lines for chunk in stored) == 200
    assert all(chunk.sealed for chunk in stored)
    assert sorted(os.listdir(archive.job_directory(a_key()))) == sorted(
        os.path.basename(chunk.file) for chunk in stored
    )


def test_every_filter_of_a_query_works_on_the_record(archive: Archive) -> None:
    archive.put_job(a_state(), now=1.0)
    for rank in range(3):
        capture = Capture(
            archive, archive.add_source(a_voice(role=Role.RANK, worker=None, rank=rank, source=f"r{rank}"))
        )
        capture.write(line(rank, f"rank {rank} begins"))
        capture.write(line(10 + rank, f"rank {rank} ends"))
        capture.end()
    found = ArchiveReader(archive)
    begins, ends = [[f"rank {rank} {word}" for rank in range(3)] for word in ("begins", "ends")]
    assert texts(found) == [*begins, *ends]
    assert texts(found, ranks=(1,)) == ["rank 1 begins", "rank 1 ends"]
    assert texts(found, roles=(Role.LAUNCHER,)) == []
    assert texts(found, regex="ends") == ends
    assert texts(found, tail=2) == ends[1:]
    assert texts(found, since=(START_NS + 5 * STEP_NS) / 1e9) == ends
    assert texts(found, until=(START_NS + 5 * STEP_NS) / 1e9) == begins
    assert texts(found, attempt=2) == []


def test_only_chunks_that_can_hold_a_wanted_line_are_opened(archive: Archive) -> None:
    archive.put_job(a_state(), now=1.0)
    old, new = said(archive, 1, source="old"), said(archive, 1, source="new")
    old.end()
    new.write(line(1000))
    new.end()
    (chunk,) = archive.chunks(old.source.id)
    os.unlink(archive.chunk_path(chunk.file))
    assert texts(ArchiveReader(archive), since=(START_NS + 500 * STEP_NS) / 1e9) == ["line 1000"]


@pytest.mark.thorough
@given(st.sets(st.integers(0, 300)))
def test_numbers_are_written_as_spans_and_read_again(found: set[int]) -> None:
    assert parse_numbers(format_numbers(found)) == found


@pytest.mark.thorough
@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(0, 400),
    st.integers(0, 2),
)
def test_a_writer_stopped_anywhere_goes_on_without_loss_or_repetition(
    tmp_path_factory: pytest.TempPathFactory, flushes: list[int], stop: int, same: int
) -> None:
    """Whatever was flushed counts; the rest is asked of the engine again, also among lines of the same moment."""
    archive = Archive(str(tmp_path_factory.mktemp("history")))
    archive.put_job(a_state(), now=1.0)
    total = sum(flushes)
    lines = [line(number // (same + 1), f"text {number}") for number in range(total)]
    capture = Capture(archive, archive.add_source(a_voice()))
    at = 0
    for count in flushes:
        for one in lines[at : at + count]:
            if at >= stop:
                break
            capture.write(one)
            at += 1
        capture.flush()
    again = Capture(archive, archive.add_source(a_voice()))
    for one in after(again.position(), lines):
        again.write(one)
    again.end()
    assert recorded(archive, "u1") == b"".join(lines)
    archive.close()


# -- damage ----------------------------------------------------------------------------------------
def test_lines_are_stored_once_where_their_full_chunk_could_not_be_sealed(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.put_job(a_state(), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    capture.write(line(0))
    with monkeypatch.context() as patch:
        patch.setattr(capturing, "CHUNK_BYTES", 1)
        patch.setattr(chunks, "count_frames", _no_room)
        with pytest.raises(BackendError, match="No space left"):
            capture.flush()
    capture.write(line(1))
    capture.end()
    assert recorded(archive, "u1") == line(0) + line(1)


def _no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_was_written_and_never_counted_is_cut_off(archive: Archive) -> None:
    archive.put_job(a_state(), now=1.0)
    capture = said(archive, 5)
    capture.flush()
    (chunk,) = archive.chunks(capture.source.id)
    with open(archive.chunk_path(chunk.file), "ab") as file:
        file.write(chunks.frame(line(99))[:-3])
    again = Capture(archive, capture.source)
    again.write(line(5))
    again.end()
    assert recorded(archive, "u1") == b"".join(line(number) for number in range(6))


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_torn_open_chunk_is_cut_back_to_what_can_be_believed(archive: Archive, damage: str) -> None:
    archive.put_job(a_state(), now=1.0)
    capture = Capture(archive, archive.add_source(a_voice()))
    for number in range(10):
        capture.write(line(number))
        capture.flush()
    (chunk,) = archive.chunks(capture.source.id)
    _damage(archive.chunk_path(chunk.file), damage)
    again = Capture(archive, capture.source)
    assert again.damaged_range is not None
    lines = [line(number) for number in range(12)]
    for one in after(again.position(), lines):
        again.write(one)
    again.end()
    assert recorded(archive, "u1") == b"".join(lines)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_chunk_is_told_where_it_is_missing(archive: Archive, damage: str) -> None:
    archive.put_job(a_state(), now=1.0)
    capture = said(archive, 10)
    capture.end()
    (chunk,) = archive.chunks(capture.source.id)
    _damage(archive.chunk_path(chunk.file), damage)
    (told,) = texts(ArchiveReader(archive))
    assert told == "mpijob: lines are missing here: a part of the stored log was damaged"


def _damage(path: str, how: str) -> None:
    if how == "gone":
        os.unlink(path)
    elif how == "cut":
        os.truncate(path, os.path.getsize(path) - 4)
    else:
        data = bytearray(Path(path).read_bytes())
        data[-6] ^= 0xFF
        Path(path).write_bytes(data)


@pytest.mark.thorough
@settings(deadline=None)
@given(st.binary(max_size=300), st.binary(min_size=1, max_size=40), st.integers(0, 400))
def test_no_file_whatever_it_holds_is_read_beyond_what_it_proves(
    before: bytes, noise: bytes, at: int
) -> None:
    good = chunks.frame(before + b"\n")
    data = good + good[: min(at, len(good))] + noise
    path = f"/dev/shm/mpijob-frames-{os.getpid()}"
    try:
        Path(path).write_bytes(data)
        assert chunks.intact_extent(path, len(good)).size == len(good)
        assert chunks.intact_extent(path, len(data)).size <= len(data)
    finally:
        os.unlink(path)


@pytest.mark.security
def test_a_frame_that_claims_less_than_it_holds_is_not_unpacked(tmp_path: Path) -> None:
    payload = zlib.compress(b"x" * 10_000_000)
    head = chunks._HEAD.pack(chunks._PLAIN, len(payload), 10, zlib.crc32(payload))
    bomb = tmp_path / "bomb"
    bomb.write_bytes(head + payload)
    assert [*chunks.read(str(bomb), bomb.stat().st_size)] == [b"x" * 10]


# -- whole jobs at once ----------------------------------------------------------------------------
@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(0, 10**10), st.binary(max_size=60)), max_size=40), st.booleans())
def test_frames_give_back_every_byte_with_stamps_or_without(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, bytes]], odd: bool
) -> None:
    rows = [cri.format_line(time_ns, "stdout", text.replace(b"\n", b"\r"), False) for time_ns, text in said]
    lines = b"".join([*rows, *([b"no stamp here\n"] if odd else [])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "LARGE_BYTES", 1)
        data = chunks.frame(lines)
    path = tmp_path_factory.getbasetemp() / "one.frame"
    path.write_bytes(data)
    assert b"".join(chunks.read(str(path), len(data))) == lines
    assert (data[:4] == b"mjl2") is (bool(rows) and not odd)


@pytest.mark.parametrize("parts", [(5, 3), (1, 1 << 31), (0, 0), (2, 11)])
def test_a_frame_of_stamps_that_do_not_fit_is_torn(tmp_path: Path, parts: tuple[int, int]) -> None:
    stamps, rest = zlib.compress(b"2" * 62), zlib.compress(b"a\nb\n" * 100)
    payload = chunks._PARTS.pack(*parts) + stamps + rest
    head = chunks._HEAD.pack(chunks._COLUMNS, len(payload), 80, zlib.crc32(payload))
    (tmp_path / "f").write_bytes(head + payload)
    with pytest.raises(chunks.CorruptChunk):
        [*chunks.read(str(tmp_path / "f"), len(head) + len(payload))]


def test_a_job_taken_in_twice_is_there_once(archive: Archive, tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"".join(line(number) for number in range(50)) + line(50)[:-1])
    whole = JobImport(state=a_state(phase=Phase.SUCCEEDED, finished=2.0, deleted=3.0), spec=encoded(a_spec()))
    for _ in range(2):
        import_job(archive, whole, [(a_voice(role=Role.RANK, rank=0, source="rank-0.log"), str(log))], 3.0)
    assert texts(ArchiveReader(archive)) == [f"line {number}" for number in range(51)]
    (voice,) = archive.sources(a_key())
    assert sorted(os.listdir(archive.job_directory(a_key()))) == sorted(
        os.path.basename(chunk.file) for chunk in archive.chunks(voice.id)
    )


def test_a_log_that_cannot_be_stored_is_a_gap_of_a_record_that_is(archive: Archive, tmp_path: Path) -> None:
    whole = JobImport(state=a_state(phase=Phase.SUCCEEDED, finished=2.0, deleted=3.0))
    import_job(archive, whole, [(a_voice(), str(tmp_path / "not there"))], 3.0)
    (told,) = texts(ArchiveReader(archive))
    assert "could not be stored" in told


def test_attempts_whose_lines_were_lost_before_are_told_whichever_lines_are_wanted(archive: Archive) -> None:
    lost = tuple(Gap(first_ns=at, last_ns=at, reason="removed", attempt=at) for at in (1, 2))
    import_job(archive, JobImport(state=a_state(phase=Phase.SUCCEEDED, deleted=3.0), gaps=lost), (), 3.0)
    for wanted in (LogQuery(), LogQuery(ranks=(0,)), LogQuery(tail=1), LogQuery(regex="x")):
        assert [one.attempt for one in ArchiveReader(archive).logs(JobRef("team", "bert"), wanted)] == [1, 2]
    assert [
        one.attempt for one in ArchiveReader(archive).logs(JobRef("team", "bert"), LogQuery(attempt=2))
    ] == [2]
