"""The first cause of a failure, whatever the engine calls it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.cluster_objects import (
    BEGIN,
    COUNTED,
    Cluster,
    at_work,
    condition,
    derive,
    done,
    ended,
    running,
    stamp,
    standing,
    waiting,
)

from mpijob.formats.launch.pod_scripts import Ending
from mpijob.model import Phase
from mpijob.observation.state.first_cause import OWN_ENDINGS
from mpijob.observation.state.phase import Reason


# -- failure ----------------------------------------------------------------------------------
@pytest.mark.req("US1-3", "A-edge-worker")
def test_trap_jobset_names_the_launcher_although_a_worker_died_first() -> None:
    cluster = done(205, 42).worker(1, ended(137, 40))
    text = "jobset failed due to one or more job failures (first failed job: bert-launcher-0)"
    state = derive(cluster.condition("Failed", reason="FailedJobs", message=text, at=45))
    assert standing(state) == (Phase.FAILED, Reason.WORKER_LOST)
    assert (state.findings[0].code, state.findings[0].worker) == ("WORKER_LOST", 1)
    assert [one.phase for one in state.workers] == [Phase.CANCELLED, Phase.FAILED]
    assert (state.launcher_exit_code, state.workers[1].exit_code, state.finished) == (205, 137, BEGIN + 42)


def test_in_the_same_second_a_worker_comes_before_the_launcher_that_noticed_it() -> None:
    assert derive(done(205, 40).worker(1, ended(137, 40))).reason == Reason.WORKER_LOST


@pytest.mark.parametrize(("second", "reason"), [(40, Reason.WORKER_LOST), (41, Reason.LAUNCHER_FAILED)])
def test_a_worker_that_nobody_asked_to_end_well_is_what_the_launcher_of_that_second_noticed(
    second: int, reason: Reason
) -> None:
    assert derive(done(255, 40).worker(1, ended(0, second))).reason == reason


@pytest.mark.parametrize("code", [0, 143, 137])
def test_trap_workers_that_are_ended_after_the_launcher_failed_are_no_cause(code: int) -> None:
    cluster = done(3, 40).worker(
        0, ended(code, 43), deletionTimestamp=stamp(51), deletionGracePeriodSeconds=10
    )
    state = derive(cluster.condition("Failed", at=41))
    assert standing(state) == (Phase.FAILED, Reason.LAUNCHER_FAILED)
    assert state.workers[0].phase is Phase.CANCELLED


@pytest.mark.req("SC-005")
def test_a_dead_worker_is_told_at_once_although_no_engine_has_said_anything() -> None:
    state = derive(at_work().worker(0, ended(137, 40)))
    assert standing(state) == (Phase.FAILED, Reason.WORKER_LOST)
    assert state.finished == BEGIN + 40


@pytest.mark.req("UC1-AF2", "B-story4")
def test_a_worker_that_was_killed_for_memory_is_named_with_its_limit() -> None:
    state = derive(done(205, 42).worker(1, ended(137, 40, "OOMKilled")))
    assert standing(state) == (Phase.FAILED, Reason.MEMORY_EXCEEDED)
    assert state.message.startswith("Worker-1 exceeded memory limit (1GB).")
    assert (state.findings[0].code, state.findings[0].worker) == ("MEMORY_LIMIT", 1)


def test_a_rank_that_was_killed_although_there_was_memory_is_told_as_that() -> None:
    said = "[1,2]<stdout>:mpijob-exit rank=2 code=137 oom=0\nmpirun noticed that process rank 2 exited on signal 9"
    state = derive(done(137, 42), COUNTED + said)
    assert standing(state) == (Phase.FAILED, Reason.RANK_FAILED)
    assert (state.findings[0].code, state.findings[0].rank) == ("RANK_KILLED", 2)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("[1,2]<stdout>:mpijob-exit rank=2 code=137 oom=0\n", "RANK_KILLED"),
        ("Primary job  terminated normally, but 1 process returned\na non-zero exit code. …\n", "UNKNOWN"),
    ],
    ids=["rank", "launcher"],
)
def test_a_launcher_that_lost_its_last_words_was_not_killed(said: str, code: str) -> None:
    """Open MPI 4 names the rank last, and one time in fifty on a busy machine not at all."""
    state = derive(done(137, 42), COUNTED + said)
    assert [one.code for one in state.findings] == [code]


@pytest.mark.parametrize("operator", [False, True])
def test_a_launcher_whose_pod_was_deleted_is_told_by_its_last_event(operator: bool) -> None:
    cluster = Cluster(operator=operator)
    name = cluster.name_of("launcher", 0)
    cluster.told("Pod", name, "Killing", "Stopping container node", 50, warning=False)
    failed = "jobset failed due to one or more job failures (first failed job: bert-launcher-0)"
    state = derive(cluster.condition("Failed", reason="FailedJobs", message=failed, at=51))
    assert standing(state) == (Phase.FAILED, Reason.LAUNCHER_LOST)
    assert (state.findings[0].code, state.finished) == ("LAUNCHER_KILLED", BEGIN + 50)


def test_a_launcher_that_was_ended_by_the_deadline_or_by_the_user_was_not_lost() -> None:
    killed = ("Pod", "bert-launcher-0-0-x7k2p", "Killing", "Stopping container node", 50)
    late = Cluster().told(*killed, warning=False).condition("Failed", reason="DeadlineExceeded", at=50)
    assert derive(late).reason == Reason.DEADLINE_EXCEEDED


def test_what_kept_pods_from_starting_is_told_while_they_are_cleared_away_at_the_deadline() -> None:
    cluster = Cluster().workers(waiting("ContainerCreating"))
    missing = 'Failed to pull image "x:1": rpc error: code = NotFound desc = x:1: not found'
    cluster.told("Pod", cluster.name_of("worker", 0), "Failed", missing, 30)
    state = derive(cluster.condition("Failed", reason="DeadlineExceeded", at=60), None)
    assert standing(state) == (Phase.FAILED, Reason.DEADLINE_EXCEEDED)
    assert [one.code for one in state.findings] == ["IMAGE_NOT_FOUND", "DEADLINE_EXCEEDED"]


def test_trouble_that_was_over_when_a_pod_started_is_no_cause_of_a_deadline() -> None:
    cluster = Cluster()
    name = cluster.name_of("worker", 0)
    cluster.told("Pod", name, "FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.", 5)
    cluster.told("Pod", name, "Started", "Started container node", 10, warning=False)
    state = derive(cluster.condition("Failed", reason="DeadlineExceeded", at=60), None)
    assert [one.code for one in state.findings] == ["DEADLINE_EXCEEDED"]


@pytest.mark.req("UC1-AF2")
def test_a_rank_that_was_killed_for_memory_is_told_with_its_workers_limit() -> None:
    state = derive(done(137, 42), COUNTED + "[1,2]<stdout>:mpijob-exit rank=2 code=137 oom=1\n")
    assert standing(state) == (Phase.FAILED, Reason.MEMORY_EXCEEDED)
    assert [(one.code, one.worker) for one in state.findings] == [("MEMORY_LIMIT", 1)]


@pytest.mark.req("A-edge-net")
def test_a_worker_that_is_ready_and_refuses_the_launcher_is_behind_a_network_policy() -> None:
    said = "ssh: connect to host bert-node-0-1.bert port 2222: Connection refused\n"
    words = "the world could not be started: mpirun exited with 255"
    cluster = Cluster().workers(running(10)).launcher(ended(Ending.WORLD_NOT_STARTED, 40, message=words))
    state = derive(cluster, f"{said}mpijob: {words}\n")
    assert state.message.startswith(
        "MPI communication failure - check NetworkPolicies: bert-node-0-1.bert is up"
    )
    assert [(one.code, one.worker) for one in state.findings] == [("NETWORK_BLOCKED", 1)]


def test_what_mpi_says_when_a_deadline_ends_its_workers_is_no_cause() -> None:
    cluster = Cluster().launcher(ended(255, 61)).condition("Failed", reason="DeadlineExceeded", at=60)
    state = derive(cluster, COUNTED + "Connection to bert-node-0-1.bert closed by remote host.\n")
    assert [one.code for one in state.findings] == ["DEADLINE_EXCEEDED"]


def test_events_of_an_earlier_job_of_that_name_and_of_an_earlier_start_do_not_count() -> None:
    cluster = at_work().condition("Suspended", False, "Resumed", at=3)
    gone = cluster.name_of("worker", 1)
    cluster.told("Pod", gone, "Killing", "Stopping container node", -30, warning=False)
    cluster.told("Pod", gone, "Killing", "Stopping container node", 1, warning=False)
    assert derive(cluster).phase is Phase.RUNNING
    del cluster.pods[gone], cluster.pods[cluster.name_of("launcher", 0)]
    assert derive(cluster, "").phase is Phase.PENDING


def test_pods_of_before_a_resume_that_are_on_their_way_out_do_not_count() -> None:
    cluster = Cluster().condition("Suspended", False, "Resumed", at=50)
    cluster.workers(ended(137, 52)).launcher(ended(143, 52))
    assert derive(cluster, "").phase is Phase.PENDING


def test_a_launcher_that_was_killed_for_memory_is_told_to_have_more() -> None:
    state = derive(done(137, 40).launcher(ended(137, 40, "OOMKilled")))
    assert [one.code for one in state.findings][:1] == ["LAUNCHER_MEMORY"]
    assert state.findings[0].fixes[0].patch == {"launcher": {"memory": "1Gi"}}


def test_the_codes_of_our_own_endings_all_have_a_reason() -> None:
    assert set(OWN_ENDINGS) == {ending.value for ending in Ending}


OURS = [
    (Ending.NO_KEY, "the job's key cannot be read in /mpijob/ssh", Reason.NO_KEY, "NO_KEY"),
    (Ending.NO_PROGRAM, "the image has no program 'mpirun'", Reason.NO_PROGRAM, "NO_PROGRAM"),
    (Ending.WORLD_NOT_STARTED, "mpirun exited with 255", Reason.WORLD_NOT_STARTED, "WORLD_NOT_STARTED"),
    (Ending.WORLD_DIFFERS, "rank 3 ran on bert-launcher-0-0", Reason.WORLD_DIFFERS, "WORLD_DIFFERS"),
    (Ending.WORKERS_SILENT, "worker bert-node-0-1 did not answer", Reason.START_TIMEOUT, "START_TIMEOUT"),
]


@pytest.mark.req("US1-3")
@pytest.mark.parametrize(("code", "words", "reason", "finding"), OURS)
def test_our_launchers_own_endings_have_a_reason_and_a_remedy(
    code: int, words: str, reason: Reason, finding: str
) -> None:
    state = derive(
        Cluster().workers(running(10)).launcher(ended(code, 40, message=words)), f"mpijob: {words}\n"
    )
    assert standing(state) == (Phase.FAILED, reason)
    assert (state.findings[0].code, bool(state.findings[0].fixes)) == (finding, True)


@pytest.mark.req("B-edge-net")
def test_a_world_that_does_not_come_up_in_time_names_where_the_workers_are_and_the_guide() -> None:
    silent = ended(Ending.WORKERS_SILENT, 40, message="worker bert-node-0-1 did not answer")
    cluster = Cluster().workers(running(10)).launcher(silent)
    for number in range(2):
        cluster.pods[cluster.name_of("worker", number)]["status"]["podIP"] = f"10.1.0.{7 + number}"
    finding = derive(cluster, "").findings[0]
    sentence, _, places = finding.message.partition(" Workers: ")
    assert sentence == "MPI initialization timeout - workers cannot communicate."
    assert places == "0 bert-node-0-0-x7k2p 10.1.0.7, 1 bert-node-0-1-x7k2p 10.1.0.8."
    guide = re.search(r"\((docs/\S+)\)", finding.fixes[0].text)
    assert guide is not None
    assert Path(guide[1]).is_file()


def test_a_worker_without_sshd_is_named_with_the_remedy() -> None:
    words = "the image has no sshd: install openssh-server in it"
    state = derive(Cluster().workers(ended(Ending.NO_SSHD, 12, message=words)), "")
    assert standing(state) == (Phase.FAILED, Reason.NO_SSHD)
    assert (state.findings[0].code, state.findings[0].worker) == ("NO_SSHD", 0)
    assert state.message == f"worker 0: {words}"


def test_a_program_that_ends_with_one_of_our_codes_is_not_taken_for_us() -> None:
    log = COUNTED + "[1,1]<stdout>:mpijob-exit rank=1 code=93\n"
    state = derive(done(93, 40), log)
    assert standing(state) == (Phase.FAILED, Reason.RANK_FAILED)
    assert state.findings[0].message == "Rank 1 on worker 0 exited with code 93."


def test_a_rank_that_failed_is_named_and_what_mpi_ended_afterwards_is_not() -> None:
    log = COUNTED + "[1,3]<stdout>:mpijob-exit rank=3 code=5\n[1,0]<stdout>:mpijob-exit rank=0 code=143\n"
    state = derive(done(5, 40), log)
    assert (state.findings[0].code, state.findings[0].rank, state.findings[0].worker) == ("RANK_EXIT", 3, 1)
    # what ended with mpirun before it could report its end followed too
    assert [(one.rank, one.exit_code) for one in state.ranks if not one.followed] == [(3, 5)]


def test_ranks_of_a_lost_worker_did_not_follow_from_another_and_those_elsewhere_did() -> None:
    state = derive(done(205, 42).worker(1, ended(137, 40, "OOMKilled")), COUNTED)
    assert {one.worker for one in state.ranks if not one.followed} == {1}
    assert {one.worker for one in state.ranks if one.followed} == {0}


def test_ranks_of_a_job_that_runs_follow_from_nothing() -> None:
    state = derive(done(0, 42), COUNTED)
    assert state.ranks
    assert not [one for one in state.ranks if one.followed]


def test_what_the_ranks_said_is_evidence() -> None:
    said = ("Traceback (most recent call last):", '  File "a.py", line 1', "KeyError: 'x'")
    log = (
        COUNTED
        + "".join(f"[1,2]<stderr>:{line}\n" for line in said)
        + "[1,2]<stdout>:mpijob-exit rank=2 code=1\n"
    )
    state = derive(done(1, 40), log)
    assert state.findings[0].message == "Rank 2 on worker 1 failed with an exception: KeyError: 'x'"


def test_an_exception_is_told_with_its_kind_also_where_it_says_one_word() -> None:
    said = ("Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: oneword")
    lines = "".join(f"[1,2]<stderr>:{line}\n" for line in said) + "[1,2]<stdout>:mpijob-exit rank=2 code=1\n"
    state = derive(done(1, 40), COUNTED + lines)
    assert state.findings[0].message == "Rank 2 on worker 1 failed with an exception: ValueError: oneword"


def test_a_rank_that_left_is_told_as_it_left_and_the_abort_that_ended_the_others_is_not() -> None:
    log = (
        COUNTED
        + "[1,2]<stdout>:mpijob-exit rank=2 code=7 left=1\n"
        + "[1,2]<stderr>:MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n"
        + "[1,2]<stderr>:  Errorcode: 7\n[1,2]<stdout>:mpijob-exit rank=2 code=143\n"
    )
    state = derive(done(7, 40), log)
    assert [one.code for one in state.findings] == ["RANK_EXIT"]
    assert state.message == "Rank 2 on worker 1 exited with code 7."


def test_a_launcher_that_was_killed_had_no_time_to_report_a_rank() -> None:
    state = derive(done(137, 40), COUNTED + "[1,0]<stdout>:working\n")
    assert state.findings[0].code == "LAUNCHER_KILLED"


LOSSES = [
    (
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        Reason.WORKER_EVICTED,
        "WORKER_EVICTED",
    ),
    ({"reason": "NodeLost", "message": "Node node-2 is unresponsive"}, Reason.WORKER_LOST, "NODE_LOST"),
    ({"reason": "UnexpectedAdmissionError", "message": "no GPU left"}, Reason.START_REFUSED, "START_REFUSED"),
    ({"reason": "OutOfcpu", "message": "node was full"}, Reason.START_REFUSED, "START_REFUSED"),
]


@pytest.mark.req("US1-3", "A-edge-worker")
@pytest.mark.parametrize(("status", "reason", "finding"), LOSSES)
def test_a_pod_that_its_node_ended_tells_why(status: dict[str, str], reason: Reason, finding: str) -> None:
    lost = {
        "phase": "Failed",
        "conditions": [condition("PodScheduled", at=5), condition("Ready", False, at=40)],
    }
    state = derive(done(205, 45).worker(1, lost | status))
    assert standing(state) == (Phase.FAILED, reason)
    assert (state.findings[0].code, state.findings[0].worker) == (finding, 1)
    assert status["message"] in state.workers[1].message


DISRUPTIONS = [
    ("PreemptionByScheduler", Reason.WORKER_PREEMPTED),
    ("EvictionByEvictionAPI", Reason.WORKER_LOST),
    ("DeletionByTaintManager", Reason.WORKER_LOST),
    ("TerminationByKubelet", Reason.WORKER_EVICTED),
]


@pytest.mark.parametrize(("disruption", "reason"), DISRUPTIONS)
def test_a_pod_that_somebody_removes_while_the_job_runs_is_the_cause(disruption: str, reason: Reason) -> None:
    status = running(10)
    status["conditions"].append(condition("DisruptionTarget", True, disruption, "they wanted it so", 38))
    leaving = {"deletionTimestamp": stamp(48), "deletionGracePeriodSeconds": 10}
    assert standing(derive(at_work().worker(1, status, **leaving))) == (Phase.FAILED, reason)


def test_a_worker_pod_that_was_deleted_is_lost() -> None:
    leaving = {"deletionTimestamp": stamp(48), "deletionGracePeriodSeconds": 10}
    state = derive(at_work().worker(1, running(10), **leaving))
    assert (*standing(state), state.workers[1].phase) == (Phase.FAILED, Reason.WORKER_LOST, Phase.FAILED)
    assert state.workers[1].message == "worker 1 was deleted"


@pytest.mark.req("SC-005")
def test_a_worker_pod_that_is_gone_while_the_job_runs_is_lost() -> None:
    cluster = at_work()
    del cluster.pods[cluster.name_of("worker", 1)]
    state = derive(cluster)
    assert (*standing(state), state.workers[1].phase) == (Phase.FAILED, Reason.WORKER_LOST, Phase.FAILED)


def test_a_worker_that_is_gone_is_told_by_its_last_event() -> None:
    cluster = at_work()
    name = cluster.name_of("worker", 1)
    del cluster.pods[name]
    cluster.told("Pod", name, "Evicted", "The node was low on resource: ephemeral-storage.", 40)
    state = derive(cluster)
    assert standing(state) == (Phase.FAILED, Reason.WORKER_EVICTED)
    assert "ephemeral-storage" in state.workers[1].message


def test_a_worker_that_the_mpi_operator_made_anew_was_lost() -> None:
    cluster = Cluster(operator=True).workers(running(10)).launcher(running(20))
    cluster.worker(1, running(50), creationTimestamp=stamp(45))
    assert standing(derive(cluster)) == (Phase.FAILED, Reason.WORKER_LOST)


def test_a_node_that_does_not_answer_is_told_while_the_job_still_runs() -> None:
    cluster = at_work().worker(1, running(10) | {"conditions": [condition("Ready", False, at=80)]})
    cluster.pods[cluster.name_of("worker", 1)]["spec"]["nodeName"] = "node-2"
    cluster.told("Pod", cluster.name_of("worker", 1), "NodeNotReady", "Node is not ready", 80)
    state = derive(cluster)
    assert (*standing(state), state.message) == (
        Phase.RUNNING, Reason.WORKER_LOST, "worker 1: node node-2 does not answer",
    )  # fmt: skip


def test_a_failure_whose_pods_are_gone_is_told_with_what_the_engine_says_and_no_invention() -> None:
    text = "jobset failed due to one or more job failures (first failed job: bert-launcher-0)"
    state = derive(Cluster().condition("Failed", reason="FailedJobs", message=text), "")
    assert standing(state) == (Phase.FAILED, Reason.LAUNCHER_UNACCOUNTED)
    assert "the first cause is unknown" in state.message
    assert state.findings[0].code == "UNKNOWN"


def test_the_jobset_says_that_it_failed_before_the_trainjob_does() -> None:
    jobset = {
        "status": {"conditions": [condition("Failed", reason="FailedJobs", message="jobset failed", at=50)]}
    }
    assert derive(Cluster(), "", jobset=jobset).phase is Phase.FAILED


def test_a_batch_job_of_ours_that_failed_is_the_end_although_pods_may_not_be_read() -> None:
    job = {"metadata": {"name": "bert-node-0"}, "status": {"conditions": [condition("Failed", at=50)]}}
    assert derive(Cluster(), "", jobs=[job]).phase is Phase.FAILED
