"""Every change that a rule offers gives a job that the checks accept, and every command names the job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.failures import a_job

from mpijob import checks
from mpijob.diagnosis import Evidence, Memory, explain, fixed
from mpijob.diagnosis.rule import Remedy, Rule
from mpijob.diagnosis.rules import RULES
from mpijob.diagnosis.words import fill_patch, words
from mpijob.errors import Fix, Severity
from mpijob.model import Exit, Resources

JOB = a_job(
    deadline_seconds=60.0,
    slots=4,
    workers=4,
    command=("python", "train.py"),
    resources=Resources(gpu=2, memory="4Gi"),
)
SEEN = Evidence(spec=JOB, memory=(Memory(1, 5 << 30, 4 << 30),))
FIXES = [
    pytest.param(remedy, id=f"{rule.id}-{number}")
    for rule in RULES
    for number, remedy in enumerate(rule.remedies, start=1)
    if remedy.patch
]


@pytest.mark.req("FR-UI-007", "B-11")
@pytest.mark.parametrize("remedy", FIXES)
def test_the_change_gives_a_job_that_the_checks_accept(remedy: Remedy) -> None:
    patch = fill_patch(remedy.patch, words(SEEN, 1, 4, {"node": "gpu-17"}))
    job = fixed(JOB, Fix(remedy.text, patch))
    assert job != JOB
    assert [one for one in checks.run(job) if one.severity is Severity.ERROR] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_offers_something(rule: Rule) -> None:
    assert rule.remedies
    assert rule.why.endswith((".", "!"))


def test_a_command_is_apart_from_its_sentence_and_names_the_job() -> None:
    (first, *_) = explain(Evidence(spec=a_job(name="bert"), launcher=Exit(signal=9)))
    commands = [fix.command for fix in first.fixes if fix.command]
    assert commands == ["mpijob retry bert"]


def test_a_fix_keeps_what_the_job_has_beside_it() -> None:
    job = a_job(env={"LR": "0.1"})
    changed = fixed(job, Fix("", {"env": {"NCCL_DEBUG": "INFO"}}))
    assert changed.env == {"LR": "0.1", "NCCL_DEBUG": "INFO"}


def test_a_patch_that_fits_no_job_is_refused() -> None:
    patch: dict[str, Any] = {"wrokers": 3}
    with pytest.raises(msgspec.ValidationError):
        fixed(a_job(), Fix("", patch))
