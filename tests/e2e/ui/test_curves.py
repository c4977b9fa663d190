"""A training in the page: how far it is, its curves, the numbers, and where else they are seen."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from mpijob import Client, MPIJob
from mpijob.model import Resources

TRAINS = """
import math, os, sys, time
rank = int(os.environ["MPIJOB_RANK"])
for step in range(1, 61):
    loss, accuracy = 2.3 * math.exp(-step / 18) + 0.08 * math.sin(step), 1 - math.exp(-step / 25)
    print('mpijob-report {"step": %d, "steps": 80, "loss": %g, "accuracy": %g}' % (step, loss, accuracy), flush=True)
    time.sleep(0.05)
while not os.path.exists(sys.argv[1]):
    sum(range(200_000))
    time.sleep(0.05)
print('mpijob-report {"step": 80, "steps": 80, "loss": 0.05, "accuracy": 0.99}', flush=True)
"""


@pytest.mark.req("PMV-014", "C-custom", "C-tb")
def test_a_training_is_watched_by_its_curves(page: Page, client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = client.submit(
        MPIJob(
            name="train",
            workers=2,
            command=(sys.executable, "-c", TRAINS, str(go)),
            resources=Resources(cpu="500m", memory="128Mi"),
            grace_seconds=1.0,
        )
    )
    links = Path(client.settings.home) / "links"
    links.mkdir(parents=True, exist_ok=True)
    (links / f"tensorboard-{job.namespace}.{job.ref.uid}").write_text(f"{os.getpid()} http://127.0.0.1:6006/")
    page.locator('[data-job="default/train"]').get_by_role("link", name="train").click()
    page.get_by_role("tab", name="Metrics").click()
    training = page.get_by_role("region", name="Training")
    expect(training.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "75")
    expect(training).to_contain_text(re.compile("step 60 of 80", re.IGNORECASE))
    expect(training).to_contain_text(re.compile(r"75%.*left"))
    loss = training.get_by_role("img", name=re.compile("^loss. Final "))
    expect(loss.locator("canvas")).to_be_visible()
    expect(training.get_by_role("img", name=re.compile("^accuracy. Final "))).to_be_visible()
    expect(training.get_by_role("link", name="TensorBoard")).to_have_attribute(
        "href", "http://127.0.0.1:6006/"
    )
    training.get_by_role("button", name="Show as table").click()
    expect(training.get_by_role("grid", name="Training metrics")).to_contain_text("accuracy")
    cpu = page.get_by_role("img", name=re.compile("^CPU.*limit 0.5"))  # of one worker
    expect(cpu).to_be_visible()
    page.get_by_role("button", name="Per worker").click()
    legend = page.get_by_role("list", name="Legend").first
    expect(legend).to_contain_text("Worker 1")
    page.get_by_role("button", name="Heat map").click()
    expect(legend).to_have_count(0)
    expect(page.get_by_role("img", name=re.compile("^CPU.*limit 0.5"))).to_be_visible()
    go.touch()
    job.wait_for_completion(60)
    page.reload()
    page.get_by_role("tab", name="Metrics").click()
    expect(training.get_by_role("progressbar")).to_have_count(0)  # it is over
    expect(training.get_by_role("img", name=re.compile("^loss. Final 0.05"))).to_be_visible()
    page.get_by_role("tab", name="Overview").click()  # the result is there at first sight
    cards = page.get_by_role("list", name="Training metrics")
    expect(cards.get_by_role("listitem").filter(has_text="accuracy")).to_contain_text("0.99")
    expect(cards.get_by_role("img", name=re.compile("^loss, from .* to 0.05"))).to_be_visible()


WRITES = """
import math, os, sys, time
from mpijob.client.integrations.tfevents import event, record
rank = int(os.environ["MPIJOB_RANK"])
for run in ("train", "validation") if rank == 0 else ():
    os.makedirs(f"logs/{run}")
    with open(f"logs/{run}/events.out.tfevents.1.host", "wb") as file:
        for step in range(40):
            for tag, value in (("loss", 2 * math.exp(-step / 12)), ("accuracy", 1 - math.exp(-step / 9))):
                if tag == "loss" or run == "validation":
                    file.write(record(event(1e9 + step, step, {tag: value + 0.1 * (run == "validation")})))
if rank == 0:
    with open("logs/train/events.out.tfevents.0.damaged", "wb") as file:
        file.write(b"no event file at all")
"""


@pytest.mark.req("C-tb", "PMV-014")
def test_the_event_files_that_a_job_wrote_are_charts(page: Page, client: Client) -> None:
    small = Resources(cpu="500m", memory="128Mi")
    job = client.submit(
        MPIJob(name="writes", workers=2, command=(sys.executable, "-c", WRITES), resources=small)
    )
    job.wait_for_completion(60)
    page.locator('[data-job="default/writes"]').get_by_role("link", name="writes").click()
    page.get_by_role("tab", name="Metrics").click()
    files = page.get_by_role("region", name="TensorBoard event files")
    expect(files).to_contain_text("2 tags in 3 files of the job")
    expect(files).to_contain_text("logs/train/events.out.tfevents.0.damaged: wrong checksum at byte 0")
    loss = files.get_by_role(
        "img", name=re.compile("^loss. logs.train: final 0.07.*; logs.validation: final")
    )
    expect(loss.locator("canvas")).to_be_visible()
    legend = files.get_by_role("region", name="loss").get_by_role("list", name="Legend")
    expect(legend.get_by_role("listitem")).to_have_text(["logs/train", "logs/validation"])
    expect(files.get_by_role("region", name="accuracy")).to_contain_text("logs/validation · by step")
    files.get_by_role("button", name="Show event files as table").click()
    rows = files.get_by_role("grid", name="Scalars of event files").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="logs/train")).to_contain_text("40")


TICKS = """
import time
for tick in range(40):
    print("tick", tick, flush=True)
    sum(range(200_000))
    time.sleep(0.2)
"""


@pytest.mark.req("FR-017", "C-timeline")
def test_what_was_said_while_something_was_measured_is_a_stroke_away(page: Page, client: Client) -> None:
    small = Resources(cpu="500m", memory="128Mi")
    job = client.submit(
        MPIJob(name="ticks", workers=2, command=(sys.executable, "-c", TICKS), resources=small)
    )
    job.wait_for_completion(60)
    page.locator('[data-job="default/ticks"]').get_by_role("link", name="ticks").click()
    page.get_by_role("tab", name="Metrics").click()
    expect(page.get_by_text("Drag across a chart to open the logs")).to_be_visible()
    box = page.get_by_role("img", name=re.compile("^CPU")).locator(".u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    page.mouse.up()
    page.get_by_role("link", name=re.compile("^View logs ")).click()
    expect(page).to_have_url(re.compile(r"/jobs/default/ticks/logs\?since=\d+&until=\d+$"))
    lines = page.get_by_role("log")
    expect(lines).to_contain_text(re.compile(r"tick \d+"))
    expect(lines).not_to_contain_text(re.compile(r"tick (0|39)\b"))
