"""Pictures of every state of the page at each width, light and dark, each examined by axe: `make screenshots`."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Error, Page
from tests.integration.support import emptied_client
from tools.browsers import chromium

from mpijob.settings import Settings

from .conftest import Server
from .page_support import live
from .sample_jobs import arrange
from .states import STATES, State
from .test_access import violations

WIDTHS = {1440: 900, 1024: 768, 390: 844}
THEMES = ("light", "dark")
CORES, MEMORY, GPUS = 8, "16Gi", 0
PRICES = "[rates.default]\ncore_hour = 0.05\ngib_hour = 0.006\ncurrency = 'EUR'\n[budgets.default]\nmonthly = 400\n"


@contextmanager
def place(work: Path) -> Iterator[Server]:
    """Yield a server over jobs of every kind."""
    settings_file = work / "settings.toml"
    settings_file.write_text(PRICES)
    here = {"MPIJOB_CORES": str(CORES), "MPIJOB_MEMORY": MEMORY, "MPIJOB_SETTINGS": str(settings_file),
            "MPIJOB_WARN_AFTER_SECONDS": "10"}  # fmt: skip
    settings = Settings(
        home=str(work / "home"), cores=CORES, memory=MEMORY, gpus=GPUS, warn_after_seconds=10.0
    )
    (work / "work").mkdir()
    with emptied_client(settings) as client:
        arrange(client)
        server = Server(settings.home, work / "work", **here)
        try:
            yield server
        finally:
            server.end()


def shoot(browser: Browser, address: str, out: Path, states: Sequence[State], widths: Sequence[int]) -> int:
    """Take the pictures, and return how many states could not be shown or break a rule of WCAG.

    Each state is loaded once for each width, and drawn in both themes.
    """
    faults = 0
    context = browser.new_context(reduced_motion="reduce", device_scale_factor=1)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.add_init_script(
        "if (location.protocol !== 'about:') sessionStorage.clear()"
    )  # no draft of the state before
    page = context.new_page()
    page.on("pageerror", lambda error: print(error))
    page.goto(address)
    live(page)
    base = page.url.split("/jobs")[0]
    for state in states:
        for width in (width for width in widths if width >= state.least_width):
            page.set_viewport_size({"width": width, "height": WIDTHS[width]})
            try:
                take(page, base, state, out / f"{state.name}-{width}")
            except (Error, AssertionError) as problem:
                faults += 1
                print(f"{state.name} at {width}: {problem}")
    return faults


def take(page: Page, base: str, state: State, path: Path) -> None:
    """Take a state in both themes."""
    page.emulate_media(color_scheme="light")
    page.unroute_all()
    page.goto("about:blank")
    page.goto(base + state.path)
    page.locator("h1").first.wait_for()
    live(page)
    page.wait_for_timeout(800)  # pictures only: nothing is asserted
    state.act(page)
    whole(page)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.wait_for_timeout(400)
        page.screenshot(path=f"{path}-{theme}.png", animations="disabled")
        assert (found := violations(page)) == [], f"{theme}: {found}"


def whole(page: Page) -> None:
    """Make the window as high as what the page scrolls; a dialog or a menu is as high as the window already."""
    hidden = "(all => Math.max(0, ...all.map(one => one.scrollHeight - one.clientHeight)))"
    more = page.eval_on_selector_all("#content, .pf-v6-c-page__main-container", hidden)
    size = page.viewport_size
    if more and size:
        page.set_viewport_size({"width": size["width"], "height": size["height"] + more})


def main() -> None:
    """Start, arrange, take the pictures."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("out", type=Path)
    words.add_argument("--only", default="", help="a regular expression for the names")
    words.add_argument("--width", type=int, action="append", help="only these widths")
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    states = [state for state in STATES if re.search(asked.only, state.name)]
    with tempfile.TemporaryDirectory() as work, place(Path(work)) as server, chromium() as browser:
        faults = shoot(browser, server.address, asked.out, states, asked.width or [*WIDTHS])
    sys.exit(f"{faults} states could not be shown or break a rule" if faults else 0)


if __name__ == "__main__":
    main()
