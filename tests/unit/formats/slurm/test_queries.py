"""What Slurm's commands print, as values: whole answers, odd ones, hostile ones, and answers that were cut off."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples
from tests.unit.slurm_support import BEGIN, ended, row, sacct, squeue

from mpijob.formats.slurm import queries
from mpijob.formats.slurm.job_states import JobState
from mpijob.formats.slurm.queries import FIELD, RECORD, Rows

GIB = 1 << 30


# -- squeue -----------------------------------------------------------------------------------
def test_a_row_of_squeue_has_every_field_as_a_value() -> None:
    found = row(T="PENDING", r="Priority", N="", S="N/A", Q="42", C="16", D="4", l="2-00:00:00")
    assert (found.number, found.name, found.user, found.account) == ("67", "solve", "alice", "science")
    assert (found.partition, found.qos, found.state, found.reason) == (
        "main", "normal", JobState.PENDING, "Priority",
    )  # fmt: skip
    assert (found.node_count, found.cpus, found.nodes, found.priority) == (4, 16, "", 42)
    assert (found.submitted, found.started, found.ended) == (BEGIN, None, None)
    assert found.limit_seconds == 172_800
    assert (found.ending, found.array) == (None, "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:00:00", 3600.0),
        ("1-12:00:00", 129_600.0),
        ("5:00", 300.0),
        ("30", 1800.0),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("infinite", None),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("N/A", None),
        ("", None),
        ("1:2:3:4", None),
        ("-5", None),
        ("²:00", None),
    ],
)
def test_a_time_limit_is_read_in_seconds_or_is_none(text: str, seconds: float | None) -> None:
    assert row(l=text).limit_seconds == seconds


def test_a_task_of_an_array_is_called_as_slurm_calls_it() -> None:
    found = row(A="71", F="70", K="3")
    assert (found.number, found.array) == ("71", "70_3")
    assert "70_3" in ended(jobidraw="71", jobid="70_3", state="TIMEOUT").sentence()


def test_a_job_that_completes_after_a_node_failed_has_ended_so() -> None:
    assert row(T="COMPLETING", r="NodeDown", N="n[1-4]").ending is JobState.NODE_FAIL
    assert row(T="COMPLETING", r="None").ending is None


def test_jobs_are_found_by_number_and_others_are_not_there() -> None:
    rows = Rows(squeue({"%A": "1"}, {"%A": "2", "%j": "other"}))
    assert (len(rows), [*rows], rows["2"].name) == (2, ["1", "2"], "other")
    assert rows.get("3") is None
    assert rows["2"] is rows["2"]


def test_an_empty_answer_has_no_jobs() -> None:
    assert len(Rows("")) == 0
    assert len(Rows("slurm_load_jobs error: Unable to contact slurm controller\n")) == 0
    assert [*queries.accounted("")] == []
    assert queries.partitions("") == ()
    assert queries.nodes("", "main") == ()
    assert queries.read_associations("") == ()
    assert queries.read_qos("") == {}
    assert queries.configuration("") == {}
    assert queries.idle_cpus("") == {}
    assert queries.named_fields("") == {}


def test_a_record_that_was_cut_off_has_what_is_left_of_it() -> None:
    text = squeue({"%A": "1"}, {"%A": "2"})
    cut = Rows(text[: text.rindex("RUNNING") + 3])
    assert (cut["1"].state, cut["2"].state, cut["2"].comment) == (JobState.RUNNING, JobState.UNKNOWN, "")
    assert cut["2"].ending is None


@pytest.mark.security
@pytest.mark.parametrize(
    "name",
    [
        "a|b",
        "a b\tc",
        "a\nb",
        "x StdOut=/etc/shadow",
        '{"mpijob":"0"}',
        "%A",
        "é\u2028ü",
        "\x1b[31m",
        "a,b=c",
    ],
)
def test_a_name_may_hold_anything_but_the_separators(name: str) -> None:
    rows = Rows(squeue({"%j": name}, {"%A": "68"}))
    assert (rows["67"].name, rows["67"].state, [*rows]) == (name, JobState.RUNNING, ["67", "68"])
    assert [*rows.ours()] == []


@pytest.mark.security
def test_separators_in_a_name_make_neither_a_job_without_a_number_nor_an_error() -> None:
    rows = Rows(squeue({"%j": f"a{RECORD}evil{FIELD}²"}, {"%A": "68", "%j": FIELD.join("²" * 30)}))
    assert [*rows] == ["67", "68"]
    assert (rows["67"].name, rows["67"].state) == ("a", JobState.UNKNOWN)
    assert (rows["68"].cpus, rows["68"].submitted, rows["68"].started) == (0, 0.0, None)


def test_a_job_of_ours_is_known_by_its_comment_and_nothing_else() -> None:
    comment = '{"mpijob":"beef","ns":"default","name":"solve","n":[2,2],"runs":"0"}'
    rows = Rows(squeue({"%k": comment}, {"%A": "68", "%o": comment}, {"%A": "69", "%k": f"see {comment}"}))
    assert [*rows.ours()] == [("67", "beef")]


@pytest.mark.parametrize("text", ["", "N/A", "0", "-5", "Unknown", "None", "9" * 5000, "²", "1.5"])
def test_a_time_that_is_none_is_not_known(text: str) -> None:
    assert row(S=text).started is None


@settings(max_examples=examples(60), deadline=None)
@given(st.text(alphabet=st.sampled_from(f"{RECORD}{FIELD}\n|=: 0123456789²٣RUNING-[],\x00\u2028é")))
def test_no_answer_breaks_the_reading_of_it(text: str) -> None:
    rows = Rows(RECORD + text)
    assert all(one.number.isdecimal() for one in rows.values())
    assert dict(rows.ours()).keys() <= rows.keys()
    assert all(one.cpus >= 0 for one in queries.accounted(text))
    queries.nodes(text * 20, "main")
    queries.partitions(f"PartitionName={text}")
    queries.read_qos(text)
    queries.idle_cpus(text)
    queries.named_fields(text)


def test_squeue_is_asked_for_the_users_jobs_or_for_some_of_all() -> None:
    assert "--me" in queries.squeue()
    assert "--jobs=1,2" in queries.squeue(jobs=["1", "2"])
    assert "--me" not in queries.squeue(jobs=["1"])
    assert not {word for word in queries.squeue(every=True) if word.startswith(("--me", "--users", "--jobs"))}
    assert "--users=alice" in queries.squeue(users=["alice"])


# -- sacct ------------------------------------------------------------------------------------
def test_a_job_of_the_accounting_has_its_end_and_what_it_used() -> None:
    found = ended(state="CANCELLED by 1000", exitcode="0:15", maxrss="12345K", totalcpu="1-02:03:04.5")
    assert (found.state, found.by, found.exit, found.ended) == (
        JobState.CANCELLED,
        "1000",
        "0:15",
        BEGIN + 65,
    )
    assert found.memory_bytes == 12345 << 10
    assert found.used_cpu_seconds == 86_400 + 2 * 3600 + 3 * 60 + 4.5
    assert queries.held_memory(found.tres) == 8 * GIB


def test_each_try_of_a_requeued_job_is_there_the_last_one_last() -> None:
    tries = [*queries.accounted(sacct({"state": "REQUEUED"}, {"state": "NODE_FAIL"}, {"state": "COMPLETED"}))]
    assert [one.state.value for one in tries] == ["REQUEUED", "NODE_FAIL", "COMPLETED"]
    assert {one.number for one in tries} == {"67"}


def test_a_line_of_the_accounting_that_was_cut_off_is_left_out() -> None:
    text = sacct({"jobidraw": "1"}, {"jobidraw": "2"})
    assert [one.number for one in queries.accounted(text[: text.rindex("normal")])] == ["1"]


def test_an_accounting_that_keeps_no_comments_is_read_all_the_same() -> None:
    text = sacct({"jobidraw": "1"}).rstrip("\n").rpartition(FIELD)[0]
    assert [(one.number, one.comment) for one in queries.accounted(text)] == [("1", "")]


@pytest.mark.parametrize("letter", ["\u2028", "\x85", "\x0b", "\x1c", "\x1e"])
def test_a_letter_that_only_python_takes_for_the_end_of_a_line_ends_none(letter: str) -> None:
    found = [
        *queries.accounted(sacct({"jobname": f"a{letter}b", "comment": f"c{letter}d"}, {"jobidraw": "68"}))
    ]
    assert [(one.number, one.name, one.comment) for one in found] == [
        ("67", f"a{letter}b", f"c{letter}d"),
        ("68", "solve", ""),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:01.500", 1.5), ("02:03:04", 7384.0), ("", 0.0), ("12", 12.0), ("a:b", 0.0), ("00:00.x", 0.0)],
)
def test_cpu_time_is_read_with_its_fraction(text: str, seconds: float) -> None:
    assert ended(totalcpu=text).used_cpu_seconds == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("1.50G", GIB * 3 // 2),
        ("2Tn", 2 * 1024 * GIB),
        ("", 0),
        ("-1K", 0),
        ("1X", 0),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert ended(maxrss=text).memory_bytes == size


def test_jobs_that_are_named_are_found_whenever_they_were() -> None:
    assert not [word for word in queries.sacct(["1"]) if word.startswith("--starttime")]
    assert "--starttime=now-7days" in queries.sacct()
    assert "--allocations" not in queries.sacct(["1"], steps=True)


# -- the cluster ------------------------------------------------------------------------------
MAIN = (
    "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A"
    " DefaultTime=00:30:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED"
    " MaxTime=1-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] OverSubscribe=NO State=UP"
    " TotalCPUs=16 TotalNodes=4 SelectTypeParameters=NONE DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED"
)
CLOSED = (
    "PartitionName=closed AllowGroups=ALL AllowAccounts=staff,ops DenyQos=debug,tiny Default=NO DefaultTime=NONE"
    " MaxNodes=2 MaxTime=UNLIMITED MinNodes=2 OverSubscribe=EXCLUSIVE State=DOWN TotalCPUs=8 TotalNodes=2"
    " MaxMemPerNode=4000"
)


def test_partitions_have_their_limits_and_who_may_use_them() -> None:
    main, closed = queries.partitions(f"{MAIN}\n{CLOSED}\n")
    assert (main.name, main.default, main.state, main.nodes, main.cpus) == ("main", True, "UP", 4, 16)
    assert (main.max_seconds, main.default_seconds, main.max_nodes, main.min_nodes) == (86_400, 1800, None, 0)
    assert (main.accounts, main.denied_accounts, main.qos, main.max_memory_mib) == ((), (), (), None)
    assert (closed.default, closed.state, closed.max_nodes, closed.min_nodes) == (False, "DOWN", 2, 2)
    assert (closed.accounts, closed.denied_qos) == (("staff", "ops"), ("debug", "tiny"))
    assert (closed.max_seconds, closed.default_seconds) == (None, None)
    assert (closed.max_memory_mib, closed.whole_nodes) == (4000, True)


def test_a_value_with_blanks_stays_whole() -> None:
    fields = queries.named_fields(
        "JobId=67 JobName=a b Command=/x/my job.sh -v WorkDir=/home/al ice StdErr= StdIn=/dev/null"
        " StdOut=/home/al ice/slurm 67.out Power= ExitCode=7:0 "
    )
    assert (fields["StdOut"], fields["WorkDir"]) == ("/home/al ice/slurm 67.out", "/home/al ice")
    assert (fields["StdErr"], fields["ExitCode"], fields["JobName"]) == ("", "7:0", "a b")


def test_the_configuration_is_read_by_name() -> None:
    text = "Configuration data as of 2026-11-17T18:25:11\nClusterName             = bed\n"
    text += "KillWait                = 30 sec\n"
    assert queries.configuration(text) == {"ClusterName": "bed", "KillWait": "30 sec"}


def a_line(partition: str, name: str, state: str = "idle", cpus: str = "0/4/0/4", **more: str) -> str:
    usual = {"memory": "8000", "used": "0", "gres": "(null)", "gres_used": "gpu:0", "features": "(null)"}
    cells = (partition, name, state, cpus, *(usual | more).values())
    return "".join(f"{cell:255}" for cell in cells) + "\n"


def test_nodes_have_what_they_hold_and_what_of_it_is_free() -> None:
    text = a_line("main", "n1") + a_line("main", "n2", "mixed", "3/1/0/4", used="6000", features="ib,skylake")
    first, second = queries.nodes(text + a_line("short", "n1"), "main")
    assert (first.name, first.cpus, first.free_cpus, first.free_memory_mib) == ("n1", 4, 4, 8000)
    assert (second.cpus, second.free_cpus, second.free_memory_mib) == (4, 1, 2000)
    assert (first.features, second.features) == ((), ("ib", "skylake"))


def test_gpus_are_counted_with_those_in_use() -> None:
    (node,) = queries.nodes(
        a_line("gpu", "g1", gres="gpu:a100:4(S:0-1)", gres_used="gpu:a100:3(IDX:0-2)"), "gpu"
    )
    assert (node.gpus, node.free_gpus) == (4, 1)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gpu:4", 4),
        ("gpu:a100:2,gpu:v100:1", 3),
        ("gres/gpu=2,gres/gpu:a100=2", 2),
        ("billing=4,cpu=4,gres/gpu=8,mem=1G", 8),
        ("shard:8,mps:100", 0),
        ("(null)", 0),
        ("", 0),
        ("nogpu:4", 0),
    ],
)
def test_gpus_are_counted_once_in_each_way_of_writing_them(text: str, count: int) -> None:
    assert queries.gpu_count(text) == count


@pytest.mark.parametrize(
    "state",
    [
        "down",
        "down*",
        "idle*",
        "drained",
        "draining",
        "drain*",
        "failing",
        "maint",
        "reboot",
        "powered_down",
        "unknown",
    ],
)
def test_a_node_that_is_not_there_takes_no_jobs_and_has_nothing_free(state: str) -> None:
    (node,) = queries.nodes(a_line("main", "n1", state), "main")
    assert (node.usable, node.cpus, node.free_cpus, node.free_memory_mib) == (False, 4, 0, 0)


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "completing", "idle~", "mixed+", "reserved"])
def test_a_node_that_is_there_takes_jobs(state: str) -> None:
    (node,) = queries.nodes(a_line("main", "n1", state), "main")
    assert node.usable


def test_a_line_of_nodes_that_was_cut_off_is_left_out() -> None:
    whole = a_line("main", "n1")
    assert [node.name for node in queries.nodes(whole + a_line("main", "n2")[:1500], "main")] == ["n1"]


def test_idle_cpus_are_told_for_each_partition() -> None:
    assert queries.idle_cpus("main|12/4/0/16\nshort|0/8/0/8\nodd|1/2\nbad|a/b/c/d\n") == {
        "main": 4,
        "short": 8,
    }


# -- accounts and QOS -------------------------------------------------------------------------
def test_an_association_has_its_account_its_qos_and_its_limits() -> None:
    text = "science||normal,tiny|normal|10|20|cpu=8,gres/gpu=2,mem=16G,node=2|02:00:00|cpu=100,mem=1T\n"
    text += "ops|closed|normal||||||\n"
    science, ops = queries.read_associations(text)
    assert (science.account, science.partition, science.qos, science.default_qos) == (
        "science", "", ("normal", "tiny"), "normal",
    )  # fmt: skip
    limit = science.limit
    assert (limit.owner, limit.cpus, limit.gpus, limit.memory_mib, limit.nodes) == (
        "account science",
        8,
        2,
        16384,
        2,
    )
    assert (limit.seconds, limit.jobs, limit.submitted) == (7200, 10, 20)
    assert (limit.group_cpus, limit.group_memory_mib, limit.group_nodes) == (100, 1 << 20, None)
    assert (ops.partition, ops.limit.cpus, ops.limit.seconds, ops.limit.jobs) == ("closed", None, None, None)


def test_a_qos_has_its_limits_and_its_priority() -> None:
    found = queries.read_qos("normal|0|||||\ntiny|10|cpu=2|00:05:00|1|3|node=1\nbroken|line\n")
    assert found.keys() == {"normal", "tiny"}
    tiny = found["tiny"]
    assert (tiny.owner, tiny.priority, tiny.cpus, tiny.seconds) == ("QOS tiny", 10, 2, 300)
    assert (tiny.jobs, tiny.submitted, tiny.group_nodes) == (1, 3, 1)
    assert found["normal"].cpus is None


def test_a_user_is_one_word_of_the_question() -> None:
    assert "user=al ice" in queries.associations("al ice")


# -- what sbatch and srun say -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("sbatch: Job 62 to start at 2026-11-17T18:29:27 using 1 processors on nodes n1 in partition short",
         1_794_940_167),
        ("sbatch: Job 62 to start at 1794940167 using 4 processors on nodes n[1-4] in partition main", 1_794_940_167),
        ("sbatch: Job 62 to start at N/A using 1 processors on nodes n1 in partition main", None),
        ("sbatch: Job 62 to start at ² using 1 processors on nodes n1 in partition main", None),
        ("allocation failure: Requested node configuration is not available", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_start_that_slurm_expects_is_a_time_or_none(text: str, when: float | None) -> None:
    assert queries.start_estimate(text) == when


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n",
         ("none", "pmi2", "pmix")),
        ("srun: MPI types are...\nsrun: none\n", ()),
        ("none\ncray_shasta\n", ("none", "cray_shasta")),
        ("", ()),
    ],
)  # fmt: skip
def test_launch_plugins_are_the_words_that_stand_alone(text: str, names: tuple[str, ...]) -> None:
    assert queries.launch_plugins(text) == names


def test_steps_are_those_that_have_a_number() -> None:
    rows = [
        ended(jobidraw="67", jobname="wrap"),
        ended(jobidraw="67.batch", jobname="batch"),
        ended(jobidraw="67.extern", jobname="extern"),
        ended(jobidraw="67.0", jobname="solve", exitcode="3:0", state="FAILED", maxrss="2048K"),
        ended(jobidraw="67.1", jobname="post", state="RUNNING", end="Unknown"),
    ]
    first, second = queries.steps(rows)
    assert (first.number, first.command, first.exit_code, first.peak_bytes) == (0, "solve", 3, 2 << 20)
    assert (second.number, second.exit_code, second.finished) == (1, None, None)
