"""The page of a cluster in a browser: who may create does it all; who may only look is told why not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from playwright.sync_api import Browser, Page, expect
from tests.e2e.cluster.accounts import ROLE, allow, allowed_everywhere, an_account, kubeconfig_with
from tests.e2e.cluster.admission_support import by_hand
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.page_support import ROOT, Server, a_server, server_account
from tests.e2e.cluster.support import PATIENCE, TINY, Place, a_job, own_place
from tests.e2e.ui.page_support import action, create, live, phase, step
from tools.browsers import chromium

from mpijob import Client
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.errors import NotAllowed

pytestmark = [pytest.mark.testbed, pytest.mark.security]

ROLES = ROOT / "deploy" / "base" / "roles" / "roles.yaml"


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "browser") as made:
        yield made


@pytest.fixture(scope="module")
def other(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "elsewhere") as made:
        yield made


@pytest.fixture(scope="module")
def server(place: Place) -> Iterator[Server]:
    with server_account(place) as path, a_server(path, place.settings.home) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def visitor(browser: Browser, server: Server, token: str) -> Iterator[Page]:
    """Somebody whom the OAuth proxy let in: it hands their token on with everything they ask."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, extra_http_headers={"x-forwarded-access-token": token}
    )
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    page.goto(f"{server.base}/jobs")
    expect.set_options(timeout=PATIENCE * 1000)
    live(page)
    try:
        yield page
    finally:
        context.close()


@contextmanager
def viewers_role(place: Place) -> Iterator[str]:
    """Have the shipped role of viewers under a name of this test's own."""
    shipped = {one["metadata"]["name"]: one for one in yaml.safe_load_all(ROLES.read_text()) if one}
    name = f"{place.namespace}-viewer"
    place.api.create(ROLE.path(), shipped["mpijob-viewer"] | {"metadata": {"name": name}})
    try:
        yield name
    finally:
        place.api.delete(ROLE.path("", name))


def client_of(place: Place, token: str) -> Client:
    """Return the SDK with a token, as a kubeconfig holds it."""
    path = kubeconfig_with(place, "viewer", token)
    settings = msgspec.structs.replace(place.settings, kubeconfig=str(path))
    return Client(KubernetesBackend(settings), settings=settings)


@pytest.mark.req("AC5", "AC1", "PMV-007", "FR-016", "FR-023", "R4")
def test_one_creates_and_sees_the_nodes_and_one_who_may_only_look_is_told_why(
    place: Place, server: Server, browser: Browser
) -> None:
    expect.set_options(timeout=PATIENCE * 1000)
    anna, victor = an_account(place, "anna"), an_account(place, "victor")
    allow(place, "anna", place)
    with viewers_role(place) as role, visitor(browser, server, anna) as page:
        allow(place, "victor", place, role)
        page.goto(f"{server.base}/create?step=workload")
        page.locator("#field-name").fill("hello")
        page.locator("#field-command").fill("sh -c 'echo hello from $MPIJOB_RANK'")
        step(page, "Resources")
        page.locator("#field-workers").fill("2")
        page.locator("#field-resources-cpu").fill("50m")
        page.locator("#field-resources-memory").fill("64Mi")
        expect(page.get_by_test_id("plan")).to_contain_text("2 workers = 2 processes")
        create(page)
        phase(page, "Succeeded")
        page.goto(f"{server.base}/jobs/{place.namespace}/hello/workers?by=node")
        nodes = {rank.node for rank in place.client.get("hello").state().ranks}
        for node in nodes:
            expect(page.get_by_role("heading", name=node)).to_be_visible()
        with visitor(browser, server, victor) as looking:
            _only_looks(looking, place, server, client_of(place, victor))


