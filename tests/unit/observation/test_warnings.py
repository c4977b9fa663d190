"""Early warnings: each is told for what was measured, with its numbers, and healthy runs are left in peace."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpijob import JobState, Phase
from mpijob.errors import Finding, Severity
from mpijob.model import JobRef, LogLine, RankState, Role, Sample, WorkerState
from mpijob.observation.health import health_sample, warnings
from mpijob.observation.health.health_sample import FreeSpace, HealthSample, Load, RankOutput, Step

HEALTHY = sorted((Path(__file__).parents[2] / "fixtures" / "healthy").glob("*.json"))
GIB, MIB = 1 << 30, 1 << 20
START = 1_700_000_000.0
pytestmark = pytest.mark.req("PMV-013", "Q13")


def a_state(ranks: int = 4, *, limit: int = GIB, restarts: int = 0, **fields: Any) -> JobState:
    workers = tuple(
        WorkerState(
            index, f"w{index}", Phase.RUNNING, memory_limit_bytes=limit, restarts=restarts if index else 0
        )
        for index in range(2)
    )
    known = tuple(RankState(rank, rank * 2 // ranks) for rank in range(ranks))
    return JobState(
        ref=JobRef("default", "bert", "u1"),
        phase=Phase.RUNNING,
        workers=workers,
        ranks=known,
        running=START,
        **fields,
    )


def seen(after: float = 600.0, **fields: Any) -> HealthSample:
    fields.setdefault("state", a_state())
    return HealthSample(now=START + after, **fields)


def codes(findings: Sequence[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def memory(
    used: Sequence[float], worker: int = 1, end: float = 600.0, every: float = 5.0
) -> tuple[Sample, ...]:
    first = START + end - every * (len(used) - 1)
    return tuple(Sample(first + every * n, worker, 1.0, int(size * MIB)) for n, size in enumerate(used))


def talking(rank: int, until: float = 599.0, since: float = 1.0, every: float = 2.0) -> RankOutput:
    return RankOutput(rank, START + since, START + until, int((until - since) / every) + 1)


# -- memory and disk -----------------------------------------------------------------------------------
def test_memory_that_grows_steadily_is_told_with_the_time_to_go_and_a_patch_that_fits() -> None:
    (finding,) = warnings.find_warnings(seen(samples=memory([400 + 5 * n for n in range(25)])))
    assert (finding.code, finding.worker, finding.severity) == ("MEMORY_NEAR_LIMIT", 1, Severity.WARNING)
    assert finding.message == (
        "Worker 1 uses 520 MiB of its 1 GiB of memory (51%) and grows: "
        "at this rate the limit is reached in about 8 min."
    )
    assert finding.fixes[0].patch == {"resources": {"memory": "1536Mi"}}


def test_memory_that_is_nearly_used_up_is_told_without_a_trend() -> None:
    (finding,) = warnings.find_warnings(seen(samples=memory([985] * 3)))
    assert finding.message == "Worker 1 uses 985 MiB of its 1 GiB of memory (96%)."


@pytest.mark.parametrize(
    "used",
    [
        [800] * 25,  # much, and steady
        [100 + 35 * n for n in range(20)] + [800] * 25,  # data was loaded, and that is over
        [700 + (n % 5) * 40 for n in range(25)],  # it goes up and down
        [100 + 5 * n for n in range(25)],  # far from the limit
        [600 + 0.01 * n for n in range(25)],  # hours to go
        [400, 500, 600],  # too short to know
    ],
)
def test_memory_that_is_no_cause_for_worry_is_not_told(used: list[float]) -> None:
    assert warnings.find_warnings(seen(samples=memory(used))) == ()


def test_old_measures_and_those_of_an_earlier_attempt_do_not_count() -> None:
    samples = memory([1000] * 3, end=400.0)
    assert warnings.find_warnings(seen(samples=samples)) == ()
    assert warnings.find_warnings(seen(samples=memory([1000] * 3), state=a_state(attempt=2))) == ()


def test_a_disk_that_fills_is_told_with_the_time_to_go() -> None:
    disk_space = tuple(FreeSpace(START + 480 + 5 * n, (20 - n // 2) * GIB, 100 * GIB) for n in range(25))
    (finding,) = warnings.find_warnings(seen(disk_space=disk_space))
    assert finding.code == "DISK_FILLING"
    assert finding.message.startswith(
        "The disk that the job writes to has 8 GiB of 100 GiB left: at the present rate"
    )


@pytest.mark.parametrize("free", [[50 - n for n in range(25)], [10] * 25, [10 + n for n in range(25)]])
def test_a_disk_with_room_or_that_does_not_fill_is_not_told(free: list[int]) -> None:
    disk_space = tuple(FreeSpace(START + 480 + 5 * n, size * GIB, 100 * GIB) for n, size in enumerate(free))
    assert warnings.find_warnings(seen(disk_space=disk_space)) == ()


def test_a_disk_that_is_full_is_told_at_once() -> None:
    assert codes(warnings.find_warnings(seen(disk_space=(FreeSpace(START + 599, GIB // 2, 100 * GIB),)))) == [
        "DISK_FILLING"
    ]


# -- silence and idleness -------------------------------------------------------------------------------
def test_a_rank_that_falls_silent_while_the_others_go_on_is_named() -> None:
    outputs = (talking(0), talking(1), talking(2, until=300.0), talking(3))
    (finding,) = warnings.find_warnings(seen(outputs=outputs))
    assert (finding.code, finding.rank, finding.worker) == ("RANK_SILENT", 2, 1)
    assert finding.message == (
        "Rank 2 on worker 1 has printed nothing for 5 min, and printed about every 2 s before; 3 others keep printing."
    )
    assert finding.hint == "show its call stack: mpijob stacks bert --rank 2"


@pytest.mark.parametrize(
    "outputs",
    [
        (talking(0),),  # only rank 0 prints
        (
            talking(0),
            talking(1),
            RankOutput(2, START + 1, START + 2, 2),
            talking(3),
        ),  # it said hello, no more
        (talking(0), talking(1, until=560.0), talking(2), talking(3)),  # a short pause
        (talking(0), talking(1, until=300.0, every=60.0), talking(2), talking(3)),  # it speaks seldom
        tuple(talking(rank, until=480.0) for rank in range(4)),  # all pause together
    ],
)
def test_silence_that_means_nothing_is_not_told(outputs: tuple[RankOutput, ...]) -> None:
    assert warnings.find_warnings(seen(outputs=outputs)) == ()


def test_one_rank_that_never_spoke_among_many_that_do_is_told_with_little_confidence() -> None:
    (finding,) = warnings.find_warnings(seen(outputs=(talking(0), talking(1), talking(3))))
    assert (finding.code, finding.rank, finding.confidence) == ("RANK_SILENT", 2, 0.5)


def test_ranks_that_have_ended_are_missed_by_nobody() -> None:
    outputs = (talking(0), talking(1), talking(2, until=300.0), talking(3))
    assert warnings.find_warnings(seen(outputs=outputs, ended=frozenset({2}))) == ()


def test_a_job_that_fell_silent_as_a_whole_is_told_after_long() -> None:
    outputs = tuple(talking(rank, until=200.0) for rank in range(4))
    (finding,) = warnings.find_warnings(seen(outputs=outputs))
    assert finding.code == "JOB_SILENT"
    assert finding.message == "No rank has printed anything for 7 min; before, output came about every 2 s."
    lively = tuple(talking(rank, until=200.0, every=0.2) for rank in range(4))
    (finding,) = warnings.find_warnings(seen(outputs=lively))
    assert finding.message.endswith("before, output came more than once a second.")


def loads(*cores: float) -> tuple[Load, ...]:
    return tuple(Load((rank,), rank * 2 // len(cores), busy) for rank, busy in enumerate(cores))


HELD = a_state(labels={"mpijob/alloc": "true"})
FILLS = memory([100 + 10 * n for n in range(20)])


def test_all_ranks_idle_suggests_a_look_at_their_stacks() -> None:
    (finding,) = warnings.find_warnings(seen(loads=loads(0, 0, 0.01, 0), outputs=(talking(0, until=400.0),)))
    assert (finding.code, finding.hint) == ("ALL_IDLE", "capture stacks: mpijob stacks bert")
    assert "All 4 ranks have been idle and silent for 3 min" in finding.message


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        (1, "The only rank has been idle and silent for 3 min: waiting for data or for the network."),
        (
            2,
            "Both ranks have been idle and silent for 3 min: waiting for each other, for data or for the network.",
        ),
    ],
)
def test_a_rank_alone_waits_for_no_other(ranks: int, sentence: str) -> None:
    (finding,) = warnings.find_warnings(
        seen(state=a_state(ranks), loads=loads(*[0.0] * ranks), outputs=(talking(0, until=400.0),))
    )
    assert finding.message == sentence


def test_one_idle_rank_among_busy_ones_that_say_nothing_is_named() -> None:
    (finding,) = warnings.find_warnings(seen(loads=loads(1, 0.0, 1, 0.9), outputs=(talking(0, until=400.0),)))
    assert (finding.code, finding.rank, finding.worker, finding.confidence) == ("RANK_IDLE", 1, 0, 0.6)


@pytest.mark.parametrize(
    "fields",
    [
        {"loads": loads(0, 0, 0, 0), "outputs": (talking(0),)},  # they say what they do
        {"loads": loads(0, 0, 0, 0), "after": 590.0},  # never spoke, never computed: it may sleep by intent
        {"loads": loads(1, 0, 1, 1), "outputs": (talking(0),)},  # unequal work, and progress
        {"loads": loads(0, 0, 0, 1), "outputs": (talking(0, until=400.0),)},  # one works, the rest waits kindly
        {"loads": loads(1, 1, 1, 1), "outputs": (talking(0, until=450.0),)},  # they compute
        {"loads": loads(0, 0, 0, 0)[:3], "outputs": (talking(0, until=450.0),)},  # one is not known
        {"loads": loads(0, 0, 0, 0), "outputs": (talking(0, until=450.0),), "state": HELD},
        {"loads": loads(0, 0, 0, 0), "outputs": (talking(0, until=450.0),), "samples": FILLS},
    ],
)  # fmt: skip
def test_idleness_that_means_nothing_is_not_told(fields: dict[str, Any]) -> None:
    assert warnings.find_warnings(seen(**fields)) == ()


def test_a_job_that_only_ever_slept_is_told_after_much_longer() -> None:
    assert codes(warnings.find_warnings(seen(700.0, loads=loads(0, 0, 0, 0)))) == ["ALL_IDLE"]


# -- stragglers and restarts ----------------------------------------------------------------------------
def counted(speeds: Sequence[float]) -> tuple[Step, ...]:
    return tuple(
        Step(START + second, rank, int(second * speed))
        for second in range(10, 600, 10)
        for rank, speed in enumerate(speeds)
    )


def test_a_rank_whose_steps_fall_behind_is_named_with_the_numbers() -> None:
    (finding,) = warnings.find_warnings(seen(steps=counted((1, 1, 0.5, 1))))
    assert (finding.code, finding.rank) == ("RANK_BEHIND", 2)
    assert finding.message == "Rank 2 is at step 295, the others are at about 590, and it does not catch up."


@pytest.mark.parametrize("speeds", [(1, 1, 1, 1), (1, 0.98, 1, 1), (1, 0.5), (0.2, 0.5, 0.7, 1)])
def test_ranks_that_go_about_the_same_way_or_each_their_own_are_not_told(speeds: tuple[float, ...]) -> None:
    assert warnings.find_warnings(seen(steps=counted(speeds))) == ()


def test_restarts_and_retries_are_told() -> None:
    (worker,) = warnings.find_warnings(seen(state=a_state(restarts=2)))
    (job,) = warnings.find_warnings(seen(retries=1))
    assert worker.message == "Worker 1 was restarted 2 times while the job ran."
    assert job.message == "The job was tried again after an attempt that failed."


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (b"step 12 loss 0.1", 12),
        (b"[Epoch 3] iter: 400/1000", 400),
        (b"global_step=17", 17),
        (b"Iteration #9", 9),
        (b"footstep 12", None),
        (b"loss 0.5", None),
    ],
)
def test_step_counters_are_found_in_what_programs_print(text: bytes, step: int | None) -> None:
    assert health_sample.step_in(text) == step


def test_nothing_is_told_of_a_job_that_does_not_run() -> None:
    state = msgspec.structs.replace(a_state(restarts=3), phase=Phase.SUCCEEDED)
    assert warnings.find_warnings(seen(state=state)) == ()


SCENES = {
    "MEMORY_NEAR_LIMIT": seen(samples=memory([460 + 10 * n for n in range(25)])),
    "DISK_FILLING": seen(
        disk_space=tuple(FreeSpace(START + 480 + 5 * n, (20 - n // 2) * GIB, 100 * GIB) for n in range(25))
    ),
    "ALL_IDLE": seen(loads=loads(0, 0, 0, 0), outputs=(talking(0, until=420.0),)),
    "RANK_IDLE": seen(loads=loads(1, 0, 1, 1), outputs=(talking(0, until=400.0),), quiet_seconds=121.0),
    "JOB_SILENT": seen(outputs=(talking(0, until=180.0),)),
    "RANK_SILENT": seen(outputs=(talking(0), talking(1), talking(2, until=300.0), talking(3))),
    "RANK_BEHIND": seen(steps=counted((1, 1, 0.5, 1))),
    "RESTARTED": seen(state=a_state(restarts=2)),
}


@pytest.mark.parametrize("code", SCENES)
def test_the_page_of_a_warning_quotes_what_is_said(code: str) -> None:
    (finding,) = warnings.find_warnings(SCENES[code])
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting" / f"{code.lower()}.md").read_text()
    quoted = page.partition("\n> ")[2].partition("\n")[0]
    assert (finding.code, without_numbers(finding.message)) == (code, without_numbers(quoted))


@pytest.mark.req("FR-UI-007")
@pytest.mark.parametrize("code", SCENES)
def test_a_fix_that_is_a_command_names_it_apart_from_its_sentence(code: str) -> None:
    (finding,) = warnings.find_warnings(SCENES[code])
    for fix in finding.fixes:  # what is in parentheses is only mentioned
        named = re.search(r"mpijob \w.*", re.sub(r"\(.*?\)", "", fix.text))
        assert fix.command == (named[0] if named else "")


def without_numbers(sentence: str) -> str:
    return re.sub(
        r"\d+ (?:s|min)\b", "TIME", re.sub(r"[\d.]+ ([MG]iB)", r"N \1", re.sub(r"\d+%", "N%", sentence))
    )


# -- healthy runs ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
@pytest.mark.parametrize("quiet_seconds", [5.0, 10.0, 120.0])
def test_no_warning_is_told_at_any_second_of_a_real_healthy_run(path: Path, quiet_seconds: float) -> None:
    run = json.loads(path.read_text())
    workers = tuple(WorkerState(i, f"w{i}", Phase.RUNNING, memory_limit_bytes=run["limit"]) for i in (0, 1))
    state = msgspec.structs.replace(
        a_state(), workers=workers, ranks=tuple(RankState(rank, worker) for rank, worker in run["ranks"])
    )
    samples = [Sample(START + at, worker, cpu, size) for at, worker, cpu, size in run["samples"]]
    lines = [
        LogLine(int((START + at) * 1e9), text.encode(), Role.RANK, rank=rank)
        for at, rank, text in run["lines"]
    ]
    told = {}
    for second in range(1, int(run["seconds"])):
        now = START + second
        past = tuple(sample for sample in samples if sample.time <= now)
        said = [line for line in lines if line.time <= now * 1e9]
        loads = health_sample.loads_of(past, state, now - quiet_seconds) if second >= quiet_seconds else ()
        told[second] = warnings.find_warnings(
            HealthSample(
                now=now, state=state, quiet_seconds=quiet_seconds, samples=past, outputs=health_sample.outputs_of(said),
                steps=health_sample.steps_of(said), loads=loads,
                was_busy=any(sample.cpu_cores > health_sample.BUSY_CORES for sample in past),
            )
        )  # fmt: skip
    assert {second: codes(findings) for second, findings in told.items() if findings} == {}


numbers = st.floats(0, 1e12, allow_nan=False)


@pytest.mark.thorough
@given(
    st.lists(st.tuples(numbers, st.integers(0, 3), numbers, st.integers(0, 1 << 50)), max_size=20),
    st.lists(st.tuples(st.integers(0, 9), numbers, numbers, st.integers(1, 1000)), max_size=8),
    st.lists(st.tuples(numbers, st.integers(0, 9), st.integers(0, 1 << 40)), max_size=20),
)
def test_no_measures_however_odd_break_the_rules(samples: Any, outputs: Any, steps: Any) -> None:
    odd = seen(
        samples=tuple(Sample(*each) for each in samples),
        outputs=tuple(RankOutput(*each) for each in outputs),
        steps=tuple(Step(*each) for each in steps),
    )
    assert all(finding.severity is Severity.WARNING for finding in warnings.find_warnings(odd))
