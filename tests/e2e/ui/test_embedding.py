"""The page as a part of another page: the remote of module federation, loaded as a host loads it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect
from tests.integration.support import PATIENCE

from mpijob import Client

from .page_support import action
from .test_journeys import a_job

HOST = """<!doctype html><html lang="en"><head><title>Host</title></head><body><main><h1>A dashboard</h1>
<p id="at">nowhere</p><button id="go">Learn</button><div id="place"></div></main><script type="module">
const remote = await import("/remote/remoteEntry.js");
await remote.init({}, []);
const { mount } = (await remote.get("./mount"))();
const told = (path) => { document.getElementById("at").textContent = path; };
const props = { basename: "/dashboard/mpijobs", path: "/jobs", api: "/behind", namespace: "default", onNavigate: told };
const shown = mount(document.getElementById("place"), props);
document.getElementById("go").onclick = () => shown.show({ ...props, path: "/learn" });
</script></body></html>"""


@pytest.mark.req("FR-UI-004")
def test_a_host_mounts_the_page_and_follows_it(page: Page, client: Client) -> None:
    client.submit(a_job("inside", "echo said inside; exit 3")).wait(PATIENCE)
    base = page.url.split("/jobs")[0]

    def passed_on(route: Route) -> None:  # what the host's proxy does: the prefix is taken off
        route.continue_(url=route.request.url.replace("/behind/", "/"))

    page.route("**/host.html", lambda route: route.fulfill(body=HOST, content_type="text/html"))
    page.route("**/behind/**", passed_on)
    page.goto(f"{base}/host.html")
    link = page.get_by_role("link", name="inside")
    expect(link).to_have_attribute("href", "/dashboard/mpijobs/jobs/default/inside")
    link.click()
    expect(page.locator("#at")).to_have_text("/jobs/default/inside")  # the host knows where it is
    assert page.url.endswith("/host.html")  # its address is the host's own business
    expect(page.get_by_test_id("why")).to_be_visible()
    page.get_by_role("tab", name="Logs").click()
    expect(page.get_by_role("log")).to_contain_text("said inside")
    action(page, "Clone")
    expect(page.locator("#field-name")).to_have_value("inside-2")
    expect(page.locator("#at")).to_have_text(re.compile("^/create"))
    expect(page.get_by_test_id("plan")).to_be_visible()
    page.locator("#go").click()  # the host leads
    expect(page.get_by_role("heading", name="Learn")).to_be_visible()
    expect(page.get_by_role("navigation", name="Main")).to_have_count(0)  # head and navigation are the host's
