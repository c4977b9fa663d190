"""A uid is a label that anybody may write onto an object of theirs: it opens no namespace, and takes no record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.api_town import Person, Town, at

from mpijob.api.routes import ROUTES
from mpijob.errors import Conflict
from mpijob.history.archive import Archive
from mpijob.history.intake import Whole, take_in
from mpijob.history.past import Past, past
from mpijob.model import JobRef, JobState, LogQuery, MPIJob, Phase
from mpijob.model.accounts import AccountQuery

pytestmark = pytest.mark.security

UID = "uid-of-bob"
BOBS = JobRef("team-b", "bobs", UID)
CLAIMED = JobRef("team-a", "mallorys", UID)
READ = [
    one.path for one in ROUTES if one.method == "GET" and one.path.startswith("/trainjobs/{namespace}/{name}")
]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(str(tmp_path / "history"), shared=True)
    archive.put(_state(BOBS, Phase.FAILED, deleted=9.0), now=9.0, spec=_spec(BOBS))
    return archive


def _state(ref: JobRef, phase: Phase, **fields: Any) -> JobState:
    return JobState(ref=ref, phase=phase, owner=ref.name, created=1.0, finished=5.0, **fields)


def _spec(ref: JobRef) -> bytes:
    return msgspec.json.encode(MPIJob(name=ref.name, namespace=ref.namespace, command=("echo", ref.name)))


# -- reading --------------------------------------------------------------------------------------
@pytest.fixture
def alice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    town = Town()
    monkeypatch.setattr(town.engine, "past", lambda: past(archive.directory))
    with at(town.room()) as http:
        yield Person(http, "alice-token")


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
    found = Past(archive)
    assert (found.state(CLAIMED), found.record(CLAIMED), found.spec(CLAIMED)) == (None, None, None)
    assert (found.events(CLAIMED), found.samples(CLAIMED), [*found.logs(CLAIMED, LogQuery())]) == ((), (), [])
    assert found.forget(CLAIMED) == 0
    assert found.state(BOBS) is not None
    assert found.forget(BOBS) == 1


# -- writing --------------------------------------------------------------------------------------
def test_a_job_does_not_take_the_record_of_another_namespace_by_its_uid(archive: Archive) -> None:
    found = Past(archive)
    before = (found.record(BOBS), found.spec(BOBS), [*found.accounts(AccountQuery())])
    claimed = _state(CLAIMED, Phase.SUCCEEDED)
    said = r"team-a/mallorys is not recorded.* namespace 'team-b'"
    with pytest.raises(Conflict, match=said):
        archive.put(claimed, now=20.0, spec=_spec(CLAIMED))
    with pytest.raises(Conflict, match=said):
        take_in(archive, Whole(state=claimed, spec=_spec(CLAIMED)), (), 20.0)
    assert (found.record(BOBS), found.spec(BOBS), [*found.accounts(AccountQuery())]) == before
    assert found.state(JobRef("team-a", "mallorys")) is None


def test_an_account_that_is_kept_longer_than_its_job_is_not_taken_either(archive: Archive) -> None:
    archive.forget(UID, keep_account=True)
    with pytest.raises(Conflict):
        archive.put(_state(CLAIMED, Phase.SUCCEEDED), now=20.0)
    (account,) = Past(archive).accounts(AccountQuery())
    assert account.ref == BOBS
