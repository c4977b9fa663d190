"""Accounts: what ran, what it held, used and cost; asked by words and times, reported, budgeted, estimated."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.history_support import a_key, a_spec, a_state, archived

from mpijob import Client, MPIJob, Phase
from mpijob.accounting import build, costs, estimates, reports
from mpijob.accounting.aggregate import tally
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.errors import Finding, InvalidJob
from mpijob.history import account_store, retention
from mpijob.history.archive import Archive, deleted_state
from mpijob.history.archive_reader import ArchiveReader
from mpijob.history.import_job import JobImport, import_job
from mpijob.history.storage import schema
from mpijob.model import Amounts, JobRef, RankState, Sample
from mpijob.model.status.accounts import GIB, Account, AccountQuery
from mpijob.observation.metrics import consumption
from mpijob.settings import BudgetSetting, RateSetting

archive = pytest.fixture(archived)
HOUR, DAY = 3600.0, 86_400.0
RATES = {
    "*": RateSetting(core_hour=0.05, gib_hour=0.01, gpu_hour=2.0, currency="EUR"),
    "team": RateSetting(core_hour=1.0, currency="EUR"),
}


def an_account(name: str = "bert", **known: Any) -> Account:
    usual: dict[str, Any] = {
        "ref": JobRef("team", name, f"uid-{name}"),
        "phase": Phase.SUCCEEDED,
        "owner": "jane",
        "created": 0.0,
        "started": 10.0,
        "ended": 10.0 + HOUR,
        "held_seconds": HOUR,
        "ranks": 4,
        "core_hours": 4.0,
        "program": "p",
    }
    return Account(**usual | known)


# -- one account ------------------------------------------------------------------------------------
@pytest.mark.req("Q17", "FR-OBS-001")
def test_an_account_says_what_was_held_what_was_used_and_for_how_long() -> None:
    state = a_state(phase=Phase.SUCCEEDED, created=0.0, queued=0.0, started=100.0, finished=100.0 + HOUR, owner="jane",
                    launcher_exit_code=0)  # fmt: skip
    used = tally(Sample(100.0 + second, 0, 0.5, 3 * GIB, 1, 1.0) for second in range(0, 3600))
    found = build.account(state, a_spec(), Amounts(2, 4 * GIB, 2), [*used.values()], now=0.0)
    assert (found.queued_seconds, found.held_seconds, found.exit_code) == (100.0, HOUR, 0)
    assert (found.core_hours, found.gib_hours, found.gpu_hours) == (2.0, 4.0, 2.0)
    assert (found.core_hours_used, found.gib_hours_used, found.gpu_hours_used) == pytest.approx(
        (0.5, 3.0, 1.0)
    )
    assert (found.peak_bytes, found.owner, found.measured) == (3 * GIB, "jane", True)
    assert costs.cost(found, RATES) == 2.0  # its namespace has rates of its own
    assert costs.cost(msgspec.structs.replace(found, ref=JobRef("other", "x")), RATES) == pytest.approx(4.14)


def test_nobody_pays_for_the_time_that_a_job_was_suspended() -> None:
    resting = a_state(phase=Phase.SUSPENDED, created=0.0, started=0.0, finished=HOUR)
    deleted = deleted_state(resting, 9 * HOUR)
    found = build.account(deleted, a_spec(), Amounts(2), now=10 * HOUR)
    assert (found.ended, found.held_seconds, found.core_hours) == (9 * HOUR, HOUR, 2.0)
    assert consumption.consumed(deleted, a_spec()).seconds == HOUR
    running = deleted_state(a_state(created=0.0, started=0.0), HOUR)
    assert build.account(running, a_spec(), Amounts(2), now=10 * HOUR).held_seconds == HOUR


def test_a_job_of_the_memory_engine_holds_nothing_while_it_is_suspended() -> None:
    backend = MemoryBackend(script=Script(jobs={"bert": Outcome(seconds=900)}))
    with Client(backend) as client:
        job = client.submit(a_spec(namespace="default"))
        backend.pause(5.0)
        held = job.suspend().duration_seconds(backend.now)
        backend.pause(100.0)
        assert job.state().duration_seconds(backend.now) == held
        assert job.cancel().duration_seconds(backend.now) == held


def test_the_exit_of_an_account_is_that_of_the_rank_that_failed_first() -> None:
    ranks = (RankState(0, 0, exit_code=15, followed=True), RankState(1, 0, exit_code=7))
    state = a_state(
        phase=Phase.FAILED, launcher_exit_code=1, ranks=ranks, findings=(Finding("RANK_EXIT", "rank 1"),)
    )
    found = build.account(state, now=0.0)
    assert (found.exit_code, found.cause, found.message) == (7, "RANK_EXIT", "rank 1")
    assert build.exit_code(a_state(launcher_exit_code=0)) == 0
    assert build.exit_code(a_state()) is None


def test_attempts_before_the_last_are_held_time_too() -> None:
    state = a_state(phase=Phase.SUCCEEDED, attempt=2, started=1000.0, finished=1060.0)
    used = tally([Sample(101.0, 0, 1.0, 0, 1), Sample(130.0, 0, 1.0, 0, 1), Sample(1010.0, 0, 1.0, 0, 2)])
    assert build.account(state, None, Amounts(1), [*used.values()], now=0.0).held_seconds == 60.0 + 30.0


@pytest.mark.thorough
@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 2), st.floats(0, 8)), max_size=30),
    st.integers(0, 30),
)
def test_samples_may_come_in_any_portions_and_twice(told: list[tuple[float, int, float]], cut: int) -> None:
    samples = [Sample(round(when, 2), worker, cores, 1) for when, worker, cores in sorted(told)]
    whole = tally(samples)
    first = tally(samples[:cut])
    assert first | tally(samples, first) == whole
    assert all(one.cpu_seconds >= 0 for one in whole.values())


def test_a_long_silence_is_not_filled() -> None:
    (found,) = tally([Sample(1.0, 0, 1.0, 0), Sample(10_000.0, 0, 1.0, 0)]).values()
    assert found.cpu_seconds == 121.0


def test_jobs_with_other_numbers_run_the_same_program() -> None:
    one = MPIJob(name="a", command=("python", "train.py"), args=("--lr", "0.1", "--out", "/data/run-17"))
    two = one.replace(name="b", workers=8, args=("--lr", "1e-3", "--out", "/data/run-18"))
    other = one.replace(command=("python", "eval.py"))
    assert build.program(one) == build.program(two) != build.program(other)


# -- the record of accounts ------------------------------------------------------------------------
def _ran(archive: Archive, name: str, created: float, **fields: Any) -> None:
    known: dict[str, Any] = {
        "phase": Phase.SUCCEEDED,
        "started": created + 1,
        "finished": created + 61,
        "owner": "jane",
    }
    state = a_state(name, uid=f"u-{name}", created=created, **known | fields)
    archive.put_job(state, now=created + 61, spec=msgspec.json.encode(a_spec(name=name)))


def _names(archive: Archive, **query: Any) -> list[str]:
    return [one.ref.name for one in ArchiveReader(archive).accounts(AccountQuery(**query))]


@pytest.mark.req("C-history", "Q17")
def test_accounts_are_asked_by_words_labels_and_times(archive: Archive) -> None:
    _ran(archive, "old", 1000.0)
    _ran(archive, "bad", 2000.0, phase=Phase.FAILED, owner="joe", findings=(Finding("OOM_KILLED", "x"),))
    _ran(archive, "cv", 3000.0, labels={"team": "cv", "tier": "test"})
    _ran(archive, "now", 4000.0, phase=Phase.RUNNING, finished=None)
    assert _names(archive) == ["now", "cv", "bad", "old"]
    assert _names(archive, owners=("joe",)) == ["bad"]
    assert _names(archive, phases=("Failed", "Running")) == ["now", "bad"]
    assert _names(archive, cause="OOM_KILLED") == ["bad"]
    assert _names(archive, selector="team=cv") == ["cv"]
    assert _names(archive, selector="tier!=test,!nothing") == ["now", "bad", "old"]
    assert _names(archive, selector="team in (cv,nlp)") == ["cv"]
    assert _names(archive, since=2030.0, until=3500.0) == ["cv", "bad"]  # it was still there then
    assert _names(archive, since=2030.0, until=3500.0, by_end=True) == ["cv", "bad"]
    assert _names(archive, namespace="nobody") == []
    first = next(ArchiveReader(archive).accounts(AccountQuery()))
    assert _names(archive, limit=1, after=account_store.cursor(first)) == ["cv", "bad", "old"]


def test_the_same_choice_is_made_in_and_outside_of_the_database(archive: Archive) -> None:
    _ran(archive, "a", 1000.0, labels={"team": "cv"})
    _ran(archive, "b", 2000.0, phase=Phase.FAILED, owner="joe")
    everything = [*ArchiveReader(archive).accounts(AccountQuery())]
    for query in (
        AccountQuery(owners=("joe",)), AccountQuery(selector="team=cv"), AccountQuery(since=1050.0, until=1500.0),
        AccountQuery(since=1062.0), AccountQuery(by_end=True, since=2061.0), AccountQuery(by_end=True, until=1061.0),
        AccountQuery(names=("a",), phases=("Succeeded",)), AccountQuery(after=account_store.cursor(everything[0])),
    ):  # fmt: skip
        assert [*ArchiveReader(archive).accounts(query)] == [
            one for one in everything if account_store.matches(one, query)
        ], query


def test_pages_follow_each_other_without_a_hole(archive: Archive) -> None:
    for number in range(25):
        _ran(archive, f"j{number:02d}", 1000.0 + number // 2)  # some were submitted at the same moment
    found, after = list[str](), ""
    while True:
        page = account_store.page(archive, AccountQuery(limit=7, after=after))
        found += [one.ref.name for one in page.items]
        after = page.after
        if not after:
            break
    assert found == [f"j{number:02d}" for number in reversed(range(25))] or sorted(found) == sorted(
        set(found)
    )
    assert len(found) == 25


def test_usage_that_is_told_twice_is_counted_once(archive: Archive) -> None:
    _ran(archive, "a", 1000.0, phase=Phase.RUNNING, finished=None)
    samples = [Sample(1010.0, 0, 2.0, GIB), Sample(1020.0, 0, 2.0, GIB)]
    archive.add_samples(a_key("u-a"), samples)
    archive.add_samples(a_key("u-a"), samples)
    (found,) = ArchiveReader(archive).accounts(AccountQuery())
    assert found.core_hours_used * HOUR == pytest.approx(22.0)
    assert len(ArchiveReader(archive).samples(JobRef("team", "a"))) == 2


def test_a_record_of_the_first_format_gets_its_accounts(tmp_path: Path) -> None:
    path = tmp_path / "history" / "history.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        for statement in schema._MIGRATIONS[0].split(";\n"):
            db.execute(statement)
        state = a_state(phase=Phase.SUCCEEDED, created=1.0, started=2.0, finished=62.0, owner="jane")
        db.execute(
            "INSERT INTO jobs (uid, namespace, name, phase, created, ended, first_seen, last_seen, state, spec)"
            " VALUES ('u1','team','bert','Succeeded',1.0,62.0,1.0,62.0,?,?)",
            (msgspec.json.encode(state), msgspec.json.encode(a_spec())),
        )
        db.execute("INSERT INTO samples VALUES ('u1', 1, 0, 12.0, 0.5, 1024)")
        db.execute("PRAGMA user_version=1")
    (found,) = ArchiveReader(Archive(str(path.parent))).accounts(AccountQuery())
    assert (found.owner, found.held_seconds, found.peak_bytes) == ("jane", 60.0, 1024)
    assert found.core_hours == pytest.approx(1.1 / 60)  # one worker and the launcher


@pytest.mark.security
def test_what_is_to_be_forgotten_has_no_account_either(archive: Archive) -> None:
    _ran(archive, "a", 1000.0)
    retention.apply_retention(archive, retention.RetentionSettings(), 1000.0 + 31 * DAY)
    assert _names(archive) == ["a"]
    assert ArchiveReader(archive).delete_job(JobRef("team", "a")) == 1
    assert _names(archive) == []


def test_a_spec_of_another_version_keeps_no_record_from_being_written(archive: Archive) -> None:
    state = a_state(phase=Phase.SUCCEEDED, created=1.0, started=2.0, finished=62.0)
    archive.put_job(state, now=70.0, spec=b'{"name": "bert", "a_field_of_tomorrow": 1}')
    (found,) = ArchiveReader(archive).accounts(AccountQuery())
    assert (found.held_seconds, found.core_hours, found.program) == (60.0, 0.0, "")


def test_a_job_taken_in_whole_has_its_account(archive: Archive) -> None:
    state = a_state(phase=Phase.SUCCEEDED, created=1.0, started=2.0, finished=62.0)
    whole = JobImport(state=state, spec=msgspec.json.encode(a_spec()), samples=(Sample(12.0, 0, 0.5, 1024),))
    import_job(archive, whole, (), 70.0)
    import_job(archive, whole, (), 70.0)
    (found,) = ArchiveReader(archive).accounts(AccountQuery())
    assert found.core_hours_used * HOUR == pytest.approx(0.5)


@pytest.mark.thorough
def test_a_long_job_keeps_few_samples_and_all_that_it_used(archive: Archive) -> None:
    state = a_state(phase=Phase.SUCCEEDED, created=0.0, started=0.0, finished=10_000.0)
    samples = tuple(
        Sample(float(second), worker, 1.0, 1024) for second in range(1, 10_001) for worker in (0, 1)
    )
    import_job(archive, JobImport(state=state, samples=samples), (), 10_000.0)
    assert len(ArchiveReader(archive).samples(JobRef("team", "bert"))) == 2 * 2000
    (found,) = ArchiveReader(archive).accounts(AccountQuery())
    assert found.core_hours_used * HOUR == pytest.approx(20_000.0)


# -- reports, budgets, estimates ---------------------------------------------------------------------
@pytest.mark.req("C-cost", "Q17", "FR-RES-003")
def test_a_report_adds_up_by_any_words_and_in_all() -> None:
    found = [
        an_account("a", labels={"team": "cv"}, measured=True, core_hours_used=1.0),
        an_account("b", cost_labels={"team": "nlp"}, gpu_hours=3.0, measured=True, gpu_hours_used=1.0),
        an_account("c", ref=JobRef("other", "c"), owner="joe", phase=Phase.FAILED, ended=40 * DAY),
    ]
    by_user = reports.report(found, ("user",), RATES)
    assert [(row.key, row.jobs, row.cost) for row in by_user.rows] == [
        (("jane",), 2, 8.0),
        (("joe",), 1, 0.2),
    ]
    assert (by_user.total.jobs, by_user.total.failed, by_user.total.currency) == (3, 1, "EUR")
    assert by_user.rows[0].efficiency == pytest.approx(1 / 8)
    assert by_user.rows[0].idle_gpu_hours == 2.0
    by_namespace = reports.report(found, ("namespace",), RATES)
    assert [(row.key, row.jobs) for row in by_namespace.rows] == [(("team",), 2), (("other",), 1)]
    keys = [row.key for row in reports.report(found, ("label:team", "month"), RATES).rows]
    assert sorted(keys) == [("", "1970-02"), ("cv", "1970-01"), ("nlp", "1970-01")]
    with pytest.raises(InvalidJob, match="cannot group by 'usr'"):
        reports.report(found, ("usr",), RATES)


@pytest.mark.req("C-cost")
def test_a_budget_tells_where_the_month_leads() -> None:
    ten_days = 10 * DAY  # into January 1970, which has 31 days
    limits = {"team": BudgetSetting(10.0), "rich": BudgetSetting(1000.0)}
    rich, team = costs.budgets([an_account(), an_account("old", ended=-5 * DAY)], limits, RATES, ten_days)
    assert (team.spent, team.share, team.forecast) == pytest.approx((4.0, 0.4, 12.4))
    assert "40% of this month's budget of 10.00 EUR" in team.alert
    assert "the month ends at 12.40 EUR" in team.alert
    assert (rich.spent, rich.alert) == (0.0, "")
    (late,) = costs.budgets(
        [an_account("x", core_hours=11.0)], {"team": BudgetSetting(10.0)}, RATES, ten_days
    )
    assert late.alert.endswith("the budget is exhausted")


@pytest.mark.req("PMV-009", "UC2-AF1")
def test_an_estimate_rests_on_earlier_runs_and_says_how_wide_it_is() -> None:
    runs = [an_account(f"r{seconds}", held_seconds=seconds) for seconds in (100.0, 110.0, 140.0)]
    same = estimates.estimate(runs, ranks=4, needs=Amounts(4, 0, 1), rate=RATES["*"])
    assert same is not None
    assert (same.low_seconds, same.seconds, same.high_seconds, same.runs) == (100.0, 110.0, 140.0, 3)
    assert same.cost == pytest.approx(110 / HOUR * 2.2)
    assert "3 runs of this program with 4 ranks" in same.basis
    scaled = estimates.estimate(runs, ranks=8, needs=Amounts(8), rate=costs.FREE)
    assert scaled is not None
    assert (scaled.low_seconds, scaled.seconds) == (50.0, 55.0)
    assert scaled.high_seconds >= 110.0  # it may not scale at all
    once = estimates.estimate(runs[:1], ranks=4, needs=Amounts(4), rate=costs.FREE)
    assert once is not None
    assert (once.low_seconds, once.high_seconds) == (50.0, 200.0)
    assert estimates.estimate([], ranks=4, needs=Amounts(4), rate=costs.FREE) is None


def test_different_currencies_are_not_added() -> None:
    rates = {
        "d": RateSetting(core_hour=1.0, currency="EUR"),
        "e": RateSetting(core_hour=100.0, currency="JPY"),
    }
    known = [
        an_account(place, ref=JobRef(place, "x", place), core_hours=10.0) for place in ("d", "e", "free")
    ]
    found = reports.report(known, ("namespace",), rates)
    assert (found.total.cost, found.total.currency) == (0.0, "")
    assert (found.total.costs, found.total.price) == (
        {"EUR": 10.0, "JPY": 1000.0},
        "10.00 EUR + 1,000.00 JPY",
    )
    assert [(row.key, row.cost, row.currency, row.price) for row in found.rows] == [
        (("e",), 1000.0, "JPY", "1,000.00 JPY"),
        (("d",), 10.0, "EUR", "10.00 EUR"),
        (("free",), 0.0, "", ""),
    ]
