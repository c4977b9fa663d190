"""Each MPI family runs real programs over the job's workers, and the world is proved before they start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.errors import InvalidJob
from mpijob.model import Code, CustomLaunch, Family, Launch, Program, Resources

from .support import a_job, ended, said, succeeded

pytestmark = pytest.mark.engine

ALLREDUCE = """
import json, os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(json.dumps({"rank": world.rank, "size": world.size, "total": total, "worker": os.environ["MPIJOB_WORKER"],
                  "library": MPI.Get_library_version().split()[0]}))
"""
LIBRARY = {"mpich": "MPICH", "openmpi": "Open", "intel": "Intel(R)"}
ROOMY = Resources(cpu="500m", memory="512Mi")
SHOW_ARGS = "import json, sys; print(json.dumps(sys.argv[1:]))"
ODD_WORDS = (
    "-n", "--hostfile", "-x", "--", "; touch pwned", "$(touch pwned)", "`touch pwned`", "&& touch pwned",
    "| cat", "> pwned", "*", "$HOME", "a  b", "it's", 'say "hi"', "\\", "ünïcode", "x=y", "%d", "~",
)  # fmt: skip
ODD_VALUES = {
    "SPACED": "two  words ",
    "QUOTED": """it's "quoted" """,
    "LINES": "one\ntwo",
    "UNICODE": "grüße 東京",
    "SHELL": "$(touch pwned) `touch pwned`; touch pwned",
    "EQUALS": "a=b,c=d",
    "COMMA": "1,2",
}


