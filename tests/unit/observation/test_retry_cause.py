"""For which causes a failed attempt is tried again."""

from __future__ import annotations

import pytest
from tests.docs.codes import all_codes

from mpijob import JobState, Phase
from mpijob.errors import Finding
from mpijob.model import JobRef, Retry
from mpijob.model.spec.enums import RETRY_CAUSES
from mpijob.observation.state import retry_cause
from mpijob.observation.state.phase import Reason


def failed(reason: str = "", *codes: str) -> JobState:
    findings = tuple(Finding(code, "so it was") for code in codes)
    return JobState(ref=JobRef("cv", "train", "u"), phase=Phase.FAILED, reason=reason, findings=findings)


def test_every_word_means_reasons_or_codes_that_there_are() -> None:
    words = {*retry_cause._REASONS, *retry_cause._CODES, retry_cause._PROGRAM}
    assert words == set(RETRY_CAUSES)
    known = all_codes()
    assert [code for codes in retry_cause._CODES.values() for code in codes if code not in known] == []


@pytest.mark.req("PMV-005")
@pytest.mark.parametrize(
    ("state", "on", "wanted"),
    [
        (failed(Reason.WORKER_LOST), ("worker_lost",), True),
        (failed(Reason.WORKER_PREEMPTED), ("worker_lost",), False),
        (failed(Reason.WORKER_PREEMPTED), ("worker_lost", "preempted"), True),
        (failed(Reason.MEMORY_EXCEEDED, "OOM_KILLED"), ("out_of_memory",), True),
        (failed(Reason.RANK_FAILED, "NCCL_TIMEOUT"), ("nccl",), True),
        (failed(Reason.RANK_FAILED, "NCCL_TIMEOUT"), ("network",), True),
        (failed(Reason.RANK_FAILED, "NCCL_TIMEOUT"), ("NCCL_TIMEOUT",), True),
        (failed(Reason.RANK_FAILED, "NCCL_TIMEOUT"), ("program",), False),
        (failed(Reason.RANK_FAILED, "RANK_EXIT", "NCCL_TIMEOUT"), ("nccl",), False),
        (failed(Reason.RANK_FAILED, "RANK_EXIT"), ("program",), True),
        (failed(Reason.RANK_FAILED, "RANK_EXIT"), ("worker_lost",), False),
        (failed(), ("worker_lost",), False),
        (failed("NobodyKnowsThis"), ("program",), False),
        (failed("NobodyKnowsThis"), (), True),
    ],
)
def test_what_decided_the_end_is_compared_and_not_what_followed(
    state: JobState, on: tuple[str, ...], wanted: bool
) -> None:
    assert retry_cause.is_retryable(state, Retry(limit=1, on=on)) is wanted


def test_the_refusal_names_what_was_wanted_and_what_it_was() -> None:
    lost = failed(Reason.RANK_FAILED, "RANK_EXIT")
    assert retry_cause.refusal(lost, Retry(limit=1, on=("nccl", "gpu"))) == (
        "not retried: retry.on lists nccl, gpu, and the cause was RANK_EXIT"
    )
    assert retry_cause.refusal(lost, Retry(limit=1)) == ""
