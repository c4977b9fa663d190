"""How many clicks and fields each journey through the page takes; a click more is a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client, MPIJob

from .page_support import phase
from .test_journeys import SMALL, a_job

COUNT = """() => {
  const isNew = window.presses === undefined;
  window.presses = 0;
  window.typed = new Set();
  if (!isNew) return;
  const press = event => { if (event.isTrusted) window.presses += 1; };
  const type = ({ isTrusted, target }) => {
    if (isTrusted && target.type !== 'checkbox') window.typed.add(target.id || target.ariaLabel);
  };
  document.addEventListener('pointerdown', press, true);
  document.addEventListener('input', type, true);
}"""


@contextmanager
def takes(page: Page, clicks: int, fields: int = 0) -> Iterator[None]:
    """Count the presses of the pointer and the fields that are typed into, from here on."""
    page.evaluate(COUNT)
    yield
    assert page.evaluate("[window.presses, window.typed.size]") == [clicks, fields]


def address(page: Page, path: str) -> str:
    return re.sub("/(jobs|create).*", "", page.url) + path


@pytest.mark.req("SC-012", "FR-UI-005")
def test_a_job_from_nothing_takes_four_clicks_and_two_fields(page: Page) -> None:
    with takes(page, 4, 2):
        page.get_by_role("button", name="Create job", exact=True).click()
        page.get_by_role("button", name="Start blank").click()
        page.locator("#field-name").fill("mine")
        page.locator("#field-command").fill("hostname")
        page.get_by_role("button", name="Review and create").click()
        page.get_by_role("button", name="Create job").click()
        expect(page.get_by_text("mine created")).to_be_visible()


@pytest.mark.req("SC-012", "FR-UI-005")
def test_a_job_from_a_template_takes_three_clicks(page: Page) -> None:
    with takes(page, 3):
        page.get_by_role("button", name="Create job", exact=True).click()
        page.get_by_role("button", name="Use template hello").click()
        page.get_by_role("button", name="Create job").click()
        expect(page.get_by_text("hello created")).to_be_visible()


@pytest.mark.req("SC-012", "FR-UI-007")
def test_a_failed_job_runs_fixed_after_two_clicks(page: Page, client: Client) -> None:
    program = "import time; kept = b'x' * (170 << 20); time.sleep(2)"
    job = MPIJob(name="hungry", workers=2, command=("python3", "-c", program), resources=SMALL)
    client.submit(job).wait(PATIENCE)
    page.goto(address(page, "/jobs/default/hungry"))
    with takes(page, 2):
        page.get_by_role("button", name="Fix and rerun").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply and rerun").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("hungry-2")


@pytest.mark.req("SC-012")
def test_what_is_done_with_a_job_that_ended_takes_few_clicks(page: Page, client: Client) -> None:
    client.submit(a_job("one", "echo rank $MPIJOB_RANK is here", workers=3)).wait(PATIENCE)
    client.submit(a_job("two", "true")).wait(PATIENCE)
    page.goto(address(page, "/jobs/default/one"))
    with takes(page, 3, 1):  # a changed copy
        page.get_by_role("button", name="Clone", exact=True).click()
        expect(page.locator("#field-name")).to_have_value("one-2")
        page.locator("#field-command").fill("true")
        page.get_by_role("button", name="Review and create").click()
        page.get_by_role("button", name="Create job").click()
        expect(page.get_by_text("one-2 created")).to_be_visible()
    assert client.get("one-2").spec.command == ("true",)
    page.goto(address(page, "/jobs/default/one"))
    with takes(page, 2, 1):  # what rank 2 wrote
        page.get_by_role("link", name=re.compile("^Worker 2")).click()
        page.get_by_role("link", name=re.compile("^2( |$)")).click()  # rank 2 and its exit code
        page.locator("#log-find").fill("here")
        expect(page.get_by_text("1 / 1")).to_be_visible()
        expect(page.get_by_role("log")).to_contain_text("rank 2 is here")
    page.goto(address(page, "/jobs"))
    with takes(page, 3):  # two jobs side by side
        page.get_by_role("checkbox", name="Select one", exact=True).click()
        page.get_by_role("checkbox", name="Select two", exact=True).click()
        page.get_by_role("button", name="Compare", exact=True).click()
        expect(page.get_by_role("grid", name="Results")).to_contain_text("Succeeded")


@pytest.mark.req("SC-012")
def test_a_running_job_is_stopped_by_two_clicks_and_its_screens_take_one(page: Page, client: Client) -> None:
    client.submit(a_job("long", "sleep 120"))
    page.goto(address(page, "/jobs/default/long"))
    phase(page, "Running")
    with takes(page, 1):
        page.get_by_role("tab", name="Metrics").click()
        expect(page.get_by_role("img", name=re.compile("^CPU"))).to_be_visible()
    with takes(page, 1):  # the address of exactly this view
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_text("Link copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
    with takes(page, 2):
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Stop job").click()
        phase(page, "Cancelled")
    for name in ("Queues and usage", "Administration", "Learn"):
        with takes(page, 1):
            page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


@pytest.mark.req("SC-012", "FR-RES-005")
def test_when_a_queued_job_starts_takes_one_click(page: Page, client: Client) -> None:
    client.submit(a_job("past", "sleep 1; true")).wait(PATIENCE)
    client.submit(a_job("holds", "sleep 300", workers=7))
    client.submit(a_job("next", "true", workers=6))
    client.submit(a_job("last", "true", workers=6))
    page.goto(address(page, "/jobs"))
    row = page.locator('[data-job="default/last"]')
    expect(row).to_contain_text("Queued")
    with takes(page, 1):
        row.get_by_role("link", name="last", exact=True).click()
        card = page.get_by_test_id("status-card")
        expect(card).to_contain_text("2 (1 job ahead)")
        expect(card).to_contain_text("Estimated start")
    with takes(page, 1):
        page.get_by_role("navigation", name="Main").get_by_role("link", name="Queues and usage").click()
        queued = page.get_by_role("grid", name="Queued jobs")
        expect(queued.locator("tbody tr").nth(1).locator("[data-label='Jobs ahead']")).to_have_text("1")


RATES = "[rates.default]\ncore_hour = 3600\ncurrency = 'EUR'\n"  # one euro for each second of a core


@pytest.mark.req("SC-012", "PMV-009")
@pytest.mark.parametrize("server", [RATES], indirect=True, ids=["rates"])
def test_what_a_job_costs_and_a_copy_will_cost_takes_no_click(page: Page, client: Client) -> None:
    job = msgspec.structs.replace(a_job("done", "sleep $SECONDS_TO_RUN"), env={"SECONDS_TO_RUN": "2"})
    client.submit(job).wait(PATIENCE)
    page.goto(address(page, "/jobs/default/done"))
    with takes(page, 0):
        expect(page.get_by_test_id("cost")).to_have_text(re.compile(r"^≈ \d+\.\d\d EUR$"))
    page.goto(address(page, "/create?from=default/done&step=review"))
    with takes(page, 0):
        expected = page.get_by_test_id("estimate")
        expect(expected).to_contain_text(re.compile(r"^About \d+ s"))
        expect(expected).to_contain_text(re.compile(r"\d+\.\d\d EUR"))
        expect(expected).to_contain_text("from one run")
    client.submit(msgspec.structs.replace(job, name="again", env={"SECONDS_TO_RUN": "300"}))
    page.goto(address(page, "/jobs/default/again"))
    phase(page, "Running")
    with takes(page, 0):
        expect(page.get_by_test_id("cost")).to_contain_text("so far")
        details = page.get_by_role("region", name="Details")
        expect(details).to_contain_text("Expected end")
        expect(details).to_contain_text("one run")
