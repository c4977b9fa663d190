"""What real jobs used: measured while they run, found in their accounts, also when they are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.client.test_webhooks import receiver

from mpijob import Client, Phase
from mpijob.backends.local import LocalBackend
from mpijob.backends.local.queue.retention import apply_retention
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage import archive
from mpijob.settings import Settings

from .support import PATIENCE, a_job, ended, eventually, running, succeeded

pytestmark = pytest.mark.engine
BUSY = "python3 -c 'import time; t = time.time() + 2.5; a = bytearray(40 << 20)\nwhile time.time() < t: pass'"
DAY = 86_400.0


@pytest.mark.req("C-history", "Q17", "FR-OBS-001", "FR-022")
def test_what_a_job_used_is_known_while_it_is_there_and_when_it_is_deleted(client: Client) -> None:
    succeeded(client, a_job("busy", BUSY, labels={"team": "cv"}))
    (before,) = client.accounts(selector="team=cv").items
    assert before.measured
    assert 0 < before.core_hours_used * 3600 <= 2 * 4.0  # two ranks kept a core busy for some of 2.5 s each
    assert before.peak_bytes > 40 << 20
    assert before.held_seconds > 2.0
    assert before.exit_code == 0
    client.delete("busy")
    (after,) = client.accounts(selector="team=cv").items
    assert (after.core_hours_used, after.peak_bytes) == (before.core_hours_used, before.peak_bytes)
    assert after.deleted is not None
    expected = client.estimate(a_job("next", BUSY))
    assert expected is not None
    assert expected.seconds == pytest.approx(after.held_seconds)


def test_failed_jobs_say_why_in_their_accounts(client: Client) -> None:
    ended(client, a_job("bad", 'test "$PMI_RANK" != 1 || exit 7'))
    (found,) = client.accounts(phases=[Phase.FAILED]).items
    assert (found.exit_code, found.cause) == (7, "RANK_EXIT")


def test_what_a_job_used_outlives_what_is_forgotten_in_time(client: Client, settings: Settings) -> None:
    job = succeeded(client, a_job("old", "true"))
    store = Store(LocalBackend(settings)._home)
    eventually(lambda: not store.rows("holds=1"), "the job has given its place back")
    now = (job.state().finished or 0.0) + 31 * DAY
    apply_retention(store, now, None, lambda uid: archive.archive_account(store, uid, settings, now))
    assert client.list().total == 0
    assert [one.ref for one in client.accounts().items] == [job.ref]
    assert (Path(settings.home) / "history" / "local" / "history.db").exists()


@pytest.mark.req("PMV-014", "C-custom")
def test_what_ranks_report_is_charted_also_when_the_job_is_deleted(client: Client) -> None:
    code = "import mpijob\nfor step in range(1, 4): mpijob.report(step=step, steps=3, loss=1 / step)"
    succeeded(client, a_job("train", command=(sys.executable, "-c", code)))
    before = client.curves("train")
    assert (before.progress, [(one.name, one.rank, one.count) for one in before.series]) == (
        1.0,
        [("loss", 0, 3)],
    )
    client.delete("train")
    assert client.curves("train") == before
    assert [one.rank for one in client.curves("train", rank=1).series] == [1]


@pytest.mark.security
@pytest.mark.req("C-history")
def test_what_is_known_of_a_user_is_erased_on_request_and_the_audit_says_so(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    job = succeeded(client, a_job("mine", "echo a-secret-word"))
    owner = job.state().owner
    job.delete()
    assert client.backup_record(tmp_path / "all.tar") == 1
    assert client.erase_user("somebody else") == ()
    assert [ref.name for ref in client.erase_user(owner)] == ["mine"]
    assert client.accounts().items == ()
    left = [
        path for path in (Path(settings.home) / "history" / "local").rglob("*") if path.suffix != ".jsonl"
    ]
    assert not any(b"a-secret-word" in path.read_bytes() for path in left if path.is_file())
    assert "forget" in {entry.verb for entry in client.audit()}
    other = Client(settings=Settings(home=str(tmp_path / "other"), engine="local"))
    assert other.restore_record(tmp_path / "all.tar") == 1
    assert [line.text for line in other.logs("mine", ranks=(0,))] == [b"a-secret-word"]


@pytest.mark.req("PMV-006")
def test_a_notifier_tells_a_receiver_of_a_real_job(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    with receiver() as (url, taken):
        toml = tmp_path / "settings.toml"
        toml.write_text(
            f'home = "{settings.home}"\nengine = "local"\n[[callbacks]]\nurl = "{url}"\nallow_private = true\n'
            'phases = ["Running", "Failed"]\n'
        )
        argv = [sys.executable, "-m", "mpijob", "notifier"]
        notifier = subprocess.Popen(argv, env=os.environ | {"MPIJOB_SETTINGS": str(toml)})
        try:
            ended(client, a_job("bad", "sleep 2; exit 3"))
            eventually(lambda: [1 for _, body in taken if b'"Failed"' in body], "the failure was told")
        finally:
            notifier.terminate()
            notifier.wait(60)
    assert [json.loads(body)["phase"] for _, body in taken] == ["Running", "Failed"]


TALKS = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
here = socket.create_connection(server.getsockname())
there, _ = server.accept()
while not os.path.exists(sys.argv[1]):
    here.sendall(b"x" * 50_000)
    left = 50_000
    while left:
        left -= len(there.recv(left))
    time.sleep(0.05)
"""
WAITS = """
import os, sys
file = (os.POSIX_SPAWN_OPEN, 9, sys.argv[1], os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[file])
"""


@pytest.mark.req("C-metrics", "FR-OBS-001")
def test_traffic_and_waits_of_each_worker_are_measured(client: Client, tmp_path: Path) -> None:
    """A child that waits for a pipe before it is a program lets its parent wait as a disk would: uninterruptibly."""
    go, pipe = tmp_path / "go", tmp_path / "pipe"
    os.mkfifo(pipe)
    talks, waits = (f"{sys.executable} -c '{text}' {path}" for text, path in ((TALKS, go), (WAITS, pipe)))
    job = running(client, a_job("busy", f"if [ $MPIJOB_RANK = 0 ]; then {talks}; else {waits}; fi"))

    def found() -> dict[int, tuple[float, float]]:
        rows = client.metrics("busy")
        return {
            worker: (max(one.network for one in mine), max(one.io_wait for one in mine))
            for worker in (0, 1)
            if (mine := [one for one in rows if one.worker == worker])
        }

    eventually(
        lambda: (told := found()) and len(told) == 2 and told[0][0] > 200_000 and told[1][1] > 0.5,
        "both are measured",
        30.0,
    )
    (network, no_wait), (no_network, _) = found()[0], found()[1]
    assert network < 20_000_000
    assert no_wait < 0.5
    assert no_network < 100_000
    go.touch()
    pipe.write_text("")
    job.wait_for_completion(PATIENCE)
    assert max(one.network for one in client.metrics("busy")) > 200_000
    job.delete()
    assert max(one.io_wait for one in client.metrics("busy")) > 0.5
