"""The record of jobs: what is written down is found again, bounded, forgotten in time, and never twice."""

from __future__ import annotations

import os
import sqlite3
import stat
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.history_support import (
    START_NS,
    STEP_NS,
    a_spec,
    a_state,
    a_voice,
    after,
    line,
    recorded,
    texts,
)

from mpijob.errors import BackendError, Conflict, InvalidJob
from mpijob.history import capture as capturing
from mpijob.history import chunks, keeping, schema
from mpijob.history.archive import Archive, decoded
from mpijob.history.capture import Capture
from mpijob.history.intake import Whole, take_in
from mpijob.history.keeping import Keep, Policy
from mpijob.history.past import Past, past
from mpijob.history.values import Fact, Gap, numbers, spans
from mpijob.model import Event, JobRef, LogQuery, Phase, Role, Sample, Scope
from mpijob.model.accounts import AccountQuery
from mpijob.model.job import Retention
from mpijob.observation import cri
from mpijob.settings import KeepSetting, Settings, history_directory

DAY = 86_400.0
REF = JobRef("team", "bert")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "history"))


def _said(archive: Archive, count: int, **voice: Any) -> Capture:
    capture = Capture(archive, archive.voice(a_voice(**voice)))
    for number in range(count):
        capture.take(line(number))
    return capture


# -- what was --------------------------------------------------------------------------------------
@pytest.mark.req("C-history")
def test_a_job_is_remembered_with_everything_that_was_written_down(archive: Archive) -> None:
    spec = a_spec(labels={"team": "cv"})
    fact = Fact("pod", "bert-0", 1.0, {"node": "n1", "exit": 3})
    archive.put(a_state(phase=Phase.PENDING), now=10.0, spec=_encoded(spec), facts=[fact])
    event = Event(11.0, "Running", "MPI initialization completed")
    archive.put(a_state(phase=Phase.RUNNING), now=11.0, events=[event])
    archive.put(a_state(phase=Phase.RUNNING), now=12.0, events=[event])
    archive.add_samples("u1", [Sample(11.5, 0, 0.5, 1024)])
    found = Past(archive)
    record = found.record(REF)
    assert record is not None
    assert [(moment.time, moment.phase) for moment in record.moments] == [
        (10.0, "Pending"),
        (11.0, "Running"),
    ]
    assert (record.first_seen, record.last_seen, record.facts) == (10.0, 12.0, (fact,))
    assert found.spec(REF) == spec
    assert [one.message for one in found.events(REF)] == ["MPI initialization completed"]
    assert found.samples(REF) == (Sample(11.5, 0, 0.5, 1024),)


@pytest.mark.parametrize("after", ["abc", "-1", "9" * 23])
def test_what_is_no_place_in_the_list_of_deleted_jobs_is_refused(tmp_path: Path, after: str) -> None:
    with pytest.raises(InvalidJob, match=f"'{after}' is no place in a list"):
        Past(Archive(str(tmp_path))).list(Scope(after=after))


def test_a_job_deleted_before_its_end_was_seen_ended_by_that(archive: Archive) -> None:
    archive.put(a_state(), now=1.0)
    archive.mark_deleted("u1", 5.0)
    archive.mark_deleted("u1", 9.0)  # a second time changes nothing
    state = Past(archive).state(REF)
    assert state is not None
    assert (state.phase, state.deleted, state.finished) == (Phase.CANCELLED, 5.0, 5.0)
    assert "while it was Running" in state.message


def test_a_job_that_ended_keeps_its_end_when_it_is_deleted(archive: Archive) -> None:
    archive.put(a_state(phase=Phase.FAILED, finished=3.0, message="rank 1"), now=3.0)
    archive.mark_deleted("u1", 5.0)
    state = Past(archive).state(REF)
    assert state is not None
    assert (state.phase, state.finished, state.deleted, state.message) == (Phase.FAILED, 3.0, 5.0, "rank 1")


def test_a_job_that_nobody_saw_go_is_told_as_it_was_last_seen(archive: Archive) -> None:
    archive.put(a_state(), now=7.0)
    state = Past(archive).state(REF)
    assert state is not None
    assert state.deleted == 7.0
    assert "last seen Running" in state.message


