"""A home on a disk that is full to the last block: jobs are still seen, ended and deleted."""

from __future__ import annotations

import pytest

from mpijob.settings import Settings

from .test_places import FILL, on_a_file_system

pytestmark = [pytest.mark.engine, pytest.mark.req("FR-030")]

FULL = (
    FILL
    + """
import time
home = client.settings.home
def alone():
    if not os.fork(): os._exit(0)  # whoever forks closes the database
    os.wait()
    deadline = time.monotonic() + 30
    while os.path.exists(home + "/state.db-wal"):
        assert time.monotonic() < deadline, "somebody keeps the database open"
        time.sleep(0.05)
def free():
    return os.statvfs(home).f_bavail
def seen():
    return {"listed": client.list().total, "phase": client.get("job").phase.value,
            "said": sorted(line.text.decode() for line in client.logs("job"))}
"""
)


def test_jobs_are_seen_and_deleted_although_nothing_more_fits(settings: Settings) -> None:
    script = """
run("echo hello")
alone()
fill()
answer = {"free": free(), "seen": attempt(seen), "deleted": attempt(lambda: client.delete("job")),
          "left": attempt(lambda: client.list().total), "files": os.listdir(home + "/jobs")}
os.truncate(home + "/filler", 0)
answer["later"] = run("true")["phase"]
answer["reserve"] = os.path.getsize(home + "/reserve")
print(json.dumps(answer))
"""
    assert on_a_file_system(settings, "size=8m", FULL + script) == {
        "free": 0,
        "seen": {"listed": 1, "phase": "Succeeded", "said": ["hello", "hello"]},
        "deleted": None,
        "left": 0,
        "files": [],
        "later": "Succeeded",
        "reserve": 1 << 20,
    }


def test_a_job_whose_files_fill_the_disk_is_deleted_also_where_nothing_was_kept_in_reserve(
    settings: Settings,
) -> None:
    script = """
run("head -c 1000000 /dev/zero > big.$MPIJOB_RANK")
alone()
os.unlink(home + "/reserve")
fill()
answer = {"free": free(), "deleted": attempt(lambda: client.delete("job"))}
answer["left"] = attempt(lambda: client.list().total)
print(json.dumps(answer))
"""
    answer = on_a_file_system(settings, "size=8m", FULL + script)
    assert answer == {"free": 0, "deleted": None, "left": 0}


def test_a_job_that_has_filled_the_disk_is_cancelled(settings: Settings) -> None:
    script = """
job = MPIJob(name="job", workers=2, command=("sh", "-c", "touch begun.$MPIJOB_RANK; sleep 600"), grace_seconds=1,
             resources={"cpu": "500m", "memory": "128Mi"})
handle = client.submit(job)
handle.wait(30, {"Running"})
fill()
answer = {"free": free(), "ended": attempt(lambda: client.cancel("job").phase.value)}
print(json.dumps(answer))
"""
    assert on_a_file_system(settings, "size=8m", FULL + script) == {"free": 0, "ended": "Cancelled"}


def test_a_lost_job_is_seen_although_that_cannot_be_written_down(settings: Settings) -> None:
    script = """
import signal
job = MPIJob(name="job", workers=2, command=("sleep", "600"), resources={"cpu": "500m", "memory": "128Mi"})
handle = client.submit(job)
handle.wait(30, {"Running"})
from mpijob.backends.local.planning import machine
from mpijob.backends.local.storage.paths import Home
from mpijob.backends.local.queue.store import Store
store = Store(Home(home))
while not (row := store.rows("holds=1")[0]).supervisor: time.sleep(0.01)
os.unlink(home + "/reserve")
fill()
for owner in (row.runner, row.supervisor): os.kill(int(owner.split(":")[0]), signal.SIGKILL)
while machine.is_alive(row.runner) or machine.is_alive(row.supervisor): time.sleep(0.01)
store.close()
answer = {"free": free(), "listed": attempt(lambda: client.list().total)}
answer["again"] = attempt(lambda: Client(settings=client.settings).list().total)
os.truncate(home + "/filler", 0)
answer["ended"] = client.get("job").phase.value
print(json.dumps(answer))
"""
    answer = on_a_file_system(settings, "size=8m", FULL + script)
    assert answer == {"free": 0, "listed": 1, "again": 1, "ended": "Failed"}
