"""The lines of a job in the page: chosen, found, folded, linked, and those of each attempt."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client
from mpijob.model import Code, Retry

from .test_journeys import a_job


@pytest.mark.req("AC2")
def test_lines_are_chosen_by_rank_and_pattern_and_found(page: Page, client: Client) -> None:
    script = "i=0; while [ $i -lt 200 ]; do echo step $i of rank $MPIJOB_RANK; i=$((i+1)); done; echo done"
    client.submit(a_job("talk", script)).wait(PATIENCE)
    page.goto(re.sub("/jobs.*|/$", "/jobs/default/talk/logs", page.url.split("#")[0]))
    log = page.get_by_role("log")
    expect(page.get_by_role("status").filter(has_text="lines")).to_contain_text("402 lines")
    page.get_by_role("textbox", name="Ranks, for example 0-3,5").fill("1")
    expect(page.get_by_role("status").filter(has_text="lines")).to_contain_text("201 lines")
    page.get_by_role("textbox", name="Show only lines that match this regular expression").fill(
        "step 19[0-9]"
    )
    expect(page.get_by_role("status").filter(has_text="lines")).to_contain_text("10 lines")
    expect(log).to_contain_text("step 195 of rank 1")
    expect(log).not_to_contain_text("rank 0")
    page.get_by_role("textbox", name="Find in the lines shown").fill("195")
    expect(page.get_by_text("1 / 1")).to_be_visible()
    expect(log.locator("mark")).to_have_text("195")
    assert "regex=step" in page.url  # the view can be sent to somebody
    page.get_by_role("textbox", name="Ranks, for example 0-3,5").fill("")
    page.get_by_role("textbox", name="Show only lines that match this regular expression").fill("^done")
    page.get_by_role("checkbox", name="Fold equal lines of ranks").check()
    expect(page.get_by_role("status").filter(has_text="line")).to_contain_text("1 line")
    expect(log).to_contain_text("Rank-0-1 done")
    page.get_by_role("textbox", name="Show only lines that match this regular expression").fill("(")
    expect(page.get_by_text("is not a regular expression")).to_be_visible()


@pytest.mark.req("AC2")
def test_choices_made_in_quick_succession_are_all_kept_on_a_slow_machine(page: Page, client: Client) -> None:
    client.submit(a_job("talk", "echo step; echo done")).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/talk/logs")
    counted = page.get_by_role("status").filter(has_text="line")
    expect(counted).to_contain_text("4 lines")
    slow = page.context.new_cdp_session(page)
    slow.send("Emulation.setCPUThrottlingRate", {"rate": 20})
    ranks = page.get_by_role("textbox", name="Ranks, for example 0-3,5")
    matching = page.get_by_role("textbox", name="Show only lines that match this regular expression")
    for rank, pattern, count in (("1", "^done", "1 line"), ("", "", "4 lines"), ("0", "^step", "1 line")):
        ranks.fill(rank)
        matching.fill(pattern)
        expect(counted).to_contain_text(count)
    for name in ("Fold equal lines of ranks", "Wrap"):
        page.get_by_role("checkbox", name=name).check()  # fails unless the tick stays from the click on
        page.get_by_role("checkbox", name=name).uncheck()


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
    expect(page.get_by_role("status").filter(has_text="lines")).to_contain_text("602 lines, 2 warnings")
    expect(log).to_contain_text("WARNING late")  # it follows
    page.get_by_role("button", name="Previous error").click()
    page.get_by_role("button", name="Previous error").click()
    expect(log.locator(".line-current")).to_contain_text("broken part")
    log.press("n")
    expect(log.locator(".line-current")).to_contain_text("WARNING late")
    log.press("p")
    log.locator(".line-current a").click()
    expect(page).to_have_url(re.compile(r"line=\d+"))
    page.reload()  # somebody else opens the link
    expect(log.locator(".line-current")).to_contain_text("broken part")
    page.get_by_role("button", name="Show the whole log").click()
    page.get_by_role("combobox", name="Level").select_option("error")
    expect(page.get_by_role("status").filter(has_text="line")).to_contain_text("1 line")
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
    page.get_by_role("combobox", name="Attempt").select_option("1")
    expect(page.get_by_role("log")).to_contain_text("this is attempt 1")
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_role("region", name="When it fails or ends")).to_contain_text("retry.limit")
    page.get_by_role("tab", name="Events").click()
    expect(page.get_by_role("grid", name="Events")).to_contain_text("Retrying")
    page.get_by_role("tab", name="YAML").click()
    for form, words in (("yaml", "name: again"), ("json", '"name"'), ("sbatch", "#SBATCH")):
        page.get_by_role("combobox", name="Download as").select_option(form)
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
