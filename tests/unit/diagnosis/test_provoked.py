"""Provoked failures: those that rules were written from are told rightly; the other half is measured, and bounded."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.why import CERTAIN, judge
from tools.provoke.case import LOGS, Log, cases, half, logs

from mpijob.diagnosis import explain
from mpijob.diagnosis.rules import IDS

READ, OPENED, MEASURED = logs("rules"), logs("opened"), logs("measure")
NOT_TOLD = {  # log → why its cause is not in it, or not named by a rule
    "launch-btl-self-openmpi4": "silent",  # this build of Open MPI loses its help texts
    "t5-gatherv-mpich5": "partly",  # MPICH does not say which error
    "t3-own-plain-mpich4": "line",  # no word of failure in what it says
    "t3-own-plain-openmpi4": "line",  # as above, and the abort's banner was lost
    "t6-python-abort-intel": "line",  # no word of failure before the abort
    "t6-python-abort-mpich5": "line",
    "t6-python-abort-openmpi5": "line",
    "t6-remote-killed-intel": "line",  # Intel MPI reports ranks that it ended itself in the same words
    "t6-machine-dies-intel": "line",
    "t6-memory-limit-intel": "line",
    "t6-memory-python-intel": "line",
    "t6-remote-folder-mpich5": "silent",  # the launcher does not print why
    "t6-remote-folder-openmpi5": "silent",
    "t6-remote-program-intel": "silent",
    "t6-thread-level-mpich5": "line",  # too weak a sign of failure for a cause
    "t6-torch-loader": "silent",  # the worker's signal is not in the log
    "t8-exit-255-mpich5": "silent",  # Hydra does not print exit codes
    "t8-sigpipe-mpich5": "line",  # Hydra prints signal 9, by which it ended the others
    "t10-healthy-sqlite-mpich5": "wrong",  # errors, and only data and one sentence after them
    "t10-healthy-sqlite-openmpi5": "wrong",  # errors as the last sentences, and only data after them
}
FALSE_CAUSES = {  # of healthy logs: counted in the manual
    "t10-healthy-memory-mpich5",
    "t11-healthy-dask",  # tracebacks of connections that the scheduler closes at the end
    "t11-healthy-errhandler-mpich5",  # an MPI error that was caught, printed with MPI's whole stack
    "t11-healthy-h5-optional-openmpi4",  # HDF5's error stack, and only a cold start after it
    "t12-ok-caught-mpich5",  # the ranks' tracebacks stand between their lines, and at the end
    "t12-ok-ftest-mpich5",  # a row of a table begins with the word fatal
    "t11-healthy-horovod-stall",  # a stall that ended with one line of values
}


@pytest.mark.thorough
@pytest.mark.parametrize("log", READ, ids=lambda log: log.name)
def test_a_failure_that_rules_were_written_from_is_told_rightly(log: Log) -> None:
    assert judge(log, explain(log.evidence(facts=False))) == NOT_TOLD.get(log.name, "right")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "log", [log for log in READ if log.truth.codes and log.has_facts], ids=lambda log: log.name
)
def test_with_the_engines_facts_nothing_is_wrong(log: Log) -> None:
    verdict = judge(log, explain(log.evidence(facts=True)))
    assert verdict == "right" or (log.name in NOT_TOLD and verdict != "wrong")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [(OPENED, 0.95, 0.02), (MEASURED, 0.75, 0.04)],
    ids=["opened", "measured"],
)
def test_answers_to_logs_that_rules_were_not_written_from_are_as_good_as_the_manual_says(
    part: list[Log], right: float, wrong: float
) -> None:
    failures = [log for log in part if log.truth.codes]
    counts = Counter(judge(log, explain(log.evidence(facts=False))) for log in failures)
    assert counts["right"] >= right * len(failures), counts
    assert counts["wrong"] <= wrong * len(failures), counts


@pytest.mark.thorough
def test_nothing_certain_is_wrong_and_no_healthy_log_has_a_cause() -> None:
    known = [(log, explain(log.evidence(facts=False))) for log in (*OPENED, *MEASURED)]
    known += [
        (log, explain(log.evidence(facts=True)))
        for log in (*OPENED, *MEASURED)
        if log.truth.codes and log.has_facts
    ]
    certain = [one for one in known if one[1] and one[1][0].confidence >= CERTAIN]
    assert len(certain) > 10
    assert [log.name for log, found in certain if judge(log, found) == "wrong"] == []
    told = {log.name for log, found in known if not log.truth.codes and judge(log, found) != "right"}
    assert told <= FALSE_CAUSES


@pytest.mark.thorough
def test_every_log_is_in_the_half_that_its_name_says_and_its_truth_names_rules() -> None:
    names = {case.name for case in cases()}
    assert len(names) == len(cases())
    for which in ("rules", "opened", "measure"):
        for log in logs(which):
            case = next(name for name in (log.name, log.name.rpartition("-")[0]) if name in names)
            assert half(case) == which
            assert set(log.truth.codes) <= IDS
    assert sum(1 for _ in LOGS.glob("*/*.txt")) >= 300
