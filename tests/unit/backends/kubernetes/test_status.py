"""Events, logs and lists of cluster jobs, from their objects."""

from __future__ import annotations

import pytest
from tests.unit.cluster_objects import (
    BEGIN,
    COUNTED,
    Cluster,
    at_work,
    census,
    derive,
    done,
    ended,
    running,
    stamp,
)
from tests.unit.cluster_support import a_job
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.backends.kubernetes.status import derive_state, launcher_log, list_jobs, timeline
from mpijob.backends.kubernetes.submit import retry
from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.model import Family, LogLine, LogQuery, MPIJob, Phase, Retry, Role, Scope

SERVED = frozenset({resources.TRAINER_API, resources.MPI_OPERATOR_API, resources.OLDER_API})


def stamped(*lines: str) -> bytes:
    """Return lines as the kubelet gives them, one second apart."""
    return "".join(f"2026-11-15T00:00:{i:02}.000000000Z {line}\n" for i, line in enumerate(lines)).encode()


def voice(role: Role = Role.LAUNCHER, worker: int | None = None) -> pod_logs.PodLogSource:
    return pod_logs.PodLogSource("cv", "pod", "node", role, worker, 1, Family.OPENMPI, True)


def read(reader: pod_logs.Reader, log: bytes) -> list[LogLine]:
    return [line for raw in log.splitlines(keepends=True) for line in reader.read(raw)]


# -- logs -----------------------------------------------------------------------------------------
def test_the_launchers_log_becomes_the_ranks_lines_with_their_workers() -> None:
    log = stamped(
        "mpijob-census rank=0 size=2 local=0 host=bert-node-0-0 node=n gpus=0",
        "mpijob-census rank=1 size=2 local=0 host=bert-node-0-1 node=n gpus=0",
        "mpijob-world ranks=2 gap=1",
        "[1,1]<stdout>: hello",
        "mpirun is done",
    )
    lines = read(pod_logs.Reader(voice(), {}), log)
    assert [(line.source, line.worker, line.text) for line in lines] == [
        ("Rank-1", 1, b"hello"),
        ("Launcher", None, b"mpirun is done"),
    ]
    assert lines[1].time - lines[0].time == 1_000_000_000


def test_a_workers_own_log_is_the_workers() -> None:
    (line,) = read(pod_logs.Reader(voice(Role.WORKER, 3), {}), stamped("sshd says no"))
    assert (line.source, line.text) == ("Worker-3", b"sshd says no")


def test_a_pod_counts_once_it_has_started() -> None:
    cluster = (
        Cluster().workers({"phase": "Pending", "conditions": []}).launcher(done().pods.popitem()[1]["status"])
    )
    found = pod_logs.log_sources([*cluster.pods.values()], attempt=2, family=Family.MPICH, tagged=True,
                        index_of=derive_state.worker_index)  # fmt: skip
    assert [(one.role, one.attempt, one.worker) for one in found] == [(Role.LAUNCHER, 2, None)]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (LogQuery(), (True, True)),
        (LogQuery(ranks=(1,)), (True, False)),
        (LogQuery(roles=(Role.RANK,)), (True, False)),
        (LogQuery(roles=(Role.WORKER,)), (False, True)),
        (LogQuery(attempt=2), (False, False)),
    ],
)
def test_pods_that_cannot_hold_a_wanted_line_are_not_read(query: LogQuery, wanted: tuple[bool, bool]) -> None:
    assert (pod_logs.is_wanted(voice(), query), pod_logs.is_wanted(voice(Role.WORKER, 0), query)) == wanted


def test_the_two_ends_of_a_launchers_log_are_enough_for_its_state() -> None:
    cluster = at_work()
    name = next(name for name in cluster.pods if "launcher" in name)
    api = Store()
    api.logs[resources.POD.path(cluster.spec.namespace, name, "log")] = stamped(*COUNTED.splitlines(), "more")
    log = launcher_log.read(api, [*cluster.pods.values()], [])
    assert log.proved is not None
    assert log.text is not None
    assert log.text.splitlines()[-1].endswith("Z more")
    assert launcher_log.read(api, [], []) == launcher_log.LauncherLog()


def a_long_log(job: MPIJob, first: int) -> bytes:
    """Return what a launcher says of a long job in which one rank fails, and then, at greater length, all others."""
    steps = [f"[1,{step % job.world}]<stdout>:step {step} loss=0.3 {'x' * 40}" for step in range(4000)]
    lines = [*census(job).splitlines(), *steps, f"[1,{first}]<stderr>:ValueError: bad batch"]
    for rank in (first, *(rank for rank in range(job.world) if rank != first)):
        lines += [f'[1,{rank}]<stderr>:  File "train.py", line {line}' for line in range(20)]
        lines += [f"[1,{rank}]<stdout>:mpijob-exit rank={rank} code=1"]
    stamps = (f"2026-11-15T00:00:{i // 1000:02}.{i % 1000:03}000000Z" for i in range(len(lines)))
    return "".join(f"{stamp} {line}\n" for stamp, line in zip(stamps, lines, strict=True)).encode()


