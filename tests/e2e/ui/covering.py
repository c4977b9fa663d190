"""What of the page's program a test ran: Chromium counts it, `frontend/coverage.mjs` adds all of it up.

With MPIJOB_PAGE_COVERAGE every visitor's counts are written into that directory; `make coverage` sets it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page


@contextmanager
def counted(page: Page) -> Iterator[None]:
    """Count what of our scripts runs in a page, over all its navigations."""
    place = os.environ.get("MPIJOB_PAGE_COVERAGE")
    if not place:
        yield
        return
    chromium = page.context.new_cdp_session(page)
    chromium.send("Profiler.enable")
    chromium.send("Profiler.startPreciseCoverage", {"callCount": False, "detailed": True})
    yield
    found = chromium.send("Profiler.takePreciseCoverage")["result"]
    ours = [one for one in found if "/assets/" in one["url"] and "/remote/" not in one["url"]]
    Path(place).mkdir(parents=True, exist_ok=True)
    (Path(place) / f"{uuid.uuid4().hex}.json").write_text(json.dumps(ours))
