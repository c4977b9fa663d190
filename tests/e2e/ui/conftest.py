"""A real browser before the real page: `mpijob ui` over the local engine, Debian's Chromium, one visitor a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.integration.support import PATIENCE, emptied_client
from tools.browsers import chromium

from mpijob import Client
from mpijob.api.static import PLACE
from mpijob.settings import Settings

from .covering import counted
from .page_support import live

PATIENCE_MS = 1000 * PATIENCE
expect.set_options(timeout=PATIENCE_MS)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the tests with a browser over two processes, each with a browser of its own."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    files = sorted({item.path for item in here})
    for item in here:
        item.add_marker(pytest.mark.xdist_group(f"page-{files.index(item.path) % 2}"))


@pytest.fixture(scope="package")  # playwright's loop must not stay for the tests after these
def browser() -> Iterator[Browser]:
    assert (PLACE / "index.html").is_file(), "the page is not built: make ui"
    with chromium() as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=str(tmp_path / "home"), cores=4, memory="8Gi", gpus=0)


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with emptied_client(settings) as client:
        yield client


class Server:
    """`mpijob ui` as a process that a test may end and start again."""

    def __init__(self, home: str, work: Path, **settings: str) -> None:
        self._env = {
            **os.environ,
            "MPIJOB_HOME": home,
            "MPIJOB_CORES": "4",
            "MPIJOB_MEMORY": "8Gi",
            "HOME": str(work),
            **settings,
        }
        self._work = work
        self.start("0")

    def start(self, port: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mpijob", "ui", "--port", port, "--no-browser"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=self._work, env=self._env,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    @property
    def port(self) -> str:
        return self.address.partition("/#")[0].rpartition(":")[2]

    def end(self) -> None:
        self.process.kill()
        self.process.wait(20)


@pytest.fixture
def server(
    request: pytest.FixtureRequest, settings: Settings, client: Client, tmp_path: Path
) -> Iterator[Server]:
    """A server; a test may give its settings file by a parameter."""
    work = tmp_path / "work"
    work.mkdir()
    file = work / "settings.toml"
    file.write_text(getattr(request, "param", ""))
    server = Server(settings.home, work, MPIJOB_SETTINGS=str(file))
    yield server
    server.end()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A visitor on the list of jobs; whatever the browser complains about is a failure."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, reduced_motion="reduce", color_scheme="light"
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    with counted(page):
        page.goto(server.address)
        live(page)
        yield page
    shots = os.environ.get("MPIJOB_SHOTS")
    if shots:
        Path(shots).mkdir(parents=True, exist_ok=True)
        page.screenshot(
            path=f"{shots}/{re.sub('[^a-z_]', '', os.environ.get('PYTEST_CURRENT_TEST', '').split('::')[-1])}.png"
        )
    context.close()
    assert [
        one
        for one in complaints
        if not re.search("status of (4|501)|ERR_(CONNECTION|INCOMPLETE|CONTENT_LENGTH)", one)
    ] == []
