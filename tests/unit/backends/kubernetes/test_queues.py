"""When Kueue will admit each job that waits, from what a user or the broker can read of its queues."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.backends.kubernetes.test_broker import GPU, Cluster, _stamp
from tests.unit.preflight_support import NAMESPACE, SERVED, a_cluster_queue, a_queue

from mpijob.backends.kubernetes.client import resources as kinds
from mpijob.backends.kubernetes.client.api import ApiError
from mpijob.backends.kubernetes.queues import collect, live
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.history import account_store
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader
from mpijob.model import JobRef, Phase
from mpijob.model.status.accounts import Account

pytestmark = pytest.mark.req("FR-RES-005")
WITH_VISIBILITY = frozenset(SERVED) | {kinds.VISIBILITY_API}


class Queues(Cluster):
    """A ClusterQueue of 8 GPUs that two namespaces share; jobs are Workloads with an owner."""

    def __init__(self, strategy: str = "BestEffortFIFO", taken: int = 8) -> None:
        super().__init__()
        a_queue(self, "main", "shared")
        self.put(kinds.LOCAL_QUEUE, "main", namespace="others", spec={"clusterQueue": "shared"}, status={})
        a_cluster_queue(self, "shared", {GPU: "8"}, {GPU: str(taken)})
        queue = self.objects[kinds.CLUSTER_QUEUE.path("", "shared")]
        queue["spec"]["queueingStrategy"] = strategy
        self.clock = time.time()

    def now(self) -> float:
        return self.clock

    def job(
        self, name: str, gpus: int, *, age: float = 0.0, runs: float | None = None, ran: float | None = None,
        namespace: str = NAMESPACE, priority: int = 0, image: str = "train:1", deadline: int | None = None,
        short: int = 0, program: str = "",
    ) -> None:  # fmt: skip
        """Add a job: `runs` since so many seconds, `ran` for so many, else it waits."""
        marks: dict[str, float | None] = {"QuotaReserved": None, "Admitted": None, "Finished": None}
        if runs is not None:
            marks |= dict.fromkeys(("QuotaReserved", "Admitted"), self.clock - runs)
        if ran is not None:
            end = self.clock - 1000.0
            marks |= {"QuotaReserved": end - ran, "Admitted": end - ran, "Finished": end}
        conditions: list[dict[str, Any]] = [
            {"type": kind, "status": "True", "lastTransitionTime": _stamp(at)}
            for kind, at in marks.items()
            if at is not None
        ]
        if runs is None and ran is None and short:
            said = (
                f"couldn't assign flavors to pod set node: insufficient unused quota for {GPU} in flavor f, "
            )
            conditions.append(
                {"type": "QuotaReserved", "status": "False", "message": f"{said}{short} more needed"}
            )
        container = {"name": "node", "image": image, "resources": {"requests": {GPU: str(gpus)}}}
        workload = f"trainjob-{name}-aaaaa"
        pods = {"name": "node", "count": 1, "template": {"spec": {"containers": [container]}}}
        self.put(
            kinds.WORKLOAD,
            workload,
            namespace=namespace,
            labels={"kueue.x-k8s.io/job-uid": f"uid-{name}"},
            spec={"queueName": "main", "priority": priority, "podSets": [pods]},
            status={"conditions": conditions},
        )
        created = {"uid": f"w-{name}", "creationTimestamp": _stamp(self.clock - age)}
        self.objects[kinds.WORKLOAD.path(namespace, workload)]["metadata"] |= created
        labels = {well_known.PROGRAM_LABEL: program} if program else {}
        spec = {} if deadline is None else {"activeDeadlineSeconds": deadline}
        self.put(kinds.TRAINJOB, name, namespace=namespace, labels=labels, spec=spec)
        self.objects[kinds.TRAINJOB.path(namespace, name)]["metadata"]["uid"] = f"uid-{name}"

    def pending(self, *names: str, cluster_wide: bool = True) -> None:
        """Let Kueue's visibility API tell its order."""
        items = [
            {"metadata": {"ownerReferences": [{"uid": f"uid-{name}"}]}, "positionInClusterQueue": at}
            for at, name in enumerate(names)
            if name
        ]
        whole = {"metadata": {}, "items": items}
        own = kinds.PENDING.path(NAMESPACE, "main", "pendingworkloads")
        of_cluster = kinds.PENDING_OF_CLUSTER.path("", "shared", "pendingworkloads")
        self.objects[of_cluster if cluster_wide else own] = whole


def told(api: Queues, served: frozenset[str] = frozenset(SERVED), **more: Any) -> dict[str, Any]:
    found = live.read_queues(api, NAMESPACE, served, **more)
    return {owner.removeprefix("uid-"): one for owner, one in found.items()}


def test_a_job_waits_for_the_rest_of_who_runs_by_earlier_runs_of_the_same_containers() -> None:
    api = Queues()
    api.job("past", 8, ran=600.0)
    api.job("runs", 8, runs=200.0)
    api.job("next", 4, age=60.0)
    found = told(api)["next"]
    assert (found.position, round(found.seconds or 0)) == (1, 400)
    assert found.basis == "1 job running, estimated from 1 earlier run of the same programs"


def test_other_programs_time_a_job_only_when_a_few_of_them_have_ended() -> None:
    api = Queues()
    for at in range(2):
        api.job(f"past-{at}", 1, ran=600.0, image="other:1")
    api.job("runs", 8, runs=200.0)
    api.job("next", 4)
    found = told(api)["next"]
    assert (found.seconds, found.span) == (None, None)
    assert found.basis == "1 job running, with no deadline and no earlier run"
    api.job("past-2", 1, ran=600.0, image="other:2")
    assert round(told(api)["next"].seconds or 0) == 400


