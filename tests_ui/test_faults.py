"""What is hostile or broken: markup in every text, a server that goes away, an address used twice."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from mpijob import Client, MPIJob

from .conftest import Server
from .test_journeys import SMALL

PAYLOADS = (
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "'\"><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "{{constructor.constructor('hacked=1')()}}",
    "</textarea><script>window.hacked=1</script>",
    "<a href=javascript:window.hacked=1>x</a>",
    "\u202e<b>x</b>",
    "${window.hacked=1}",
)


@pytest.mark.security
def test_markup_in_texts_is_text_everywhere(page: Page, client: Client) -> None:
    reports: list[str] = []
    page.on(
        "console", lambda said: reports.append(said.text) if "Content Security Policy" in said.text else None
    )
    text = " ".join(PAYLOADS)
    script = 'printf "%s\\n" "$@"; printf "%s\\n" "$@" >&2; exit 3'
    job = MPIJob(name="evil", workers=2, command=("sh", "-c", script, "sh", *PAYLOADS), description=text,
                 env={"EVIL": text}, resources=SMALL)  # fmt: skip
    client.submit(job).wait(60)
    base = page.url.split("/jobs")[0]
    for tab in ("", "/configuration", "/workers", "/events", "/yaml", "/logs"):
        page.goto(f"{base}/jobs/default/evil{tab}")
        expect(page.locator("h1")).to_have_text("evil")
        expect(page.locator("[role=tabpanel]:visible")).not_to_be_empty()
    expect(page.get_by_role("log")).to_contain_text(PAYLOADS[0])
    page.get_by_role("textbox", name="Find in the lines shown").fill("onerror")
    expect(page.get_by_role("log").locator("mark").first).to_be_visible()
    page.goto(f"{base}/create?from=default/evil&step=workload")
    expect(page.locator("#field-env")).to_have_value(re.compile("EVIL=<script>"))
    page.goto(f"{base}/jobs?text={PAYLOADS[1]}")
    expect(page.get_by_text("No job matches")).to_be_visible()
    hacked: Any = page.evaluate("window.hacked")
    assert (hacked, reports) == (None, [])


@pytest.mark.security
def test_an_address_lets_one_browser_in_once(browser: Browser, page: Page, server: Server) -> None:
    assert "token" not in page.url  # it left the address at once
    assert page.evaluate("document.cookie") == ""
    other = browser.new_context().new_page()
    other.goto(server.address)
    expect(other.get_by_text("was used already")).to_be_visible()
    expect(other.get_by_role("textbox", name="Address or token")).to_be_visible()
    other.context.close()


def test_a_server_that_is_gone_is_said_and_there_is_a_way_back_in(
    page: Page, client: Client, server: Server
) -> None:
    client.submit(MPIJob(name="shown", workers=2, command=("true",), resources=SMALL)).wait(60)
    page.reload()
    expect(page.locator('[data-job="default/shown"]')).to_be_visible()
    port = server.port
    server.end()
    expect(page.get_by_test_id("live")).to_contain_text("Reconnecting, last update")
    expect(page.locator('[data-job="default/shown"]')).to_be_visible()  # what was known stays in sight
    server.start(port)
    expect(page.get_by_text("you are not signed in")).to_be_visible()
    page.get_by_role("textbox", name="Address or token").fill(server.address)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator('[data-job="default/shown"]')).to_be_visible()
