"""Every screen of the page with real jobs behind it, light and dark: `python -m tests.e2e.ui.screenshots DIRECTORY`."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page
from tools.browsers import chromium

from mpijob import Client, MPIJob
from mpijob.backends.local import LocalBackend
from mpijob.model import Resources
from mpijob.settings import Settings

from .conftest import Server

SMALL = Resources(cpu="500m", memory="128Mi")
TRAIN = (
    "import os, sys, time\n"
    "rank = os.environ['MPIJOB_RANK']\n"
    "for step in range(1, 401):\n"
    "    print(f'step {step}/400 loss={2 / (1 + step / 40):.4f} lr=0.1', flush=True)\n"
    "    if step % 50 == 0 and rank == '1': print('WARNING slow batch, 1.9 s', file=sys.stderr, flush=True)\n"
    "    time.sleep(0.05)\n"
)
EVENT_FILE = (
    "from mpijob.client.integrations.tfevents import event, record\n"
    "os.makedirs(f'logs/rank-{rank}')\n"
    "with open(f'logs/rank-{rank}/events.out.tfevents.1.host', 'wb') as file:\n"
    "    for step in range(200):\n"
    "        file.write(record(event(1e9 + step, step, {'loss': 2 / (1 + step / 40) + int(rank) / 10})))\n"
)
HUNGRY = "import time; kept = b'x' * (170 << 20); time.sleep(2); print('enough')"
SCREENS = {
    "list": "/jobs",
    "list-filtered": "/jobs?status=Failed",
    "list-none": "/jobs?text=nothing-like-this",
    "compare": "/compare?job=default/resnet-4&job=default/bert-16",
    "create-type": "/create?step=type",
    "create-basics": "/create?from=default/bert-16&fix=1&step=basics",
    "create-workload": "/create?from=default/bert-16&fix=1&step=workload",
    "create-resources": "/create?from=default/bert-16&fix=1&step=resources",
    "create-advanced": "/create?from=default/bert-16&fix=1&step=advanced",
    "create-review": "/create?from=default/bert-16&fix=1&step=review",
    "create-split": "/create?from=default/bert-16&fix=1&view=split&step=resources",
    "create-yaml": "/create?from=default/bert-16&fix=1&view=yaml",
    "failed-overview": "/jobs/default/bert-16",
    "overview": "/jobs/default/resnet-4",
    "configuration": "/jobs/default/bert-16/configuration",
    "workers": "/jobs/default/bert-16/workers",
    "worker": "/jobs/default/bert-16/workers?worker=1",
    "logs": "/jobs/default/resnet-4/logs",
    "metrics": "/jobs/default/resnet-4/metrics",
    "events": "/jobs/default/bert-16/events",
    "artifacts": "/jobs/default/resnet-4/artifacts",
    "yaml": "/jobs/default/bert-16/yaml",
    "queued": "/jobs/default/llm-ft",
    "gone": "/jobs/default/nothing",
    "queues": "/queues",
    "admin": "/admin",
    "learn": "/learn",
}


@contextmanager
def place(work: Path) -> Iterator[Server]:
    """Yield a server over jobs that succeeded, failed, run and wait."""
    settings = Settings(home=str(work / "home"), cores=4, memory="8Gi", gpus=0)
    with Client(LocalBackend(settings), settings=settings) as client:
        for job in jobs():
            if job.labels.get("first"):
                client.submit(job).wait(120)
            else:
                client.submit(job)
        (work / "work").mkdir()
        server = Server(settings.home, work / "work")
        try:
            yield server
        finally:
            server.end()
            for state in [*client.jobs(all_namespaces=True)]:
                client.delete(state.ref, grace_period=0)


def jobs() -> Iterator[MPIJob]:
    """Yield the jobs of the pictures; who is labelled `first` ends before the next begins."""
    first = {"first": "yes"}
    hello = ("sh", "-c", "echo hello from rank $MPIJOB_RANK")
    yield MPIJob(name="hello", workers=2, command=hello, resources=SMALL, labels=first)
    yield MPIJob(
        name="bert-16", workers=4, command=("python3", "-c", HUNGRY), resources=SMALL, labels=first,
        description="Fine-tuning, batch 64. See the *team page*.", grace_seconds=1.0,
    )  # fmt: skip
    yield MPIJob(
        name="typo", workers=2, command=("sh", "-c", "pyhton3 train.py"), resources=SMALL, labels=first
    )
    save = f"{TRAIN}open(f'model-{{rank}}.txt', 'w').write('weights')\n{EVENT_FILE}"
    yield MPIJob(name="resnet-4", workers=4, command=("python3", "-c", save), resources=SMALL)
    yield MPIJob(name="llm-ft", workers=6, command=("sleep", "60"), resources=SMALL)
    yield MPIJob(name="sweep", workers=4, command=("sleep", "30"), resources=SMALL)


def shoot(page: Page, base: str, out: Path, only: str) -> None:
    """Take all pictures, in the light and in the dark."""
    for dark in (False, True):
        page.emulate_media(color_scheme="dark" if dark else "light")
        for name, path in SCREENS.items():
            if not re.search(only, name):
                continue
            page.goto(base + path)
            page.locator("h1").first.wait_for()
            page.wait_for_timeout(1200)  # pictures only: nothing is asserted
            page.screenshot(path=out / f"{name}{'-dark' if dark else ''}.png", full_page=True)


def main() -> None:
    """Start, arrange, take the pictures."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("out", type=Path)
    words.add_argument("--only", default="", help="a regular expression for the names")
    words.add_argument("--height", type=int, default=1200)
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, place(Path(work)) as server, chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": asked.height}, reduced_motion="reduce")
        page.on("console", lambda said: print(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: print(error))
        page.goto(server.address)
        page.get_by_test_id("connection").wait_for(state="attached")
        shoot(page, page.url.split("/jobs")[0], asked.out, asked.only)


if __name__ == "__main__":
    main()
