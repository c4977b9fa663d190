"""A deleted job is answered for by its record: real jobs, real files, deleted and asked for again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mpijob import AsyncClient, Client, Phase
from mpijob.backends.local import LocalBackend
from mpijob.backends.local.planning import capacity
from mpijob.backends.local.queue.list_jobs import current_state
from mpijob.backends.local.queue.retention import apply_retention
from mpijob.backends.local.queue.store import Store
from mpijob.errors import NotFound
from mpijob.history.retention import RetentionDays, RetentionSettings
from mpijob.model import Resources, Secret
from mpijob.settings import Settings

from .support import PATIENCE, a_job, ended, eventually, running, said, succeeded

pytestmark = pytest.mark.engine
SPEAKS = 'echo "rank $PMI_RANK says é"; printf "no newline" >&2'
DAY = 86_400.0


@pytest.mark.req("C-history", "US2-3")
def test_a_deleted_job_is_answered_for_as_it_was(client: Client, settings: Settings) -> None:
    job = succeeded(client, a_job("hello", SPEAKS))
    before = [*client.logs("hello")], [*client.events("hello")], client.spec("hello"), client.metrics("hello")
    state = client.state("hello")
    job.delete()
    assert client.list().total == 0
    assert not (Path(settings.home) / "jobs" / state.ref.uid).exists()
    *events, last = client.events("hello")
    assert ([*client.logs("hello")], client.spec("hello"), client.metrics("hello")) == (
        before[0],
        before[2],
        before[3],
    )
    assert [event.message for event in events] == [event.message for event in before[1]]
    assert last.reason == "Deleted"
    now = client.state("hello")
    assert (now.phase, now.ref, now.ranks, now.finished) == (
        state.phase,
        state.ref,
        state.ranks,
        state.finished,
    )
    assert now.deleted is not None
    assert client.remembered == now
    assert [one.ref for one in client.deleted().items] == [state.ref]
    assert said(job, ranks=(1,)) == {1: ["rank 1 says é", "no newline"]}
    assert "command" in client.export("hello")


@pytest.mark.req("C-history")
def test_why_a_deleted_job_failed_is_still_told(client: Client) -> None:
    state = ended(client, a_job("bad", 'test "$PMI_RANK" != 1 || exit 7'))
    assert state.phase is Phase.FAILED
    before = client.diagnose("bad").first
    client.delete("bad")
    assert client.why("bad") == state.findings
    assert client.diagnose("bad").first == before
    assert client.state("bad").launcher_exit_code == state.launcher_exit_code


@pytest.mark.req("C-history")
def test_a_deleted_job_can_be_run_again_from_its_record_and_copied_with_a_change(client: Client) -> None:
    ended(client, a_job("bad", 'test "$PMI_RANK" != 1 || exit "${CODE:-7}"', env={"CODE": "9"}))
    client.delete("bad")
    retried = client.retry("bad")
    assert (retried.name, retried.wait(PATIENCE).phase) == ("bad", Phase.FAILED)
    assert "exited with code 9" in retried.last.message
    client.delete("bad")
    mended = client.clone("bad", "good", changes={"env.CODE": "0"})
    assert mended.wait(PATIENCE).phase is Phase.SUCCEEDED

    async def once_more(settings: Settings) -> str:
        async with AsyncClient(LocalBackend(settings), settings=settings) as other:
            copy = await other.clone("bad", "third", changes={"env.CODE": "0"})
            return (await copy.wait(PATIENCE)).phase.value

    assert asyncio.run(once_more(client.settings)) == "Succeeded"
    with pytest.raises(NotFound, match="nobody"):
        client.retry("nobody")


@pytest.mark.parametrize(
    "words", [(), ("--raw",), ("--download", "-"), ("--download", "there"), ("--download", "all", "--merged")]
)
def test_whoever_reads_the_log_of_a_deleted_job_is_told_that_it_is_gone(
    client: Client, settings: Settings, tmp_path: Path, words: tuple[str, ...]
) -> None:
    succeeded(client, a_job("hello", "echo hello")).delete()
    argv = [sys.executable, "-m", "mpijob", "logs", "hello", *words]
    environ = {**os.environ, "MPIJOB_HOME": settings.home}
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=60
    )
    assert "job 'hello' was deleted" in done.stderr
    assert "was deleted" not in done.stdout


@pytest.mark.security
@pytest.mark.req("C-history", "D-sanitize")
@pytest.mark.parametrize("words", [(), ("-o", "json"), ("--raw",)])
def test_the_log_of_a_deleted_job_with_secrets_is_read_by_whoever_does_not_have_them(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("THE_SOURCE", "hunter2-hidden")
    secrets = (Secret(env="WANDB", source="env:THE_SOURCE"),)
    succeeded(client, a_job("hello", "echo word=$WANDB", secrets=secrets)).delete()
    monkeypatch.delenv("THE_SOURCE")
    argv = [sys.executable, "-m", "mpijob", "logs", "hello", *words]
    environ = {**os.environ, "MPIJOB_HOME": settings.home}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("word=***") == 2
    assert "hunter2" not in done.stdout


@pytest.mark.req("C-history")
def test_rules_of_the_site_are_part_of_what_is_stored(settings: Settings, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "rules:\n  - id: SITE_LICENCE\n    title: The licence server does not answer\n"
        "    literal: licence server\n    pattern: 'cannot reach licence server (?P<server>\\S+)'\n"
        "    cause: '{who} got no licence from {server}.'\n    examples: [cannot reach licence server a]\n"
    )
    known = msgspec.structs.replace(settings, rules=str(rules))
    script = 'test "$PMI_RANK" != 1 || { echo cannot reach licence server lic1; exit 7; }'
    with Client(LocalBackend(known), settings=known) as client:
        state = ended(client, a_job("unlicensed", script))
        assert [finding.code for finding in state.findings][:1] == ["SITE_LICENCE"]
        assert state.message == "Rank 1 on worker 1 got no licence from lic1."
        first = client.diagnose("unlicensed").first
        rules.write_text("rules: [broken")
        again = ended(client, a_job("unexplained", script))
        client.delete("unlicensed")
        client.delete("unexplained")
    assert first == state.findings[0]
    assert again.findings[0].code == "PROGRAM_ERROR"  # the program's own words, without the site's rule
    with Client(LocalBackend(settings), settings=settings) as plain:  # whoever asks later need not have them
        assert plain.why("unlicensed") == state.findings


def test_a_job_deleted_while_it_runs_keeps_what_it_said(client: Client) -> None:
    job = running(client, a_job("long", "echo begun; sleep 300"))
    next(line for line in job.logs(follow=True) if line.text == b"begun")
    job.delete(grace_period=0)
    assert client.state("long").phase is Phase.CANCELLED
    assert "begun" in said(job)[0]


def test_a_name_that_is_used_again_means_the_job_that_is_there(client: Client) -> None:
    succeeded(client, a_job("again", "echo first")).delete()
    succeeded(client, a_job("again", "echo second"))
    assert client.state("again").deleted is None
    assert {line.text for line in client.logs("again")} == {b"second"}
    client.delete("again")
    assert {line.text for line in client.logs("again")} == {b"second"}
    assert client.deleted().total == 2


@pytest.mark.security
def test_what_is_to_be_forgotten_leaves_no_trace(client: Client, settings: Settings) -> None:
    succeeded(client, a_job("gone", "echo a-secret-word")).delete()
    succeeded(client, a_job("gone", "echo a-secret-word"))
    client.delete("gone", forget=True)
    for ask in (client.state, client.spec, client.why):
        with pytest.raises(NotFound):
            ask("gone")
    with pytest.raises(NotFound):
        [*client.logs("gone")]
    assert client.deleted().total == 0
    history = Path(settings.home) / "history"
    assert not list(history.rglob("*.log"))
    assert b"a-secret-word" not in b"".join(
        path.read_bytes() for path in history.rglob("*") if path.is_file()
    )


def test_the_record_of_a_job_deleted_before_can_be_erased(client: Client) -> None:
    succeeded(client, a_job("gone", "echo x")).delete()
    with pytest.raises(NotFound, match="already deleted") as refusal:
        client.delete("gone")
    assert "--forget" in refusal.value.hint
    client.delete("gone", forget=True)
    with pytest.raises(NotFound, match="no job"):
        client.delete("gone", forget=True)


def test_the_record_goes_when_its_days_are_over(client: Client, settings: Settings) -> None:
    succeeded(client, a_job("old", "echo x")).delete()
    job = succeeded(client, a_job("kept", "echo y"))
    store = Store(LocalBackend(settings)._home)
    now = (job.state().finished or 0.0) + 2.5 * DAY
    eventually(lambda: not store.rows("holds=1"), "the job has given its place back")
    apply_retention(store, now, RetentionSettings({"default": RetentionDays(1, 2)}))
    assert client.list().total == 0  # its namespace keeps nothing for longer than two days


def test_who_forgets_goes_on_when_somebody_else_deletes_a_job_meanwhile(
    client: Client, settings: Settings
) -> None:
    jobs = [succeeded(client, a_job(name, "echo x")) for name in ("first", "second", "third")]
    store = Store(LocalBackend(settings)._home)
    eventually(lambda: not store.rows("holds=1"), "the jobs have given their places back")
    now = (jobs[-1].state().finished or 0.0) + 5 * DAY
    told: list[str] = []

    def farewell(uid: str) -> None:
        told.append(uid)
        store.remove(jobs[1].ref.uid)

    assert apply_retention(store, now, RetentionSettings({"default": RetentionDays(1, 2)}), farewell) == 2
    assert told == [jobs[0].ref.uid, jobs[2].ref.uid]
    assert store.rows("1") == []


def test_a_state_is_told_of_a_queued_job_that_goes_while_it_is_asked_for(client: Client) -> None:
    client.submit(a_job("first", "sleep 60", resources=Resources(cpu="1900m", memory="128Mi")))
    job = client.submit(a_job("second", "true", resources=Resources(cpu="1900m", memory="128Mi")))
    store = Store(LocalBackend(client.settings)._home)
    row = store.find(job.ref)
    assert row is not None
    store.remove(job.ref.uid)
    (state,) = capacity.add_forecasts(store, client.settings, (current_state(store, row),))
    assert state.ref == job.ref


def test_what_a_killed_delete_left_behind_is_swept(client: Client, settings: Settings) -> None:
    job = succeeded(client, a_job("here", "echo x"))
    jobs = Path(settings.home) / "jobs"
    left = jobs / "0123456789abcdef"
    left.mkdir()
    apply_retention(Store(LocalBackend(settings)._home), left.stat().st_mtime + 60)
    assert left.exists()
    apply_retention(Store(LocalBackend(settings)._home), left.stat().st_mtime + 7200)
    assert [path.name for path in jobs.iterdir()] == [job.ref.uid]


def test_the_async_client_answers_for_deleted_jobs_too(client: Client, settings: Settings) -> None:
    succeeded(client, a_job("hello", SPEAKS)).delete()

    async def ask() -> tuple[float | None, int, int, int]:
        async with AsyncClient(LocalBackend(settings), settings=settings) as other:
            lines = [line async for line in other.logs("hello", ranks=(0,))]
            record, page = await other.record("hello"), await other.deleted()
            await other.delete("hello", forget=True)
            return record.deleted, len(lines), page.total, (await other.deleted()).total

    deleted, *counts = asyncio.run(ask())
    assert deleted is not None
    assert counts == [2, 1, 0]


def test_a_delete_that_was_killed_is_finished_by_the_next(client: Client, settings: Settings) -> None:
    """Whenever it dies: the job is there, or its record is, and both tell the same."""
    for number in range(6):
        job = succeeded(client, a_job(f"job-{number}", "seq 1 2000"))
        child = subprocess.Popen(
            [sys.executable, "-m", "mpijob", "delete", job.name],
            env=_environ(settings),
            stdout=subprocess.DEVNULL,
        )
        try:
            child.wait(0.12 + number * 0.02)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(PATIENCE)
        lines = [line.text for line in client.logs(job.ref)]
        assert len(lines) == 4000
        if not client.state(job.ref).deleted:
            client.delete(job.ref)
        assert [line.text for line in client.logs(job.ref)] == lines


def _environ(settings: Settings) -> dict[str, str]:
    return os.environ | {"MPIJOB_HOME": settings.home, "NO_COLOR": "1"}
