"""The local engine's database: every format that was ever released is brought forward, by whoever comes first."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpijob.backends.local.queue import disk_full, lifecycle, store
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.worker import process_tree
from mpijob.model import Family, JobRef, JobState, MPIJob, Phase, Plan, Sample


@pytest.mark.thorough
@pytest.mark.parametrize("format", range(len(store._MIGRATIONS) + 1))
def test_a_home_of_any_older_format_takes_what_is_measured_today(tmp_path: Path, format: int) -> None:
    home = Home(str(tmp_path / "home"))
    home.ensure()
    with sqlite3.connect(home.database) as db:
        for step in store._MIGRATIONS[:format]:
            db.executescript(step)
        db.execute(f"PRAGMA user_version={format}")
    opened = Store(home)
    sample = Sample(10.0, 0, 1.0, 1024, io_wait=0.5, network=7.0)
    opened.add_samples("u1", (sample,))
    assert opened.samples("u1") == (sample,)
    opened.close()


def test_many_that_open_a_fresh_home_at_once_make_it_once(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    with ThreadPoolExecutor(8) as crowd:
        versions = [*crowd.map(lambda _: _opened(home), range(16))]
    assert set(versions) == {len(store._MIGRATIONS)}


def _opened(home: Home) -> int:
    opened = Store(home)
    version = int(opened.read("PRAGMA user_version")[0][0])
    opened.close()
    return version


def _samples(opened: Store) -> int:
    return len(opened.samples("u1"))


@pytest.mark.thorough
def test_a_store_of_a_forked_process_is_seen_by_others_and_loses_nothing(tmp_path: Path) -> None:
    """SQLite takes a carried connection's locks for the child's; the last to go then clears the journal."""
    home = Home(str(tmp_path / "home"))
    opened = Store(home)
    (told, tell), (heard, hear) = os.pipe(), os.pipe()

    def work() -> None:
        os.close(hear)  # so that the end of the other is heard
        own = Store(home)
        own.add_samples("u1", (Sample(1.0, 0, 1.0, 1),))
        os.write(tell, b"written")
        os.read(heard, 1)
        own.add_samples("u1", (Sample(2.0, 0, 1.0, 1),))
        assert _samples(own) == 2

    child = process_tree.fork_child(work)
    os.close(tell)
    assert os.read(told, 7) == b"written"
    assert _samples(opened) == 1
    opened.close()
    ending = (
        "import sys; from mpijob.backends.local.storage.paths import Home; "
        "from mpijob.backends.local.queue.store import Store; "
        "Store(Home(sys.argv[1])).close()"
    )
    subprocess.run([sys.executable, "-c", ending, str(home.root)], check=True)
    assert Path(f"{home.database}-wal").exists(), "somebody took himself for the last"
    os.write(hear, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _samples(opened) == 2
    for fd in (told, heard, hear):
        os.close(fd)


def test_one_who_is_interrupted_while_it_waits_for_the_lock_holds_none_afterwards(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    home.ensure()
    opened = Store(home)
    other = sqlite3.connect(home.database, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    def interrupted(*_: object) -> None:
        raise InterruptedError

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        other.execute("COMMIT")

    before = signal.signal(signal.SIGUSR2, interrupted)
    timer = threading.Timer(0.1, interrupt)
    timer.start()
    try:
        with pytest.raises(InterruptedError), opened.transaction():
            pytest.fail("the handler's error is raised as soon as the lock is there")
    finally:
        signal.signal(signal.SIGUSR2, before)
        timer.join()
    opened.add_samples("u1", (Sample(10.0, 0, 1.0, 1024),))
    assert _samples(opened) == 1
    opened.close()
    other.close()


def test_what_was_last_written_is_read_only_where_nobody_has_written_after_it(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    query = (home.database, len(store._MIGRATIONS), "SELECT count(*) FROM samples", ())
    assert disk_full.read_last_written(*query) is None
    opened = Store(home)
    opened.add_samples("u1", (Sample(10.0, 0, 1.0, 1024),))
    assert disk_full.read_last_written(*query) is None, "the sample is in the journal"
    opened.close()
    assert disk_full.read_last_written(*query) == [(1,)]
    assert disk_full.read_last_written(home.database, 1, *query[2:]) is None, "of another format"


def test_threads_that_end_jobs_at_once_do_not_meet_in_their_look_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, allocate, together = (
        Home(str(tmp_path / "home")),
        os.posix_fallocate,
        threading.Barrier(4, timeout=30),
    )
    home.ensure()
    disk_full.ensure_reserve(home)

    def meeting(fd: int, start: int, size: int) -> None:
        allocate(fd, start, size)
        together.wait()

    monkeypatch.setattr(os, "posix_fallocate", meeting)
    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(lambda _: disk_full.free_reserve_if_full(home), range(4)))
    assert os.listdir(home.root) == ["reserve"]


def test_where_nothing_more_fits_the_reserve_is_given_up_and_nothing_else_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(str(tmp_path / "home"))
    home.ensure()
    disk_full.ensure_reserve(home)
    assert home.reserve.stat().st_size == disk_full.RESERVE_BYTES

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    disk_full.free_reserve_if_full(home)
    assert os.listdir(home.root) == []


def store_with_job(tmp_path: Path, ref: JobRef) -> Store:
    opened = Store(Home(str(tmp_path / "home")))
    job = MPIJob(name=ref.name, namespace=ref.namespace, command=("true",))
    plan = Plan(
        job=job, uid=ref.uid, engine="local", family=Family.MPICH, family_version="", workers=(), world=1,
        hostfile="", launch=("true",), env={},
    )  # fmt: skip
    opened.add(plan, JobState(ref=ref, phase=Phase.PENDING), "", 0)
    return opened


@pytest.mark.parametrize("wish", [Phase.CANCELLED, Phase.SUSPENDED])
def test_a_job_that_ends_while_somebody_asks_to_end_it_keeps_its_own_end(tmp_path: Path, wish: Phase) -> None:
    ref = JobRef("team-b", "bert", "u1")
    opened = store_with_job(tmp_path, ref)
    succeeded = JobState(ref=ref, phase=Phase.SUCCEEDED, finished=5.0)
    opened.put(succeeded, holds=1)
    row = opened.rows("uid=?", ref.uid)[0]  # its end is known, and what it held is not free yet
    opened.put(succeeded, holds=0)
    assert lifecycle.end(opened, row, wish, 0.0, lambda _: None) == succeeded
    assert opened.rows("uid=?", ref.uid)[0].desired == ""
    opened.close()


def test_a_job_is_found_by_its_uid_in_its_own_namespace_alone(tmp_path: Path) -> None:
    ref = JobRef("team-b", "bert", "u1")
    opened = store_with_job(tmp_path, ref)
    assert opened.find(ref) is not None
    assert opened.find(JobRef("team-a", "bert", "u1")) is None
    opened.close()
