"""Who is next does not depend on how many wait: neither the answer's cost, nor, against a plain search, the answer."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpijob.backends.local.planning import wait_estimate
from mpijob.backends.local.queue import scheduler, store
from mpijob.backends.local.queue.store import NEVER, Store
from mpijob.backends.local.storage.paths import Home
from mpijob.model import Amounts, Concurrency, Family, JobRef, JobState, MPIJob, Phase, Plan, PlannedWorker
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait
from mpijob.settings import QuotaSetting, Settings

ROOM = Amounts(2, 1 << 30)
_number = itertools.count()


class Row(msgspec.Struct, frozen=True):
    """A job as generated: who, which group of how many at once, how urgent, from when, and whether it runs."""

    owner: str
    namespace: str
    group: tuple[str, int] | None
    priority: int
    not_before: float
    desired: str
    holds: bool


ROWS = st.lists(
    st.builds(
        Row,
        owner=st.sampled_from("ab"),
        namespace=st.sampled_from(["n", "m"]),
        group=st.sampled_from([None, None, ("g", 1), ("g", 2), ("h", 1)]),
        priority=st.sampled_from([0, 0, 5]),
        not_before=st.sampled_from([0.0, 0.0, 0.0, 50.0, 150.0, NEVER]),
        desired=st.sampled_from(["", "", "", "cancel"]),
        holds=st.sampled_from([False, False, False, True]),
    ),
    max_size=14,
)


def a_store(root: Path) -> Store:
    home = Home(str(root / f"home-{next(_number)}"))
    home.ensure()
    return Store(home)


def add(into: Store, row: Row) -> str:
    uid = f"u{next(_number)}"
    limit = None if row.group is None else Concurrency(limit=row.group[1], group=row.group[0])
    job = MPIJob(
        name=uid,
        namespace=row.namespace,
        workers=1,
        command=("true",),
        concurrency=limit,
        deadline_seconds=60,
    )
    plan = Plan(
        job=job, uid=uid, engine="local", family=Family.MPICH, family_version="5",
        workers=(PlannedWorker(0, f"{uid}-worker-0", 1, (0,)),), world=1, hostfile="", launch=("mpiexec",), env={},
        isolation="process-groups", needs=Amounts(1, 1 << 20),
    )  # fmt: skip
    state = JobState(
        ref=JobRef(row.namespace, uid, uid), phase=Phase.RUNNING if row.holds else Phase.QUEUED, created=1.0,
        owner=row.owner, started=1.0 if row.holds else None,
    )  # fmt: skip
    into.add(plan, state, "{}", row.priority, row.not_before)
    with into.transaction() as db:
        db.execute("UPDATE jobs SET desired=?, holds=? WHERE uid=?", (row.desired, row.holds, uid))
    return uid


def by_hand(rows: dict[str, Row], now: float) -> str | None:
    """Return who is next, by looking at everybody."""
    running = [row for row in rows.values() if row.holds]

    def may(row: Row) -> bool:
        beside = [one for one in running if one.group and row.group and one.group[0] == row.group[0]]
        at_once = sum(one.namespace == row.namespace for one in beside)
        waits = not row.holds and not row.desired and row.not_before <= now
        return waits and (row.group is None or at_once < row.group[1])

    def key(place: int, row: Row) -> tuple[int, int, int]:
        held = sum((one.owner, one.namespace) == (row.owner, row.namespace) for one in running)
        return -row.priority, held, place

    able = [(key(place, row), uid) for place, (uid, row) in enumerate(rows.items()) if may(row)]
    return min(able)[1] if able else None


@pytest.mark.property
@settings(deadline=None)
@given(rows=ROWS)
def test_the_next_is_whom_a_search_through_all_finds(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    waiting = a_store(tmp_path_factory.mktemp("backlog"))
    known = {add(waiting, row): row for row in rows}
    chosen = scheduler._next_job(waiting, 100.0, Settings(cores=2, memory="1Gi", gpus=0))
    assert (None if chosen is None else chosen.uid) == by_hand(known, 100.0)
    waiting.close()


PLAIN = Row("a", "n", None, 0, 0.0, "", False)
BEHIND = {
    "behind one that runs next": PLAIN,
    "in a group that is full": msgspec.structs.replace(PLAIN, group=("g", 1)),
    "in a namespace at its quota": msgspec.structs.replace(PLAIN, namespace="full"),
    "until others have ended": msgspec.structs.replace(PLAIN, not_before=NEVER),
}


@pytest.mark.parametrize("row", BEHIND.values(), ids=BEHIND)
def test_what_it_costs_to_find_the_next_does_not_grow_with_those_who_wait(tmp_path: Path, row: Row) -> None:
    limited = Settings(cores=2, memory="1Gi", gpus=0, quotas={"full": QuotaSetting(jobs=0)})
    waiting = a_store(tmp_path)
    add(waiting, msgspec.structs.replace(PLAIN, group=("g", 1), holds=True))
    add(waiting, msgspec.structs.replace(PLAIN, owner="b"))

    def cost() -> int:
        """Return how many instructions SQLite carries out, in hundreds."""
        counted = itertools.count()
        waiting._db.set_progress_handler(lambda: next(counted) < 0, 100)
        assert scheduler._next_job(waiting, 100.0, limited) is not None
        scheduler.seconds_until_delayed(waiting, 100.0)
        waiting._db.set_progress_handler(None, 100)
        return next(counted)

    for _ in range(5):
        add(waiting, row)
    few = cost()
    for _ in range(300):
        add(waiting, row)
    assert cost() <= few + 3
    waiting.close()


def test_a_forecast_behind_many_tells_the_place_and_looks_at_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = a_store(tmp_path)
    uids = [add(waiting, PLAIN) for _ in range(queue_wait.MOST + 2)]
    played: list[int] = []
    real = queue_wait.last_forecast

    def noted(queue: queue_wait.Queue) -> Forecast:
        played.append(len(queue.waiting))
        return real(queue)

    monkeypatch.setattr(queue_wait, "last_forecast", noted)
    settings = Settings(cores=2, memory="1Gi", gpus=0)

    def of_new(priority: str) -> tuple[int | None, str]:
        job = MPIJob(name="new", workers=1, command=("true",), priority=priority)
        new = wait_estimate.NewJob(job, "a", Amounts(1, 1 << 20))
        found = wait_estimate.forecast_new(waiting, settings, ROOM, 100.0, new)
        return found.position, found.basis

    assert of_new("normal") == (queue_wait.MOST + 3, f"more than {queue_wait.MOST} jobs before it")
    assert played == []
    assert of_new("high")[0] == 1
    told = wait_estimate.forecasts(waiting, settings, ROOM, 100.0, {uids[0], uids[-1]})
    assert (told[uids[0]].position, told[uids[-1]].position) == (1, queue_wait.MOST + 2)
    assert told[uids[-1]].seconds is None
    waiting.close()


def test_jobs_of_an_earlier_release_take_their_turns_and_are_timed_by_their_plans(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    home.ensure()
    opened = Store(home)
    first, second = (add(opened, msgspec.structs.replace(PLAIN, priority=at)) for at in (0, 5))
    opened.close()
    with sqlite3.connect(home.database) as db:  # as the format before had them
        for index in ("in_turn", "waiting", "held_back", "delayed"):
            db.execute(f"DROP INDEX {index}")
        for column in ("turn", "command", "time_limit"):
            db.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
        db.execute(f"PRAGMA user_version={store._VERSION - 1}")
    settings = Settings(cores=1, memory="1Gi", gpus=0)
    opened = Store(home)
    chosen = scheduler._next_job(opened, 100.0, settings)
    assert chosen is not None
    assert chosen.uid == second
    told = wait_estimate.forecasts(opened, settings, Amounts(1, 1 << 30), 100.0, {first, second})
    assert told[first].span == (0.0, 60.0 + MPIJob(name="a", workers=1, command=("x",)).grace_seconds)
    opened.close()