@pytest.mark.req("AC5", "FR-INT-005", "FR-023", "B-story5", "FR-018")
def test_two_people_see_open_create_and_delete_only_what_is_of_their_project(
    place: Place, other: Place, server: Server, browser: Browser
) -> None:
    expect.set_options(timeout=PATIENCE * 1000)
    place.empty()
    dora, emil = an_account(place, "dora"), an_account(place, "emil")
    allow(place, "dora", place)
    allow(other, "emil", place)
    place.client.submit(a_job("hers", resources=TINY)).wait(PATIENCE)
    with visitor(browser, server, dora) as hers, visitor(browser, server, emil) as his:
        expect(hers.locator(f'[data-job="{place.namespace}/hers"]')).to_contain_text("Succeeded")
        expect(his.get_by_text("No training jobs yet")).to_be_visible()
        for path in ("", "/logs", "/configuration", "/workers"):
            his.goto(f"{server.base}/jobs/{place.namespace}/hers{path}")
            lacks = f"lacks 'list' permission for MPIJobs in namespace '{place.namespace}'"
            expect(his.get_by_test_id("problem").first).to_contain_text(lacks)
            expect(his.get_by_role("button", name="Actions", exact=True)).to_have_count(0)
        his.goto(f"{server.base}/create?step=workload")
        his.get_by_role("button", name="Options for Project").click()
        expect(his.get_by_role("option", name=re.compile(other.namespace))).to_have_count(1)
        expect(his.get_by_role("option", name=re.compile(place.namespace))).to_have_count(0)
        his.keyboard.press("Escape")
        his.get_by_role("button", name="YAML", exact=True).click()
        his.get_by_role("textbox", name="Job as YAML").fill(
            f"name: stolen\nnamespace: {place.namespace}\nworkers: 2\ncommand: ['true']\n"
        )
        his.get_by_role("button", name="Create job", exact=True).click()
        expect(his.get_by_test_id("problem").first).to_contain_text("lacks 'create' permission")
        his.get_by_role("textbox", name="Job as YAML").fill(
            f"name: his\nnamespace: {other.namespace}\nworkers: 2\ncommand: ['true']\n"
            "resources: {cpu: 50m, memory: 64Mi}\n"
        )
        expect(his.get_by_test_id("plan")).to_be_visible()
        his.get_by_role("button", name="Create job", exact=True).click()
        phase(his, "Succeeded")
        expect(hers.locator("tr[data-job]")).to_have_count(1)  # her list is live, and his job is not in it
        hers.goto(f"{server.base}/jobs/{place.namespace}/hers")
        action(hers, "Delete")
        hers.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(hers.get_by_text("No training jobs yet")).to_be_visible()
    assert [state.ref.name for state in place.client.jobs()] == []
    assert [state.ref.name for state in other.client.jobs()] == ["his"]


@pytest.mark.req("US3", "D-migrate", "B-admin")
def test_an_administrator_sees_every_project_its_queues_and_how_far_the_move_is(
    place: Place, server: Server, browser: Browser
) -> None:
    expect.set_options(timeout=PATIENCE * 1000)
    place.api.create(resources.MPIJOB.path(place.namespace), by_hand("of-old"))
    job = place.client.submit(a_job("busy", "sleep 600", resources=TINY))
    with (
        a_queue(place, "900m") as queue,
        allowed_everywhere(place, "olga", "cluster-admin", f"{place.namespace}-olga"),
        visitor(browser, server, an_account(place, "olga")) as page,
    ):
        page.goto(f"{server.base}/admin")
        projects, queues = (page.get_by_role("grid", name=name) for name in ("Projects", "Cluster queues"))
        project = projects.get_by_role("row").filter(has_text=place.namespace)
        expect(project.locator("td").nth(1)).to_have_text("1")  # of its jobs, those that run
        expect(project).to_contain_text(queue)
        expect(queues).to_contain_text(place.namespace)
        page.get_by_role("tab", name="Migration").click()
        expect(page.get_by_text("Migrated", exact=True)).to_be_visible()
        expect(page.get_by_text("of the fields are converted automatically")).to_be_visible()
    job.delete()
    place.take_away(resources.MPIJOB, "of-old")


def _only_looks(page: Page, place: Place, server: Server, client: Client) -> None:
    """Expect that what a viewer may not do is off, with the words that the SDK and the terminal say too."""
    with client, pytest.raises(NotAllowed) as told:
        client.submit(a_job("another", resources=TINY))
    lacks = f"lacks 'create' permission for MPIJobs in namespace '{place.namespace}'"
    assert lacks in str(told.value)
    expect(page.locator(f'[data-job="{place.namespace}/hello"]')).to_contain_text("Succeeded")
    expect(page.get_by_text("You can't create jobs here")).to_contain_text(lacks)
    page.goto(f"{server.base}/jobs/{place.namespace}/hello")
    clone = page.get_by_role("button", name="Clone", exact=True)
    expect(clone).to_have_attribute("aria-disabled", "true")
    expect(clone).to_have_attribute("title", re.compile(lacks))
    clone.click(force=True)
    page.get_by_role("button", name="Actions", exact=True).click()
    delete = page.get_by_role("menuitem", name="Delete")
    expect(delete).to_have_attribute("aria-disabled", "true")
    delete.hover()
    refusal = lacks.replace("create", "delete")
    expect(page.get_by_role("tooltip").filter(has_text=refusal)).to_be_visible()
    delete.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [state.ref.name for state in place.client.jobs()] == ["hello"]
