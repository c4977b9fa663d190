"""What users do in the page, each from its beginning to its end, with real jobs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client, MPIJob
from mpijob.model import Code, Resources

from .page_support import action, choose, create, navigate, phase, step

SMALL = Resources(cpu="500m", memory="128Mi")


def a_job(name: str, script: str, workers: int = 2) -> MPIJob:
    return MPIJob(
        name=name, workers=workers, command=("sh", "-c", script), resources=SMALL, grace_seconds=1.0
    )


@pytest.mark.req("FR-016", "FR-UI-001", "FR-UI-005", "FR-020", "B-story5", "AC1")
def test_a_job_is_made_watched_and_succeeds(page: Page, client: Client) -> None:
    page.get_by_role("button", name="Create job", exact=True).click()
    page.get_by_role("button", name="Start blank").click()
    page.locator("#field-name").fill("hello")
    expect(page.get_by_text("This name is available.")).to_be_visible()
    page.locator("#field-command").fill("sh -c 'echo hello from $MPIJOB_RANK; sleep 1'")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#field-workers")).to_have_value("4")
    page.locator("#field-workers").fill("2")
    page.locator("#field-resources-memory").fill("128Mi")
    expect(page.get_by_test_id("plan")).to_contain_text("2 workers = 2 processes")
    page.get_by_role("button", name="Review and create").click()
    resources = page.get_by_test_id("review").get_by_role("region", name="Resources")
    expect(resources).to_contain_text("2 × (1 CPU, 128 MiB) · 2 ranks")
    page.get_by_role("button", name="Copy as CLI command").click()
    expect(page.get_by_test_id("review").locator("pre")).to_contain_text(
        "mpijob create hello --workers 2 --memory 128Mi -- sh -c 'echo hello from $MPIJOB_RANK; sleep 1'"
    )
    assert client.list().total == 0  # looking at the plan started nothing
    page.get_by_role("button", name="Create job").click()
    expect(page.get_by_text("hello created")).to_be_visible()
    phase(page, "Succeeded")
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("hello from 1")
    assert client.get("hello").state().phase.value == "Succeeded"
    navigate(page, "Training jobs")
    expect(page.locator('[data-job="default/hello"]')).to_contain_text("Succeeded")


@pytest.mark.req("FR-017", "FR-UI-007", "C-tabs")
def test_a_failed_job_shows_the_cause_and_the_way_out(page: Page, client: Client) -> None:
    client.submit(
        a_job("broken", 'if [ "$MPIJOB_RANK" = 1 ]; then echo "cannot open data" >&2; exit 7; fi; sleep 60')
    ).wait(PATIENCE)
    page.reload()
    row = page.locator('[data-job="default/broken"]')
    expect(row).to_contain_text("Failed")
    cause = client.why("broken")[0]
    expect(row).to_contain_text(cause.message)
    row.get_by_role("link", name="broken").click()
    why = page.get_by_test_id("why")
    expect(why).to_contain_text(cause.message)
    expect(why.get_by_role("list", name="How to fix it").get_by_role("listitem").first).to_be_visible()
    why.get_by_role("link", name="View logs").first.click()
    expect(page.get_by_role("log")).to_contain_text("cannot open data")
    action(page, "Clone")
    expect(page.locator("#field-name")).to_have_value("broken-2")
    page.locator("#field-command").fill("sh -c 'echo mended'")
    create(page)
    phase(page, "Succeeded")


@pytest.mark.req("FR-UI-009")
def test_what_is_wrong_stands_at_its_field_before_anything_is_sent(page: Page, client: Client) -> None:
    page.get_by_role("button", name="Create job", exact=True).click()
    page.get_by_role("button", name="Start blank").click()
    page.locator("#field-command").fill("hostname 'one")
    page.locator("#field-name").fill("Not A Name")
    expect(page.get_by_test_id("problem")).to_contain_text("No closing quotation")
    step(page, "Resources")
    page.get_by_test_id("problem").get_by_role("button", name="Command").click()
    expect(page.locator("#field-command")).to_be_focused()
    page.locator("#field-command").fill("hostname 'one'")
    expect(page.locator("#field-name-help")).to_contain_text("name")
    expect(page.locator("#field-name")).to_have_attribute("aria-invalid", "true")
    page.locator("#field-name").fill("fine")
    expect(page.get_by_test_id("plan")).to_be_visible()
    step(page, "Resources")
    page.locator("#field-workers").fill("0")
    expect(page.locator("#field-workers-help")).to_contain_text("workers")
    expect(page.locator("#field-workers")).to_have_attribute("aria-invalid", "true")
    steps = page.get_by_role("navigation", name="Steps")
    expect(steps.locator(".pf-m-danger", has_text="Resources")).to_be_visible()  # the step says so too
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
    text = page.get_by_role("textbox", name="Job as YAML")
    text.fill(WRITTEN)
    expect(page.get_by_test_id("problem")).to_contain_text("mystery")
    page.get_by_role("button", name="Split").click()
    step(page, "Resources")
    expect(page.locator("#field-workers")).to_have_value("3")
    page.get_by_role("button", name="Increase workers").click()
    step(page, "Workload")
    page.locator("#field-command").fill("python train.py --note 'two words'")
    env = page.get_by_role("group", name="Environment variables").last
    for number, (key, value) in enumerate((("LR", "0.1"), ("SEED", "7")), 1):
        env.get_by_role("button", name="Add to Environment variables").click()
        env.get_by_role("textbox", name=f"Key {number}").fill(key)
        env.get_by_role("textbox", name=f"Value {number}").fill(value)
    for line in ("# who asked: the vision team", "name: both # short", "workers: 4", "mystery: 1 # not ours",
                 "command: [python, train.py, --note, two words]", "LR: '0.1'"):  # fmt: skip
        expect(text).to_contain_text(line.replace("'", '"') if line.startswith("LR") else line)
    page.reload()  # the draft is kept
    expect(text).to_contain_text("mystery: 1 # not ours")
    page.get_by_role("button", name="Form").click()
    expect(env.get_by_role("textbox", name="Key 2")).to_have_value("SEED")
    expect(env.get_by_role("textbox", name="Value 1")).to_have_value("0.1")


@pytest.mark.req("C-wizard", "FR-UI-005")
def test_a_job_that_finds_no_room_is_offered_the_largest_that_does(page: Page, client: Client) -> None:
    client.submit(a_job("holds", "sleep 60", workers=4))  # half of the four cores
    page.goto(page.url.split("/jobs")[0] + "/create?view=yaml")
    page.get_by_role("textbox", name="Job as YAML").fill(
        "name: large\nworkers: 6\ncommand: ['true']\nresources: {cpu: 500m, memory: 128Mi}\n"
    )
    fits = page.get_by_test_id("fit")
    expect(fits).to_contain_text("Waiting for")
    fits.get_by_role("button", name=re.compile(r"^Use [1-5] workers? \(starts now\)")).click()
    expect(fits).to_contain_text("Starts now")
    expect(page.get_by_role("textbox", name="Job as YAML")).not_to_contain_text("workers: 6")


@pytest.mark.req("FR-015", "FR-018")
def test_the_list_is_filtered_and_jobs_are_removed(page: Page, client: Client) -> None:
    client.submit(a_job("keep", "true")).wait(PATIENCE)
    client.submit(a_job("drop", "exit 3")).wait(PATIENCE)
    page.reload()
    expect(page.locator("tr[data-job]")).to_have_count(2)
    page.get_by_role("button", name="Failed 1").click()
    expect(page.locator("tr[data-job]")).to_have_count(1)
    assert "status=Failed" in page.url
    page.get_by_role("button", name="Clear all filters").first.click()
    expect(page.locator("tr[data-job]")).to_have_count(2)
    page.get_by_role("textbox", name="Search jobs by name, owner, ID or reason").fill("dro")
    expect(page.locator("tr[data-job]")).to_have_count(1)
    page.get_by_role("checkbox", name="Select drop").check()
    action(page, "Delete", "More bulk actions")
    expect(page.get_by_role("dialog")).to_contain_text("You can't undo this")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("tr[data-job]")).to_have_count(0)
    assert [state.ref.name for state in client.jobs()] == ["keep"]


@pytest.mark.req("FR-020", "SC-003")
def test_a_change_elsewhere_is_seen_without_asking(page: Page, client: Client) -> None:
    job = client.submit(a_job("long", "sleep 60"))
    page.reload()
    row = page.locator('[data-job="default/long"]')
    expect(row).to_contain_text("Running")
    job.cancel()
    expect(row).to_contain_text("Cancelled", timeout=5000)


@pytest.mark.req("FR-UI-007", "C-wizard", "B-11")
def test_a_fix_is_applied_by_one_click_and_one_confirmation(page: Page, client: Client) -> None:
    program = "import time; kept = b'x' * (170 << 20); time.sleep(2); print('enough')"
    job = MPIJob(
        name="hungry", workers=2, command=("python3", "-c", program), resources=SMALL, grace_seconds=1.0
    )
    client.submit(job).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/hungry")
    page.get_by_test_id("why").get_by_role("button", name="Apply and rerun").first.click()
    change = page.get_by_role("dialog").get_by_role("grid", name="Changes").locator("tbody tr")
    expect(change).to_have_count(1)
    expect(change).to_contain_text("Memory per worker")
    expect(change).to_contain_text("128 MiB")
    page.get_by_role("dialog").get_by_role("button", name="Apply and rerun").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("hungry-2")
    phase(page, "Succeeded")
    assert client.get("hungry").state().phase.value == "Failed"  # what failed is kept


@pytest.mark.req("FR-UI-007", "C-wizard")
def test_a_fix_is_looked_at_in_the_form_before_it_runs(page: Page, client: Client) -> None:
    program = "import time; kept = b'x' * (170 << 20); time.sleep(2); print('enough')"
    job = MPIJob(
        name="hungry", workers=2, command=("python3", "-c", program), resources=SMALL, grace_seconds=1.0
    )
    client.submit(job).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/hungry")
    page.get_by_role("link", name="Review change").first.click()
    changes = page.get_by_test_id("review").get_by_role("grid", name="Changes from the original")
    expect(changes.locator("tbody tr")).to_have_count(1)
    expect(changes).to_contain_text("Memory per worker")
    step(page, "Resources")
    memory = page.locator(".pf-v6-c-form__group", has=page.locator("#field-resources-memory"))
    expect(memory).to_contain_text("Changed")
    assert client.list().total == 1  # nothing has started


@pytest.mark.req("B-artifacts", "FR-017")
def test_files_that_a_job_left_are_fetched(page: Page, client: Client) -> None:
    client.submit(a_job("leaves", "echo result > out-$MPIJOB_RANK.txt")).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/leaves/files")
    with page.expect_download() as download:
        page.get_by_role("link", name="out-1.txt").click()
    assert download.value.path().read_text() == "result\n"


@pytest.mark.req("FR-RES-005")
def test_who_waits_is_shown_in_order_with_what_for(page: Page, client: Client) -> None:
    client.submit(a_job("holds", "sleep 60", workers=7))
    client.submit(a_job("first", "true", workers=6))
    client.submit(a_job("second", "true", workers=6))
    navigate(page, "Queues and usage")
    rows = page.get_by_role("grid", name="Queued jobs").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("first")
    expect(rows.nth(0)).to_contain_text("CPU cores")
    expect(rows.nth(1)).to_contain_text("second")


@pytest.mark.req("FR-UI-006", "C-wizard")
def test_the_guide_leads_to_a_job_of_ours_or_to_the_right_snippet(page: Page) -> None:
    page.get_by_role("button", name="Create job", exact=True).click()
    page.get_by_role("button", name="Help me choose").click()
    page.get_by_role("button", name="PyTorch with torchrun").click()
    kind = page.get_by_test_id("kind")
    expect(kind).to_contain_text("PyTorch training job")
    expect(kind).to_contain_text("TrainerClient().train")
    expect(kind.get_by_role("link", name=re.compile("^Learn more"))).to_have_attribute(
        "href", re.compile("kubeflow")
    )
    page.get_by_role("button", name="Start over").click()
    page.get_by_role("button", name="MPI, mpi4py or Horovod").click()
    page.get_by_role("button", name="No, or it should run faster on several machines").click()
    expect(kind).to_contain_text("MPI job")
    kind.get_by_role("button", name="Next").click()
    expect(page.get_by_role("heading", level=2, name=re.compile("Workload|Review"))).to_be_visible()


@pytest.mark.req("FR-016", "AC1", "US2-2", "SC-012")
def test_a_newcomer_goes_through_the_first_steps_in_the_browser_alone(page: Page, client: Client) -> None:
    navigate(page, "Learn")
    steps = page.get_by_role("list", name="Getting started").get_by_role("listitem")
    expect(steps.nth(0)).to_have_attribute("data-done", "false")
    page.get_by_role("link", name="Open a ready-made two-worker job").click()
    expect(page.get_by_test_id("review")).to_contain_text("first-steps")
    expect(page.get_by_test_id("plan")).to_be_visible()
    page.get_by_role("button", name="Create job").click()
    phase(page, "Succeeded")
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("hello from rank 1")
    navigate(page, "Learn")
    for at in range(3):
        expect(steps.nth(at)).to_have_attribute("data-done", "true")
    page.get_by_role("link", name="Create a job that runs out of memory").click()
    page.get_by_role("button", name="Create job").click()
    phase(page, "Failed")
    expect(page.get_by_test_id("why")).to_contain_text("memory")
    page.get_by_test_id("why").get_by_role("button", name="Yes, helpful").click()
    expect(page.get_by_text("Thank you.")).to_be_visible()
    page.get_by_role("button", name="Fix and rerun").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply and rerun").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("out-of-memory-2")
    phase(page, "Succeeded")
    navigate(page, "Learn")
    for at in range(5):
        expect(steps.nth(at)).to_have_attribute("data-done", "true")
    navigate(page, "Administration")
    page.get_by_role("tab", name="Help feedback").click()
    expect(page.get_by_role("grid", name="Help feedback")).to_contain_text("why:MEMORY_LIMIT")
    assert {state.ref.name for state in client.jobs()} == {"first-steps", "out-of-memory", "out-of-memory-2"}


@pytest.mark.req("FR-015", "FR-UI-002")
def test_jobs_are_looked_at_closely_and_compared_from_the_list(page: Page, client: Client) -> None:
    client.submit(a_job("small", "echo so far so good", workers=1)).wait(PATIENCE)
    client.submit(a_job("large", "exit 3", workers=2)).wait(PATIENCE)
    page.reload()
    row = page.locator('[data-job="default/small"]')
    row.get_by_role("button", name="Expand small").click()
    expanded = page.get_by_test_id("expanded")
    expect(expanded).to_contain_text("so far so good")
    expect(expanded.get_by_role("list", name="Workers").get_by_role("listitem")).to_have_count(1)
    page.get_by_role("checkbox", name="Select all jobs on this page").check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("grid", name="Results")).to_contain_text("Failed")
    differing = page.get_by_role("grid", name="Configuration").get_by_role("row").filter(has_text="Workers")
    expect(differing).to_contain_text("Workers21")
    assert "job=default%2Fsmall" in page.url  # the comparison can be sent to somebody


@pytest.mark.req("FR-015", "FR-UI-002")
def test_a_new_job_is_announced_and_not_pushed_under_the_cursor(page: Page, client: Client) -> None:
    client.submit(a_job("old", "true")).wait(PATIENCE)
    page.reload()
    expect(page.locator("tr[data-job]")).to_have_count(1)
    client.submit(a_job("new", "true")).wait(PATIENCE)
    announced = page.get_by_role("button", name="Show 1 new job")
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
    expect(page.get_by_text("You can't create jobs here: you may not create jobs")).to_be_visible()
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/foreign")
    retry = page.get_by_role("button", name="Retry", exact=True)
    expect(retry).to_have_attribute("aria-disabled", "true")
    expect(retry).to_have_attribute("title", why["create"])
    retry.click(force=True)
    page.get_by_role("button", name="Actions", exact=True).click()
    for item, reason in (("Clone", why["create"]), ("Delete", why["delete"])):
        control = page.get_by_role("menuitem", name=item)
        expect(control).to_have_attribute("aria-disabled", "true")
        control.hover()
        expect(page.get_by_role("tooltip").filter(has_text=reason)).to_be_visible()
        control.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", level=1, name="foreign")).to_be_visible()


@pytest.mark.req("FR-UI-003", "FR-UI-008", "PMV-007", "C-timeline")
def test_workers_are_shown_with_shape_word_and_use(page: Page, client: Client) -> None:
    script = 'if [ "$MPIJOB_RANK" = 2 ]; then sleep 2; exit 4; fi; sleep 60'
    client.submit(a_job("mixed", script, workers=3)).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/mixed/workers")
    tree = page.get_by_role("group", name="Launcher and workers")
    expect(tree.get_by_role("link", name=re.compile("^Launcher"))).to_be_visible()
    tiles = tree.get_by_role("listitem")
    expect(tiles).to_have_count(3)
    expect(tiles.nth(2)).to_contain_text("Failed")
    expect(tiles.nth(2).locator("svg").first).to_be_visible()  # a shape, not a colour alone
    choose(page, "Group by", "Status")
    expect(page.get_by_role("heading", name="Failed (1)")).to_be_visible()
    worker = page.get_by_test_id("worker-2")
    expect(worker).to_contain_text("Failed")
    worker.get_by_role("button", name=re.compile("Details|Ranks|Expand")).first.click()
    expect(
        page.get_by_role("grid", name="Ranks of worker 2").locator("[data-label='Exit code']")
    ).to_have_text("4")
    tree.get_by_role("link", name=re.compile("^Worker 2")).click()
    expect(page.get_by_role("heading", name="mixed-worker-2")).to_be_focused()
    page.locator(".pf-v6-c-drawer__panel:not([hidden])").get_by_role("link", name="View logs").last.click()
    expect(page).to_have_url(re.compile("/logs\\?workers=2"))
    page.get_by_role("tab", name="Overview").click()
    page.get_by_role("button", name=re.compile("^Timeline and checks")).click()
    expect(page.get_by_role("list", name="What happened")).to_contain_text("Failed")
    expect(page.get_by_role("list", name="Checks")).to_contain_text("Yes")


def test_a_scripts_steps_are_a_table_that_names_the_one_that_failed(page: Page, client: Client) -> None:
    text = "mpirun -n 2 true\nmpirun -n 4 sh -c 'exit $((MPIJOB_RANK == 3 ? 7 : 0))'\nexit $?\n"
    job = MPIJob(
        name="stepped",
        script="run.sh",
        code=Code(files={"run.sh": f"#!/bin/sh\n{text}"}),
        workers=2,
        slots=2,
        resources=SMALL,
        grace_seconds=1.0,
    )
    client.submit(job).wait(PATIENCE)
    page.goto(page.url.split("/jobs")[0] + "/jobs/default/stepped")
    rows = page.get_by_role("grid", name="Steps").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator("[data-label='Ranks']")).to_have_text("2")
    expect(rows.nth(0).locator("[data-label='Exit code']")).to_have_text("0")
    expect(rows.nth(1).locator("[data-label='Command']")).to_contain_text("mpirun -n 4")
    expect(rows.nth(1).locator("[data-label='Exit code']")).to_have_text("7 (rank 3)")
    rows.nth(1).get_by_role("link", name="1", exact=True).click()
    expect(page).to_have_url(re.compile(r"/logs\?.*since=\d+"))
