"""What a manifest's launcher runs: mpirun is our own launch line, a shell text that starts ranks is a script."""

from __future__ import annotations

import pytest

from mpijob.client.convert.convert_jobs import documents
from mpijob.model import Family, MPIJob

pytestmark = pytest.mark.req("D-migrate")


def converted(*command: str, workers: int = 2, slots: int = 2) -> MPIJob:
    container = {"name": "main", "image": "i", "command": list(command)}
    worker = {"replicas": workers, "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}
    roles = {"Launcher": {"template": {"spec": {"containers": [container]}}}, "Worker": worker}
    spec = {"slotsPerWorker": slots, "mpiReplicaSpecs": roles}
    metadata = {"name": "x", "namespace": "default"}
    document = {"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "metadata": metadata, "spec": spec}
    (one,) = documents([document])
    return one.jobs[0]


@pytest.mark.parametrize(
    ("command", "program", "ranks"),
    [
        ("mpirun ./a", ("./a",), None),
        ("/opt/ompi/bin/mpirun --hostfile h -x A -x B=1 ./a -n 9", ("./a", "-n", "9"), None),
        ("mpiexec -n 3 ./a", ("./a",), 3),
        ("horovodrun -np 4 python t.py", ("python", "t.py"), None),
    ],
)
def test_a_launch_line_gives_its_program(command: str, program: tuple[str, ...], ranks: int | None) -> None:
    job = converted(*command.split())
    assert (job.command, job.ranks, job.script) == (program, ranks, "")


def test_options_of_mpirun_become_launch_options() -> None:
    line = "mpirun --map-by ppr:1:socket --bind-to core --mca btl tcp,self --oversubscribe -x A=1 --odd ./a"
    job = converted(*line.split())
    assert (job.launch.map_by, job.launch.bind_to) == ("ppr:1:socket", "core")
    assert job.launch.settings == {"btl": "tcp,self"}
    assert job.launch.flags == ("--oversubscribe", "--odd")
    assert (job.mpi, job.env) == (Family.OPENMPI, {"A": "1"})


@pytest.mark.parametrize(
    ("value", "workers", "slots", "map_by"), [("ppr:2:node", 2, 2, ""), ("ppr:1:node", 2, 4, "ppr:1:node")]
)
def test_ranks_for_each_node_are_slots_where_that_says_the_same(
    value: str, workers: int, slots: int, map_by: str
) -> None:
    job = converted("mpirun", "--map-by", value, "./a", workers=workers, slots=slots)
    assert (job.slots, job.launch.map_by) == (slots, map_by)


def test_ranks_that_do_not_fit_get_more_slots() -> None:
    assert (converted("mpirun", "-n", "8", "./a").slots, converted("mpirun", "-n", "7", "./a").ranks) == (
        4,
        7,
    )


def test_several_programs_of_one_launch_line_are_programs_of_one_world() -> None:
    job = converted(*["mpirun", "-n", "1", "./master", ":", "-n", "3", "./worker", "x"])
    assert [(one.ranks, one.command) for one in job.programs] == [(1, ("./master",)), (3, ("./worker", "x"))]


@pytest.mark.parametrize(
    "text",
    [
        "mpirun -n 4 ./a",
        "until ssh x-worker-0 true; do sleep 1; done; mpirun ./a && mpirun ./b",
        "for n in 1 2; do\n  mpiexec -n $n ./a > out.$n\ndone",
        "export A=$(hostname); exec /opt/ompi/bin/mpirun -x A ./a | tee log",
    ],
)
def test_a_shell_text_that_starts_ranks_is_the_jobs_script_as_it_is(text: str) -> None:
    job = converted("bash", "-c", text)
    assert (job.script, job.command, job.args) == ("launcher.sh", (), ())
    assert job.code.files == {"launcher.sh": f"#!/bin/bash\n{text}\n"}


def test_the_options_and_arguments_of_the_shell_go_along() -> None:
    job = converted("/usr/bin/bash", "-e", "-o", "pipefail", "-lc", 'mpirun ./a "$1"', "name", "one")
    assert job.code.files == {"launcher.sh": '#!/usr/bin/bash -el\nset -o pipefail\nmpirun ./a "$1"\n'}
    assert job.args == ("one",)


def test_a_shell_text_without_a_launcher_runs_once() -> None:
    job = converted("sh", "-c", "python main.py")
    assert (job.command, job.ranks, job.script) == (("sh", "-c", "python main.py"), 1, "")