@pytest.mark.thorough
def test_the_rank_that_failed_first_is_found_behind_the_tracebacks_of_all_others() -> None:
    job, api = a_job(workers=4, slots=8), Store()
    cluster = Cluster(job).workers(running(10)).launcher(ended(1, 60, began=12))
    cluster.condition("Failed", True, "FailedJobs", "x", at=61)
    whole = a_long_log(job, 5)
    api.logs[resources.POD.path(job.namespace, cluster.name_of("launcher", 0), "log")] = whole
    log = launcher_log.read(api, [*cluster.pods.values()], [])
    assert log.text == whole.decode().rstrip("\n")
    assert derive(cluster, log.text).message == (
        "Rank 5 on worker 0 failed with an exception: ValueError: bad batch"
    )


def test_of_a_failure_behind_more_than_can_be_read_the_last_lines_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launcher_log, "FAILED_BYTES", 100_000)
    job, api = a_job(workers=4, slots=8), Store()
    cluster = Cluster(job).launcher(ended(1, 60, began=12))
    whole = a_long_log(job, 5)
    api.logs[resources.POD.path(job.namespace, cluster.name_of("launcher", 0), "log")] = whole
    text = launcher_log.read(api, [*cluster.pods.values()], []).text or ""
    assert (
        text.splitlines()[-launcher_log.TAIL_LINES :]
        == whole.decode().splitlines()[-launcher_log.TAIL_LINES :]
    )
    assert {*text.splitlines()} <= {*whole.decode().splitlines()}  # no half lines


def test_the_log_of_a_launcher_that_runs_is_read_at_its_ends_only() -> None:
    job, api = a_job(workers=4, slots=8), Store()
    cluster = at_work(workers=4, slots=8)
    path = resources.POD.path(job.namespace, cluster.name_of("launcher", 0), "log")
    api.logs[path] = a_long_log(job, 5)
    text = launcher_log.read(api, [*cluster.pods.values()], []).text or ""
    assert len(text) < launcher_log.HEAD_BYTES + launcher_log.TAIL_LINES * 200
    assert api.asked == [("GET", path)] * 2


def test_of_two_launchers_the_one_of_before_a_resumption_is_not_heard() -> None:
    cluster, api = at_work(), Store()
    name = next(name for name in cluster.pods if "launcher" in name)
    going = {"name": "bert-launcher-0-0-aaaaa", "deletionTimestamp": stamp(640)}
    before = cluster.pods[name] | {"metadata": cluster.pods[name]["metadata"] | going}
    for pod, text in ((going["name"], COUNTED), (name, "new")):
        api.logs[resources.POD.path(cluster.spec.namespace, pod, "log")] = stamped(*text.splitlines())
    for made in (4, 60):
        cluster.pods[name]["metadata"]["creationTimestamp"] = stamp(made)
        log = launcher_log.read(api, [before, *cluster.pods.values()], [])
        assert (log.proved, (log.text or "").endswith("Z new")) == (None, True)


# -- events ---------------------------------------------------------------------------------------
def test_the_story_of_a_job_is_told_in_order() -> None:
    cluster = done()
    cluster.condition("Complete", at=62)
    cluster.pods[cluster.name_of("launcher", 0)]["metadata"]["creationTimestamp"] = stamp(11)
    cluster.told("Pod", "bert-node-0-0-x", "Pulled", "image was there", at=8, warning=False)
    cluster.told("Job", "bert-node-0", "Suspended", "Job suspended", at=1, warning=False)
    told = timeline.numbered(timeline.events(cluster.seen(), derive(cluster), BEGIN + 14.5))
    reasons = [event.reason for event in told]
    milestones = ["Submitted", "GangScheduled", "WorkersReady", "WorldProved", "Running", "Succeeded"]
    assert [reason for reason in reasons if reason in milestones] == milestones
    assert "Pulled" in reasons
    assert "Suspended" not in reasons
    assert [event.sequence for event in told] == [*range(1, len(told) + 1)]


def test_a_job_that_ends_in_the_second_in_which_it_began_to_run_ends_last() -> None:
    cluster = done()
    state = derive(cluster)
    assert state.finished is not None
    proved = state.finished + 0.4  # a pod's own times have no parts of a second
    told = timeline.events(cluster.seen(), state, proved)
    assert [event.reason for event in told][-3:] == ["WorldProved", "Running", "Succeeded"]
    assert told[-1].time == proved


