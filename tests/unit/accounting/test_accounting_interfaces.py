"""Accounts as they are asked for: `mpijob acct`, plans and comparisons, the SDK, and the rates of a cluster."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import Any

import pytest
from tests.unit.accounting.test_accounting import DAY, RATES, an_account
from tests.unit.cli_support import Cli
from tests.unit.kube_store import Store

from mpijob import AsyncClient, Client, MPIJob
from mpijob.accounting import fields
from mpijob.backends.capabilities import SupportsRates
from mpijob.backends.kubernetes.admin.namespace_limits import LIMITS, PLATFORM, Governor
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.memory import MemoryBackend
from mpijob.client.history import accounts
from mpijob.errors import NotAllowed
from mpijob.model import JobKey, JobRef, Resources
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.settings import BudgetSetting, RateSetting, Settings


@pytest.fixture
def cli() -> Cli:
    made = Cli()
    made._settings = Settings(
        engine="memory",
        rates={"*": RateSetting(core_hour=3600.0, currency="EUR")},
        budgets={"default": BudgetSetting(1.0)},
    )
    made.ok("create", "good", "--workers", "2", "--label", "team=cv", "--", "echo", "hi")
    made.ok("wait", "good")
    made("run", "bad", "--workers", "2", "--label", "memory.mpijob/outcome=fails-3-on-1", "--", "true")
    return made


@pytest.mark.req("C-history", "FR-CLI-004")
def test_acct_lists_what_ran_with_the_fields_that_are_asked_for(cli: Cli) -> None:
    header, bad, good = cli.ok("acct").splitlines()
    assert header.split()[:4] == ["NAME", "USER", "STATE", "EXIT"]
    assert (bad.split()[:4], good.split()[:4]) == (
        ["bad", "me", "Failed", "3"],
        ["good", "me", "Succeeded", "0"],
    )
    assert cli.ok("acct", "--format", "JobName,NTasks,exit", "-s", "failed").split() == [
        "NAME", "RANKS", "EXIT", "bad", "2", "3",
    ]  # fmt: skip
    assert cli.ok("history", "-l", "team=cv", "-o", "name") == "good\n"
    assert cli.ok("acct", "good", "-o", "name") == "good\n"
    assert cli.ok("acct", "--cause", "NOTHING_SUCH") == ""
    refused = cli("acct", "--format", "elapsd")
    assert refused.exit_code == 2
    assert "did you mean 'elapsed'" in refused.stderr
    assert "elapsed" in cli.ok("acct", "--fields")
    for wrong in (("--after", "garbage"), ("-l", "a=b;drop"), ("--since", "nonsense")):
        assert cli("acct", *wrong).exit_code == 2


@pytest.mark.req("C-cost")
def test_accounts_and_reports_are_read_by_programs(cli: Cli) -> None:
    rows = [*csv.DictReader(io.StringIO(cli.ok("acct", "-o", "csv", "--format", "name,user,cost,submit")))]
    assert [row["name"] for row in rows] == ["bad", "good"]
    assert float(rows[1]["cost"]) > 0
    items = cli.json("acct")["items"]
    assert {item["name"] for item in items} == {"good", "bad"}
    assert set(items[0]) == set(fields.FIELDS)
    report = cli.json("acct", "report", "--by", "label:team")
    assert {tuple(row["key"]): row["jobs"] for row in report["rows"]} == {("cv",): 1, ("",): 1}
    told = [*csv.DictReader(io.StringIO(cli.ok("acct", "report", "-o", "csv", "--by", "user,month")))]
    assert [(row["user"], row["jobs"]) for row in told] == [("me", "2")]
    assert "EUR" in cli.ok("acct", "report")
    assert json.loads(cli.ok("acct", "budget", "-o", "json"))[0]["namespace"] == "default"


@pytest.mark.security
def test_a_cell_that_a_spreadsheet_would_run_is_text(cli: Cli) -> None:
    cli.ok("create", "sly", "--label", "memory.mpijob/outcome=succeeds", "--owner", "=cmd|calc", "--", "true")
    cli("wait", "sly")
    assert "'=cmd|calc" in cli.ok("acct", "sly", "-o", "csv", "--format", "name,user")


@pytest.mark.req("PMV-009")
def test_a_plan_tells_what_earlier_runs_of_the_program_took(cli: Cli) -> None:
    assert "expected duration" not in cli.ok("plan", "new", "--workers", "2", "--", "something", "else")
    told = cli.ok("plan", "new", "--workers", "2", "--", "echo", "hi")
    assert "expected duration: about" in told
    assert "from one run of this program with 2 ranks" in told
    assert "EUR" in told


def test_compare_and_budgets_ask_only_for_the_namespaces_that_they_are_about() -> None:
    class Walled(MemoryBackend):
        def accounts(self, query: AccountQuery) -> tuple[Account, ...]:
            if query.namespace not in ("team", "other"):
                raise NotAllowed(f"you may not list jobs in {query.namespace or 'all namespaces'}")
            return tuple(one for one in known if one.ref.namespace == query.namespace)

    known = (an_account("a"), an_account("b", ref=JobRef("other", "b", "uid-b")))
    found = accounts.of(Walled(), [one.ref for one in known])
    assert [*found] == [JobKey("other", "uid-b"), JobKey("team", "uid-a")]
    settings = Settings(rates=RATES, budgets={"team": BudgetSetting(monthly=8.0)})
    (told,) = accounts.budgets(Walled(), settings, now=20 * DAY)
    assert (told.namespace, told.spent) == ("team", 4.0)


@pytest.mark.req("PMV-003")
def test_compare_shows_what_runs_used_and_cost(cli: Cli) -> None:
    told = cli.ok("compare", "good", "bad")
    assert {"core-hours", "exit"} <= {line.split()[0] for line in told.splitlines()}


def test_the_sdk_answers_the_same_blocking_and_not() -> None:
    backend = MemoryBackend()
    with Client(backend, settings=Settings(rates=RATES)) as client:
        client.run(MPIJob(name="a", workers=2, command=("true",), resources=Resources(cpu="2")))
        page, report = client.accounts(phases=["Succeeded"]), client.usage_report(("namespace",))
        found = client.estimate(MPIJob(name="b", workers=2, command=("true",)))

    async def ask() -> tuple[Any, ...]:
        async with AsyncClient(backend, settings=Settings(rates=RATES)) as other:
            job = MPIJob(name="b", workers=2, command=("true",))
            return (
                await other.accounts(phases=["Succeeded"]), await other.usage_report(("namespace",)),
                await other.estimate(job), await other.budgets(),
            )  # fmt: skip

    assert asyncio.run(ask()) == (page, report, found, ())
    assert [one.ref.name for one in page.items] == ["a"]
    assert report.total.jobs == 1


@pytest.mark.req("Q17", "C-cost")
def test_what_a_clusters_administrators_set_is_what_hours_cost() -> None:
    store = Store()
    store.objects[LIMITS.path("", "team")] = {
        "metadata": {"name": "team"},
        "spec": {"rates": {"cpuHour": 7.0, "gpuHour": 2.0}},
    }
    store.objects[LIMITS.path("", "free")] = {"metadata": {"name": "free"}, "spec": {}}
    assert Governor(store).rates() == {"team": RateSetting(7.0, 0.0, 2.0, "EUR")}
    defaults = {"rates": {"memoryGibHour": 0.5, "currency": "USD"}}
    store.objects[PLATFORM.path("", "default")] = {"metadata": {}, "spec": {"defaults": defaults}}
    found = Governor(store).rates()
    assert (found["*"].gib_hour, found["*"].currency, "free" in found) == (0.5, "USD", False)

    def forbidden(method: str, path: str) -> None:
        raise ApiError("no", status=403)

    store.before = forbidden
    assert Governor(store).rates() == {}

    class Ruled(MemoryBackend, SupportsRates):
        def rates(self) -> dict[str, RateSetting]:
            return {"default": RateSetting(core_hour=3600.0, currency="USD")}

    settings = Settings(rates={"default": RateSetting(core_hour=1.0), "*": RateSetting(gpu_hour=1.0)})
    with Client(Ruled(), settings=settings) as client:
        client.run(MPIJob(name="a", workers=2, command=("true",)))
        assert client.rates()["*"].gpu_hour == 1.0
        report = client.usage_report(("user",))
        assert report.total.cost == pytest.approx(report.total.core_hours * 3600.0)
        assert asyncio.run(_rates(Ruled(), settings))["default"].currency == "USD"


async def _rates(backend: MemoryBackend, settings: Settings) -> Any:
    async with AsyncClient(backend, settings=settings) as client:
        return await client.rates()
