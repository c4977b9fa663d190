"""What the page shows at every width and around an action: navigation, rows, times, questions, notices."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client, MPIJob
from mpijob.model import Phase

from .page_support import action, choose, live, phase
from .test_journeys import SMALL, a_job

WIDTHS = {1440: 900, 1280: 800, 1024: 768, 800: 600, 390: 844}
HUNGRY = "import time; kept = b'x' * (170 << 20); time.sleep(2)"


def base(page: Page) -> str:
    return re.sub("/(jobs|create).*", "", page.url)


@pytest.mark.req("FR-UI-001", "FR-UI-010")
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_every_screen_is_reached_by_the_navigation(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": WIDTHS[width]})
    titles = {"Queues and usage": "", "Administration": "", "Learn": "", "Training jobs": ""}
    for name in titles:
        link = page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True)
        if width < 1200:  # it lies over the page, and goes away with the choice
            toggle = page.get_by_role("button", name="Navigation")
            expect(toggle).to_have_attribute("aria-expanded", "false")
            toggle.click()
        link.click()
        expect(page.get_by_role("heading", level=1, name=name, exact=True)).to_be_visible()
        if width < 1200:
            expect(page.get_by_role("button", name="Navigation")).to_have_attribute("aria-expanded", "false")


def test_on_a_phone_the_tab_that_is_shown_is_in_sight(page: Page, client: Client) -> None:
    client.submit(a_job("narrow", "true")).wait(PATIENCE)
    page.set_viewport_size({"width": 390, "height": WIDTHS[390]})
    for path, name in (("workers", "Workers 2/2"), ("configuration", "Configuration"), ("", "Overview")):
        page.goto(f"{base(page)}/jobs/default/narrow/{path}")
        tab = page.get_by_role("tab", name=name)
        expect(tab).to_have_attribute("aria-selected", "true")
        expect(tab).to_be_in_viewport(ratio=0.9)


@pytest.mark.req("FR-UI-002", "FR-UI-010")
def test_rows_have_one_line_and_their_menu_is_in_sight_at_every_width(page: Page, client: Client) -> None:
    long = "a-training-with-a-name-as-long-as-names-may-be-001"
    client.submit(a_job(long, "echo no space left on device >&2; exit 28")).wait(PATIENCE)
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{base(page)}/jobs")
        menu = page.get_by_role("button", name=f"Actions for {long}")
        box = menu.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        menu.click()
        expect(page.get_by_role("menuitem", name="Delete")).to_be_visible()
        page.keyboard.press("Escape")
        if width >= 768:
            row = page.locator("tr[data-job]").bounding_box()
            assert row is not None
            assert row["height"] <= 56
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0


@pytest.mark.req("FR-UI-001")
def test_a_log_fills_what_the_window_has_left(page: Page, client: Client) -> None:
    client.submit(a_job("talks", "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); done")).wait(PATIENCE)
    least = {1440: 24, 1024: 18, 390: 12}
    for width, lines in least.items():
        page.set_viewport_size({"width": width, "height": WIDTHS[width]})
        page.goto(f"{base(page)}/jobs/default/talks/logs")
        log = page.get_by_role("log")
        expect(log.locator("[data-index]").first).to_be_visible()
        box = log.bounding_box()
        assert box is not None
        assert box["height"] >= 20 * lines  # lines in sight
        assert box["y"] + box["height"] <= WIDTHS[width]


@pytest.mark.req("FR-UI-007")
def test_all_times_are_those_of_one_zone(page: Page, client: Client) -> None:
    client.submit(a_job("fails", "echo no data >&2; exit 3", workers=1)).wait(PATIENCE)
    finished = client.get("fails").state().finished
    zone = page.context.new_cdp_session(page)
    zone.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    job = f"{base(page)}/jobs/default/fails"
    hours = {}
    for clock, shift in (("UTC", 0), ("Local time", 5.5)):
        page.goto(job)
        page.get_by_role("button", name=re.compile("^User menu")).click()
        page.get_by_role("menuitem", name=re.compile(f"^{clock}")).click()
        page.get_by_role("button", name=re.compile("^Timeline and checks")).click()
        timeline = page.get_by_role("list", name="What happened").locator("time").last.inner_text()
        page.goto(f"{job}/logs")
        line = (
            page.get_by_role("log").get_by_text("no data").locator("xpath=..").locator("a").first.inner_text()
        )
        page.goto(f"{job}/events")
        event = page.get_by_role("grid", name="Events").locator("time").last.inner_text()
        hours[clock] = {text[:2] for text in (timeline, line, event)}
        assert finished is not None
        minutes = {
            int(finished // 60 + 60 * shift) // 60 % 24,
            int((finished - 5) // 60 + 60 * shift) // 60 % 24,
        }
        assert {int(hour) for hour in hours[clock]} <= minutes
    assert hours["UTC"] != hours["Local time"]


@pytest.mark.req("FR-018")
def test_stopping_and_suspending_a_running_job_ask_first_and_say_when_it_is_done(
    page: Page, client: Client
) -> None:
    client.submit(a_job("long", "sleep 120"))
    page.goto(f"{base(page)}/jobs/default/long")
    phase(page, "Running")
    dialog = page.get_by_role("dialog")
    for name, keep in (("Stop", "Keep running"), ("Suspend", "Keep running")):
        if name == "Stop":
            page.get_by_role("button", name="Stop", exact=True).click()
        else:
            action(page, name)
        expect(dialog).to_contain_text(f"{name} long?")
        dialog.get_by_role("button", name=keep).click()
        expect(dialog).to_have_count(0)
        assert client.get("long").state().phase is Phase.RUNNING
    action(page, "Suspend")
    dialog.get_by_role("button", name="Suspend job").click()
    expect(page.get_by_role("list", name="Messages")).to_contain_text("long suspended")
    phase(page, "Suspended")
    card = page.get_by_test_id("status-card")
    expect(card).to_contain_text("The processes are stopped")
    expect(page.get_by_text("Why it failed")).to_have_count(0)  # it is no failure
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("list", name="Messages")).to_contain_text("long resumed")
    phase(page, "Running")


@pytest.mark.req("FR-018")
def test_earlier_runs_stay_after_a_retry_and_are_compared_with_the_last(page: Page, client: Client) -> None:
    client.submit(a_job("again", "exit 3", workers=1)).wait(PATIENCE)
    first = client.get("again").ref.uid
    page.goto(f"{base(page)}/jobs/default/again")
    phase(page, "Failed")
    action(page, "Retry") if page.get_by_role("button", name="Fix and rerun").count() else page.get_by_role(
        "button", name="Retry", exact=True
    ).click()
    runs = page.get_by_role("button", name="Run: Run 2 of 2")
    expect(runs).to_be_visible()
    choose(page, "Run", "Run 1 of 2")
    expect(page).to_have_url(re.compile(f"uid={first}"))
    phase(page, "Failed")
    expect(page.get_by_test_id("why")).to_be_visible()
    page.get_by_role("tab", name="Logs").click()  # every tab stays with the run
    expect(page).to_have_url(re.compile(f"/logs.*uid={first}"))
    choose(page, "Run", "Run 2 of 2")
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_text("No changes since the previous run")).to_be_visible()


@pytest.mark.req("B-story4", "FR-UI-003")
def test_the_panel_of_the_worker_that_failed_says_the_cause_the_limit_and_the_fix(
    page: Page, client: Client
) -> None:
    command = ("sh", "-c", f'if [ "$MPIJOB_RANK" = 1 ]; then exec python3 -c "{HUNGRY}"; fi; sleep 60')
    job = MPIJob(name="hungry", workers=2, command=command, resources=SMALL, grace_seconds=1.0)
    client.submit(job).wait(PATIENCE)
    page.goto(f"{base(page)}/jobs/default/hungry/workers?worker=1")
    panel = page.locator(".pf-v6-c-drawer__panel:not([hidden])")
    expect(page.get_by_role("heading", name="hungry-worker-1")).to_be_visible()
    expect(panel.locator(".pf-v6-c-alert")).to_contain_text("memory")
    expect(panel.get_by_role("progressbar", name="Peak memory")).to_be_visible()
    expect(panel.get_by_role("button", name="Apply and rerun").first).to_be_visible()
    expect(panel).to_contain_text("exit 137")
    expect(panel).not_to_contain_text("stopped by another rank")
    page.goto(f"{base(page)}/jobs/default/hungry/workers?worker=0")
    expect(panel).to_contain_text("stopped by another rank")


@pytest.mark.req("C-wizard")
def test_a_draft_that_was_left_is_offered_and_never_overwritten_silently(page: Page) -> None:
    page.goto(f"{base(page)}/create?step=workload")
    page.locator("#field-name").fill("begun")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Create job", exact=True).click()
    expect(page.get_by_text("You have a draft: begun")).to_be_visible()
    page.get_by_role("button", name="Resume draft").click()
    expect(page.locator("#field-name")).to_have_value("begun")
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Use template hello").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Replace your draft?")
    dialog.get_by_role("button", name="Keep draft").click()
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#field-name")).to_have_value("begun")


@pytest.mark.req("FR-020")
def test_the_end_of_a_job_is_notified_while_another_screen_is_open(page: Page, client: Client) -> None:
    page.goto(f"{base(page)}/learn")
    live(page)
    client.submit(a_job("ends", "sleep 1; exit 3", workers=1)).wait(PATIENCE)
    badge = page.get_by_role("button", name="Notifications, 1 unread")
    expect(badge).to_be_visible()
    badge.click()
    notice = page.get_by_role("list", name="Notifications").get_by_role("listitem")
    expect(notice).to_contain_text("ends failed")
    notice.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ends")
    expect(page.get_by_role("button", name="Notifications", exact=True)).to_be_visible()  # read


@pytest.mark.req("FR-UI-010")
def test_single_keys_can_be_turned_off_and_act_in_no_other_control(page: Page) -> None:
    page.get_by_role("button", name="Help", exact=True).focus()
    page.keyboard.press("c")  # another control has the focus
    assert page.url.endswith("/jobs")
    action(page, "Keyboard shortcuts", "Help")
    page.get_by_role("checkbox", name="Use single-key shortcuts").uncheck()
    page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    page.reload()
    live(page)
    page.keyboard.press("c")
    page.keyboard.press("/")
    expect(page.get_by_role("heading", level=1, name="Training jobs")).to_be_visible()
    assert page.url.endswith("/jobs")


@pytest.mark.req("PMV-012", "FR-017")
def test_how_ranks_communicate_is_shown_where_it_was_recorded(page: Page, client: Client) -> None:
    talks = "import time\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
    talks += "for _ in range(20): world.allreduce(bytearray(4096) and 1); world.Barrier(); time.sleep(0.05)\n"
    import sys

    client.submit(
        MPIJob(
            name="talk", workers=2, command=(sys.executable, "-c", talks), resources=SMALL, profile_mpi=True
        )
    ).wait(PATIENCE)
    phase_of = client.get("talk").state()
    assert phase_of.phase is Phase.SUCCEEDED, phase_of.message
    page.goto(f"{base(page)}/jobs/default/talk/workers")
    section = page.get_by_role("region", name="Communication")
    expect(section.get_by_test_id("mpi-share")).to_contain_text(
        re.compile(r"\d+% of the ranks' time was spent in MPI")
    )
    expect(section.get_by_role("progressbar", name="Rank 1")).to_be_visible()
    expect(section.get_by_role("img", name=re.compile("^Bytes between ranks, 2 by 2"))).to_be_visible()
    expect(section.get_by_role("grid", name="MPI calls")).to_contain_text("MPI_Barrier")
