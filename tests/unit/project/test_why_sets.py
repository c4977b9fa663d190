"""Sets whose author had not seen the rules: what is kept of their first measurement."""

from __future__ import annotations

import msgspec
import pytest
from bench import why_sets
from tools.provoke.case import cases, logs

from mpijob.model import MPIJob


@pytest.mark.parametrize("name", why_sets.SETS)
def test_the_first_measurement_of_a_set_has_an_answer_for_each_of_its_logs(name: str) -> None:
    kept = why_sets.first(name)
    assert kept is not None
    named = {log.name for half in why_sets.HALVES for log in logs(half)}
    assert set(kept.answers) == {log for log in named if log.startswith(why_sets.SETS[name])}


@pytest.mark.parametrize("name", why_sets.SETS)
def test_of_the_half_that_is_only_measured_no_sentence_is_kept(name: str) -> None:
    kept = why_sets.first(name)
    assert kept is not None
    said = {answer.half for answer in kept.answers.values() if answer.said}
    assert said == {answer.half for answer in kept.answers.values()} & {"rules"}


@pytest.mark.parametrize("name", why_sets.SETS)
def test_what_would_mend_a_provoked_failure_are_fields_of_a_job(name: str) -> None:
    fields = {field.name for field in msgspec.structs.fields(MPIJob)}
    named = {word for case in cases() if case.name.startswith(why_sets.SETS[name]) for word in case.mends}
    assert named
    assert named <= fields


@pytest.mark.parametrize("name", why_sets.SETS)
def test_a_set_is_told_with_its_first_measurement_and_with_todays(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = why_sets.first(name)
    assert kept is not None
    monkeypatch.setattr(why_sets, "of_set", lambda prefix: {})  # judging all logs takes seconds
    why_sets.tell()
    told = capsys.readouterr().out
    failures = [one for one in kept.answers.values() if one.half == "measure" and not one.healthy]
    right = sum(one.alone == "right" for one in failures)
    assert f"first, measure half, log alone: right {right} (" in told
