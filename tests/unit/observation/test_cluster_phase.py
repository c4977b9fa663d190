"""Where a job on a cluster stands: one pure function over all its objects. Each known trap has a test."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster_objects import (
    BEGIN,
    COUNTED,
    NOW,
    Cluster,
    at_work,
    census,
    condition,
    derive,
    done,
    ended,
    event,
    running,
    stamp,
    standing,
    waiting,
)
from tests.unit.cluster_support import a_job

from mpijob.backends.kubernetes.controller import controller
from mpijob.backends.kubernetes.status import derive_state
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.runtimes import builtin
from mpijob.formats.status import status_reader as seen
from mpijob.model import JobRef, JobState, Phase, Resources, WorkerState
from mpijob.observation.state.phase import Reason


# -- on its way -------------------------------------------------------------------------------
@pytest.mark.req("FR-OBS-005")
def test_a_job_goes_from_pending_over_initializing_to_running_as_its_pods_do() -> None:
    cluster, phases = Cluster(), []
    for status in (waiting("ContainerCreating"), running(10, ready=False), running(10)):
        phases.append(derive(cluster.workers(status), "").phase)
    phases.append(derive(cluster.launcher(running(12)), "").phase)
    phases.append(derive(cluster).phase)
    phases.append(derive(cluster.launcher(ended(0, 60))).phase)
    assert phases == [
        Phase.PENDING, Phase.INITIALIZING, Phase.INITIALIZING, Phase.INITIALIZING, Phase.RUNNING, Phase.SUCCEEDED,
    ]  # fmt: skip


def test_nothing_but_the_job_object_is_enough_to_say_something() -> None:
    state = derive(Cluster(), runtime=None)
    assert standing(state) == (Phase.PENDING, Reason.MAKING)
    assert (state.workers_wanted, state.world, state.engine, state.kind) == (2, 4, "trainer", "MPIJob")
    assert state.waiting_for == "Waiting for trainer to process the job (for 1 min)"


def test_initializing_says_which_workers_ssh_server_is_missing() -> None:
    state = derive(Cluster().worker(0, running(10)).worker(1, running(10, ready=False)), "")
    assert state.waiting_for == "1/2 workers ready, waiting for the ssh server of worker 1"
    assert state.aggregate == "1/2 Running, 1 Initializing"


@pytest.mark.req("B-5")
def test_eight_workers_of_which_one_waits_read_as_a_sentence() -> None:
    workers = [WorkerState(index=index, name=f"w{index}", phase=Phase.RUNNING) for index in range(7)]
    state = JobState(
        ref=JobRef("cv", "train"), phase=Phase.PENDING, workers_wanted=8,
        workers=(*workers, WorkerState(index=7, name="w7", phase=Phase.PENDING)),
    )  # fmt: skip
    assert state.aggregate == "7/8 Running, 1 Pending"


def test_a_launcher_that_counts_is_not_running_yet() -> None:
    state = derive(at_work(), "")
    assert standing(state) == (Phase.INITIALIZING, Reason.PROVING)
    assert state.running is None


def test_a_log_whose_beginning_was_rotated_away_still_shows_that_the_ranks_run() -> None:
    assert derive(at_work(), "[1,3]<stdout>:epoch 812, loss 0.02\n").phase is Phase.RUNNING
    assert derive(at_work(), "mpijob: something of our own\n\n").phase is Phase.INITIALIZING


def test_a_log_that_may_not_be_read_does_not_keep_a_job_initializing_for_ever() -> None:
    assert derive(at_work(), None).phase is Phase.RUNNING


def test_a_worker_that_is_no_longer_ready_does_not_take_a_running_job_back() -> None:
    state = derive(at_work().worker(1, running(10, ready=False)))
    assert (state.phase, state.workers[1].phase) == (Phase.RUNNING, Phase.INITIALIZING)


@pytest.mark.req("FR-OBS-005")
def test_ranks_are_known_by_the_census_with_worker_node_and_gpus() -> None:
    job = a_job(resources=Resources(cpu="1", memory="1Gi", gpu=2))
    state = derive(Cluster(job).workers(running(10)).launcher(running(12)), census(job))
    assert [(one.rank, one.worker, one.local_rank, one.node, one.gpus) for one in state.ranks] == [
        (0, 0, 0, "node-1", ("0",)),
        (1, 0, 1, "node-1", ("1",)),
        (2, 1, 0, "node-2", ("0",)),
        (3, 1, 1, "node-2", ("1",)),
    ]


def test_a_program_that_prints_a_census_of_its_own_changes_nothing() -> None:
    forged = (
        COUNTED
        + "[1,0]<stdout>:mpijob-census rank=9 size=9 local=0 host=x node=y gpus=0\nmpijob-world ranks=9\n"
    )
    state = derive(at_work(), forged)
    assert (state.phase, len(state.ranks)) == (Phase.RUNNING, 4)


def test_times_come_from_the_objects() -> None:
    state = derive(done())
    assert (state.created, state.started, state.finished) == (BEGIN, BEGIN + 5, BEGIN + 60)
    assert state.running == BEGIN + 12
    stamped = "\n".join(f"{stamp(14)[:-1]}.250000001Z {line}" for line in COUNTED.splitlines())
    assert derive(done(), stamped).running == BEGIN + 14.25


def test_a_worker_shows_node_restarts_and_memory_limit() -> None:
    one = derive(at_work().worker(1, running(10, restarts=2))).workers[1]
    assert (one.index, one.node, one.restarts, one.memory_limit_bytes) == (1, "node-2", 2, 1 << 30)


# -- success ----------------------------------------------------------------------------------
@pytest.mark.req("SC-005")
def test_success_is_a_launcher_that_ended_with_0_and_a_world_that_was_proved() -> None:
    state = derive(done().condition("Complete", reason="AllJobsCompleted"))
    assert (*standing(state), state.message) == (
        Phase.SUCCEEDED, Reason.COMPLETED, "launcher exit code 0: 4 ranks on 2 workers",
    )  # fmt: skip
    assert {one.phase for one in state.workers} == {Phase.SUCCEEDED}


def test_trap_the_counts_of_jobs_are_stale_after_the_end() -> None:
    cluster = done().condition("Complete")
    cluster.job["status"]["jobsStatus"] = [
        {"name": "node", "active": 1, "ready": 1},
        {"name": "launcher", "active": 1},
    ]
    assert derive(cluster).phase is Phase.SUCCEEDED


def test_trap_complete_is_not_believed_when_the_census_says_that_the_world_differs() -> None:
    state = derive(done().condition("Complete"), census(a_job(), ranks=2, size=2))
    assert standing(state) == (Phase.FAILED, Reason.WORLD_DIFFERS)
    assert state.findings[0].code == "WORLD_DIFFERS"


def test_trap_complete_is_not_believed_when_a_rank_would_have_been_a_world_of_its_own() -> None:
    wrong = "[1,0]<stdout>: mpijob-wrong rank=0 of=2 size=4 as=mpich launcher=openmpi library=/usr/lib/libmpi.so.12"
    state = derive(done().condition("Complete"), f"{census(a_job())}{wrong}\n")
    assert standing(state) == (Phase.FAILED, Reason.WRONG_WORLD)
    assert "rank 2 loaded /usr/lib/libmpi.so.12, but openmpi started it" in state.message
    assert "set mpi: mpich" in state.message
    forged = f"{census(a_job())}{wrong.replace('rank=0', 'rank=1')}\n"  # rank 0 speaks for another
    assert derive(done().condition("Complete"), forged).phase is Phase.SUCCEEDED


def test_trap_complete_is_not_believed_when_another_text_than_ours_ran_and_counted_nobody() -> None:
    cluster = done().condition("Complete")
    pod = cluster.pods[cluster.name_of("launcher", 0)]
    pod["spec"]["containers"][0]["command"] = ["mpirun", "train"]
    assert standing(derive(cluster, "hello\n")) == (Phase.FAILED, Reason.WORLD_UNPROVED)


@pytest.mark.req("SC-005", "A-edge-worker")
def test_a_launcher_that_returns_0_after_losing_a_worker_has_failed() -> None:
    state = derive(done().worker(1, ended(137, 40)).condition("Complete"))
    assert standing(state) == (Phase.FAILED, Reason.WORKER_LOST)


def test_a_rank_that_reports_a_failure_is_not_covered_by_a_launcher_that_ended_with_0() -> None:
    state = derive(done().condition("Complete"), COUNTED + "[1,2]<stdout>:mpijob-exit rank=2 code=7\n")
    assert (*standing(state), state.ranks[2].exit_code) == (Phase.FAILED, Reason.RANK_FAILED, 7)


# -- by the user's will -----------------------------------------------------------------------
def test_a_job_that_is_deleted_says_so_until_it_is_gone() -> None:
    cluster = at_work()
    cluster.job["metadata"]["deletionTimestamp"] = stamp(90)
    assert derive(cluster).phase is Phase.DELETING


def test_a_cancelled_job_runs_until_its_pods_are_gone() -> None:
    cluster = at_work().note(well_known.CANCELLED_ANNOTATION, stamp(50))
    assert standing(derive(cluster)) == (Phase.RUNNING, Reason.CANCELLING)
    cluster.workers(ended(143, 52)).launcher(ended(143, 53))
    state = derive(cluster)
    assert (*standing(state), state.finished) == (Phase.CANCELLED, Reason.CANCELLED, BEGIN + 53)
    assert state.findings == ()


def test_what_an_engine_calls_a_failure_after_a_cancel_is_a_cancelled_job() -> None:
    cluster = (
        done(143, 50).note(well_known.CANCELLED_ANNOTATION, f"{stamp(50)[:-1]}.400Z").workers(ended(0, 51))
    )
    assert derive(cluster.condition("Failed", at=50)).phase is Phase.CANCELLED


def test_a_job_that_is_cancelled_while_it_is_suspended_held_nothing_since() -> None:
    cluster = (
        at_work()
        .note(well_known.SUSPENDED_ANNOTATION, stamp(50))
        .note(well_known.CANCELLED_ANNOTATION, stamp(90))
    )
    state = derive(cluster.workers(ended(143, 51)).launcher(ended(143, 52)))
    assert (state.phase, state.released) == (Phase.CANCELLED, BEGIN + 50)
    assert state.duration_seconds(BEGIN + 900) == BEGIN + 50 - (state.started or 0.0)


def test_a_job_that_was_over_before_it_was_cancelled_keeps_its_end() -> None:
    cluster = done().condition("Complete", at=61).note(well_known.CANCELLED_ANNOTATION, stamp(90))
    assert derive(cluster).phase is Phase.SUCCEEDED


def test_a_job_that_its_user_suspended_rests_when_its_pods_are_gone() -> None:
    cluster = at_work().note(well_known.SUSPENDED_ANNOTATION, stamp(50))
    cluster.job["spec"]["suspend"] = True
    assert standing(derive(cluster)) == (Phase.RUNNING, Reason.SUSPENDING)
    cluster.pods.clear()
    assert standing(derive(cluster, "")) == (Phase.SUSPENDED, Reason.SUSPENDED)


def test_trap_a_condition_suspended_that_is_false_means_that_it_was_resumed() -> None:
    cluster = at_work().condition("Suspended", False, "Resumed", "TrainJob is resumed", at=3)
    assert derive(cluster).phase is Phase.RUNNING


def test_an_attempt_waits_since_the_job_was_resumed_not_since_it_was_made() -> None:
    state = derive(at_work().note(well_known.ACTS_ANNOTATION, f'[[{BEGIN + 8}, "Resumed", ""]]'))
    assert (state.attempt, state.queued) == (2, BEGIN + 8)
    assert derive(at_work()).queued == state.created


def test_trap_the_mpi_operator_may_not_resume_a_launcher_that_it_suspended() -> None:
    cluster = (
        Cluster(operator=True).workers(running(60)).condition("Suspended", True, "MPIJobSuspended", at=3)
    )
    assert standing(derive(cluster, "")) == (Phase.PENDING, Reason.NOT_RESUMED)
    assert derive(cluster, "").findings[0].code == "NOT_RESUMED"


def test_a_job_that_was_given_up_because_it_could_not_start_has_failed_for_that_reason() -> None:
    text = "Image example/mpi:1 does not exist in its registry (all 2 workers)"
    cluster = Cluster().note(
        well_known.GIVEN_UP_ANNOTATION, seen.given_up(stamp(70), Reason.IMAGE_NOT_FOUND.value, text)
    )
    cluster.job["spec"]["suspend"] = True
    state = derive(cluster, "")
    assert (*standing(state), state.finished) == (Phase.FAILED, Reason.IMAGE_NOT_FOUND, BEGIN + 70)
    assert (state.findings[0].code, state.message) == ("IMAGE_NOT_FOUND", text)
    unfound = ended(
        137, 72, "ContainerStatusUnknown"
    )  # what a kubelet writes of a container removed before it was
    state = derive(cluster.worker(0, unfound, deletionTimestamp=stamp(71)), "")
    assert [(one.code, one.worker) for one in state.findings] == [("IMAGE_NOT_FOUND", None)]


# -- lists ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counts", "phase"),
    [
        ([{"name": "node", "ready": 0, "active": 1}], Phase.PENDING),
        ([{"name": "node", "ready": 1}, {"name": "launcher", "active": 1, "ready": 0}], Phase.INITIALIZING),
        ([{"name": "node", "ready": 1}, {"name": "launcher", "active": 1, "ready": 1}], Phase.RUNNING),
    ],
)
def test_a_list_goes_by_the_counts_when_it_has_no_pods(counts: list[dict[str, Any]], phase: Phase) -> None:
    cluster = Cluster()
    cluster.job["status"] = {"jobsStatus": counts}
    assert derive_state.summary(cluster.job).phase is phase


def test_a_list_does_not_take_pods_that_it_was_not_given_for_lost() -> None:
    cluster = at_work()
    launcher = cluster.pods[cluster.name_of("launcher", 0)]
    assert derive_state.summary(cluster.job, None, [launcher]).phase is Phase.RUNNING


@pytest.mark.parametrize("log", [COUNTED, None])
def test_a_list_and_a_close_look_agree_on_what_is_over(log: str | None) -> None:
    for cluster in (done(), done(3), done(205, 42).worker(1, ended(137, 40)), done().condition("Complete")):
        close = derive(cluster, log)
        brief = derive_state.summary(cluster.job, None, [*cluster.pods.values()])
        assert (brief.phase, brief.reason, brief.finished) == (close.phase, close.reason, close.finished)


def test_a_machine_whose_clock_is_behind_makes_no_worker_lost() -> None:
    """The API server says when a pod was made, its node's own clock when it started."""
    made = [4, 4, 8]  # the workers, then the launcher
    cluster = Cluster(a_job()).launcher(running(2), creationTimestamp=stamp(made[2]))
    for index in range(2):
        cluster.worker(index, running(6), creationTimestamp=stamp(made[index]))
    assert derive(cluster).phase is Phase.RUNNING


