"""The page's server as a user starts it: a process of its own, real jobs, one browser let in."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests import pages
from tests.visitor import Page, opened

from mpijob import Client
from mpijob.settings import Settings

from .support import PATIENCE, a_job, eventually, running

pytestmark = pytest.mark.engine
BOUND = 5.0  # seconds, in which a change is visible everywhere


@pytest.fixture
def page(settings: Settings, client: Client, tmp_path: Path) -> Iterator[Page]:
    file = tmp_path / "settings.toml"
    directories = "\n".join(f'{family} = "{place}"' for family, place in settings.mpi_directories.items())
    file.write_text(
        f'home = "{settings.home}"\ncores = 4\nmemory = "8Gi"\ngpus = 0\n[mpi_directories]\n{directories}\n'
    )
    with opened({**os.environ, "MPIJOB_SETTINGS": str(file)}, tmp_path) as page:
        yield page


@pytest.mark.req("B-story5", "US2-2", "R1", "C-events")
def test_a_job_made_by_the_page_is_the_job_of_command_line_and_sdk(
    page: Page, client: Client, tmp_path: Path
) -> None:
    page.sign_in()
    job = {"name": "hello", "workers": 2, "command": ["sh", "-c", "echo hello from $MPIJOB_RANK"]}
    assert page.json("POST", "/plan", {"job": job})["plan"]["world"] == 2
    assert page.json("POST", "/trainjobs", {"job": job})["name"] == "hello"
    said = page.ask("GET", "/trainjobs/default/hello/logs?follow=true&roles=rank").read().decode()
    lines = [line["text"] for batch in said.splitlines() for line in json.loads(batch)["lines"]]
    assert sorted(lines) == ["hello from 0", "hello from 1"]
    eventually(lambda: page.phase("hello") == "Succeeded", "the list shows the end", PATIENCE)
    assert client.get("hello").wait(PATIENCE).phase.value == "Succeeded"
    told = [event["reason"] for event in page.json("GET", "/trainjobs/default/hello/events")["items"]]
    assert told == [event.reason for event in client.events("hello")]
    assert "hello from 1" in _mpijob(tmp_path, "logs", "hello")
    (tmp_path / "again.yaml").write_text(
        _mpijob(tmp_path, "export", "hello").replace("name: hello", "name: again")
    )
    _mpijob(tmp_path, "create", "-f", "again.yaml", "--workers", "3")
    eventually(lambda: page.phase("again") == "Succeeded", "the list shows what the CLI made", PATIENCE)
    assert page.json("GET", "/trainjobs/default/again")["spec"]["workers"] == 3
    for name in ("hello", "again"):
        page.ask("DELETE", f"/trainjobs/default/{name}")
    assert [*client.jobs()] == []
    assert {state.ref.name for state in client.deleted().items} == {"hello", "again"}  # their records stay


@pytest.mark.req("C-docs")
def test_the_example_with_curl_leads_from_the_printed_address_to_a_jobs_lines(
    page: Page, client: Client, tmp_path: Path
) -> None:
    text = pages.read("web-ui")
    (example,) = (block for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) if "curl" in block)
    shown, script = example.split("\n", 1)
    assert shown == "ADDRESS='http://127.0.0.1:8765/#token=…'"
    before = time.time()
    done = subprocess.run(
        ["sh", "-ec", script], env={**os.environ, "ADDRESS": page.address}, cwd=tmp_path,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    listed, created, *batches = [json.loads(answer) for answer in re.split(r"(?<=})\s*(?={)", done.stdout)]
    assert (listed["items"], created["name"]) == ([], "hello")
    lines = [line for batch in batches for line in batch["lines"]]
    assert [line["text"] for line in lines] == ["hello", "hello"]
    assert all(before * 1e3 <= line["time"] <= time.time() * 1e3 for line in lines), "milliseconds"
    assert all(abs(int(line["at"]) / 1e6 - line["time"]) < 1 for line in lines), "nanoseconds"
    assert client.get("hello").wait(PATIENCE).phase.value == "Succeeded"


@pytest.mark.req("FR-OBS-006", "FR-020", "B-watch", "R3")
def test_the_end_of_a_job_reaches_every_face_and_the_page_has_all_of_it(
    page: Page, client: Client, tmp_path: Path
) -> None:
    page.sign_in()
    go = tmp_path / "go"
    job = running(client, a_job("told", f"echo at work; until [ -e {go} ]; do sleep 0.05; done"))
    words = [sys.executable, "-m", "mpijob", "watch", "told", "-o", "json"]
    environ = {**os.environ, "MPIJOB_SETTINGS": str(tmp_path / "settings.toml")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environ) as terminal:
        assert terminal.stdout is not None
        for line in terminal.stdout:
            if json.loads(line)["phase"] == "Running":
                break
        eventually(lambda: len(client.metrics("told")) >= 2, "both workers were measured", PATIENCE)
        go.touch()
        eventually(lambda: page.phase("told") == "Succeeded", "the page shows the end", BOUND)
        last = [json.loads(line)["phase"] for line in terminal.stdout][-1]
        shown = time.time()
    assert last == "Succeeded"
    assert shown - (job.wait(BOUND).finished or 0.0) < BOUND
    here = "/trainjobs/default/told"
    assert page.json("GET", here)["state"]["phase"] == "Succeeded"
    assert "at work" in page.ask("GET", f"{here}/logs").read().decode()
    assert page.json("GET", f"{here}/events")["items"]
    assert page.json("GET", f"{here}/metrics")["samples"] >= 2


def _mpijob(place: Path, *words: str) -> str:
    environ = {**os.environ, "MPIJOB_SETTINGS": str(place / "settings.toml")}
    done = subprocess.run(
        [sys.executable, "-m", "mpijob", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
        env=environ,
    )
    return done.stdout


def test_a_failed_job_of_the_command_line_is_explained_by_the_page(page: Page, client: Client) -> None:
    page.sign_in()
    client.submit(a_job("broken", "exit 7")).wait(PATIENCE)
    eventually(lambda: page.phase("broken") == "Failed", "the list shows the failure", PATIENCE)
    row = page.json("GET", "/trainjobs?status=Failed")["items"][0]
    why = client.why("broken")
    assert row["why"] == why[0].message
    told = page.json("GET", "/trainjobs/default/broken/why")["findings"]
    assert [one["code"] for one in told] == [one.code for one in why]


def test_a_file_that_a_job_left_is_handed_over(page: Page, client: Client) -> None:
    page.sign_in()
    client.submit(a_job("leaves", "echo result > out-$MPIJOB_RANK.txt")).wait(PATIENCE)
    left = page.json("GET", "/trainjobs/default/leaves/artifacts")["items"]
    assert [file["path"] for file in left] == ["out-0.txt", "out-1.txt"]
    file = page.ask("GET", "/trainjobs/default/leaves/artifact?path=out-1.txt")
    assert file.headers["content-disposition"] == 'attachment; filename="out-1.txt"'
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.read() == b"result\n"


def test_ending_the_page_leaves_the_jobs_alone(page: Page, client: Client) -> None:
    page.sign_in()
    job = running(client, a_job("goes-on", "sleep 60"))
    page.process.send_signal(signal.SIGINT)
    assert page.process.wait(PATIENCE) == 0
    assert job.state().phase.value == "Running"


@pytest.mark.security
def test_the_token_is_nowhere_but_in_the_address(page: Page) -> None:
    eventually(lambda: page.ask("GET", "/health").status == 200, "the server answers")
    about = Path(f"/proc/{page.process.pid}")
    assert page.token.encode() not in (about / "cmdline").read_bytes()
    assert page.token.encode() not in (about / "environ").read_bytes()
    assert len(page.token) >= 40


@pytest.mark.security
def test_the_page_is_not_reachable_from_other_machines(page: Page) -> None:
    eventually(lambda: page.ask("GET", "/health").status == 200, "the server answers")
    port = int(page.base.rpartition(":")[2])
    table = Path(f"/proc/{page.process.pid}/net/tcp").read_text().splitlines()[1:]
    listening = [
        line.split()[1]
        for line in table
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]


def test_a_port_in_use_is_said_with_the_way_out(page: Page, tmp_path: Path) -> None:
    port = page.base.rpartition(":")[2]
    again = subprocess.run(
        [sys.executable, "-m", "mpijob", "ui", "--port", port, "--no-browser", "-n", "default"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert again.returncode == 6
    assert "--port 0" in again.stderr
    assert msgspec.json.encode(again.stdout) == b'""'
