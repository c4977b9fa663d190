"""The list of jobs that the page gets: filtered, sorted and counted by the server, in pages that nothing moves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.api_support import Browser, names, settled, signed_in

from mpijob import Client, MPIJob
from mpijob.api.live import list_query, rows
from mpijob.api.schemas.job_schemas import JobRow, ListQuery
from mpijob.backends.memory import MemoryBackend
from mpijob.model import Phase

browser = pytest.fixture(signed_in)


@pytest.mark.thorough
@pytest.mark.req("FR-018", "FR-015")
def test_the_list_is_filtered_sorted_and_counted_by_the_server(browser: Browser) -> None:
    for name in ("zeta", "bad-one", "alpha"):
        browser.create(name)
    browser.create("elsewhere", namespace="team")
    settled(browser, {"Succeeded": 3, "Failed": 1})
    failed = browser.get("/trainjobs?status=Failed").json()
    assert ([item["name"] for item in failed["items"]], failed["total"]) == (["bad-one"], 1)
    assert failed["counts"] == {"Succeeded": 3, "Failed": 1}
    assert names(browser.get("/trainjobs?sort=name&namespace=default")) == ["alpha", "bad-one", "zeta"]
    assert names(browser.get("/trainjobs?text=ALPH")) == ["alpha"]
    assert names(browser.get("/trainjobs?type=PyTorchJob")) == []
    assert sorted(names(browser.get("/trainjobs?status=Failed&status=Succeeded&namespace=team"))) == [
        "elsewhere"
    ]
    every = browser.get("/trainjobs?text=zeta").json()
    assert (every["namespaces"], every["owners"], every["types"]) == (["default", "team"], ["me"], ["MPIJob"])


def test_a_list_that_has_not_changed_is_only_confirmed(browser: Browser) -> None:
    browser.create("one")
    first = browser.get("/trainjobs")
    same = browser.get("/trainjobs", headers={"if-none-match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    other = browser.get("/trainjobs?text=x", headers={"if-none-match": first.headers["etag"]})
    assert other.status_code == 200
    browser.create("two")
    assert browser.get("/trainjobs", headers={"if-none-match": first.headers["etag"]}).status_code == 200


@pytest.mark.thorough
@pytest.mark.parametrize(
    "query",
    ["status=Nope", "limit=0", "limit=9999", "sort=colour", "unknown=1", "after=%%%", "limit=1&limit=2"],
)
def test_a_query_that_makes_no_sense_is_refused(browser: Browser, query: str) -> None:
    browser.create("one")
    answer = browser.get(f"/trainjobs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_JOB")


def a_row(number: int, **fields: Any) -> JobRow:
    client = Client(MemoryBackend())
    state = client.submit(MPIJob(name="a", workers=2, command=("true",))).last
    row = rows.row(state)
    return msgspec.structs.replace(
        row, uid=f"u{number:03}", name=f"n{number % 7}", created=float(number // 3), **fields
    )


@pytest.mark.parametrize(
    "sort", ["created", "-created", "name", "-name", "phase", "-phase", "duration", "-duration"]
)
def test_pages_neither_repeat_nor_hide_while_rows_come_and_go(sort: Any) -> None:
    base = a_row(0)
    table = {
        f"u{n:03}": msgspec.structs.replace(base, uid=f"u{n:03}", name=f"n{n % 7}", created=float(n // 3))
        for n in range(60)
    }
    seen: list[str] = []
    after, first = "", True
    while after or first:
        page = list_query.page(table.values(), ListQuery(sort=sort, limit=7, after=after), rev="r", now=100.0)
        seen += [item.uid for item in page.items]
        after, first = page.after, False
        table.pop(seen[0], None)  # a row that was shown goes away, and nothing moves
    assert len(seen) == len(set(seen)) == 60


@pytest.mark.parametrize("sort", ["duration", "-duration"])
def test_pages_by_duration_neither_repeat_nor_hide_while_jobs_run_on_and_end(sort: Any) -> None:
    base = msgspec.structs.replace(a_row(0), started=0.0)
    running = [msgspec.structs.replace(base, uid=f"u{n}", started=1000.0 - n) for n in range(6)]
    table = [*running, msgspec.structs.replace(base, uid="ended", finished=103.0)]
    seen: list[str] = []
    after = ""
    for now in (1100.0, 1110.0, 1120.0, 1130.0):
        page = list_query.page(table, ListQuery(sort=sort, limit=2, after=after), rev="r", now=now)
        seen += [item.uid for item in page.items]
        after = page.after
        table[2] = msgspec.structs.replace(table[2], finished=1105.0)
    assert after == ""
    assert sorted(seen) == ["ended", *(f"u{n}" for n in range(6))]


def test_what_can_be_done_depends_on_the_phase() -> None:
    assert rows.actions(Phase.RUNNING) == ("cancel", "suspend", "clone", "delete")
    assert rows.actions(Phase.SUSPENDED)[0] == "resume"
    assert all("clone" in rows.actions(phase) for phase in Phase)
