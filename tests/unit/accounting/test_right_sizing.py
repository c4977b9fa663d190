"""Advice from history: what runs of a program used speaks for what to ask next time, and for how many workers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.accounting.test_accounting import an_account
from tests.unit.cli_support import Cli

from mpijob import MPIJob, Phase
from mpijob.accounting.right_sizing import recommend, scaling
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.model import Resources
from mpijob.model.spec import quantity
from mpijob.model.status.accounts import GIB

JOB = MPIJob(name="train", workers=4, command=("true",), resources=Resources(cpu="4", memory="16Gi", gpu=4))


def a_run(name: str = "r", **known: Any) -> Any:
    usual: dict[str, Any] = {"workers": 4, "measured": True, "held_seconds": 3600.0, "core_hours": 16.0,
                             "core_hours_used": 15.0, "peak_bytes": 12 * GIB, "gpu_hours": 16.0,
                             "gpu_hours_used": 15.0}  # fmt: skip
    return an_account(name, **usual | known)


def advised(*runs: Any, job: MPIJob = JOB) -> dict[str, str]:
    return {one.field: one.value for one in recommend(job, "p", runs).advice}


@pytest.mark.req("PMV-008")
def test_what_was_used_speaks_for_what_to_ask() -> None:
    assert advised(a_run()) == {}
    assert advised(a_run(peak_bytes=4 * GIB)) == {"resources.memory": "5Gi"}
    assert advised(a_run(peak_bytes=int(15.5 * GIB))) == {"resources.memory": "19840Mi"}
    assert advised(a_run(core_hours_used=4.0)) == {"resources.cpu": "1300m"}
    assert advised(a_run(gpu_hours_used=1.6)) == {"resources.gpu": "1"}
    (one,) = recommend(JOB, "p", [a_run(peak_bytes=4 * GIB)]).advice
    assert "no worker of 1 run used more than 4 GiB of the requested 16 GiB" in one.reason
    late = JOB.replace(deadline_seconds=3700.0)
    assert advised(a_run(), job=late) == {"deadline_seconds": "5400"}


def test_after_a_run_that_lacked_memory_the_advice_is_that_of_its_fix_and_names_its_own_limit() -> None:
    killed = a_run(
        phase=Phase.FAILED, cause="MEMORY_LIMIT", peak_bytes=15 * GIB, worker_memory_bytes=16 * GIB
    )
    (one,) = recommend(JOB, "p", [killed]).advice
    assert one.value == quantity.doubled(16 * GIB) == "32Gi"
    assert one.reason == "a previous run exceeded its memory limit of 16 GiB"
    fixed = JOB.replace(resources=JOB.resources.replace(memory="32Gi"))
    assert advised(killed, job=fixed) == {}
    good = a_run(peak_bytes=20 * GIB, worker_memory_bytes=32 * GIB)
    assert advised(killed, good, job=fixed) == {}
    assert advised(killed, good) == {"resources.memory": "32Gi"}


def test_short_runs_and_unmeasured_ones_speak_for_nothing() -> None:
    assert advised(a_run(held_seconds=5.0, core_hours_used=0.0, gpu_hours_used=0.0)) == {}
    assert advised(a_run(measured=False, peak_bytes=0, core_hours_used=0.0)) == {}
    assert advised() == {}


@pytest.mark.req("PMV-008")
def test_runs_of_several_sizes_tell_which_one_pays() -> None:
    runs = [an_account(f"r{ranks}", ranks=ranks, workers=ranks, held_seconds=100.0 + 1200.0 / ranks)
            for ranks in (1, 4, 12, 16)]  # fmt: skip
    found = scaling(runs)
    assert found is not None
    assert found.serial_share == pytest.approx(100 / 1300)
    assert [round(one.efficiency, 2) for one in found.sizes] == [1.0, 0.81, 0.54, 0.46]
    assert found.sentences[-1] == "16 ranks are 14% faster than 12 and cost 17% more"
    assert found.best == 12  # from there on a step gains less than half of what it costs
    assert scaling(runs[:1]) is None


@pytest.mark.req("PMV-008")
def test_the_command_tells_reasons_and_sizes() -> None:
    cli = Cli(MemoryBackend(script=Script(jobs={"a": Outcome(seconds=100), "b": Outcome(seconds=60)})))
    cli("run", "a", "--workers", "2", "--", "true")
    cli("run", "b", "--workers", "4", "--", "true")
    told = cli.ok("acct", "advice", "a")
    assert "4 ranks are" in told
    assert cli.json("acct", "advice", "a")["runs"] == 2
