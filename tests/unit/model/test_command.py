"""Commands that start their own ranks are recognised, and what they say about them is read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples

from mpijob.model.spec.command import own_launcher

RECOGNISED = [
    (("mpirun", "-np", "4", "python", "train.py"), "mpirun", 4),
    (("mpiexec", "-n", "8", "./a.out"), "mpirun", 8),
    (("/opt/mpi/bin/mpiexec.hydra", "-n", "2", "a"), "hydra", 2),
    (("mpiexec.mpich", "--np", "2", "a"), "hydra", 2),
    (("mpirun.openmpi", "--n=4", "a"), "openmpi", 4),
    (("orterun", "-c", "3", "a"), "openmpi", 3),
    (("prterun", "--np=6", "a"), "openmpi", 6),
    (("horovodrun", "-np", "4", "python", "t.py"), "horovodrun", 4),
    (("deepspeed", "--num_gpus=4", "--num_nodes", "2", "t.py"), "deepspeed", 8),
    (("env", "-u", "C", "A=b", "mpirun", "-n", "3", "a"), "mpirun", 3),
    (("time", "-p", "nice", "-n", "5", "stdbuf", "-oL", "mpirun", "-n", "3", "a"), "mpirun", 3),
    (("exec", "mpirun", "-n", "3", "a"), "mpirun", 3),
    (("timeout", "-k", "5", "60", "mpirun", "-n", "3", "a"), "mpirun", 3),
    (("sh", "-c", "mpirun -np 4 python train.py"), "mpirun", 4),
    (("bash", "-lc", "A=1 exec mpirun \\\n  -np 4 x\necho done"), "mpirun", 4),
    (("bash", "-o", "pipefail", "-c", "mpirun -np 4 x | tee log"), "mpirun", 4),
    (("mpirun", "-np", "$NP", "a"), "mpirun", None),
    (("mpirun", "a"), "mpirun", None),
]


@pytest.mark.req("UC2-cmd", "UC3-cmd")
@pytest.mark.parametrize(("argv", "kind", "ranks"), RECOGNISED)
def test_a_command_that_starts_its_own_ranks_is_recognised(
    argv: tuple[str, ...], kind: str, ranks: int | None
) -> None:
    own = own_launcher(argv)
    assert own is not None
    assert (own.kind, own.ranks) == (kind, ranks)


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("python", "mpirun"),
        ("sh", "-c", "cd /data && mpirun -np 4 a"),
        ("sh", "-c", "echo 'mpirun -np 4"),
        ("sh", "-c"),
        ("bash", "script.sh", "-c", "mpirun a"),
        ("env", "A=b"),
        ("srun", "-n", "4", "a"),
    ],
)
def test_other_commands_are_left_alone(argv: tuple[str, ...]) -> None:
    assert own_launcher(argv) is None


def test_options_of_the_program_are_not_taken_for_the_launchers() -> None:
    argv = (
        "mpirun",
        "--mca",
        "btl",
        "tcp,self",
        "-x",
        "A",
        "-np",
        "4",
        "python",
        "t.py",
        "-n",
        "9",
        "-H",
        "x",
    )
    own = own_launcher(argv)
    assert own is not None
    assert (own.ranks, own.ranks_option, own.own_hosts) == (4, "-np", False)


def test_several_programs_in_one_world_are_added_up() -> None:
    own = own_launcher(("mpiexec", "-n", "2", "a", ":", "-n", "3", "b"))
    assert own is not None
    assert own.ranks == 5


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (("mpirun", "-H", "a:2,b:2", "x"), "-H"),
        (("mpirun", "--hostfile", "hosts", "x"), "--hostfile"),
        (("mpiexec.hydra", "-f", "hosts", "x"), "-f"),
        (("mpirun", "-n", "2", "-machinefile", "m", "x"), "-machinefile"),
        (("mpirun", "--host=a,b", "x"), "--host"),
        (("horovodrun", "-np", "4", "-H", "a:4", "python"), "-H"),
        (("deepspeed", "--hostfile=h", "t.py"), "--hostfile"),
    ],
)
def test_a_host_list_of_its_own_is_seen(argv: tuple[str, ...], option: str) -> None:
    own = own_launcher(argv)
    assert own is not None
    assert own.own_hosts
    assert own.hosts_option == option


def test_deepspeed_without_a_number_of_machines_counts_for_each_worker() -> None:
    own = own_launcher(("deepspeed", "--num_gpus", "4", "train.py"))
    assert own is not None
    assert (own.ranks, own.per_worker) == (None, 4)


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.sampled_from(["sh", "-c", "env", "mpirun", "-n", "--", ":", "", "\n", "'", "=", "a=b"]) | st.text()
    )
)
def test_no_command_makes_the_reading_fail(words: list[str]) -> None:
    own = own_launcher(tuple(words))
    assert own is None or own.kind