def test_of_several_jobs_of_one_name_the_newest_is_meant(archive: Archive) -> None:
    for number, uid in enumerate(("u1", "u2", "u3")):
        archive.put(a_state(uid=uid, created=float(number)), now=5.0)
        archive.mark_deleted(uid, 6.0 + number)
    found = Past(archive)
    newest, oldest = found.state(REF), found.state(JobRef("team", "bert", "u1"))
    assert newest is not None
    assert oldest is not None
    assert (newest.ref.uid, oldest.ref.uid) == ("u3", "u1")
    assert [state.ref.uid for state in found.list(Scope(namespace="team", limit=2)).items] == ["u3", "u2"]
    assert found.list(Scope(namespace="other")).total == 0


@pytest.mark.parametrize("chosen", [{}, {"text": "ber"}, {"owner": "jane"}, {"selector": "team=cv"}])
def test_pages_of_deleted_jobs_neither_repeat_nor_hide_while_others_are_deleted(
    archive: Archive, chosen: dict[str, str]
) -> None:
    def deleted(uid: str, when: float, name: str = "bert", **fields: Any) -> None:
        archive.put(a_state(name, uid, **{"owner": "jane", "labels": {"team": "cv"}} | fields), now=5.0)
        archive.mark_deleted(uid, when)

    deleted("other", 6.5, "BERT", owner="joe", labels={})
    for number in range(5):
        deleted(f"u{number}", 6.0 + number // 2)  # some in the same moment
    found, seen, after = Past(archive), list[str](), ""
    for number in range(3):
        page = found.list(Scope(namespace="team", limit=2, after=after, **chosen))  # type: ignore[arg-type]  # words
        seen += [state.ref.uid for state in page.items]
        assert page.total == 5 + (not chosen) + number
        after = page.after
        deleted(f"late{number}", 20.0)
    wanted = ["u4", "u3", "u2", *(["other"] if not chosen else []), "u1", "u0"]
    assert (seen, after) == (wanted, "")


def test_a_page_of_deleted_jobs_reads_no_others(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        archive.put(a_state(uid=f"u{number}"), now=5.0)
        archive.mark_deleted(f"u{number}", 6.0 + number)
    read = list[Any]()

    def watched(kind: type[Any], blob: bytes) -> Any:
        read.append(kind)
        return decoded(kind, blob)

    monkeypatch.setattr("mpijob.history.past.decoded", watched)
    page = Past(archive).list(Scope(namespace="team", limit=3))
    assert (len(page.items), page.total, len(read)) == (3, 20, 3)


@pytest.mark.security
@pytest.mark.parametrize("cursor", ["2", "x:1", "1.0:x", "1.0:", ":"])
def test_a_cursor_that_is_none_is_refused(archive: Archive, cursor: str) -> None:
    with pytest.raises(InvalidJob, match=f"'{cursor}' is no place in a list"):
        Past(archive).list(Scope(namespace="team", after=cursor))


@pytest.mark.security
@pytest.mark.parametrize("cursor", ["nan:1", "-inf:1", f"1:{'9' * 30}", f"1:-{'9' * 30}"])
def test_a_cursor_that_nobody_gave_shows_nothing(archive: Archive, cursor: str) -> None:
    archive.put(a_state(), now=5.0)
    archive.mark_deleted("u1", 6.0)
    assert Past(archive).list(Scope(namespace="team", after=cursor)).items == ()


def test_a_place_without_a_record_has_no_past(tmp_path: Path) -> None:
    assert past(str(tmp_path)) is None


@pytest.mark.security
def test_the_record_is_closed_to_other_users(archive: Archive) -> None:
    _said(archive, 3).end()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in Path(archive.directory).rglob("*")}
    assert modes <= {0o600, 0o700}
    assert stat.S_IMODE(os.stat(archive.directory).st_mode) == 0o700


@pytest.mark.security
@pytest.mark.parametrize("uid", ["../../etc", "/etc", "..", "a/b", ""])
def test_a_uid_that_somebody_wrote_cannot_leave_the_directory(archive: Archive, uid: str) -> None:
    folder = os.path.realpath(archive.folder(uid))
    assert os.path.dirname(folder) == os.path.realpath(archive.logs)


# -- lines -----------------------------------------------------------------------------------------
@pytest.mark.req("US2-3")
def test_lines_come_back_byte_for_byte(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "BUFFER_BYTES", 500)
    monkeypatch.setattr(capturing, "CHUNK_BYTES", 3000)
    archive.put(a_state(), now=1.0)
    capture = _said(archive, 200)
    capture.end()
    assert recorded(archive, "u1") == b"".join(line(number) for number in range(200))
    stored = archive.chunks(capture.voice.id)
    assert len(stored) > 2
    assert sum(chunk.lines for chunk in stored) == 200
    assert all(chunk.sealed for chunk in stored)
    assert sorted(os.listdir(archive.folder("u1"))) == sorted(chunk.file for chunk in stored)


def test_every_filter_of_a_query_works_on_the_record(archive: Archive) -> None:
    archive.put(a_state(), now=1.0)
    for rank in range(3):
        capture = Capture(
            archive, archive.voice(a_voice(role=Role.RANK, worker=None, rank=rank, source=f"r{rank}"))
        )
        capture.take(line(rank, f"rank {rank} begins"))
        capture.take(line(10 + rank, f"rank {rank} ends"))
        capture.end()
    found = Past(archive)
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
    archive.put(a_state(), now=1.0)
    old, new = _said(archive, 1, source="old"), _said(archive, 1, source="new")
    old.end()
    new.take(line(1000))
    new.end()
    (chunk,) = archive.chunks(old.voice.id)
    os.unlink(archive.path("u1", chunk.file))
    assert texts(Past(archive), since=(START_NS + 500 * STEP_NS) / 1e9) == ["line 1000"]


@given(st.sets(st.integers(0, 300)))
def test_numbers_are_written_as_spans_and_read_again(found: set[int]) -> None:
    assert numbers(spans(found)) == found


@settings(max_examples=40, deadline=None)
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
    archive.put(a_state(), now=1.0)
    total = sum(flushes)
    lines = [line(number // (same + 1), f"text {number}") for number in range(total)]
    capture = Capture(archive, archive.voice(a_voice()))
    at = 0
    for count in flushes:
        for one in lines[at : at + count]:
            if at >= stop:
                break
            capture.take(one)
            at += 1
        capture.flush()
    again = Capture(archive, archive.voice(a_voice()))
    for one in after(again.position(), lines):
        again.take(one)
    again.end()
    assert recorded(archive, "u1") == b"".join(lines)
    archive.close()


# -- damage ----------------------------------------------------------------------------------------
def test_what_was_written_and_never_counted_is_cut_off(archive: Archive) -> None:
    archive.put(a_state(), now=1.0)
    capture = _said(archive, 5)
    capture.flush()
    (chunk,) = archive.chunks(capture.voice.id)
    with open(archive.path("u1", chunk.file), "ab") as file:
        file.write(chunks.frame(line(99))[:-3])
    again = Capture(archive, capture.voice)
    again.take(line(5))
    again.end()
    assert recorded(archive, "u1") == b"".join(line(number) for number in range(6))


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_torn_open_chunk_is_cut_back_to_what_can_be_believed(archive: Archive, damage: str) -> None:
    archive.put(a_state(), now=1.0)
    capture = Capture(archive, archive.voice(a_voice()))
    for number in range(10):
        capture.take(line(number))
        capture.flush()
    (chunk,) = archive.chunks(capture.voice.id)
    _damage(archive.path("u1", chunk.file), damage)
    again = Capture(archive, capture.voice)
    assert again.torn is not None
    lines = [line(number) for number in range(12)]
    for one in after(again.position(), lines):
        again.take(one)
    again.end()
    assert recorded(archive, "u1") == b"".join(lines)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_chunk_is_told_where_it_is_missing(archive: Archive, damage: str) -> None:
    archive.put(a_state(), now=1.0)
    capture = _said(archive, 10)
    capture.end()
    (chunk,) = archive.chunks(capture.voice.id)
    _damage(archive.path("u1", chunk.file), damage)
    (told,) = texts(Past(archive))
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
        assert chunks.intact(path, len(good)).size == len(good)
        assert chunks.intact(path, len(data)).size <= len(data)
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
    head = chunks._HEAD.pack(chunks._APART, len(payload), 80, zlib.crc32(payload))
    (tmp_path / "f").write_bytes(head + payload)
    with pytest.raises(chunks.Torn):
        [*chunks.read(str(tmp_path / "f"), len(head) + len(payload))]


def test_a_job_taken_in_twice_is_there_once(archive: Archive, tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"".join(line(number) for number in range(50)) + line(50)[:-1])
    whole = Whole(state=a_state(phase=Phase.SUCCEEDED, finished=2.0, deleted=3.0), spec=_encoded(a_spec()))
    for _ in range(2):
        take_in(archive, whole, [(a_voice(role=Role.RANK, rank=0, source="rank-0.log"), str(log))], 3.0)
    assert texts(Past(archive)) == [f"line {number}" for number in range(51)]
    (voice,) = archive.voices("u1")
    assert sorted(os.listdir(archive.folder("u1"))) == sorted(
        chunk.file for chunk in archive.chunks(voice.id)
    )


def test_a_log_that_cannot_be_stored_is_a_gap_of_a_record_that_is(archive: Archive, tmp_path: Path) -> None:
    whole = Whole(state=a_state(phase=Phase.SUCCEEDED, finished=2.0, deleted=3.0))
    take_in(archive, whole, [(a_voice(), str(tmp_path / "not there"))], 3.0)
    (told,) = texts(Past(archive))
    assert "could not be stored" in told


def test_attempts_whose_lines_were_lost_before_are_told_whichever_lines_are_wanted(archive: Archive) -> None:
    lost = tuple(Gap(first_ns=at, last_ns=at, reason="removed", attempt=at) for at in (1, 2))
    take_in(archive, Whole(state=a_state(phase=Phase.SUCCEEDED, deleted=3.0), gaps=lost), (), 3.0)
    for wanted in (LogQuery(), LogQuery(ranks=(0,)), LogQuery(tail=1), LogQuery(regex="x")):
        assert [one.attempt for one in Past(archive).logs(JobRef("team", "bert"), wanted)] == [1, 2]
    assert [one.attempt for one in Past(archive).logs(JobRef("team", "bert"), LogQuery(attempt=2))] == [2]


# -- how long --------------------------------------------------------------------------------------
@pytest.mark.req("US2-3", "C-history")
def test_logs_go_after_7_days_and_records_after_30(archive: Archive) -> None:
    archive.put(a_state(phase=Phase.SUCCEEDED, finished=0.5), now=0.5)
    _said(archive, 3).end()
    found = Past(archive)
    keeping.tidy(archive, Policy(), 6.9 * DAY)
    assert len(texts(found)) == 3
    keeping.tidy(archive, Policy(), 7.1 * DAY)
    assert texts(found) == ["mpijob: lines are missing here: logs are kept for 7 days"]
    assert not os.path.exists(archive.folder("u1"))
    keeping.tidy(archive, Policy(), 30.1 * DAY)
    assert found.state(REF) is None
    assert (_rows(archive), [one.ref.uid for one in found.accounts(AccountQuery())]) == (1, ["u1"])
    keeping.tidy(archive, Policy(), 401 * DAY)
    assert _rows(archive) == 0  # what it used is kept longest, not for ever


@pytest.mark.parametrize(
    ("set_days", "own", "kept"),
    [
        (None, Retention(), Keep(7, 30)),
        (None, Retention(logs_days=1, record_days=2), Keep(1, 2)),
        (Keep(14, 90), Retention(), Keep(14, 90)),
        (Keep(14, 90), Retention(logs_days=1), Keep(1, 90)),
        (Keep(2, 3), Retention(logs_days=20, record_days=60), Keep(2, 3)),
    ],
)
def test_a_namespace_has_its_own_days_and_a_job_may_ask_for_fewer(
    set_days: Keep | None, own: Retention, kept: Keep
) -> None:
    policy = Policy({"team": set_days} if set_days else {})
    assert policy.keep("team", a_spec(retention=own)) == kept


def test_days_and_room_come_from_the_settings() -> None:
    policy = Policy.of(Settings(keep={"*": KeepSetting(logs_days=1, record_days=2)}, history_bytes="1Mi"))
    assert policy.keep("any", None) == Keep(1, 2)
    assert policy.most_bytes == 1 << 20


def test_when_there_is_no_room_the_oldest_lines_go_first_and_that_is_told(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "BUFFER_BYTES", 400)
    monkeypatch.setattr(capturing, "CHUNK_BYTES", 2000)
    archive.put(a_state(), now=1.0)
    capture = _said(archive, 300)
    capture.end()
    size = sum(chunk.size for chunk in archive.chunks(capture.voice.id))
    keeping.tidy(archive, Policy(most_bytes=size // 2), 2.0)
    left = archive.chunks(capture.voice.id)
    assert 0 < sum(chunk.size for chunk in left) <= size // 2
    first, *rest = texts(Past(archive))
    assert first.startswith("mpijob: lines are missing here: the record had grown beyond")
    assert rest[-1] == "line 299"
    assert len(archive.gaps("u1")) == 1
    assert len(os.listdir(archive.folder("u1"))) == len(left)


@pytest.mark.security
def test_what_is_forgotten_is_in_no_file_any_more(archive: Archive) -> None:
    archive.put(a_state(description="a-very-secret-word"), now=1.0, spec=_encoded(a_spec()))
    _said(archive, 3).end()
    assert b"a-very-secret-word" in _bytes(archive)
    assert Past(archive).forget(REF) == 1
    assert b"a-very-secret-word" not in _bytes(archive)
    assert _rows(archive) == 0
    assert os.listdir(archive.logs) == []
    assert Past(archive).forget(REF) == 0


def test_files_that_nobody_knows_are_removed_when_they_are_old(archive: Archive) -> None:
    archive.put(a_state(), now=1.0)
    _said(archive, 3).end()
    stray, nobodys = Path(archive.folder("u1")) / "stray.log", Path(archive.folder("u9"))
    stray.write_bytes(b"x")
    nobodys.mkdir()
    keeping.tidy(archive, Policy(), stray.stat().st_mtime + 10)
    assert stray.exists()
    keeping.tidy(archive, Policy(), stray.stat().st_mtime + 4000)
    assert not stray.exists()
    assert not nobodys.exists()
    assert len(texts(Past(archive))) == 3


# -- the directory ---------------------------------------------------------------------------------
def test_two_recorders_on_one_directory_exclude_each_other(archive: Archive) -> None:
    with archive.exclusive(), pytest.raises(Conflict, match=str(os.getpid())), archive.exclusive():
        pass
    with archive.exclusive():
        pass


def test_a_newer_format_is_refused_and_left_alone(archive: Archive) -> None:
    path = os.path.join(archive.directory, "history.db")
    archive.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(BackendError, match="format 99"):
        Archive(os.path.dirname(path))


def test_an_older_format_is_brought_forward_with_what_is_in_it(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.put(a_state(), now=1.0)
    archive.close()
    monkeypatch.setattr(schema, "_STEPS", (*schema._STEPS, "ALTER TABLE jobs ADD COLUMN cost REAL"))
    monkeypatch.setattr(schema, "VERSION", len(schema._STEPS))
    newer = Archive(archive.directory)
    assert newer.read("SELECT uid, cost FROM jobs") == [("u1", None)]
    assert newer.read("PRAGMA user_version") == [(len(schema._STEPS),)]


def test_each_cluster_has_a_directory_of_its_own_unless_one_is_set() -> None:
    home = Settings(home="/h")
    assert history_directory(home, "local") == "/h/history/local"
    assert history_directory(home, "../kind/x") == "/h/history/_kind_x"
    chosen = Settings(home="/h", history="/srv/record")
    assert history_directory(chosen, "prod") == "/srv/record"
    assert history_directory(chosen, "local") == "/h/history/local"


def _encoded(spec: object) -> bytes:
    import msgspec

    return msgspec.json.encode(spec)


def _rows(archive: Archive) -> int:
    return sum(int(archive.read(f"SELECT count(*) FROM {table}")[0][0]) for table in schema.TABLES)


def _bytes(archive: Archive) -> bytes:
    return b"".join(path.read_bytes() for path in Path(archive.directory).rglob("*") if path.is_file())