def test_events_of_an_earlier_job_of_the_same_name_are_not_part_of_its_story() -> None:
    cluster = done()
    cluster.told("JobSet", "bert", "SuccessfulCreate", "an earlier one's", at=-60, warning=False)
    cluster.told("JobSet", "bert", "AllJobsCompleted", "its own", at=9, warning=False)
    told = timeline.events(cluster.seen(), derive(cluster), BEGIN + 14.5)
    assert told[0].reason == "Submitted"
    assert [event.message for event in told if "JobSet" in event.message] == ["JobSet bert: its own"]


def test_what_was_done_to_a_job_is_part_of_its_story() -> None:
    cluster = at_work().note(
        well_known.ACTS_ANNOTATION,
        user_actions.written([user_actions.UserAction(BEGIN + 20.0, "Suspended", "by jane")]),
    )
    told = timeline.events(cluster.seen(), derive(cluster), None)
    assert ("Suspended", "by jane") in [(event.reason, event.message) for event in told]


# -- attempts -------------------------------------------------------------------------------------
def tried(limit: int, attempt: int = 1) -> tuple[bool, MPIJob]:
    cluster = done(3)
    state = derive(cluster, census(a_job()))
    assert state.phase is Phase.FAILED
    job = cluster.spec.replace(retry=Retry(limit=limit, backoff_seconds=30.0))
    return retry.may_follow(state, job), job


def test_a_failed_attempt_is_followed_as_often_as_the_job_says() -> None:
    assert tried(1)[0]
    assert not tried(0)[0]


def test_between_two_attempts_a_job_is_queued_and_says_when() -> None:
    state, job = derive(done(3), census(a_job())), tried(1)[1]
    finished = state.finished or 0.0
    waits = retry.waiting(state, job, finished + 10)
    assert (waits.phase, waits.finished) == (Phase.QUEUED, None)
    assert "is due in 20 s" in waits.message
    assert retry.due(state, job) == finished + 30


# -- lists ----------------------------------------------------------------------------------------
def many(count: int) -> Store:
    api = Store()
    for index in range(count):
        cluster = Cluster(a_job(name=f"job-{index}"))
        cluster.job["metadata"] |= {
            "uid": f"uid-{index}",
            "creationTimestamp": f"2026-11-15T00:00:{index:02}Z",
        }
        cluster.job["metadata"]["labels"][well_known.UID_LABEL] = f"u-{index}"
        api.objects[resources.TRAINJOB.path(cluster.spec.namespace, f"job-{index}")] = cluster.job
    return api


def test_a_list_is_newest_first_and_comes_in_pages() -> None:
    api, scope = many(5), Scope(namespace=a_job().namespace, limit=2)
    first = list_jobs.page(api, scope, SERVED)
    second = list_jobs.page(api, Scope(namespace=scope.namespace, limit=2, after=first.after), SERVED)
    names = [[state.ref.name for state in page.items] for page in (first, second)]
    assert names == [["job-4", "job-3"], ["job-2", "job-1"]]
    assert first.total == 5


def test_a_place_in_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidJob, match="not a valid continue token"):
        list_jobs.page(many(1), Scope(namespace=a_job().namespace, after="x"), SERVED)


def test_the_newest_attempt_stands_for_its_job() -> None:
    api = many(1)
    namespace = a_job().namespace
    again = Cluster(a_job(name="job-0"))
    again.job["metadata"] |= {"name": "job-0-a2", "uid": "x", "creationTimestamp": "2026-11-15T00:01:00Z"}
    again.job["metadata"]["labels"] |= {well_known.UID_LABEL: "u-0", well_known.ATTEMPT_LABEL: "2"}
    api.objects[resources.TRAINJOB.path(namespace, "job-0-a2")] = again.job
    (state,) = list_jobs.page(api, Scope(namespace=namespace), SERVED).items
    assert (state.ref.name, state.attempt) == ("job-0", 2)


def test_other_peoples_jobs_are_in_the_list() -> None:
    api = Store()
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [{}]}}}}}
    metadata = {"name": "theirs", "namespace": "cv", "uid": "t", "creationTimestamp": "2026-11-15T00:00:00Z"}
    status = {"conditions": [{"type": "Running", "status": "True"}]}
    pytorch = next(kind for kind in resources.OLDER if kind.name == "PyTorchJob")
    api.objects[pytorch.path("cv", "theirs")] = {"metadata": metadata, "spec": spec, "status": status}
    (state,) = list_jobs.page(api, Scope(namespace="cv"), SERVED).items
    assert (state.ref.name, state.kind, state.phase) == ("theirs", "PyTorchJob", Phase.RUNNING)
