"""What is hostile or broken: markup in every text, a server that goes away, an address used twice."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.integration.support import PATIENCE

from mpijob import Client, MPIJob

from .conftest import Server
from .page_support import step
from .test_journeys import SMALL

ACTS = ("window.hacked=1", "parent.hacked=1", "top.hacked=1", "(self).hacked=1")
SHAPES = (
    "<script>{}</script>", "<ScRiPt>{}</sCrIpT>", "<script src=data:text/javascript,{}></script>",
    "<img src=x onerror={}>", "<svg onload={}>", "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<body onload={}>", "<details open ontoggle={}>", "<video><source onerror={}>", "<audio src=x onerror={}>",
    "<input autofocus onfocus={}>", "<select autofocus onfocus={}>", "<marquee onstart={}>",
    "<iframe srcdoc='<script>{}</script>'>", "<iframe src=javascript:{}>",
    "<a href=javascript:{} autofocus>x</a>", "<form action=javascript:{}><button>x",
    "<object data=javascript:{}>", "<embed src=javascript:{}>", "<link rel=stylesheet href=javascript:{}>",
    "<meta http-equiv=refresh content=0;url=javascript:{}>", "<base href=javascript:{}//>",
    "<math href=javascript:{}>x", "<table background=javascript:{}>", "javascript:{}", "java\tscript:{}",
    "data:text/html,<script>{}</script>", "vbscript:{}", "'-{}-'", '"-{}-"', "');{}//", '"));{}//',
    "{{{{constructor.constructor('{}')()}}}}", "${{{}}}", "#{{{}}}", "<%= {} %>", "[[{}]]",
    "</textarea><script>{}</script>", "</title><script>{}</script>", "</style><script>{}</script>",
    "--><script>{}</script>", "]]><script>{}</script>", "<![CDATA[<script>{}</script>]]>",
    "<style>@import 'javascript:{}';</style>", "<div style=background:url(javascript:{})>",
    "\u202e<script>{}</script>", "\ufeff<img src=x onerror={}>", "<<script>{}//<</script>",
    "<x onclick={} autofocus tabindex=1>", "![x](javascript:{})",
)  # fmt: skip
PAYLOADS = tuple(shape.format(act) for act in ACTS for shape in SHAPES)


@pytest.mark.security
@pytest.mark.req("FR-INT-005")
def test_markup_in_texts_is_text_everywhere(page: Page, client: Client, tmp_path: Path) -> None:
    assert len(PAYLOADS) == 200
    reports: list[str] = []
    page.on("console", lambda said: reports.append(said.text) if "Content Security" in said.text else None)
    page.on("dialog", lambda dialog: reports.append(dialog.message))
    text = "\n\n".join(PAYLOADS)
    (tmp_path / "said").write_text("\n".join(one.replace("\n", " ") for one in PAYLOADS))
    script = f'cat {tmp_path}/said; cat {tmp_path}/said >&2; for n in "$@"; do touch "$n"; done; exit 3'
    names = [one.replace("/", "-").replace("\t", "") for one in PAYLOADS[:50]]
    job = MPIJob(name="evil", workers=1, command=("sh", "-c", script, "sh", *names), description=text,
                 env={f"EVIL_{at}": one for at, one in enumerate(PAYLOADS)}, resources=SMALL)  # fmt: skip
    client.submit(job).wait(PATIENCE)
    base = page.url.split("/jobs")[0]
    for tab in (
        "",
        "/configuration",
        "/workers?worker=0",
        "/events",
        "/files",
        "/configuration?format=yaml",
        "/logs",
    ):
        page.goto(f"{base}/jobs/default/evil{tab}")
        expect(page.locator("h1")).to_have_text("evil")
        expect(page.locator("[role=tabpanel]:visible")).not_to_be_empty()
    expect(page.get_by_role("log")).to_contain_text("hacked")
    page.locator("#log-find").fill("onerror")
    expect(page.get_by_role("log").locator("mark").first).to_be_visible()
    page.locator("#log-find").fill("/on[a-z]+=/")
    expect(page.get_by_role("log").locator("mark").first).to_be_visible()
    page.goto(f"{base}/jobs/default/evil/logs?find=<script>&only=true")
    expect(page.get_by_role("log")).to_contain_text("<script>window.hacked=1</script>")
    page.goto(f"{base}/jobs/default/evil/files")
    expect(page.get_by_role("link", name="hacked").first).to_be_visible()
    for view in ("step=workload", "step=options", "step=review", "view=yaml", "view=split"):
        page.goto(f"{base}/create?from=default/evil&{view}")
        expect(page.get_by_test_id("plan")).to_be_visible()
    page.goto(f"{base}/create?from=default/evil&step=workload")
    expect(page.get_by_role("textbox", name="Value 1", exact=True).first).to_have_value(
        re.compile("<script>")
    )
    for word in ("text", "namespace", "owner", "queue"):
        page.goto(f"{base}/jobs?{word}={quote(PAYLOADS[3])}")
        expect(page.get_by_text(re.compile("^No job matches|^No training jobs yet"))).to_be_visible()
    page.goto(f"{base}/jobs/default/{quote(PAYLOADS[4], safe='')}")
    expect(page.locator("h1")).to_be_visible()
    page.goto(f"{base}/create?template={quote(PAYLOADS[0])}")
    expect(page.get_by_test_id("problem").first).to_be_visible()
    hacked: Any = page.evaluate("window.hacked")
    assert (hacked, reports) == (None, [])


@pytest.mark.security
def test_a_huge_text_is_refused_and_the_page_stays_usable(page: Page) -> None:
    page.goto(page.url.split("/jobs")[0] + "/create?view=yaml")
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
        for old, new in pairwise("abcdefghij")
    )
    page.get_by_role("textbox", name="Job as YAML").fill(bomb)
    expect(page.get_by_test_id("problem")).to_contain_text("alias")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text("name: small\ncommand: ['true']\n")
    expect(page.get_by_test_id("plan")).to_be_visible()


@pytest.mark.security
def test_an_address_lets_one_browser_in_once(browser: Browser, page: Page, server: Server) -> None:
    assert "token" not in page.url  # it left the address at once
    assert page.evaluate("document.cookie") == ""
    other = browser.new_context().new_page()
    other.goto(server.address)
    expect(other.get_by_text("was already used")).to_be_visible()
    expect(other.get_by_role("textbox", name="URL or token")).to_be_visible()
    other.context.close()


@pytest.mark.req("C-wizard")
def test_nothing_can_be_typed_that_a_slow_copy_would_lay_itself_over(page: Page, client: Client) -> None:
    client.submit(MPIJob(name="first", workers=1, command=("true",), resources=SMALL)).wait(PATIENCE)
    held: list[Route] = []
    page.route("**/trainjobs/default/first/export*", lambda route: held.append(route))
    base = page.url.split("/jobs")[0]
    page.goto(f"{base}/create?from=default/first&step=workload")
    expect(page.get_by_role("progressbar", name="Loading the form")).to_be_visible()
    expect(page.locator("#field-command")).to_have_count(0)
    held[0].continue_()
    expect(page.locator("#field-command")).to_have_value("true")
    page.locator("#field-command").fill("hostname")
    step(page, "Review")
    expect(page.get_by_role("grid", name="Changes from the original")).to_contain_text("hostname")


def test_a_server_that_is_gone_is_said_and_there_is_a_way_back_in(
    page: Page, client: Client, server: Server
) -> None:
    client.submit(MPIJob(name="shown", workers=2, command=("true",), resources=SMALL)).wait(PATIENCE)
    page.reload()
    expect(page.locator('[data-job="default/shown"]')).to_be_visible()
    port = server.port
    server.end()
    banner = page.get_by_test_id("connection")
    expect(banner).to_contain_text(re.compile("Showing data from .* ago. Reconnecting"))
    expect(page.locator('[data-job="default/shown"]')).to_be_visible()  # what was known stays in sight
    server.start(port)
    expect(page.get_by_text("you are not signed in")).to_be_visible()
    page.get_by_role("textbox", name="URL or token").fill(server.address)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator('[data-job="default/shown"]')).to_be_visible()
