"""The page before real jobs, in a real browser: how soon a change is seen, and whether a loud job makes it stutter."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Page
from tools.browsers import chromium

from bench.line import Line, bounded
from bench.pageload import serving
from bench.places import Place, place, small_job
from mpijob import Resources

CHANGES = 7
RANKS, WORKERS, LINES_EACH, SECONDS = 100, 10, 10, 12
PIXEL_SECONDS, TASK_MS = 1.0, 50.0
_LOUD = (
    f"$| = 1; for (1..{LINES_EACH * SECONDS}) {{"
    f" print qq(step $_ loss 0.25\\n); select undef, undef, undef, {1 / LINES_EACH} }}"
)
_OBSERVE = """() => { window.tasks = [];
  new PerformanceObserver(seen => seen.getEntries().forEach(one => window.tasks.push(one.duration)))
    .observe({ type: 'longtask' }); }"""
# when the row's words change, the page itself notes the moment, so that no question of ours is in the way
_WAIT = """job => { window.seen = new Promise(tell => {
  const look = () => { const row = document.querySelector(`[data-job="${job}"]`);
    if (row && row.textContent.includes('Cancelled')) requestAnimationFrame(() => tell(Date.now() / 1000)); };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true }); }); }"""


def live() -> Iterator[Line]:
    """Yield the lines of the page over the local engine."""
    page_of = ("mpijob", "ui", "--port", "0", "--no-browser")
    with place() as here, serving(*page_of, env=here.environ) as (address, _), chromium() as browser:
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(address)
        yield _change(here, page)
        yield _loud(here, page)


def _change(here: Place, page: Page) -> Line:
    taken = []
    for number in range(CHANGES):
        job = here.client.submit(small_job(f"seen-{number}", 2, "sleep", "600"))
        page.reload()  # a new row is announced and not pushed under the cursor
        row = page.locator(f'[data-job="default/{job.name}"]')
        row.get_by_text("Running").first.wait_for()
        page.evaluate(_WAIT, f"default/{job.name}")
        job.cancel()
        ended = job.wait(60).finished
        assert ended is not None
        taken.append(page.evaluate("() => window.seen") - ended)
    note = f"median of {CHANGES}: from the end of a job until its row says so"
    median = statistics.median(taken)
    return bounded("page: a change of state is seen", "s", median, PIXEL_SECONDS, note, ("SC-003",))


def _loud(here: Place, page: Page) -> Line:
    loud = small_job("loud", WORKERS, "perl", "-e", _LOUD).replace(
        slots=RANKS // WORKERS, resources=Resources(cpu="1", memory="512Mi")
    )
    job = here.client.submit(loud)
    page.goto(page.url.split("/jobs")[0].split("#")[0].rstrip("/") + "/jobs/default/loud/logs")
    page.get_by_role("log").get_by_text("step 3 ").first.wait_for()
    page.evaluate(_OBSERVE)
    job.wait(120)
    page.get_by_role("status").filter(has_text="lines").first.wait_for()
    tasks: Any = page.evaluate("() => window.tasks")
    note = f"{RANKS} ranks, {RANKS * LINES_EACH} lines a second in all; {len(tasks)} tasks were above 50 ms"
    return bounded("page: longest task while a job is loud", "ms", max(tasks, default=0.0), TASK_MS, note)
