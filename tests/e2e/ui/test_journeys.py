"""What users do in the page, each from its beginning to its end, with real jobs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client, MPIJob
from mpijob.model import Resources

SMALL = Resources(cpu="500m", memory="128Mi")


def a_job(name: str, script: str, workers: int = 2) -> MPIJob:
    return MPIJob(
        name=name, workers=workers, command=("sh", "-c", script), resources=SMALL, grace_seconds=1.0
    )


def phase(page: Page, word: str) -> None:
    expect(page.locator("h1 ~ * [data-phase], .titled [data-phase]").first).to_have_attribute(
        "data-phase", word
    )


def step(page: Page, name: str) -> None:
    """Go to a step of the wizard."""
    page.get_by_role("navigation", name="Steps").get_by_role("button", name=name).click()
    expect(page.get_by_role("heading", level=2, name=name)).to_be_focused()


def create(page: Page) -> None:
    """Look at the review, then create."""
    step(page, "Review")
    page.get_by_role("button", name="Create job").click()


@pytest.mark.req("FR-016", "FR-UI-001", "FR-UI-005", "FR-020", "B-story5", "AC1")
def test_a_job_is_made_watched_and_succeeds(page: Page, client: Client) -> None:
    page.get_by_role("link", name="Create job").first.click()
    page.locator("label[for=choose-mpi]").click()
    page.get_by_role("button", name="Create this job").click()
    page.locator("#field-name").fill("hello")
    page.get_by_role("button", name="Next").click()
    page.locator("#field-command").fill("sh -c 'echo hello from $MPIJOB_RANK; sleep 1'")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#field-workers")).to_have_value("4")
    page.locator("#field-workers").fill("2")
    page.locator("#field-resources-memory").fill("128Mi")
    expect(page.get_by_test_id("plan")).to_contain_text("1 launcher + 2 workers = 2 ranks")
    page.locator("form").get_by_role("button", name="Review", exact=True).click()
    expect(page.get_by_test_id("review")).to_contain_text(
        "2 workers with 1 CPU, 128Mi of memory and no GPU each start 2 ranks."
    )
    page.get_by_role("button", name="Copy as command").click()
    expect(page.get_by_test_id("review")).to_contain_text(
        "mpijob create hello --workers 2 --memory 128Mi -- sh -c 'echo hello from $MPIJOB_RANK; sleep 1'"
    )
    assert client.list().total == 0  # looking at the plan started nothing
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("hello was created")).to_be_visible()
    phase(page, "Succeeded")
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("hello from 1")
    assert client.get("hello").state().phase.value == "Succeeded"
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Training jobs").click()
    expect(page.locator('[data-job="default/hello"]')).to_contain_text("Succeeded")


@pytest.mark.req("FR-017", "FR-UI-007", "C-tabs")
def test_a_failed_job_shows_the_cause_and_the_way_out(page: Page, client: Client) -> None:
    client.submit(
        a_job("broken", 'if [ "$MPIJOB_RANK" = 1 ]; then echo "cannot open data" >&2; exit 7; fi; sleep 60')
    ).wait(PATIENCE)
    row = page.locator('[data-job="default/broken"]')
    page.get_by_role(
        "button", name=re.compile("new job|Failed")
    ).first.wait_for() if not row.is_visible() else None
    if page.get_by_role("button", name=re.compile("new job")).is_visible():
        page.get_by_role("button", name=re.compile("new job")).click()
    expect(row).to_contain_text("Failed")
    cause = client.why("broken")[0]
    expect(row).to_contain_text(cause.message)
    row.get_by_role("link", name="broken").click()
    why = page.get_by_test_id("why")
    expect(why).to_contain_text(cause.message)
    expect(why).to_contain_text(cause.fixes[0].text if cause.fixes else cause.hint)
    why.get_by_role("link", name="View detailed logs").first.click()
    expect(page.get_by_role("log")).to_contain_text("cannot open data")
    page.get_by_role("button", name="Clone and modify").click()
    expect(page.locator("#field-name")).to_have_value("broken-2")
    step(page, "Workload")
    page.locator("#field-command").fill("sh -c 'echo mended'")
    create(page)
    phase(page, "Succeeded")


@pytest.mark.req("FR-UI-009")
def test_what_is_wrong_stands_at_its_field_before_anything_is_sent(page: Page, client: Client) -> None:
    page.get_by_role("link", name="Create job").first.click()
    step(page, "Workload")
    page.locator("#field-command").fill("hostname 'one")
    step(page, "Basics")
    page.locator("#field-name").fill("Not A Name")
    expect(page.get_by_test_id("problem")).to_contain_text("No closing quotation")
    page.get_by_test_id("problem").get_by_role("button", name="Command").click()
    expect(page.locator("#field-command")).to_be_focused()
    page.locator("#field-command").fill("hostname 'one'")
    step(page, "Basics")
    expect(page.locator("#field-name-said")).to_contain_text("name")
    expect(page.locator("#field-name")).to_have_attribute("aria-invalid", "true")
    page.locator("#field-name").fill("fine")
    expect(page.get_by_test_id("plan")).to_be_visible()
    step(page, "Resources")
    page.locator("#field-workers").fill("0")
    expect(page.locator("#field-workers-said")).to_contain_text("workers")
    expect(page.locator("#field-workers")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("button", name="Resources (something is wrong here)")).to_be_visible()
    assert client.list().total == 0


WRITTEN = """\
# who asked: the vision team
name: both # short
workers: 3
command: [python, train.py]
priority: high
mystery: 1 # not ours
"""


@pytest.mark.req("FR-016", "C-wizard")
def test_form_and_yaml_are_one_document_with_its_comments(page: Page) -> None:
    page.goto(page.url.split("/jobs")[0] + "/create?view=yaml")
    text = page.get_by_role("textbox", name="The job as YAML")
    text.fill(WRITTEN)
    expect(page.get_by_test_id("problem")).to_contain_text("mystery")
    page.get_by_role("button", name="Split").click()
    step(page, "Resources")
    expect(page.locator("#field-workers")).to_have_value("3")
    page.get_by_role("button", name="One worker more").click()
    step(page, "Workload")
    page.locator("#field-command").fill("python train.py --note 'two words'")
    page.locator("#field-env").fill("LR=0.1\nSEED=7")
    for line in ("# who asked: the vision team", "name: both # short", "workers: 4", "mystery: 1 # not ours",
                 "command: [python, train.py, --note, two words]", "LR: '0.1'"):  # fmt: skip
        expect(text).to_contain_text(line.replace("'", '"') if line.startswith("LR") else line)
    page.reload()  # the draft is kept
    expect(text).to_contain_text("mystery: 1 # not ours")
    page.get_by_role("button", name="Form").click()
    expect(page.locator("#field-env")).to_have_value("LR=0.1\nSEED=7")


@pytest.mark.req("C-wizard", "FR-UI-005")
def test_a_job_that_finds_no_room_is_offered_the_largest_that_does(page: Page, client: Client) -> None:
    client.submit(a_job("holds", "sleep 60", workers=4))  # half of the four cores
    page.goto(page.url.split("/jobs")[0] + "/create?view=yaml")
    page.get_by_role("textbox", name="The job as YAML").fill(
        "name: large\nworkers: 6\ncommand: ['true']\nresources: {cpu: 500m, memory: 128Mi}\n"
    )
    fits = page.get_by_test_id("fit")
    expect(fits).to_contain_text("Waiting for")
    fits.get_by_role("button", name=re.compile("^Use . workers: that would start now")).click()
    expect(fits).to_contain_text(re.compile("fits now|start now", re.IGNORECASE))
    expect(page.get_by_role("textbox", name="The job as YAML")).not_to_contain_text("workers: 6")


@pytest.mark.req("FR-015", "FR-018")
def test_the_list_is_filtered_and_jobs_are_removed(page: Page, client: Client) -> None:
    client.submit(a_job("keep", "true")).wait(PATIENCE)
    client.submit(a_job("drop", "exit 3")).wait(PATIENCE)
    page.reload()
    expect(page.locator("tr[data-job]")).to_have_count(2)
    page.get_by_role("button", name="1 Failed").click()
    expect(page.locator("tr[data-job]")).to_have_count(1)
    assert "status=Failed" in page.url
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_role("textbox", name="Search by name, owner, id or reason").fill("dro")
    expect(page.locator("tr[data-job]")).to_have_count(1)
    page.get_by_role("checkbox", name="Select row 0").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("This cannot be undone")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("tr[data-job]")).to_have_count(0)
    assert [state.ref.name for state in client.jobs()] == ["keep"]


@pytest.mark.req("FR-020", "SC-003")
def test_a_change_elsewhere_is_seen_without_asking(page: Page, client: Client) -> None:
    job = client.submit(a_job("long", "sleep 60"))
    page.reload()
    expect(page.get_by_test_id("live")).to_have_text("Live")
    row = page.locator('[data-job="default/long"]')
    expect(row).to_contain_text("Running")
    job.cancel()
    expect(row).to_contain_text("Cancelled", timeout=5000)


@pytest.mark.req("FR-UI-007", "C-wizard", "B-11")
def test_a_fix_is_applied_by_one_click_and_the_job_succeeds(page: Page, client: Client) -> None:
    program = "import time; kept = b'x' * (170 << 20); time.sleep(2); print('enough')"
    job = MPIJob(
        name="hungry", workers=2, command=("python3", "-c", program), resources=SMALL, grace_seconds=1.0
    )
    client.submit(job).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/hungry")
    page.get_by_role("link", name="Clone with this change").first.click()
    expect(page.get_by_test_id("changes")).to_contain_text('resources.memory: "128Mi" → ')
    expect(page.locator("#field-name")).to_have_value("hungry-2")
    expect(page.get_by_test_id("plan")).to_be_visible()
    create(page)
    phase(page, "Succeeded")


@pytest.mark.req("B-artifacts", "FR-017")
def test_files_that_a_job_left_are_fetched(page: Page, client: Client) -> None:
    client.submit(a_job("leaves", "echo result > out-$MPIJOB_RANK.txt")).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/leaves/artifacts")
    with page.expect_download() as download:
        page.get_by_role("link", name="out-1.txt").click()
    assert download.value.path().read_text() == "result\n"


@pytest.mark.req("FR-RES-005")
def test_who_waits_is_shown_in_order_with_what_for(page: Page, client: Client) -> None:
    client.submit(a_job("holds", "sleep 60", workers=7))
    client.submit(a_job("first", "true", workers=6))
    client.submit(a_job("second", "true", workers=6))
    page.get_by_role("link", name="Queues, quota and cost").click()
    rows = page.get_by_role("grid", name="Waiting jobs in order").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("first")
    expect(rows.nth(0)).to_contain_text("CPU cores")
    expect(rows.nth(1)).to_contain_text("second")


@pytest.mark.req("FR-UI-006", "C-wizard")
def test_the_guide_leads_to_a_job_of_ours_or_to_the_right_snippet(page: Page) -> None:
    page.get_by_role("link", name="Create job").first.click()  # it stands before the wizard
    page.get_by_role("button", name="I am not sure: ask me").click()
    page.get_by_role("button", name="PyTorch with torchrun").click()
    kind = page.get_by_test_id("kind")
    expect(kind).to_contain_text("PyTorch training job")
    expect(kind).to_contain_text("TrainerClient().train")
    expect(kind.get_by_role("link", name=re.compile("^Read on"))).to_have_attribute(
        "href", re.compile("kubeflow")
    )
    page.get_by_role("button", name="Ask me from the beginning").click()
    page.get_by_role("button", name="MPI, mpi4py or Horovod").click()
    page.get_by_role("button", name="No, or it should become faster").click()
    page.get_by_role("button", name="Create this job").click()
    expect(page.get_by_role("heading", level=2, name="Basics")).to_be_visible()
    page.goto(page.url.split("/create")[0] + "/create")  # who has chosen once is not asked again
    expect(page.get_by_role("heading", level=2, name="Basics")).to_be_visible()


@pytest.mark.req("FR-016", "AC1", "US2-2", "SC-012")
def test_a_newcomer_goes_through_the_first_steps_in_the_browser_alone(page: Page, client: Client) -> None:
    page.get_by_role("link", name="Learn", exact=True).click()
    steps = page.get_by_role("list", name="First steps").get_by_role("listitem")
    expect(steps.nth(0)).to_have_attribute("data-done", "false")
    page.get_by_role("link", name="Open the wizard with a job of two workers").click()
    expect(page.get_by_test_id("review")).to_contain_text("first-steps")
    expect(page.get_by_test_id("plan")).to_be_visible()
    page.get_by_role("button", name="Create job").click()
    phase(page, "Succeeded")
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("hello from rank 1")
    page.get_by_role("link", name="Learn", exact=True).click()
    for at in range(3):
        expect(steps.nth(at)).to_have_attribute("data-done", "true")
    page.get_by_role("link", name="Create a job that wants more memory than it has").click()
    page.get_by_role("button", name="Create job").click()
    phase(page, "Failed")
    expect(page.get_by_test_id("why")).to_contain_text("memory")
    page.get_by_test_id("why").get_by_role("button", name="Yes").click()
    expect(page.get_by_text("Thank you.")).to_be_visible()
    page.get_by_role("link", name="Clone with this change").first.click()
    expect(page.get_by_test_id("changes")).to_contain_text("resources.memory")
    expect(page.get_by_test_id("plan")).to_be_visible()
    create(page)
    phase(page, "Succeeded")
    page.get_by_role("link", name="Learn", exact=True).click()
    for at in range(5):
        expect(steps.nth(at)).to_have_attribute("data-done", "true")
    page.get_by_role("link", name="Administration").click()
    opinions = page.get_by_role("grid", name="Opinions on help")
    expect(opinions).to_contain_text("why:MEMORY_LIMIT")
    assert {state.ref.name for state in client.jobs()} == {"first-steps", "wants-memory", "wants-memory-2"}


@pytest.mark.req("FR-015", "FR-UI-002")
def test_jobs_are_looked_at_closely_and_compared_from_the_list(page: Page, client: Client) -> None:
    client.submit(a_job("small", "echo so far so good", workers=1)).wait(PATIENCE)
    client.submit(a_job("large", "exit 3", workers=2)).wait(PATIENCE)
    page.reload()
    row = page.locator('[data-job="default/small"]')
    row.get_by_role("button", name="Details").click()
    expect(page.locator(".peek")).to_contain_text("so far so good")
    expect(page.locator(".peek").get_by_role("listitem")).to_have_count(1)
    page.get_by_role("checkbox", name="Select all rows").check()
    page.get_by_role("button", name="Compare (2)").click()
    table = page.get_by_role("grid", name="Jobs side by side")
    expect(table.locator("tbody tr", has_text="workers")).to_contain_text("2")
    expect(table).to_contain_text("Failed")
    assert "job=default%2Fsmall" in page.url  # the comparison can be sent to somebody


@pytest.mark.req("FR-015", "FR-UI-002")
def test_a_new_job_is_announced_and_not_pushed_under_the_cursor(page: Page, client: Client) -> None:
    client.submit(a_job("old", "true")).wait(PATIENCE)
    page.reload()
    expect(page.locator("tr[data-job]")).to_have_count(1)
    client.submit(a_job("new", "true")).wait(PATIENCE)
    announced = page.get_by_role("button", name="1 new job – show")
    expect(announced).to_be_visible()
    expect(page.locator("tr[data-job]")).to_have_count(1)
    announced.click()
    expect(page.locator("tr[data-job]")).to_have_count(2)


@pytest.mark.req("AC5")
def test_what_the_user_may_not_do_is_disabled_with_the_reason(page: Page, client: Client) -> None:
    client.submit(a_job("foreign", "exit 3")).wait(PATIENCE)
    why = {"create": "you may not create jobs in default", "delete": "you may not delete jobs in default"}
    answer = {"namespace": "default", "may": ["get", "list", "logs", "cancel"], "why": why}
    page.route(
        "**/api/v1/rights*", lambda route: route.fulfill(json=answer)
    )  # a cluster says it: tests/e2e/cluster
    page.reload()
    expect(page.get_by_text("You cannot create jobs here: you may not create jobs")).to_be_visible()
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/foreign")
    for button, reason in (("Clone and modify", why["create"]), ("Delete", why["delete"])):
        control = page.get_by_role("button", name=button)
        expect(control).to_have_attribute("aria-disabled", "true")
        expect(control).to_have_attribute("title", reason)
        control.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", level=1, name="foreign")).to_be_visible()


@pytest.mark.req("FR-UI-003", "FR-UI-008", "PMV-007", "C-timeline")
def test_workers_are_shown_with_shape_word_and_use(page: Page, client: Client) -> None:
    script = 'if [ "$MPIJOB_RANK" = 2 ]; then sleep 2; exit 4; fi; sleep 60'
    client.submit(a_job("mixed", script, workers=3)).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/mixed/workers")
    tiles = page.get_by_role("list", name="Workers").get_by_role("listitem")
    expect(tiles).to_have_count(3)
    expect(tiles.nth(2)).to_contain_text("Failed")
    expect(tiles.nth(2).locator("svg").first).to_be_visible()  # a shape, not a colour alone
    page.get_by_role("combobox", name="Group by").select_option("status")
    expect(page.get_by_role("heading", name="Failed")).to_be_visible()
    expect(page.get_by_role("grid", name="Ranks").locator("tbody tr").nth(2)).to_contain_text("4")
    tiles.last.get_by_role("link").click()
    expect(page.get_by_role("heading", name=re.compile("mixed-worker-"))).to_be_focused()
    page.get_by_role("link", name="Lines of this worker").click()
    expect(page).to_have_url(re.compile("/logs\\?workers="))
    page.get_by_role("tab", name="Overview").click()
    page.get_by_role("button", name="What happened, and what was checked").click()
    expect(page.get_by_role("list", name="What happened")).to_contain_text("failed")
    expect(page.get_by_role("list", name="What was checked")).to_contain_text("yes")
