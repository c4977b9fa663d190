"""What sbatch is given: options, the time limit, the line that starts the ranks, the comment that names the job."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples
from tests.unit.slurm_support import UID, a_cluster, a_job, a_node

from mpijob.errors import InvalidJob
from mpijob.formats.slurm import batch_script
from mpijob.formats.slurm.batch_script import Launcher, Raw
from mpijob.model import Family, Launch, MPIJob, Placement, Resources, Retry
from mpijob.model.platform.slurm import Limit, Partition, SlurmFacts, layout
from mpijob.model.spec.job import Topology

PMI2 = Launcher("srun", "pmi2")


def options(job: MPIJob, facts: SlurmFacts | None = None) -> dict[str, str]:
    """Return the options of a job by name."""
    facts = facts or a_cluster()
    words = batch_script.options(job, layout(job, facts.nodes), facts)
    return {name.removeprefix("--"): value for name, _, value in (word.partition("=") for word in words)}


def srun(job: MPIJob, nodes: int = 4) -> list[str]:
    return batch_script.srun(job, layout(job, a_cluster(nodes=nodes).nodes))


# -- options ----------------------------------------------------------------------------------
def test_a_job_asks_for_a_node_for_each_worker_with_its_ranks_and_memory() -> None:
    asked = options(a_job(workers=4, slots=2, resources=Resources(cpu="4", memory="2Gi")))
    assert (asked["job-name"], asked["partition"], asked["nodes"]) == ("solve", "main", "4")
    assert (asked["ntasks-per-node"], asked["cpus-per-task"], asked["mem"]) == ("2", "2", "2048M")
    assert "no-requeue" in asked
    assert asked["kill-on-invalid-dep"] == "yes"
    assert asked.keys().isdisjoint(
        {"gres", "time", "account", "qos", "nice", "licenses", "requeue", "constraint"}
    )


def test_workers_share_nodes_where_there_are_fewer_nodes() -> None:
    asked = options(a_job(workers=8), a_cluster(nodes=4))
    assert (asked["nodes"], asked["ntasks-per-node"], asked["mem"]) == ("4", "2", "2048M")


def test_gpus_and_other_resources_are_asked_for_by_their_own_options() -> None:
    others = {"gres/mps": 50, "license/abaqus": 3, "license/matlab": 1}
    node = a_node("n1", gpus=4)
    resources = Resources(cpu="1", memory="1Gi", gpu=2, others=others)
    asked = options(a_job(workers=1, resources=resources), SlurmFacts(nodes=(node,)))
    assert asked["gres"] == "gpu:2,mps:50"
    assert asked["licenses"] == "abaqus:3,matlab:1"


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"cost": {"account": "science"}}, "account", "science"),
        ({"priority": -5}, "nice", "5"),
        ({"requeue_on_lost_worker": True}, "requeue", ""),
        ({"placement": Placement(exclude_nodes=("n1", "n3"))}, "exclude", "n1,n3"),
        ({"placement": Placement(node_selector={"a": "ib", "b": "skylake"})}, "constraint", "ib&skylake"),
        ({"placement": Placement(node_selector={"reservation": "maint"})}, "reservation", "maint"),
        ({"placement": Placement(topology=Topology.SPREAD)}, "spread-job", ""),
        ({"placement": Placement(topology=Topology.PACKED_RACK)}, "switches", "1"),
    ],
)
def test_what_a_job_wants_is_an_option(fields: dict[str, Any], name: str, value: str) -> None:
    assert options(a_job(**fields))[name] == value


def test_a_reservation_is_no_feature_of_nodes() -> None:
    asked = options(a_job(placement=Placement(node_selector={"reservation": "maint"})))
    assert "constraint" not in asked


def test_a_priority_that_is_a_qos_is_no_nice_value() -> None:
    asked = options(a_job(priority="low"), a_cluster(qos="low"))
    assert asked["qos"] == "low"
    assert "nice" not in asked


def test_without_a_partition_of_the_cluster_the_jobs_own_word_stands() -> None:
    assert options(a_job(queue="night"), SlurmFacts())["partition"] == "night"
    assert "partition" not in options(a_job(), SlurmFacts())


# -- the time limit ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "most", "minutes"),
    [
        ({}, 3600.0, None),
        ({"deadline_seconds": 60.0}, None, 4),  # 60 + 10 of grace + 5, in whole minutes, and 2 more
        ({"deadline_seconds": 60.0, "grace_seconds": 0.0}, None, 4),
        ({"deadline_seconds": 600.0}, 3600.0, 13),
        ({"deadline_seconds": 3600.0}, 3600.0, 60),
        ({"deadline_seconds": 3500.0}, 3600.0, 60),
        ({"deadline_seconds": 1.0}, 30.0, 1),
        ({"deadline_seconds": 600.0, "retry": Retry(limit=1, backoff_seconds=30)}, None, 23),
    ],
)
def test_slurm_gets_a_little_more_time_than_the_job_and_never_more_than_is_allowed(
    fields: dict[str, Any], most: float | None, minutes: int | None
) -> None:
    assert batch_script.minutes(a_job(**fields), most) == minutes


@pytest.mark.parametrize(
    ("partition", "limits", "clock"),
    [
        (None, (), "01:03:00"),
        (3600.0, (), "01:00:00"),
        (7200.0, (3600.0,), "01:00:00"),
        (None, (7200.0, 3600.0), "01:00:00"),
        (3600.0, (7200.0,), "01:00:00"),
        (172_800.0, (None,), "01:03:00"),
    ],
)
def test_a_job_that_fits_below_a_limit_does_not_exceed_it_by_what_is_added(
    partition: float | None, limits: tuple[float | None, ...], clock: str
) -> None:
    facts = a_cluster(
        *(Limit(owner="QOS normal", seconds=seconds) for seconds in limits),
        partition=Partition(name="main", max_seconds=partition),
    )
    assert options(a_job(deadline_seconds=3600.0), facts)["time"] == clock


# -- how the ranks are started ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("family", "plugins", "fields", "own", "kind", "plugin"),
    [
        (Family.OPENMPI, ("none", "pmi2", "pmix"), {}, "", "srun", "pmix"),
        (Family.OPENMPI, ("none", "pmi2"), {}, "", "mpirun", ""),
        (Family.MPICH, ("none", "pmi2"), {}, "", "srun", "pmi2"),
        (Family.MPICH, ("none", "pmix"), {}, "", "hydra", ""),
        (Family.MPICH, (), {}, "", "hydra", ""),
        (Family.INTEL, ("pmi2",), {}, "", "hydra", ""),
        (Family.INTEL, ("pmi2",), {"env": {"I_MPI_PMI_LIBRARY": "/usr/lib/libpmi2.so"}}, "", "srun", "pmi2"),
        (Family.MPICH, ("pmi2",), {"launch": Launch(map_by="socket")}, "", "hydra", ""),
        (Family.OPENMPI, ("pmix",), {"launch": Launch(flags=("--mca", "x", "1"))}, "", "mpirun", ""),
        (Family.OPENMPI, ("pmix",), {"launch": Launch(rankfile="r.txt")}, "", "mpirun", ""),
        (Family.MPICH, ("pmi2",), {"launch": Launch(map_by="node")}, "", "srun", "pmi2"),
        (Family.CUSTOM, ("pmi2",), {}, "", "custom", ""),
        (Family.MPICH, ("pmi2",), {}, "mpirun", "own", ""),
    ],
)
def test_ranks_are_started_by_srun_where_it_speaks_the_librarys_language(
    family: Family, plugins: tuple[str, ...], fields: dict[str, Any], own: str, kind: str, plugin: str
) -> None:
    chosen = batch_script.choose(a_job(**fields), family, "/opt/mpi/bin/mpirun", plugins, own)
    assert (chosen.kind, chosen.plugin) == (kind, plugin)
    assert chosen.why


def test_a_missing_plugin_is_told_with_those_that_there_are() -> None:
    chosen = batch_script.choose(a_job(), Family.OPENMPI, "/opt/mpi/bin/mpirun", ("pmi2", "none"), "")
    assert "none, pmi2" in chosen.why
    assert chosen.display_name == "mpirun"
    assert PMI2.display_name == "srun --mpi=pmi2"


def test_srun_starts_a_task_for_each_rank_in_blocks() -> None:
    words = srun(a_job(workers=2, slots=2))
    assert words[0] == "--ntasks=4"
    assert {"--ntasks-per-node=2", "--distribution=block", "--kill-on-bad-exit=1", "--input=none"} <= {*words}
    assert not [word for word in words if word.startswith(("--nodes", "--cpu-bind", "--cpus-per-task"))]


def test_ranks_go_round_the_nodes_where_the_job_wants_that() -> None:
    assert "--distribution=cyclic" in srun(a_job(workers=2, slots=2, launch=Launch(map_by="node")))


def test_a_world_that_does_not_fill_its_nodes_names_the_node_of_each_rank() -> None:
    words = srun(a_job(workers=2, slots=2, ranks=3))
    assert "--ntasks=3" in words
    assert "--distribution=arbitrary" in words
    assert not [word for word in words if word.startswith("--ntasks-per-node")]


def test_one_node_and_several_cores_a_rank_are_said_to_srun() -> None:
    words = srun(a_job(workers=1, slots=2, resources=Resources(cpu="4", memory="1Gi")))
    assert {"--nodes=1", "--cpus-per-task=2"} <= {*words}


@pytest.mark.parametrize(
    ("bind", "word"), [("core", "cores"), ("hwthread", "threads"), ("numa", "ldoms"), ("none", "none")]
)
def test_binding_is_said_in_sruns_words(bind: str, word: str) -> None:
    assert f"--cpu-bind={word}" in srun(a_job(launch=Launch(bind_to=bind)))


# -- the text ---------------------------------------------------------------------------------
def written(*launch: str, directives: tuple[str, ...] = ("--nodes=2",), **environ: str) -> str:
    return batch_script.write(a_job(), directives, environ, launch, directory="/shared/jobs/beef")


def test_a_script_has_its_directives_before_the_first_command() -> None:
    lines = written("srun", "true", directives=("--nodes=2", "--requeue")).splitlines()
    assert lines[0] == "#!/bin/sh"
    directives = [line for line in lines if line.startswith("#SBATCH ")]
    assert lines[1 : 1 + len(directives)] == directives
    assert directives[:2] == ["#SBATCH --nodes=2", "#SBATCH --requeue"]
    assert directives[2:] == ["#SBATCH --output=/shared/jobs/beef/slurm.out", "#SBATCH --open-mode=append"]


@pytest.mark.parametrize(
    ("option", "directive"),
    [
        ("--constraint=ib&skylake", "--constraint=ib&skylake"),
        ("--nodelist=n[1-4]", "--nodelist=n[1-4]"),
        ("--constraint=a|b", "--constraint='a|b'"),
        ("--reservation=my night", "--reservation='my night'"),
        ("--account=o'neill lab", '--account="o\'neill lab"'),
    ],
)
def test_a_value_with_odd_letters_is_one_word_for_sbatch(option: str, directive: str) -> None:
    line = written("true", directives=(option,)).splitlines()[1]
    assert line == f"#SBATCH {directive}"
    assert shlex.split(line, comments=False)[1:] == [option]


@pytest.mark.security
@pytest.mark.parametrize("value", ["a\nrm -rf $HOME", "a'b\"c", "a\rb", "a\x00b"])
def test_a_value_that_cannot_be_one_word_of_a_directive_makes_no_line_of_the_script(value: str) -> None:
    with pytest.raises(InvalidJob, match="--constraint"):
        written("true", directives=(f"--constraint={value}",))


@pytest.mark.security
@settings(max_examples=examples(15), deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_a_word_of_the_command_and_a_value_of_a_variable_reach_the_shell_as_they_are(word: str) -> None:
    text = written("printf", "%s", word, VALUE=word)
    body = text.partition("mpijob_launch() {")[2].rpartition("}")[0].replace("exec printf", "printf")
    exports = next(line for line in text.split("export VALUE=")[1:]).partition("\nexport ")[0]
    script = f"VALUE={exports}\nprintf '%s' \"$VALUE\"; printf '|'; {body}"
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.decode() == f"{word}|{word}"


def test_a_raw_word_is_read_by_the_shell_and_others_are_not() -> None:
    text = written("srun", Raw('"$MPIJOB_SH"'), "$HOME", "a b")
    assert """exec srun "$MPIJOB_SH" '$HOME' 'a b'""" in text


def test_only_a_layout_by_hand_writes_a_file_of_hosts() -> None:
    assert "SLURM_HOSTFILE" in written("srun", "--distribution=arbitrary", "true")
    assert "SLURM_HOSTFILE" not in written("srun", "--distribution=block", "true")


def test_a_directory_with_blanks_is_quoted_where_the_shell_reads_it() -> None:
    text = batch_script.write(a_job(), (), {}, ("true",), directory="/my jobs/beef")
    assert "[ -r '/my jobs/beef'/allocation.sh ]" in text
    assert "#SBATCH --output='/my jobs/beef/slurm.out'" in text


# -- the comment ------------------------------------------------------------------------------
def test_the_comment_tells_other_clients_which_job_it_is() -> None:
    job = a_job(
        namespace="team", workers=3, slots=2, owner="jane", priority="high", queue="main", labels={"run": "7"}
    )
    told = batch_script.read_comment(batch_script.comment(job, UID, "mpich 4.1"))
    assert told is not None
    assert (told.mpijob, told.ns, told.name, told.n) == (UID, "team", "solve", (3, 6))
    assert (told.mpi, told.owner, told.priority, told.queue) == (
        "mpich 4.1",
        "jane",
        job.priority_number,
        "main",
    )
    assert (told.labels, told.more) == ({"run": "7"}, False)
    assert told.runs == batch_script.command_key(job)


LETTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(LETTERS, max_size=63)


@settings(max_examples=examples(40), deadline=None)
@given(st.dictionaries(TEXTS, TEXTS, max_size=12), st.text(LETTERS, max_size=300))
def test_every_comment_fits_and_is_read_again_with_its_texts_or_says_that_there_are_more(
    labels: dict[str, str], description: str
) -> None:
    text = batch_script.comment(a_job(labels=labels, description=description), UID, "")
    told = batch_script.read_comment(text)
    assert len(text.encode()) <= batch_script.MOST_COMMENT_BYTES
    assert not {"\n", "\x1e", "\x1f"} & {*text}
    assert told is not None
    assert (told.labels, told.description, told.more) in ((labels, description, False), ({}, "", True))


@pytest.mark.security
@pytest.mark.parametrize(
    "text",
    [
        "",
        "(null)",
        "my comment",
        '{"mpijob":',
        '{"mpijob":7,"ns":"a","name":"b","n":[1,1]}',
        '{"mpijob":"a"}',
        '{"mpijob":"a","ns":"a","name":"b","n":[1]}',
        '{"mpijob":"a","ns":"a","name":"b","n":[1,1],"labels":[]}',
        '{"mpijob":"a","x":' + "[" * 1000,
        '{"mpijob":"a","x":' + "[" * 500 + "]" * 500 + ',"ns":"a","name":"b","n":[1,1],"priority":1e999}',
        ' {"mpijob":"a","ns":"a","name":"b","n":[1,1]}',
    ],
)
def test_a_comment_that_is_none_of_ours_is_not_taken_for_one(text: str) -> None:
    assert batch_script.read_comment(text) is None


def test_the_same_command_and_world_have_the_same_key_and_others_another() -> None:
    key = batch_script.command_key(a_job())
    assert key == batch_script.command_key(a_job(name="other", deadline_seconds=5.0))
    assert key != batch_script.command_key(a_job(workers=3))
    assert key != batch_script.command_key(a_job(command=("./other",)))
    assert len(key) == 8