def test_a_deadline_is_the_bound_where_nothing_else_is_known() -> None:
    api = Queues()
    api.job("runs", 8, runs=200.0, deadline=900)
    api.job("next", 4)
    found = told(api)["next"]
    assert (found.seconds, found.span and round(found.span[1])) == (None, 700)


def test_priority_and_age_make_the_order_where_kueue_does_not_tell_its_own() -> None:
    api = Queues()
    api.job("past", 8, ran=100.0)
    api.job("runs", 8, runs=0.0)
    for name, age, priority in (("old", 90.0, 0), ("young", 10.0, 0), ("urgent", 1.0, 5)):
        api.job(name, 8, age=age, priority=priority)
    found = told(api)
    assert {name: (one.position, round(one.seconds)) for name, one in found.items()} == {
        "urgent": (1, 100), "old": (2, 200), "young": (3, 300),
    }  # fmt: skip


def test_kueues_own_order_counts_where_its_visibility_api_answers() -> None:
    api = Queues()
    api.job("past", 8, ran=100.0)
    api.job("runs", 8, runs=0.0)
    api.job("old", 8, age=90.0)
    api.job("young", 8, age=10.0)
    api.pending("young", "old")
    assert {name: one.position for name, one in told(api, WITH_VISIBILITY).items()} == {"young": 1, "old": 2}


@pytest.mark.parametrize(("strategy", "seconds"), [("StrictFIFO", 100), ("BestEffortFIFO", 0)])
def test_a_small_job_overtakes_a_large_one_only_where_the_queue_lets_it(strategy: str, seconds: int) -> None:
    api = Queues(strategy, taken=6)
    api.job("past", 6, ran=100.0)
    api.job("runs", 6, runs=0.0)
    api.job("large", 8, age=90.0)
    api.job("small", 2, age=10.0)
    api.job("past-small", 2, ran=30.0)
    found = told(api)["small"]
    assert found.position == 2
    assert round(found.seconds or 0) >= seconds
    assert (found.seconds == 0) == (seconds == 0)


def test_who_may_not_read_the_quota_is_told_by_what_kueue_found_missing() -> None:
    api = Queues()
    api.refuse(kinds.CLUSTER_QUEUE)
    api.job("past", 8, ran=600.0)
    api.job("runs", 8, runs=200.0)
    api.job("next", 4)
    assert told(api)["next"].basis == "the queue's quota cannot be read, so the start time is unknown"
    api.job("next", 4, short=4)
    assert round(told(api)["next"].seconds or 0) == 400


def test_jobs_ahead_that_cannot_be_seen_leave_a_place_and_no_number() -> None:
    api = Queues()
    api.job("past", 8, ran=600.0)
    api.job("runs", 8, runs=200.0)
    api.job("next", 4)
    api.pending("", "", "next", cluster_wide=False)
    found = told(api, WITH_VISIBILITY)["next"]
    assert (found.position, found.seconds, found.span) == (3, None, None)
    assert found.basis == "2 jobs before it cannot be seen, so the start time is unknown"


def test_a_job_that_kueue_can_never_admit_has_no_place() -> None:
    api = Queues()
    api.job("huge", 4)
    workload = api.objects[kinds.WORKLOAD.path(NAMESPACE, "trainjob-huge-aaaaa")]
    never = f"insufficient quota for {GPU} in flavor f, request > maximum capacity (64 > 8)"
    said = f"couldn't assign flavors to pod set node: {never}"
    workload["status"]["conditions"] = [{"type": "QuotaReserved", "status": "False", "message": said}]
    assert told(api) == {}


def test_the_record_tells_how_long_a_program_ran_whose_workloads_are_gone(tmp_path: Any) -> None:
    archive = Archive(str(tmp_path))
    for at, workers in enumerate((1, 1, 64)):
        account = Account(
            ref=JobRef(NAMESPACE, f"past-{at}", f"u{at}"), phase=Phase.SUCCEEDED, program="p", workers=workers,
            created=float(at), started=100.0, ended=100.0 + 500.0 * workers,
        )  # fmt: skip
        with archive.transaction() as db:
            account_store.save_account(db, account)
    api = Queues()
    api.job("runs", 8, runs=200.0, program="p")
    api.job("next", 4)
    found = told(api, history=live.of_record(ArchiveReader(archive), NAMESPACE))["next"]
    assert (round(found.seconds or 0), found.basis) == (
        300, "1 job running, estimated from 2 earlier runs of the same programs",
    )  # fmt: skip
    other = told(api, history=live.of_record(ArchiveReader(archive), "another"))["next"]
    assert other.seconds is None


def test_a_cluster_without_queues_tells_nothing() -> None:
    api = Queues()
    api.objects = {path: one for path, one in api.objects.items() if "localqueues" not in path}
    assert told(api) == {}
    assert collect.queues(api, NAMESPACE, frozenset(SERVED)) == ()


def test_a_kueue_that_does_not_answer_hides_no_job() -> None:
    class Broken(Queues):
        def get(self, path: str, **query: Any) -> Any:
            if "pendingworkloads" in path:
                raise ApiError("the server is currently unable to handle the request", status=503)
            return super().get(path, **query)

    api = Broken()
    api.job("past", 8, ran=600.0)
    api.job("runs", 8, runs=200.0)
    api.job("next", 4)
    assert round(told(api, WITH_VISIBILITY)["next"].seconds or 0) == 400
