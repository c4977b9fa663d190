"""Commands and stacks inside a running job: on which node, as what step, and what a node does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.unit.slurm_support import FakeHost, Submitted, row

from mpijob.backends.slurm import exec_in_job
from mpijob.backends.slurm.host import Answer
from mpijob.backends.slurm.jobs import derive
from mpijob.errors import BackendError, Conflict, NotFound
from mpijob.model import JobState, RankStack
from mpijob.model.status.stacks import Lack


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture
def job(host: FakeHost) -> Submitted:
    job = Submitted(host)
    job.began()
    return job


def running(job: Submitted) -> JobState:
    return derive.state(job.seen(row()))[0]


# -- which node --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("worker", "rank", "node"),
    [(None, None, "n1"), (0, None, "n1"), (1, None, "n2"), (None, 1, "n2"), (0, 1, "n2")],
)
def test_a_command_goes_to_the_place_of_the_worker_or_of_the_rank(
    job: Submitted, worker: int | None, rank: int | None, node: str
) -> None:
    assert exec_in_job.place_of(running(job), worker, rank)[1] == node


@pytest.mark.parametrize(("worker", "rank"), [(2, None), (-1, None), (None, 2), (None, -1), (0, 99)])
def test_a_worker_or_rank_that_there_is_not_is_named_with_how_many_there_are(
    job: Submitted, worker: int | None, rank: int | None
) -> None:
    with pytest.raises(NotFound, match="it has 2") as caught:
        exec_in_job.place_of(running(job), worker, rank)
    assert str(worker if rank is None else rank) in caught.value.message


def test_a_job_that_does_not_run_takes_no_command_and_says_what_it_is(job: Submitted) -> None:
    job.left(0, 0)
    with pytest.raises(Conflict, match="Succeeded"):
        exec_in_job.place_of(running(job), None, None)


def test_a_worker_whose_node_is_not_known_leaves_the_choice_to_slurm(job: Submitted, host: FakeHost) -> None:
    state = msgspec.structs.replace(running(job), workers=())
    assert exec_in_job.place_of(state, 1, None) == (1, "")
    exec_in_job.run(host, "67", "", "", ("true",))
    assert not [word for word in host.terminals[0] if word.startswith(("--nodelist", "--chdir"))]


@pytest.mark.security
def test_words_of_a_command_reach_the_step_as_they_are(host: FakeHost) -> None:
    words = ("sh", "-c", "echo $(id); rm -rf x", "a b", "'", "--jobid=1", "")
    assert exec_in_job.run(host, "67", "n2", "/jobs/a b/work", words) == 7
    (argv,) = host.terminals
    assert argv[: -len(words)][:2] == ("srun", "--jobid=67")
    assert {"--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n2", "--chdir=/jobs/a b/work"} <= {*argv}
    assert argv[-len(words) :] == words
    assert "--pty" not in argv, "there is no terminal"


# -- stacks ------------------------------------------------------------------------------------
def said(mark: str, *ranks: int) -> bytes:
    """Return what the text that looks says of ranks whose program neither py-spy nor gdb could show."""
    parts = []
    for rank in ranks:
        parts += [f"{mark} rank {rank} 40{rank}", f"{mark} status", "State: S (sleeping)", "Threads: 1"]
        parts += [f"{mark} cmdline", "./solve", f"{mark} wchan", "futex_wait"]
    return "\n".join([*parts, f"{mark} end", ""]).encode()


def steps(*nodes: tuple[str, Callable[[str], bytes]], code: int = 0) -> Callable[[Sequence[str]], Answer]:
    """Return a step that leaves what was seen on these nodes, by the mark that it was given, and ends with `code`."""

    def reply(argv: Sequence[str]) -> Answer:
        folder, mark = Path(argv[argv.index("-c") + 3]), argv[argv.index("mpijob-stacks") + 1]
        for node, text in nodes:
            (folder / node).write_bytes(text(mark))
        return Answer(code, "", "srun: error: n2: task 1: Node failure" * bool(code))

    return reply


def look(host: FakeHost, job: Submitted, *ranks: int) -> tuple[RankStack, ...]:
    return exec_in_job.stacks(host, job.files, running(job), ranks)


def left(job: Submitted) -> list[str]:
    return [path.name for path in job.path.iterdir() if path.name.startswith("stacks")]


def test_stacks_are_those_of_all_nodes_each_with_its_worker(host: FakeHost, job: Submitted) -> None:
    host.replies["srun"] = steps(("n2", lambda mark: said(mark, 1)), ("n1", lambda mark: said(mark, 0)))
    first, second = look(host, job)
    assert [(one.rank, one.worker, one.state, one.wchan) for one in (first, second)] == [
        (0, 0, "S", "futex_wait"),
        (1, 1, "S", "futex_wait"),
    ]
    (argv,) = host.asked
    assert {"--jobid=67", "--nodes=2", "--ntasks-per-node=1"} <= {*argv}
    assert f"mpijob-{job.plan.uid}-1" in argv[argv.index("-c") + 1]
    assert left(job) == []


def test_only_the_ranks_that_are_asked_for_are_told(host: FakeHost, job: Submitted) -> None:
    host.replies["srun"] = steps(("n1", lambda mark: said(mark, 0)), ("n2", lambda mark: said(mark, 1)))
    assert [one.rank for one in look(host, job, 1)] == [1]


@pytest.mark.parametrize("code", [0, 1])
def test_a_node_that_says_nothing_leaves_the_others_and_its_ranks_are_gone(
    host: FakeHost, job: Submitted, code: int
) -> None:
    host.replies["srun"] = steps(("n1", lambda mark: said(mark, 0)), code=code)
    assert [(one.rank, one.worker, one.lack) for one in look(host, job)][1] == (1, 1, Lack.GONE)


def test_a_step_that_slurm_refuses_is_told_in_its_words_and_leaves_nothing(
    host: FakeHost, job: Submitted
) -> None:
    host.replies["srun"] = Answer(
        1, "", "srun: error: Unable to create step for job 67: Job/step already completing"
    )
    with pytest.raises(NotFound, match="already completing"):
        look(host, job)
    assert left(job) == []
    host.replies["srun"] = BackendError("srun did not answer within 120 s", passing=True)
    with pytest.raises(BackendError, match="120 s"):
        look(host, job)
    assert left(job) == []


@pytest.mark.security
@pytest.mark.parametrize(
    "text",
    [
        lambda mark: b"",
        lambda mark: b"\xff\xfe\x00" + said(mark, 0)[:40],
        lambda mark: said(mark, 0)[: len(said(mark, 0)) // 2].rsplit(b"\n", 1)[0],
        lambda mark: b"deadbeef rank 0 1\ndeadbeef status\nState: R (running)\n",
        lambda mark: said(mark, 99),
    ],
    ids=["empty", "no UTF-8", "cut off", "another mark", "another rank"],
)
def test_what_a_node_leaves_may_be_damaged_or_forged(
    host: FakeHost, job: Submitted, text: Callable[[str], bytes]
) -> None:
    host.replies["srun"] = steps(("n1", text))
    found = look(host, job)
    assert [one.rank for one in found] == [0, 1]
    assert found[0].state != "R"


def test_a_job_that_does_not_run_has_no_stacks(host: FakeHost, job: Submitted) -> None:
    job.left(3, 0)
    with pytest.raises(Conflict, match="Failed"):
        look(host, job)
    assert host.count("srun") == 0