@pytest.mark.req("NFR-003", "R5", "FR-003", "FR-CLI-003", "FR-004")
def test_an_allreduce_over_two_workers_of_two_slots_is_right(client: Client, family: str) -> None:
    job = succeeded(
        client,
        a_job("sum", mpi=family, slots=2, command=("python", "ar.py"), resources=ROOMY,
              code=Code(files={"ar.py": ALLREDUCE})),
    )  # fmt: skip
    heard = {rank: json.loads(lines[0]) for rank, lines in said(job).items()}
    assert heard == {
        rank: {"rank": rank, "size": 4, "total": 10, "worker": str(rank // 2), "library": LIBRARY[family]}
        for rank in range(4)
    }
    census = [(r.rank, r.worker, r.local_rank, r.exit_code) for r in job.state().ranks]
    assert census == [(0, 0, 0, 0), (1, 0, 1, 0), (2, 1, 0, 0), (3, 1, 1, 0)]
    assert "WorldProved" in [event.reason for event in job.events()]


@pytest.mark.req("NFR-003", "R5")
def test_two_programs_form_one_world(client: Client, family: str) -> None:
    script = 'echo "$0 $MPIJOB_RANK $MPIJOB_WORLD $ROLE"'
    programs = (
        Program(ranks=1, command=("sh", "-c", script, "master"), env={"ROLE": "it leads"}),
        Program(ranks=3, command=("sh", "-c", script), args=("servant",), env={"ROLE": "it works"}),
    )
    job = succeeded(client, a_job("mpmd", mpi=family, slots=2, command=(), programs=programs))
    assert said(job) == {
        0: ["master 0 4 it leads"],
        1: ["servant 1 4 it works"],
        2: ["servant 2 4 it works"],
        3: ["servant 3 4 it works"],
    }


def test_stdin_reaches_rank_0_and_no_other(client: Client, family: str) -> None:
    launch = Launch(stdin="input.txt")
    script = 'if [ "$MPIJOB_RANK" = 0 ]; then cat; else read -r line; echo "got <$line>"; fi'
    code = Code(files={"input.txt": "first\nsecond\n"})
    job = succeeded(client, a_job("fed", script, mpi=family, launch=launch, code=code))
    assert said(job) == {0: ["first", "second"], 1: ["got <>"]}


def test_map_by_node_deals_the_ranks_round(client: Client, family: str) -> None:
    job = a_job("dealt", "echo $MPIJOB_WORKER", mpi=family, slots=2, launch=Launch(map_by="node"))
    assert said(succeeded(client, job)) == {0: ["0"], 1: ["1"], 2: ["0"], 3: ["1"]}


def test_a_rankfile_steers_a_job_that_names_no_family_to_open_mpi(client: Client) -> None:
    ranks = "rank 0=turned-worker-1 slot=0\nrank 1=turned-worker-0 slot=0\n"
    job = a_job("turned", "echo $MPIJOB_WORKER", launch=Launch(rankfile="ranks.txt"),
                code=Code(files={"ranks.txt": ranks}))  # fmt: skip
    plan = client.plan(job)
    assert "launch.rankfile is an option of Open MPI alone" in plan.why[1]
    assert plan.family is Family.OPENMPI
    assert said(succeeded(client, job)) == {0: ["1"], 1: ["0"]}


def test_odd_values_reach_every_rank_unchanged(client: Client, family: str) -> None:
    show = "import json, os, sys; print(json.dumps({n: os.environ.get(n) for n in sys.argv[1:]}))"
    job = a_job("odd", mpi=family, env=ODD_VALUES, command=("python3", "-c", show), args=tuple(ODD_VALUES))
    heard = said(succeeded(client, job))
    assert {rank: json.loads(lines[0]) for rank, lines in heard.items()} == {0: ODD_VALUES, 1: ODD_VALUES}


@pytest.mark.security
def test_no_word_of_a_command_is_interpreted_by_a_shell(client: Client, family: str) -> None:
    job = succeeded(client, a_job("words", mpi=family, command=("python3", "-c", SHOW_ARGS), args=ODD_WORDS))
    heard = said(job)
    assert [json.loads(lines[0]) for lines in heard.values()] == [[*ODD_WORDS]] * 2
    assert not list(Path(client.settings.home).rglob("pwned"))


@pytest.mark.req("UC2-cmd")
@pytest.mark.parametrize("words", [("mpirun", "-np", "4"), ("mpiexec", "-n", "4")])
def test_a_command_that_is_mpirun_runs_over_the_workers_and_is_not_wrapped(
    client: Client, family: str, words: tuple[str, ...]
) -> None:
    # They last a moment: Open MPI's mpirun does not always end after ranks that ended at once.
    command = (*words, "sh", "-c", "echo here on $MPIJOB_WORKER; sleep 0.3")
    job = succeeded(client, a_job("own", mpi=family, slots=2, command=command))
    heard = sorted(line.text.decode() for line in job.logs() if line.text.startswith(b"here"))
    assert heard == ["here on 0", "here on 0", "here on 1", "here on 1"]


@pytest.mark.req("C-custom-mpi")
def test_a_custom_family_brings_its_own_launch_line(client: Client) -> None:
    words = (
        "mpiexec.hydra",
        "-f",
        "{hostfile}",
        "-launcher",
        "ssh",
        "-launcher-exec",
        "{agent}",
        "-n",
        "{ranks}",
    )
    custom = CustomLaunch(command=words, host_line="{worker}:{slots}", rank_variable="PMI_RANK")
    job = a_job(
        "custom", "echo $MPIJOB_WORKER $MPIJOB_WORLD", mpi="custom", slots=2, launch=Launch(custom=custom)
    )
    assert said(succeeded(client, job)) == {0: ["0 4"], 1: ["0 4"], 2: ["1 4"], 3: ["1 4"]}


def test_a_file_for_stdin_that_is_not_there_is_told_and_not_hung_on(client: Client) -> None:
    state = ended(client, a_job("hungry", "cat", launch=Launch(stdin="missing.txt")))
    assert state.phase is Phase.FAILED
    assert "missing.txt" in state.message or any(
        "missing.txt" in line.text.decode() for line in client.logs("hungry")
    )


@pytest.mark.security
@pytest.mark.parametrize(
    "fields",
    [
        {"code": Code(files={"../pwned": "x"})},
        {"code": Code(files={"/tmp/pwned": "x"})},
        {"launch": Launch(stdin="../../state.db")},
        {"launch": Launch(rankfile="../../state.db")},
        {"volumes": [{"mount": "/data/../etc", "source": "/data"}]},
        {"name": "../pwned"},
        {"namespace": "../pwned"},
    ],
)
def test_paths_that_lead_out_of_the_job_are_refused(client: Client, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidJob):
        client.submit(a_job(**{"name": "sneaky", **fields}))  # type: ignore[arg-type]  # odd on purpose
    assert client.list(all_namespaces=True).total == 0


def test_the_families_own_python_is_this_one(client: Client) -> None:
    job = succeeded(
        client, a_job("python", mpi="mpich", command=("python", "-c", "import sys; print(sys.prefix)"))
    )
    assert said(job) == {0: [sys.prefix], 1: [sys.prefix]}