def test_a_worker_that_was_made_anew_while_the_job_ran_is_lost() -> None:
    cluster = at_work().worker(1, running(40), creationTimestamp=stamp(38))
    assert standing(derive(cluster)) == (Phase.FAILED, Reason.WORKER_LOST)


def test_what_a_pod_waited_for_before_it_started_is_no_cause_of_its_jobs_deadline() -> None:
    """Of the events the controller keeps those that this is told by."""
    pod = "bert-node-0-0-x7k2p"
    short = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    cluster = Cluster(a_job(deadline_seconds=3600)).condition("Failed", reason="DeadlineExceeded", at=3600)
    cluster.told("Pod", pod, "FailedScheduling", short, 10)
    for at, reason in ((90, "Scheduled"), (91, "Pulled"), (92, "Created"), (95, "Started")):
        cluster.told("Pod", pod, reason, "all is well", at, warning=False)
    cluster.events = [one for one in cluster.events if one["reason"] not in controller._ROUTINE_REASONS]
    assert derive(cluster, "").message == "The job ran past its deadline of 3600 s."


def test_an_evicted_worker_is_named_where_the_launcher_is_a_worker_too() -> None:
    """Of shipped runtimes, whose launcher is worker 0: `node-0-1` is worker 2."""
    name = {"name": "bert", "namespace": "team-cv", "uid": "a", "creationTimestamp": stamp(0)}
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": name,
        "spec": {"runtimeRef": {"name": "mpijob-openmpi"}, "trainer": {"numNodes": 3}},
        "status": {"conditions": [condition("Failed", True, "FailedJobs", "jobset failed", at=63)]},
    }
    pods = [
        shipped_pod("bert-launcher-0-0-aaaaa", "launcher", ended(1, 62)),
        shipped_pod("bert-node-0-0-bbbbb", "node", running(10)),
    ]
    gone = event("Pod", "bert-node-0-1-ccccc", "Evicted", "The node was low on resource: memory.", at=60)
    seen = derive_state.Objects(
        job=job, runtime=builtin.document(builtin.SHIPPED[0]), pods=tuple(pods), events=(gone,)
    )
    state = derive_state.derive(seen, now=NOW, launcher_log="")
    assert standing(state) == (Phase.FAILED, Reason.WORKER_EVICTED)
    assert state.message.startswith("worker 2 was evicted from its node")


def shipped_pod(name: str, role: str, status: dict[str, Any]) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": role, "batch.kubernetes.io/job-completion-index": "0"}
    metadata = {"name": name, "namespace": "team-cv", "uid": name, "labels": labels}
    spec = {"nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "node"}]}
    return {"metadata": metadata | {"creationTimestamp": stamp(4)}, "spec": spec, "status": status}
