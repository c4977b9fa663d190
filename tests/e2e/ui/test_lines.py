"""The lines of a job in the page: chosen, found, folded, linked, and those of each attempt."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client
from mpijob.model import Code, Retry

from .page_support import action, choose, tick
from .test_journeys import a_job


@pytest.mark.req("AC2")
def test_lines_are_chosen_by_rank_and_pattern_and_found(page: Page, client: Client) -> None:
    script = "i=0; while [ $i -lt 200 ]; do echo step $i of rank $MPIJOB_RANK; i=$((i+1)); done; echo done"
    client.submit(a_job("talk", script)).wait(PATIENCE)
    page.goto(re.sub("/jobs.*|/$", "/jobs/default/talk/logs", page.url.split("#")[0]))
    log = page.get_by_role("log")
    counted, find = page.get_by_test_id("log-status"), page.locator("#log-find")
    expect(counted).to_contain_text("402 lines")
    tick(page, "Sources", "Rank 1")
    expect(counted).to_contain_text("201 lines")
    find.fill("/step 19[0-9]/")
    page.get_by_role("button", name="Show only matching lines").click()
    expect(counted).to_contain_text("10 lines")
    expect(log).to_contain_text("step 195 of rank 1")
    expect(log).not_to_contain_text("rank 0")
    expect(page.get_by_text("1 / 10")).to_be_visible()
    expect(log.locator("mark").first).to_have_text("step 190")
    assert "find=" in page.url
    assert "only=true" in page.url  # the view can be sent to somebody
    tick(page, "Sources", "Rank 1")
    find.fill("/^done/")
    expect(counted).to_contain_text("2 lines")
    action(page, "Collapse duplicate lines", "View options")
    expect(counted).to_contain_text("1 line")
    expect(log).to_contain_text("Rank-0-1 done")
    find.fill("/(/")
    expect(page.get_by_text("is not a regular expression")).to_be_visible()


@pytest.mark.req("AC2", "FR-UI-006")
def test_finding_leads_to_the_hit_that_is_named(page: Page, client: Client) -> None:
    script = 'i=0; while [ $i -lt 400 ]; do echo "step $i"; [ $((i % 100)) = 7 ] && echo "epoch $i"; i=$((i+1)); done'
    client.submit(a_job("talk", script, workers=1)).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/talk/logs")
    log, find = page.get_by_role("log"), page.locator("#log-find")
    find.fill("epoch")
    current = log.locator("[data-current]")
    expect(page.get_by_text("1 / 4")).to_be_visible()
    expect(current).to_contain_text("epoch 7")  # at once, and the first
    find.press("Enter")
    expect(page.get_by_text("2 / 4")).to_be_visible()
    expect(current).to_contain_text("epoch 107")
    page.get_by_role("button", name="Previous", exact=True).click()
    expect(page.get_by_text("1 / 4")).to_be_visible()
    page.get_by_role("button", name="Previous", exact=True).click()  # before the first is the last
    expect(page.get_by_text("4 / 4")).to_be_visible()
    expect(current).to_contain_text("epoch 307")
    page.reload()  # what was looked for is a part of the address
    expect(find).to_have_value("epoch")
    expect(page.get_by_text("1 / 4")).to_be_visible()


@pytest.mark.req("AC2")
def test_choices_made_in_quick_succession_are_all_kept_on_a_slow_machine(page: Page, client: Client) -> None:
    client.submit(a_job("talk", "echo step; echo done")).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/talk/logs")
    counted, find = page.get_by_test_id("log-status"), page.locator("#log-find")
    expect(counted).to_contain_text("4 lines")
    slow = page.context.new_cdp_session(page)
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 10})
    tick(page, "Sources", "Rank 1")
    find.fill("/^done/")
    page.get_by_role("button", name="Show only matching lines").click()
    expect(counted).to_contain_text("1 line")
    tick(page, "Sources", "Rank 1")
    find.fill("")
    for name in ("Collapse duplicate lines", "Wrap lines"):
        action(page, name, "View options")
    expect(counted).to_contain_text("2 lines")
    assert "fold=true" in page.url
    assert "wrap=true" in page.url


@pytest.mark.req("AC2", "C-tabs")
def test_lines_are_found_by_error_and_time_and_can_be_linked(page: Page, client: Client) -> None:
    script = (
        "i=0; while [ $i -lt 300 ]; do echo step $i; i=$((i+1)); done; echo ERROR broken part >&2; "
        "while [ $i -lt 600 ]; do echo step $i; i=$((i+1)); done; sleep 1.2; echo WARNING late"
    )
    client.submit(a_job("talks", script, workers=1)).wait(PATIENCE)
    base = page.url.split("/jobs")[0] + "/jobs/default/talks"
    page.goto(f"{base}/logs")
    log = page.get_by_role("log")
    counted = page.get_by_test_id("log-status")
    expect(counted).to_contain_text("500 lines · 2 warnings and errors")  # the newest, at once
    page.get_by_role("button", name="Load older lines").click()
    expect(counted).to_contain_text("602 lines")
    page.reload()
    expect(log).to_contain_text("WARNING late")  # it follows
    page.get_by_role("button", name="Previous warning or error").click()
    page.get_by_role("button", name="Previous warning or error").click()
    expect(log.locator("[data-current]")).to_contain_text("broken part")
    log.press("n")
    expect(log.locator("[data-current]")).to_contain_text("WARNING late")
    log.press("p")
    log.locator("[data-current] a").click()
    expect(page).to_have_url(re.compile(r"line=\d+"))
    page.reload()  # somebody else opens the link
    expect(log.locator("[data-current]")).to_contain_text("broken part")
    page.get_by_role("button", name="Show the whole log").click()
    choose(page, "Level", "Errors")
    expect(page.get_by_test_id("log-status")).to_contain_text("1 line")
    page.goto(base)
    page.get_by_role("list", name="Timeline").get_by_role("link", name="Running").click()
    expect(page).to_have_url(re.compile("since=.*until="))
    expect(log).to_contain_text("step")


@pytest.mark.req("FR-017", "C-tabs", "C-events")
def test_lines_of_each_attempt_and_the_configuration_in_every_form(page: Page, client: Client) -> None:
    job = a_job("again", "echo this is attempt $MPIJOB_ATTEMPT; exit 3", workers=1)
    client.submit(job.replace(retry=Retry(limit=1, backoff_seconds=0.1))).wait(PATIENCE)
    base = page.url.split("/jobs")[0] + "/jobs/default/again"
    page.goto(f"{base}/logs")
    expect(page.get_by_role("log")).to_contain_text("this is attempt 2")
    choose(page, "Run", "Attempt 1 of 2")
    expect(page.get_by_role("log")).to_contain_text("this is attempt 1")
    expect(page.get_by_role("log")).not_to_contain_text("this is attempt 2")
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_role("tabpanel")).to_contain_text(re.compile("Retries ?1"))
    expect(page.get_by_role("tabpanel")).to_contain_text(re.compile("Workers ?1"))  # defaults too
    page.get_by_role("tab", name="Events").click()
    expect(page.get_by_role("grid", name="Events")).to_contain_text("Retrying")
    page.get_by_role("tab", name="Configuration").click()
    forms = (
        ("mpijob YAML", "name: again"),
        ("JSON", '"name"'),
        ("Slurm script", "#SBATCH"),
        ("PBS script", "#PBS"),
    )
    for form, words in forms:
        page.get_by_role("button", name=form, exact=True).click()
        expect(page.get_by_test_id("export")).to_contain_text(words)  # what is shown is what is downloaded
        with page.expect_download() as download:
            page.get_by_role("link", name="Download", exact=True).click()
        assert words in download.value.path().read_text()


def test_the_steps_of_a_script_are_shown_and_lead_to_their_lines(page: Page, client: Client) -> None:
    text = "mpirun -n 2 sh -c 'echo first'\nsleep 2\nmpirun -n 1 sh -c 'echo second; exit 3'\nexit 0\n"
    job = a_job("chain", "true").replace(command=(), script="run.sh", code=Code(files={"run.sh": text}))
    client.submit(job).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/chain")
    rows = page.get_by_role("grid", name="Steps").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator("[data-label='Command']")).to_contain_text("mpirun -n 2")
    expect(rows.nth(0).locator("[data-label='Exit code']")).to_have_text("0")
    expect(rows.nth(1).locator("[data-label='Exit code']")).to_contain_text("3 (rank 0)")
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_role("log")).to_contain_text("second")
    expect(page.get_by_role("log")).not_to_contain_text("first")
