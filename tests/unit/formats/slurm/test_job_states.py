"""Slurm's states as values: which wait, which are an end, and what is never guessed."""

from __future__ import annotations

import pytest

from mpijob.formats.slurm import job_states
from mpijob.formats.slurm.job_states import JobState

WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
ENDED = {
    "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED",
    "REVOKED",
}  # fmt: skip
ALIVE = {
    "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING", "UNKNOWN",
}  # fmt: skip


def test_every_state_waits_or_has_ended_or_holds_nodes() -> None:
    assert {state.value for state in JobState if state.waits} == WAITING
    assert {state.value for state in JobState if state.final} == ENDED
    assert {state.value for state in JobState if not state.waits and not state.final} == ALIVE


@pytest.mark.parametrize("word", sorted(WAITING | ENDED | ALIVE))
def test_each_word_of_squeue_is_read_as_its_state(word: str) -> None:
    assert job_states.read(word).value == word


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("RUNNING+", JobState.RUNNING),
        ("completed", JobState.COMPLETED),
        ("", JobState.UNKNOWN),
        ("HIBERNATING", JobState.UNKNOWN),
        ("__class__", JobState.UNKNOWN),
        ("\x1fRUNNING", JobState.UNKNOWN),
    ],
)
def test_additions_are_left_out_and_a_word_of_a_newer_slurm_is_unknown(word: str, state: JobState) -> None:
    assert job_states.read(word) is state


@pytest.mark.parametrize("word", sorted(ENDED))
def test_an_end_is_an_end_whatever_its_reason_says(word: str) -> None:
    state = JobState(word)
    assert {job_states.ending(state, reason) for reason in ("None", "NodeDown", "")} == {state}


@pytest.mark.parametrize("word", sorted((WAITING | ALIVE) - {"COMPLETING"}))
def test_a_job_that_goes_on_or_waits_has_no_end_even_with_a_reason_left_from_before(word: str) -> None:
    assert job_states.ending(JobState(word), "NodeDown") is None


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("NodeDown", JobState.NODE_FAIL),
        ("TimeLimit", JobState.TIMEOUT),
        ("OutOfMemory", JobState.OUT_OF_MEMORY),
        ("DeadLine", JobState.DEADLINE),
        ("NonZeroExitCode", JobState.FAILED),
        ("JobLaunchFailure", JobState.FAILED),
        ("SystemFailure", JobState.FAILED),
        ("None", None),
        ("Prolog", None),
        ("", None),
    ],
)
def test_a_job_that_is_completing_ended_as_its_reason_says(reason: str, end: JobState | None) -> None:
    assert job_states.ending(JobState.COMPLETING, reason) is end


@pytest.mark.parametrize("word", sorted(ENDED - {"COMPLETED"}))
def test_the_sentence_about_an_end_names_the_job(word: str) -> None:
    assert "67" in job_states.sentence(JobState(word), "67")


def test_the_sentence_has_the_limit_the_node_and_who_cancelled() -> None:
    assert "01:00:00" in job_states.sentence(JobState.TIMEOUT, "67", limit="01:00:00")
    assert "n3" in job_states.sentence(JobState.NODE_FAIL, "67", nodes="n3")
    assert "1000" in job_states.sentence(JobState.CANCELLED, "67", by="1000")
    assert "memory" in job_states.sentence(JobState.OUT_OF_MEMORY, "67")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("7:0", (7, 0)),
        ("0:15", (0, 15)),
        ("0:125", (0, 125)),
        ("", (0, 0)),
        ("7", (0, 0)),
        ("-1:0", (0, 0)),
        ("7:", (0, 0)),
        ("a:b", (0, 0)),
        ("1:2:3", (0, 0)),
        ("²:0", (0, 0)),
        ("9" * 5000 + ":0", (0, 0)),
    ],
)
def test_an_exit_code_is_read_whole_or_not_at_all(text: str, pair: tuple[int, int]) -> None:
    assert job_states.exit_code(text) == pair
