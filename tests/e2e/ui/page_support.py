"""What tests of the page do again and again: wait for it, choose in its menus, go through its form."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect


def live(page: Page) -> None:
    """Wait until the page is connected to the server and shows what it says."""
    expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "live")


def phase(page: Page, word: str) -> None:
    """Wait until the header of a job shows a phase."""
    expect(page.get_by_test_id("status").locator("[data-phase]")).to_have_attribute("data-phase", word)


def step(page: Page, name: str) -> None:
    """Go to a step of the form."""
    page.get_by_role("navigation", name="Steps").get_by_role("button", name=name).click()
    expect(page.get_by_role("heading", level=2, name=name, exact=True)).to_be_focused()


def create(page: Page) -> None:
    """Look at the review, then create."""
    step(page, "Review")
    page.get_by_role("button", name="Create job").click()


def choose(page: Page, label: str, option: str) -> None:
    """Choose one option of a menu; its button shows what is chosen."""
    page.get_by_role("button", name=re.compile(f"^{re.escape(label)}: ")).click()
    page.get_by_role(
        "option", name=re.compile(f"^{re.escape(option)}( |$)")
    ).click()  # it may have a description


def options(page: Page, label: str) -> Locator:
    """Open a menu and return its options."""
    page.get_by_role("button", name=re.compile(f"^{re.escape(label)}: ")).click()
    return page.get_by_role("option")


def tick(page: Page, label: str, option: str) -> None:
    """Switch one of a menu's checkboxes; the menu is closed again."""
    toggle = page.get_by_role("button", name=re.compile(f"^{re.escape(label)}( \\d+)?$"))
    toggle.and_(page.locator(".pf-v6-c-menu-toggle")).click()
    page.get_by_role("menuitem", name=re.compile(f"^{re.escape(option)}")).click()
    page.keyboard.press("Escape")


def action(page: Page, name: str, menu: str = "Actions") -> None:
    """Choose an action of a menu, by default of the menu in the header of a job."""
    page.get_by_role("button", name=menu, exact=True).click()
    page.get_by_role("menuitem", name=re.compile(f"^{re.escape(name)}")).click()


def navigate(page: Page, name: str) -> None:
    """Go to a screen by the navigation."""
    page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True).click()
