"""Everybody can use every screen: axe with all its rules for WCAG 2.1 AA, and the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from mpijob import Client

from .test_journeys import a_job

AXE = Path(__file__).parent.parent / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
SCREENS = (
    "/jobs", "/create", "/jobs/default/broken", "/jobs/default/broken/configuration", "/jobs/default/broken/workers",
    "/jobs/default/broken/logs", "/jobs/default/broken/metrics", "/jobs/default/broken/events",
    "/jobs/default/broken/yaml", "/jobs/default/broken/artifacts", "/jobs/default/nothing", "/queues", "/learn",
)  # fmt: skip


def violations(page: Page) -> list[str]:
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate("rules => axe.run({runOnly: {type: 'tag', values: rules}})", RULES)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def test_the_rules_find_a_fault_that_is_planted(page: Page) -> None:
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [one.partition(":")[0] for one in violations(page)] == ["image-alt"]


@pytest.mark.req("FR-UI-010")
def test_no_screen_breaks_a_rule_in_light_or_dark(page: Page, client: Client) -> None:
    client.submit(a_job("broken", "sleep 1.5; echo no >&2; exit 7")).wait(60)
    base = page.url.split("/jobs")[0]
    told: dict[str, list[str]] = {}
    for dark in (False, True):
        if dark:
            page.get_by_role("button", name="Switch to dark colours").click()
        for screen in SCREENS[::2] if dark else SCREENS:
            page.goto(base + screen)
            expect(page.get_by_test_id("live")).to_have_text("Live")
            expect(page.locator("h1")).to_be_visible()
            expect(page.locator(".pf-v6-c-spinner")).to_have_count(0)
            if found := violations(page):
                told[f"{screen}{' dark' if dark else ''}"] = found
    assert told == {}


@pytest.mark.req("FR-UI-010")
def test_a_job_is_made_and_removed_by_the_keyboard_alone(page: Page, client: Client) -> None:
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Create job")).to_be_visible()
    expect(page.get_by_role("button", name="Skip: I know that I want an MPI job")).to_be_visible()
    page.get_by_role("button", name="Skip: I know that I want an MPI job").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Basics")).to_be_focused()
    tab_to(page, "field-name")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")  # the next step
    expect(page.get_by_role("heading", name="Workload")).to_be_focused()
    tab_to(page, "field-command")
    page.keyboard.type("sleep 60")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Resources")).to_be_focused()
    tab_to(page, "field-workers")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    expect(page.get_by_test_id("plan")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Advanced")).to_be_focused()
    tab_to_words(page, "Next")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("review")).to_be_visible()
    expect(page.get_by_role("heading", name="Review")).to_be_focused()
    tab_to_words(page, "Create job")
    page.keyboard.press("Enter")
    expect(page.get_by_text("typed was created")).to_be_visible()
    page.get_by_role("button", name="Delete").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Delete").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Training jobs", exact=True)).to_be_visible()
    assert client.list().total == 0


def tab_to(page: Page, id: str, of: str = "id") -> None:
    """Press Tab until the field has the focus: every control in between can be passed."""
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.{of}") == id:
            return
    raise AssertionError(f"Tab never reached {id}")


def tab_to_words(page: Page, words: str) -> None:
    """Press Tab until a button with these words has the focus."""
    tab_to(page, words, "textContent")


def test_at_twice_the_size_nothing_is_cut_off(page: Page, client: Client) -> None:
    client.submit(a_job("narrow", "true")).wait(60)
    page.set_viewport_size({"width": 640, "height": 512})  # 1280 x 1024 at 200 %
    page.reload()
    expect(page.locator('[data-job="default/narrow"]')).to_be_visible()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
