"""A uid is a label that anybody may write onto an object of theirs: it opens no namespace, and takes no record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.api_town import Person, Town, at
from tests.unit.history_support import line, stored_lines

from mpijob import codec
from mpijob.api.live import list_query, rows
from mpijob.api.live.job_index import JobIndex
from mpijob.api.routes import ROUTES
from mpijob.api.schemas.job_schemas import ListQuery
from mpijob.backends.kubernetes.status import list_jobs as cluster_listing
from mpijob.backends.local import LocalBackend
from mpijob.backends.memory import MemoryBackend
from mpijob.client import AsyncClient
from mpijob.client.history import maintenance
from mpijob.client.integrations import otlp, prometheus_exporter, tensorboard, webhooks
from mpijob.client.integrations.metric_sources import OfRecord
from mpijob.history import account_store, retention
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader, open_archive
from mpijob.history.import_job import JobImport, import_job
from mpijob.history.log_writer import Capture
from mpijob.history.records import Fact, Gap, LogSource
from mpijob.history.retention import RetentionDays, RetentionSettings
from mpijob.model import Event, JobRef, JobState, LogQuery, MPIJob, Phase, Sample, Scope
from mpijob.model.status.accounts import AccountQuery
from mpijob.settings import CallbackSetting, Settings

pytestmark = [pytest.mark.security, pytest.mark.hostile]

UID = "uid-of-bob"
BOBS = JobRef("team-b", "bobs", UID)
CLAIMED = JobRef("team-a", "mallorys", UID)
DAY = 86_400.0
READ = [
    one.path for one in ROUTES if one.method == "GET" and one.path.startswith("/trainjobs/{namespace}/{name}")
]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(str(tmp_path / "history"), shared=True)
    archive.put_job(_state(BOBS, Phase.FAILED, deleted=9.0), now=9.0, spec=_spec(BOBS))
    return archive


def _state(ref: JobRef, phase: Phase, **fields: Any) -> JobState:
    return JobState(ref=ref, phase=phase, owner=ref.name, created=1.0, started=1.0, finished=5.0, **fields)


def _spec(ref: JobRef) -> bytes:
    return msgspec.json.encode(MPIJob(name=ref.name, namespace=ref.namespace, command=("echo", ref.name)))


# -- reading --------------------------------------------------------------------------------------
@pytest.fixture
def alice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    town = Town()
    monkeypatch.setattr(town.engine, "history", lambda: open_archive(archive.directory))
    with at(town.room()) as http:
        yield Person(http, "alice-token")


@pytest.mark.thorough
@pytest.mark.parametrize("path", READ)
def test_a_uid_opens_no_record_of_a_namespace_that_one_may_not_see(alice: Person, path: str) -> None:
    word = "path=a&" if path.endswith("/artifact") else "values=true&" if path.endswith("/export") else ""
    theirs, claimed = (path.format(namespace=one, name="bobs") for one in ("team-b", "team-a"))
    assert alice.get(f"{theirs}?{word}").status_code == 403
    answer = alice.get(f"{claimed}?{word}uid={UID}")
    assert answer.status_code == 404 or answer.json() == {"items": []}, answer.text


@pytest.mark.parametrize("verb", ["retry", "clone"])
def test_a_uid_starts_no_copy_of_a_job_of_another_namespace(alice: Person, verb: str) -> None:
    assert alice.post(f"/trainjobs/team-a/x/{verb}?uid={UID}", {}).status_code == 404
    assert alice.names() == []


def test_a_record_is_read_and_erased_in_its_own_namespace(archive: Archive) -> None:
    found = ArchiveReader(archive)
    assert (found.state(CLAIMED), found.record(CLAIMED), found.spec(CLAIMED)) == (None, None, None)
    assert (found.events(CLAIMED), found.samples(CLAIMED), [*found.logs(CLAIMED, LogQuery())]) == ((), (), [])
    assert found.delete_job(CLAIMED) == 0
    assert found.state(BOBS) is not None
    assert found.delete_job(BOBS) == 1


# -- writing --------------------------------------------------------------------------------------
def _record(archive: Archive, ref: JobRef, lines: int, cores: float) -> None:
    """Let a job live in the record with something in every table; both jobs say so at the same times."""
    key = ref.key
    archive.put_job(
        _state(ref, Phase.RUNNING), now=2.0, spec=_spec(ref), facts=[Fact("pod", "p", 2.0, {"of": ref.name})]
    )
    event = Event(3.0, "Running", "the ranks run", attempt=1)
    archive.put_job(
        _state(ref, Phase.RUNNING), now=3.0, events=[event], unique_reasons=frozenset({"Running"})
    )
    archive.add_samples(key, [Sample(3.0, 0, cores, 1024), Sample(4.0, 0, cores, 1024)])
    capture = Capture(archive, archive.add_source(LogSource(key=key, source="pod-0", origin="pod-uid.0")))
    for number in range(lines):
        capture.write(line(number, f"{ref.name} {number}"))
    capture.end()
    archive.add_gap(key, Gap(first_ns=1, last_ns=2, reason=f"lost of {ref.name}"))
    archive.put_job(_state(ref, Phase.SUCCEEDED), now=5.0)
    archive.mark_deleted(key, 6.0)


def _answers(archive: Archive, ref: JobRef) -> list[Any]:
    """Return all that the record says of a job."""
    found, own = ArchiveReader(archive), AccountQuery(namespace=ref.namespace)
    return [
        found.state(ref), found.record(ref), found.spec(ref), found.events(ref), found.samples(ref),
        [one.text for one in found.logs(ref, LogQuery())], found.list(Scope(namespace=ref.namespace)),
        [*found.accounts(own)], archive.sources(ref.key), archive.gaps(ref.key),
    ]  # fmt: skip


@pytest.fixture(params=[(BOBS, CLAIMED), (CLAIMED, BOBS)], ids=["claimed later", "claimed first"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    """Return a record of two jobs with one uid, in either order: nobody wins by being first."""
    archive = Archive(str(tmp_path / "both"), shared=True)
    for ref in request.param:
        _record(archive, ref, *((30, 0.5) if ref == BOBS else (7, 4.0)))
    return archive


def _alone(tmp_path: Path, ref: JobRef) -> list[Any]:
    """Return what the record would say if there were this job alone; numbers of voices may differ."""
    archive = Archive(str(tmp_path / f"alone-{ref.namespace}"))
    _record(archive, ref, *((30, 0.5) if ref == BOBS else (7, 4.0)))
    return _answers(archive, ref)[:8]


@pytest.mark.thorough
@pytest.mark.req("C-history")
@pytest.mark.parametrize("ref", [BOBS, CLAIMED], ids=str)
def test_each_of_two_jobs_with_one_uid_has_the_record_that_it_would_have_alone(
    both: Archive, tmp_path: Path, ref: JobRef
) -> None:
    assert _answers(both, ref)[:8] == _alone(tmp_path, ref)
    (voice,) = both.sources(ref.key)
    assert b"".join(stored_lines(both, voice)).count(ref.name.encode()) == (30 if ref == BOBS else 7)


@pytest.mark.thorough
def test_accounts_of_one_uid_are_apart_and_pages_of_them_hide_none(both: Archive) -> None:
    found = {one.ref: one for one in ArchiveReader(both).accounts(AccountQuery())}
    assert found.keys() == {BOBS, CLAIMED}
    assert found[BOBS].core_hours_used * 3600 == pytest.approx(1.0)
    assert found[CLAIMED].core_hours_used * 3600 == pytest.approx(8.0)
    pages, after = list[JobRef](), ""
    for _ in range(2):  # of the same moment and uid: the cursor tells them apart
        page = account_store.page(both, AccountQuery(limit=1, after=after))
        pages += [one.ref for one in page.items]
        after = page.after
    assert (sorted(pages), after) == (sorted([BOBS, CLAIMED]), "")


def _by_uid(archive: Archive, tmp_path: Path) -> None:
    assert ArchiveReader(archive).delete_job(CLAIMED) == 1


def _by_name(archive: Archive, tmp_path: Path) -> None:
    assert ArchiveReader(archive).delete_job(JobRef("team-a", "mallorys")) == 1


def _of_a_person(archive: Archive, tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(maintenance, "directory", lambda backend, settings: archive.directory)
        assert maintenance.erase_user(LocalBackend(settings), settings, "mallorys") == (CLAIMED,)


def _in_time(archive: Archive, tmp_path: Path) -> None:
    retention.apply_retention(archive, RetentionSettings({"team-a": RetentionDays(1, 1, 1)}), 6.0 + 2 * DAY)


@pytest.mark.thorough
@pytest.mark.parametrize("erase", [_by_uid, _by_name, _of_a_person, _in_time])
def test_erasing_one_of_them_leaves_the_other(
    both: Archive, tmp_path: Path, erase: Callable[[Archive, Path], None]
) -> None:
    before = _answers(both, BOBS)
    files = {*Path(both.job_directory(BOBS.key)).iterdir()}
    erase(both, tmp_path)
    assert _answers(both, BOBS) == before
    assert {*Path(both.job_directory(BOBS.key)).iterdir()} == files
    assert ArchiveReader(both).state(CLAIMED) is None
    assert [one.ref for one in ArchiveReader(both).accounts(AccountQuery())] == [BOBS]
    assert os.listdir(both.logs) == ["team-b"]


@pytest.mark.thorough
def test_lines_that_go_for_want_of_room_or_days_are_missing_in_their_own_job_alone(both: Archive) -> None:
    before = _answers(both, BOBS)
    retention.apply_retention(both, RetentionSettings({"team-a": RetentionDays(1, 30, 400)}), 6.0 + 2 * DAY)
    assert _answers(both, BOBS) == before
    assert [one.text for one in ArchiveReader(both).logs(CLAIMED, LogQuery())][1:] == [
        b"mpijob: lines are missing here: logs are kept for 1 days"
    ]
    retention.apply_retention(
        both, RetentionSettings({"*": RetentionDays(100, 100, 400)}, max_bytes=1), 6.0 + 2 * DAY
    )
    assert {gap.reason.partition(" of ")[0] for gap in both.gaps(BOBS.key)} >= {"lost"}
    assert len(both.gaps(BOBS.key)) == 2
    assert len(both.gaps(CLAIMED.key)) == 2


@pytest.mark.thorough
def test_a_job_taken_in_again_replaces_itself_alone(both: Archive, tmp_path: Path) -> None:
    before = _answers(both, BOBS)
    log = tmp_path / "log"
    log.write_bytes(line(0, "again"))
    whole = JobImport(state=_state(CLAIMED, Phase.SUCCEEDED, deleted=7.0), spec=_spec(CLAIMED))
    import_job(both, whole, [(LogSource(key=CLAIMED.key, source="log"), str(log))], 8.0)
    assert _answers(both, BOBS) == before
    assert [one.text for one in ArchiveReader(both).logs(CLAIMED, LogQuery())] == [b"again"]


def test_files_of_one_uid_lie_in_directories_of_their_own(both: Archive) -> None:
    files = [file for (file,) in both.read("SELECT file FROM chunks")]
    assert {os.path.dirname(file) for file in files} == {f"team-a/{UID}", f"team-b/{UID}"}
    assert all(os.path.exists(both.chunk_path(file)) for file in files)


def test_an_account_that_is_kept_longer_than_its_job_stays_with_its_namespace(archive: Archive) -> None:
    archive.delete_job(BOBS.key, keep_account=True)
    archive.put_job(_state(CLAIMED, Phase.SUCCEEDED), now=20.0)
    assert {one.ref for one in ArchiveReader(archive).accounts(AccountQuery())} == {BOBS, CLAIMED}
    archive.delete_job(CLAIMED.key, keep_account=True)
    retention.apply_retention(archive, RetentionSettings({"team-a": RetentionDays(1, 1, 1)}), 5.0 + 2 * DAY)
    (account,) = ArchiveReader(archive).accounts(AccountQuery())
    assert account.ref == BOBS


# -- beside the record ----------------------------------------------------------------------------
def test_both_are_counted_traced_and_called_back_for(both: Archive) -> None:
    found = [*ArchiveReader(both).accounts(AccountQuery())]
    traces = {
        otlp.trace(one, (), 9.0)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] for one in found
    }
    assert len(traces) == 2
    setting = CallbackSetting(url="https://example.com")
    place = webhooks.place_of(setting)
    assert len({webhooks.number_of(_state(ref, Phase.FAILED), place) for ref in (BOBS, CLAIMED)}) == 2
    exporter = prometheus_exporter.Exporter(
        OfRecord(both, ArchiveReader(both)), Settings(), clock=lambda: 10.0
    )
    text = exporter.text()[0].decode()
    for ref in (BOBS, CLAIMED):
        assert f'mpijob_jobs_finished_total{{namespace="{ref.namespace}",phase="Succeeded"}} 1.0' in text


def test_a_link_that_is_kept_for_one_is_not_the_others() -> None:
    settings = Settings(home="/h")
    names = {tensorboard.link_file(settings, "mlflow", ref) for ref in (BOBS, CLAIMED)}
    assert len(names) == 2
    tricks = (JobRef("a", "x", "b.c"), JobRef("a-b", "x", "c"), JobRef("a", "x", "b-c"))
    assert len({tensorboard.link_file(settings, "mlflow", ref) for ref in tricks}) == 3


def test_rows_of_one_uid_are_two_rows_on_the_page_and_go_one_by_one() -> None:
    board = JobIndex(AsyncClient(MemoryBackend()))
    for ref in (BOBS, CLAIMED):
        board.see(_state(ref, Phase.FAILED))
    before = board.rev
    board.forget(CLAIMED)
    assert [(row.namespace, row.uid) for row in board.rows] == [("team-b", UID)]
    assert board.since(before).delete == (f"team-a/{UID}",)


@pytest.mark.parametrize("sort", ["created", "-created", "duration", "-name"])
def test_pages_of_rows_with_one_uid_neither_repeat_nor_hide_one(sort: str) -> None:
    refs = [JobRef(f"team-{letter}", "same", UID) for letter in "abc"]
    every = [rows.row(_state(ref, Phase.FAILED)) for ref in refs]
    seen, after = list[str](), ""
    for _ in every:
        query = codec.convert({"limit": 1, "sort": sort, "after": after}, ListQuery)
        page = list_query.page(every, query, rev="r", now=9.0)
        seen += [row.namespace for row in page.items]
        after = page.after
    assert (sorted(seen), after) == (["team-a", "team-b", "team-c"], "")


def test_a_workload_that_names_the_object_of_another_namespace_as_its_owner_is_not_its_workload() -> None:
    def workload(namespace: str) -> dict[str, Any]:
        return {"metadata": {"namespace": namespace, "ownerReferences": [{"uid": "object-of-bob"}]}}

    found = cluster_listing._by_owner([workload("team-b"), workload("team-a")])
    assert found["team-b", "object-of-bob"] == workload("team-b")
