"""The list with the jobs of several people in several projects: each filter, both orders, pages."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client, MPIJob
from mpijob.model import JobRef, Resources

from .page_support import choose, tick

SMALL = Resources(cpu="250m", memory="64Mi")
JOBS = (("team-a", "ann"), ("team-a", "ben"), ("team-b", "ann"), ("team-b", "ben"), ("team-b", "cem"))


def rows(page: Page) -> Locator:
    return page.locator("tr[data-job]")


def shown(page: Page, *jobs: str) -> None:
    """Wait until the list shows exactly these jobs, in this order."""
    expect(rows(page)).to_have_count(len(jobs))
    for at, job in enumerate(jobs):
        expect(rows(page).nth(at)).to_have_attribute("data-job", job)


def order(page: Page, column: str) -> None:
    page.get_by_role("columnheader", name=column).get_by_role("button").click()


@pytest.fixture
def listed(page: Page, client: Client) -> Page:
    """The list over five jobs that have ended: two projects, three owners."""
    for namespace, owner in JOBS:
        job = MPIJob(
            name=f"of-{owner}",
            namespace=namespace,
            owner=owner,
            workers=1,
            resources=SMALL,
            command=("true",),
        )
        client.submit(job)
    for namespace, owner in JOBS:
        client.get(JobRef(namespace, f"of-{owner}")).wait(PATIENCE)
    page.set_viewport_size({"width": 1700, "height": 900})  # every column has its place
    page.reload()
    expect(rows(page)).to_have_count(5)
    return page


@pytest.mark.req("B-4", "FR-015", "FR-UI-002")
def test_jobs_are_found_by_project_owner_and_text_and_put_in_order(listed: Page) -> None:
    page = listed
    order(page, "Name")  # upwards, and equal names in an order that stays
    expect(page).to_have_url(re.compile("sort=name"))
    expect(rows(page).first).to_contain_text("of-ann")
    choose(page, "Project", "team-b")
    shown(page, "team-b/of-ann", "team-b/of-ben", "team-b/of-cem")
    order(page, "Owner")
    order(page, "Owner")
    shown(page, "team-b/of-cem", "team-b/of-ben", "team-b/of-ann")
    tick(page, "Owner", "ben")
    shown(page, "team-b/of-ben")
    choose(page, "Project", "All projects")
    order(page, "Created")
    order(page, "Created")
    shown(page, "team-b/of-ben", "team-a/of-ben")
    assert re.search("owner=ben", page.url)
    page.reload()  # whoever is sent the address sees the same
    shown(page, "team-b/of-ben", "team-a/of-ben")
    page.get_by_role("button", name="Clear all filters").first.click()
    search = page.get_by_role("textbox", name="Search jobs by name, owner, ID or reason")
    search.fill("of-c")
    shown(page, "team-b/of-cem")
    search.fill("nobody's")
    expect(page.get_by_text("No job matches these filters.")).to_be_visible()


@pytest.mark.req("B-4", "FR-015")
def test_pages_are_turned_there_and_back_and_keep_their_order(listed: Page) -> None:
    page = listed
    page.goto(page.url.split("/jobs")[0] + "/jobs?sort=created&limit=2")
    pages = page.get_by_role("navigation", name="Pages, bottom")
    bottom = page.locator(".pf-v6-c-pagination.pf-m-bottom")
    forward, back = (bottom.get_by_role("button", name=f"Go to {way} page") for way in ("next", "previous"))
    every = [f"{namespace}/of-{owner}" for namespace, owner in JOBS]
    shown(page, *every[:2])
    expect(back).to_be_disabled()
    forward.click()
    shown(page, *every[2:4])
    forward.click()
    shown(page, every[4])
    expect(forward).to_be_disabled()
    expect(bottom).to_contain_text(re.compile("5 - 5 of 5"))
    back.click()
    shown(page, *every[2:4])
    address = page.url
    page.goto("about:blank")
    page.goto(address)  # a later page that somebody sent: the way back is the first one
    shown(page, *every[2:4])
    back.click()
    shown(page, *every[:2])
    expect(pages).to_be_visible()
    order(page, "Created")  # another order begins at its first page
    shown(page, every[4], every[3])
