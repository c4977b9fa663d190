"""Everybody can use every screen: axe with all its rules for WCAG 2.1 AA, and the keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.integration.support import PATIENCE

from mpijob import Client

from .conftest import Server
from .page_support import action, live
from .test_journeys import a_job

AXE = Path(__file__).parents[3] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
# What a change of colours began has ended; playwright's own waiting would need eval, which the page forbids.
# A browser that draws nothing (nobody looks) draws no frames either: what is awaited has an end of its own.
SHOWN = """async () => {
  const within = (milliseconds, wanted) =>
    Promise.race([wanted, new Promise(done => setTimeout(done, milliseconds))]);
  await within(2e3, new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
  const ending = document.getAnimations().filter(one => one.effect.getComputedTiming().endTime < 1e4);
  await within(1e4, Promise.allSettled(ending.map(one => one.finished)));
}"""
# Colours are judged at rest: those of nested elements change one after the other, so no single wait is enough.
AT_REST = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('*, ::before, ::after { transition: none !important }');
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}"""
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
COLOURS = {"type": "rule", "values": ["color-contrast"]}  # a theme changes nothing else
JOB = "/jobs/default/broken"
SCREENS = (
    "/jobs", "/jobs?text=nothing", "/jobs?days=custom", "/compare?job=default/broken&job=default/fine",
    "/create", "/create?step=start&help=true", "/create?from=default/broken&step=workload",
    "/create?from=default/broken&step=resources", "/create?from=default/broken&step=options",
    "/create?from=default/broken&step=review", "/create?from=default/broken&view=split",
    "/create?from=default/broken&view=yaml", "/create?template=hello", JOB, f"{JOB}/configuration",
    f"{JOB}/configuration?format=yaml", f"{JOB}/workers", f"{JOB}/workers?worker=1&by=status",
    f"{JOB}/workers?worker=launcher", f"{JOB}/logs", f"{JOB}/logs?wrap=true&fold=true&find=no", f"{JOB}/metrics",
    f"{JOB}/metrics?usage=workers", f"{JOB}/metrics?usage=heat", f"{JOB}/events", f"{JOB}/files",
    "/jobs/default/nothing", "/queues", "/queues?tab=usage", "/admin", "/admin?tab=failures", "/admin?tab=audit",
    "/admin?tab=feedback", "/learn", "/learn/job-types", "/learn/glossary", "/learn/fields", "/nowhere",
)  # fmt: skip


def violations(page: Page, rules: dict[str, Any] = RULES) -> list[str]:
    """What breaks a rule and goes on breaking it once everything that moves has come to rest."""
    if found := _violations(page, rules):
        page.evaluate(SHOWN)
        found = _violations(page, rules)
    return found


def _violations(page: Page, rules: dict[str, Any]) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate("runOnly => axe.run({runOnly, resultTypes: ['violations']})", rules)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def test_the_rules_find_a_fault_that_is_planted(page: Page) -> None:
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [one.partition(":")[0] for one in violations(page)] == ["image-alt"]


def settled(page: Page) -> None:
    live(page)
    expect(page.locator("h1").first).to_be_attached()
    expect(page.locator(".pf-v6-c-spinner")).to_have_count(0)


def is_dark(page: Page, wanted: bool) -> None:
    dark = page.locator("html.pf-v6-theme-dark")
    expect(dark).to_have_count(1 if wanted else 0)


@pytest.mark.req("FR-UI-004")
def test_a_theme_that_is_chosen_is_kept_from_page_to_page(page: Page) -> None:
    for theme in ("Dark", "Light"):
        page.emulate_media(color_scheme="light" if theme == "Dark" else "dark")  # not what the system says
        page.get_by_role("button", name=re.compile("^User menu")).click()
        page.get_by_role("menuitem", name=f"{theme} theme").click()
        is_dark(page, theme == "Dark")
        page.goto(page.url.split("/jobs")[0] + "/jobs?text=nothing")
        live(page)
        is_dark(page, theme == "Dark")


@pytest.mark.req("FR-UI-010", "FR-UI-004")
def test_no_screen_breaks_a_rule_in_light_or_dark(page: Page, client: Client) -> None:
    client.submit(a_job("fine", "true")).wait(PATIENCE)
    client.submit(a_job("broken", "sleep 1.2; echo no >&2; exit 7")).wait(PATIENCE)
    base = page.url.split("/jobs")[0]
    told: dict[str, list[str]] = {}
    for screen in SCREENS:
        page.emulate_media(color_scheme="dark")
        page.goto(base + screen)
        settled(page)
        page.evaluate(AT_REST)
        for theme, rules in (("dark", RULES), ("light", COLOURS)):  # what is loaded follows the system
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            is_dark(page, theme == "dark")
            if found := violations(page, rules):
                told[f"{screen} {theme}"] = found
    assert told == {}


@pytest.mark.req("FR-UI-010")
def test_no_state_breaks_a_rule(page: Page, client: Client, server: Server) -> None:
    told: dict[str, list[str]] = {}

    def look(state: str) -> None:
        if found := violations(page):
            told[state] = found

    settled(page)
    look("nothing yet")
    client.submit(a_job("broken", "exit 7")).wait(PATIENCE)
    client.submit(a_job("other", "true")).wait(PATIENCE)
    page.reload()
    page.get_by_role("button", name="Expand other").click()
    expect(page.get_by_test_id("expanded").get_by_role("listitem").first).to_be_visible()
    page.get_by_role("checkbox", name="Select all jobs on this page").check()
    look("selected and expanded")
    page.get_by_role("button", name=re.compile("^Notifications")).click()
    expect(page.get_by_role("switch", name="Browser notifications")).to_be_attached()
    look("notifications")
    page.get_by_role("button", name=re.compile("^Notifications")).click()
    action(page, "Keyboard shortcuts", "Help")
    expect(page.get_by_role("dialog")).to_be_visible()
    look("keyboard shortcuts")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Actions for broken").click()
    expect(page.get_by_role("menuitem", name="Clone")).to_be_visible()
    look("menu of a row")
    page.keyboard.press("Escape")
    action(page, "Delete", "More bulk actions")
    expect(page.get_by_role("dialog")).to_be_visible()
    look("question")
    page.keyboard.press("Escape")
    base = page.url.split("/jobs")[0]
    page.goto(f"{base}/jobs/default/broken")
    page.get_by_role("button", name=re.compile("^Timeline and checks")).click()
    look("everything about a failure")
    page.goto(f"{base}/create?from=default/broken&step=workload")
    page.locator("#field-command").fill("'open")
    expect(page.get_by_test_id("problem")).to_be_visible()
    page.get_by_role("button", name="Help for Command").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    look("refused, with help")
    page.goto(f"{base}/create?step=start")
    page.get_by_role("button", name="Help me choose").click()
    look("asked")
    page.get_by_role("button", name="PyTorch with torchrun").click()
    look("another kind")
    page.goto(f"{base}/jobs")
    settled(page)
    server.end()
    expect(page.get_by_test_id("connection")).to_contain_text("Reconnecting")
    look("server gone")
    assert told == {}


@pytest.mark.req("FR-UI-010")
def test_a_job_is_made_and_removed_by_the_keyboard_alone(page: Page, client: Client) -> None:
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1, name="Create training job")).to_be_visible()
    blank = page.get_by_role("button", name="Start blank")
    expect(blank).to_be_visible()
    blank.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Workload", exact=True)).to_be_focused()
    tab_to(page, "field-name")
    page.keyboard.type("typed")
    tab_to(page, "field-command")
    page.keyboard.type("sleep 60")
    page.keyboard.press("Enter")  # the next step
    expect(page.get_by_role("heading", name="Resources", exact=True)).to_be_focused()
    tab_to(page, "field-workers")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    expect(page.get_by_test_id("plan")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Options", exact=True)).to_be_focused()
    tab_to_words(page, "Next")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("review")).to_be_visible()
    expect(page.get_by_role("heading", name="Review", exact=True)).to_be_focused()
    tab_to_words(page, "Create job")
    page.keyboard.press("Enter")
    expect(page.get_by_text("typed created")).to_be_visible()
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(stop).to_be_focused()
    page.get_by_role("button", name="Actions", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Delete")).to_be_visible()
    for _ in range(page.get_by_role("menuitem").count()):
        page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Delete").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Training jobs", exact=True)).to_be_visible()
    assert client.list().total == 0


