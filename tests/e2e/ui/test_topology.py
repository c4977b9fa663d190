"""The picture of a job: zones, racks, nodes, workers, ranks and their GPUs, with the worker that failed first."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from tests.integration.support import PATIENCE

from mpijob import Client

from .test_access import violations
from .test_journeys import a_job

pytestmark = pytest.mark.req("FR-UI-003", "FR-UI-008", "PMV-007")
FAILS = 'if [ "$MPIJOB_RANK" = 3 ]; then sleep 1; exit 7; fi; sleep 60'


def widths(page: Page) -> tuple[int, int]:
    """Return how wide the page is, and how much of it is shown."""
    found: list[int] = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    return found[0], found[1]


def workers_page(page: Page) -> None:
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/fails/workers")


def test_the_rank_that_failed_first_stands_out_on_its_worker(page: Page, client: Client) -> None:
    job = client.submit(a_job("fails", FAILS).replace(slots=2))
    job.wait(PATIENCE)
    workers_page(page)
    picture = page.get_by_role("group", name="Launcher and workers")
    expect(picture.get_by_role("link", name=re.compile("^Worker 1 Failed first"))).to_be_visible()
    expect(picture.get_by_role("link", name=re.compile("^Worker 0 Cancelled"))).to_be_visible()
    worker = picture.locator('[data-worker="1"]')
    expect(worker.locator("[data-rank]")).to_have_text(["2", "! 3"])
    expect(worker.locator('[data-rank="3"]')).to_have_attribute("title", re.compile("Failed · exit code 7"))
    node = client.state("fails").ranks[3].node
    expect(page.get_by_test_id("first-cause")).to_have_text(
        f"The failure began at worker 1, rank 3, on node {node}."
    )
    legend = page.get_by_role("list", name="Ranks in the picture")
    expect(legend.get_by_role("listitem")).to_have_text(
        ["Cancelled (3)", "Failed (1)", "the failure began here"]
    )
    page.get_by_test_id("first-cause").get_by_role("link").click()
    expect(page.get_by_role("heading", name="fails-worker-1")).to_be_focused()


def hundred_workers(route: Route) -> None:
    """Answer with the same job on a hundred nodes of eight GPUs: no machine of ours has as many."""
    answer = route.fetch()
    detail: dict[str, Any] = answer.json()
    detail["state"]["workers"] = [
        {"index": at, "name": f"fails-worker-{at}", "phase": "Failed" if at == 42 else "Cancelled",
         "node": f"node-{at:02}", "gpus": [str(gpu) for gpu in range(8)]}
        for at in range(100)
    ]  # fmt: skip
    detail["state"]["ranks"] = [
        {"rank": rank, "worker": rank // 8, "node": f"node-{rank // 8:02}", "gpus": [str(rank % 8)]}
        for rank in range(800)
    ]
    detail["state"]["findings"] = [
        {"code": "RANK_EXIT", "message": "Rank 337 exited", "worker": 42, "rank": 337}
    ]
    route.fulfill(response=answer, json=detail)


def places(route: Route) -> None:
    items = [{"name": f"node-{at:02}", "zone": f"eu-{at // 50}", "rack": f"r{at // 25}"} for at in range(99)]
    route.fulfill(json={"items": items})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_hundred_workers_stand_in_their_racks_and_zones(page: Page, client: Client, scheme: Any) -> None:
    client.submit(a_job("fails", FAILS).replace(slots=2)).wait(PATIENCE)
    page.emulate_media(color_scheme=scheme)
    page.route(re.compile(r"/trainjobs/default/fails(\?.*)?$"), hundred_workers)
    page.route(re.compile(r"/trainjobs/default/fails/nodes"), places)
    workers_page(page)
    picture = page.get_by_role("group", name="Launcher and workers")
    for name in ("Zone eu-0 · Rack r0", "Zone eu-0 · Rack r1", "Zone eu-1 · Rack r2"):
        expect(picture.get_by_role("group", name=name).get_by_role("listitem")).to_have_count(25)
    last = picture.get_by_role("group", name="Zone eu-1 · Rack r3")
    expect(last.get_by_role("listitem")).to_have_count(24)
    expect(picture.get_by_role("listitem")).to_have_count(100)  # that of an unknown place stands beside them
    expect(picture.locator("[data-rank]")).to_have_count(800)
    rack = picture.get_by_role("group", name="Zone eu-0 · Rack r1")
    failed = rack.get_by_role("list", name="Workers, node-42").get_by_role("link")
    expect(failed).to_contain_text("Failed first")
    expect(failed.locator('[data-rank="337"]')).to_have_attribute("title", "Rank 337 · Failed · GPU 1")
    row = page.get_by_test_id("worker-42")  # the same in words
    expect(row.locator("[data-label=Zone]")).to_have_text("eu-0")
    expect(row.locator("[data-label=Rack]")).to_have_text("r1")
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 900})
    expect(failed).to_be_visible()
    whole, shown = widths(page)
    assert whole <= shown


def test_the_ranks_of_each_worker_are_shown_before_anything_starts(page: Page, client: Client) -> None:
    client.submit(a_job("fails", FAILS).replace(slots=2)).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/create?from=default/fails&step=review")
    summary = page.get_by_test_id("summary")
    summary.get_by_role("button", name="Ranks by worker").click()
    workers = summary.get_by_role("list", name="Ranks by worker").get_by_role("listitem")
    expect(workers).to_have_text(["Worker 0, ranks 0-101", "Worker 1, ranks 2-323"])  # squares 0 1 and 2 3
    assert violations(page) == []
