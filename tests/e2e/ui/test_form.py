"""The wizard's form: every field of the model has its input there, and what is typed is in the job."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.e2e.ui.test_access import violations
from tools import form
from tools.form_places import LIMITS, RESOURCES

from mpijob import Client
from mpijob.model import Code, JobRef, Retry, Signal

from .page_support import choose, create, options

NOTED = """\
# asked for by the vision team
name: whole # for now
workers: 2
command: [sh, -c, 'cat note.txt; echo $GREETING']
resources: {cpu: 250m, memory: 64Mi}
"""


def field(page: Page, path: str) -> Locator:
    return page.locator(f"#field-{path.replace('.', '-')}")


def begin(page: Page, text: str, step: str) -> Locator:
    """Lay a text into the wizard and go to a step of its form, the YAML beside it."""
    base = page.url.split("/jobs")[0]
    page.goto(f"{base}/create?view=yaml")
    editor = page.get_by_role("textbox", name="Job as YAML")
    editor.fill(text)
    expect(page.get_by_test_id("plan")).to_be_visible()
    page.get_by_role("button", name="Split").click()
    page.get_by_role("navigation", name="Steps").get_by_role("button", name=step).click()
    return editor


def opened(page: Page, group: str) -> None:
    page.get_by_role("button", name=re.compile(f"^{re.escape(group)}")).first.click()


def pairs(page: Page, path: str, key: str, value: str, **entries: str) -> None:
    """Fill rows of key and value."""
    rows = page.locator(f"#field-{path}")
    for number, (name, text) in enumerate(entries.items(), 1):
        rows.get_by_role("button", name=re.compile("^Add")).click()
        rows.get_by_role("textbox", name=f"{key} {number}").fill(name)
        rows.get_by_role("textbox", name=f"{value} {number}").fill(text)


@pytest.mark.req("AC10-parity", "C-wizard", "FR-UI-010")
def test_every_field_of_the_model_is_in_the_form(page: Page) -> None:
    begin(page, NOTED, "Workload")
    page.get_by_role("button", name="Form", exact=True).click()
    seen: dict[str, str] = {}
    for step in form.STEPS.values():
        page.get_by_role("navigation", name="Steps").get_by_role("button", name=step).click()
        expect(page.get_by_role("heading", level=2, name=step)).to_be_visible()
        closed = page.locator("form .pf-v6-c-form__field-group-toggle button[aria-expanded=false]")
        for left in range(closed.count(), 0, -1):
            expect(closed).to_have_count(left)
            closed.first.click()
        found = page.locator("form [id^=field-]:not([id$=-help])")
        expect(found.first).to_be_visible()
        seen |= dict.fromkeys(found.evaluate_all("all => all.map(one => one.id)"), step)
    wanted = {f"field-{one.path.replace('.', '-')}" for one in form.entries()}
    assert wanted - set(seen) == set()
    assert violations(page) == []  # every group of the last step is open


@pytest.mark.req("AC10-parity", "C-wizard", "FR-016")
def test_what_is_typed_in_any_kind_of_field_is_in_the_yaml_and_in_the_job(page: Page, client: Client) -> None:
    editor = begin(page, NOTED, "Options")
    opened(page, "Program and code")
    field(page, "code.files").fill("# short\nnote.txt: a small file\n")
    pairs(page, "secrets", "Variable", "Source", GREETING="env:HOME")
    opened(page, "Labels")
    pairs(page, "labels", "Key", "Value", team="vision", stage="try")
    pairs(page, "cost", "Key", "Value", **{"cost-centre": "4711"})
    opened(page, LIMITS)
    field(page, "retry.limit").fill("2")
    field(page, "retry.factor").fill("1.5")
    page.locator("label").filter(has=field(page, "requeue_on_lost_worker")).click()
    field(page, "deadline_seconds").fill("120")
    field(page, "signal.name").fill("USR1")
    opened(page, "MPI and ranks")
    field(page, "cores_per_rank").fill("none")
    expect(page.locator("#field-cores_per_rank-help")).to_contain_text("expected a whole number, got 'none'")
    field(page, "cores_per_rank").fill("")
    opened(page, "Scheduling")
    field(page, "priority").fill("7")
    for line in ("# asked for by the vision team", "name: whole # for now", "# short", "note.txt: a small file",
                 "team: vision", "limit: 2", "requeue_on_lost_worker: true", "priority: 7",
                 "source: env:HOME"):  # fmt: skip
        expect(editor).to_contain_text(line)
    expect(page.get_by_text(f"{LIMITS} (5 set)")).to_be_visible()
    create(page)
    expect(page.get_by_text("whole created")).to_be_visible()
    job = client.spec(JobRef("default", "whole"))
    assert job.code == Code(files={"note.txt": "a small file"})
    assert (job.labels, job.cost) == ({"team": "vision", "stage": "try"}, {"cost-centre": "4711"})
    assert (job.retry, job.requeue_on_lost_worker) == (Retry(limit=2, factor=1.5), True)
    assert (job.deadline_seconds, job.signal, job.priority) == (120.0, Signal(name="USR1"), 7)
    assert [(one.env, one.source) for one in job.secrets] == [("GREETING", "env:HOME")]
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("a small file")


WIDE = "- {name: wide, workers: 1, slots: 2, resources: {cpu: 500m, memory: 96Mi}}"


@pytest.mark.req("C-wizard", "FR-UI-001", "FR-UI-003")
def test_worker_groups_are_typed_planned_and_shown_beside_each_worker(page: Page, client: Client) -> None:
    editor = begin(page, NOTED.replace("cat note.txt; echo $GREETING", "echo $MPIJOB_GROUP"), "Options")
    opened(page, RESOURCES)
    field(page, "groups").fill(WIDE)
    for line in ("groups:", "name: wide", "slots: 2"):
        expect(editor).to_contain_text(line)
    size = "1 × (0.25 CPU, 64 MiB) + 1 × wide (0.5 CPU, 96 MiB)"
    expect(page.get_by_test_id("plan")).to_contain_text(f"{size} = 3 processes")
    summary = page.get_by_test_id("summary")
    summary.get_by_role("button", name="Ranks by worker").click()
    workers = summary.get_by_role("list", name="Ranks by worker").get_by_role("listitem")
    expect(workers).to_have_text(["Worker 0, rank 00", "Worker 1, ranks 1-2wide12"])
    assert violations(page) == []
    create(page)
    expect(page.get_by_text("whole created")).to_be_visible()
    assert [(one.name, one.slots) for one in client.spec(JobRef("default", "whole")).groups] == [("wide", 2)]
    expect(page.get_by_test_id("summary")).to_contain_text(f"2 workers: {size}")
    page.get_by_role("tab", name=re.compile("^Workers")).click()
    groups = page.locator("[data-label=Group]")
    expect(groups).to_have_text(["\u2013", "wide"])
    choose(page, "Group by", "Group")
    picture = page.get_by_role("group", name="Launcher and workers")
    expect(picture.get_by_role("heading")).to_have_text(["No group (1)", "Group wide (1)"])
    assert violations(page) == []


@pytest.mark.req("C-wizard")
def test_a_laptop_without_a_network_creates_its_job_all_the_same(page: Page) -> None:
    begin(page, NOTED, "Workload")
    page.evaluate(
        "window.dispatchEvent(new Event('offline'))"
    )  # what a browser says when the last network goes
    field(page, "name").fill("alone")
    expect(page.get_by_test_id("plan")).to_be_visible()
    create(page)
    expect(page.get_by_text("alone created")).to_be_visible()


LAKE = """
[connections.lake]
endpoint = "http://127.0.0.1:1"
bucket = "training"
access_key = "key-of-the-lake"
[connections.results]
endpoint = "http://127.0.0.1:1"
bucket = "outcome"
"""


@pytest.mark.req("R4", "C-wizard")
@pytest.mark.parametrize("server", [LAKE], ids=["connections"], indirect=True)
def test_data_connections_are_chosen_by_name(page: Page) -> None:
    editor = begin(page, NOTED, "Workload")
    page.get_by_role("button", name="Add data connection").click()
    offered = options(page, "Data connection of volume 1")
    expect(offered).to_have_text(
        [re.compile(r"training \(s3\).*lake"), re.compile(r"outcome \(s3\).*results")]
    )
    offered.nth(1).click()
    page.get_by_role("textbox", name="Folder of volume 1").fill("2026/run")
    page.get_by_role("checkbox", name="Volume 1 read only").check()
    for line in ("kind: s3", "source: results/2026/run", "read_only: true"):
        expect(editor).to_contain_text(line)
    assert "key-of-the-lake" not in page.content()


PROJECTS = [{"name": "team-cv", "text": "Vision"}, {"name": "team-nlp", "text": "Language"}]
CLAIMS = [{"name": "photos", "text": "All photos 10Gi ReadWriteMany"}, {"name": "spare", "text": "1Gi"}]


@pytest.mark.req("R4")
def test_projects_and_claims_of_a_cluster_are_chosen_by_display_name(page: Page) -> None:
    """The answers are a cluster's: tests/e2e/cluster/test_page_login.py asks a real one for them."""

    def offer(found: str) -> dict[str, object]:
        claims = CLAIMS if "team-nlp" in found else []
        return {"namespace": "team-cv", "projects": PROJECTS, "claims": claims}

    page.route("**/api/v1/choices*", lambda route: route.fulfill(json=offer(route.request.url)))
    editor = begin(page, NOTED, "Workload")
    projects = options(page, "Project")
    expect(projects).to_have_text(
        ["default", re.compile("Vision.*team-cv"), re.compile("Language.*team-nlp")]
    )
    projects.nth(2).click()
    expect(editor).to_contain_text("namespace: team-nlp")
    page.get_by_role("button", name="Add volume").click()
    claims = options(page, "Source of volume 1")
    expect(claims.first).to_have_text(re.compile("All photos 10Gi ReadWriteMany.*photos"))
    claims.nth(1).click()
    expect(editor).to_contain_text("source: spare")