def tab_to(page: Page, id: str, of: str = "id") -> None:
    """Press Tab until the field has the focus: every control in between can be passed."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.{of}") == id:
            return
    raise AssertionError(f"Tab never reached {id}")


def tab_to_words(page: Page, words: str) -> None:
    """Press Tab until a button with these words has the focus."""
    tab_to(page, words, "textContent")


def test_at_twice_the_size_nothing_is_cut_off(page: Page, client: Client) -> None:
    client.submit(a_job("narrow", "true")).wait(PATIENCE)
    page.set_viewport_size({"width": 640, "height": 512})  # 1280 x 1024 at 200 %
    page.reload()
    expect(page.locator('[data-job="default/narrow"]')).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0


@pytest.mark.req("FR-UI-010")
def test_the_list_and_a_job_are_walked_by_the_keyboard_alone(page: Page, client: Client) -> None:
    for name in ("one", "two", "three"):
        client.submit(a_job(name, "true")).wait(PATIENCE)
    page.reload()
    expect(page.locator("tr[data-job]")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="three", exact=True)).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="two")).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("x")
    expect(page.get_by_text("2 jobs selected")).to_be_visible()
    page.keyboard.press("o")
    expect(page.get_by_test_id("expanded").get_by_role("listitem").first).to_be_visible()
    page.get_by_role("button", name="Clear selection").click()
    page.get_by_role("link", name="one", exact=True).focus()
    page.keyboard.press("/")
    page.keyboard.type("three")
    expect(page.locator("tr[data-job]")).to_have_count(1)
    page.get_by_role("link", name="three", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="three")).to_be_visible()
    tab_to_words(page, "Workers 2/2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Workers")).to_have_attribute("aria-selected", "true")
    worker = page.get_by_role("group", name="Launcher and workers").get_by_role(
        "link", name=re.compile("^Worker 0")
    )
    worker.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="three-worker-0")).to_be_focused()
    page.get_by_role("button", name="Close worker details").focus()
    page.keyboard.press("Enter")
    expect(worker).to_be_focused()


def test_the_first_thing_by_keyboard_is_the_way_to_the_content(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"
