"""The fit broker: who is answered, what they are told, and that nothing of others' jobs is among it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.unit.api_support import served as api_served
from tests.unit.preflight_support import (
    JANE,
    NAMESPACE,
    SERVED,
    FakeApi,
    a_cluster_queue,
    a_job,
    a_node,
    a_queue,
    gathered,
)

from mpijob.admission.fit import fit
from mpijob.admission.queue_reason import format_start
from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.auth.token_access import SUBJECT_REVIEW, TOKEN_REVIEW, Tokens, Unauthenticated
from mpijob.backends.kubernetes.broker import client
from mpijob.backends.kubernetes.broker.server import MAX_BYTES, Server, answer
from mpijob.backends.kubernetes.broker.service import Broker
from mpijob.backends.kubernetes.client import resources as kinds
from mpijob.errors import InvalidJob, NotAllowed
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import Amounts, Facts, MPIJob, Resources
from mpijob.model.platform.fit import Fit, Verdict
from mpijob.settings import Settings

pytestmark = pytest.mark.req("FR-RES-001", "FR-RES-005")
GPU = "nvidia.com/gpu"
TOKEN = "canary-token-of-jane"


class Cluster(FakeApi):
    """A cluster that reviews tokens and rights, too."""

    def __init__(self) -> None:
        super().__init__()
        self.users = {TOKEN: "jane"}
        self.may = {("jane", NAMESPACE)}
        groups = [{"versions": [{"groupVersion": version}]} for version in SERVED]
        self.objects["/apis"] = {"groups": groups}

    def now(self) -> float:
        return time.time()

    def create(self, path: str, body: Mapping[str, Any], **more: Any) -> Document:
        if path == TOKEN_REVIEW.path():
            user = self.users.get(body["spec"]["token"])
            return {"status": {"authenticated": user is not None, "user": {"username": user}}}
        if path == SUBJECT_REVIEW.path():
            spec = body["spec"]
            asked = (spec.get("nonResourceAttributes") or {}).get("path")
            place = asked or spec["resourceAttributes"]["namespace"]
            return {"status": {"allowed": (spec["user"], place) in self.may}}
        return super().create(path, body, **more)

    def workload(
        self, name: str, gpus: int, *, admitted: float | None = None, finished: float | None = None,
        priority: int = 0, queue: str = "main", namespace: str = "others",
    ) -> None:  # fmt: skip
        marks = {"Admitted": admitted, "Finished": finished, "QuotaReserved": admitted}
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": _stamp(at)}
            for kind, at in marks.items()
            if at is not None
        ]
        container = {"name": "n", "resources": {"requests": {GPU: str(gpus)}}}
        pods = {"count": 1, "template": {"spec": {"containers": [container]}}}
        self.put(
            kinds.WORKLOAD, name, namespace=namespace,
            spec={"queueName": queue, "priority": priority, "podSets": [pods]},
            status={"conditions": conditions},
        )  # fmt: skip


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


@pytest.fixture
def cluster() -> Cluster:
    """Four machines with eight GPUs, a queue of 24 for two namespaces."""
    made = Cluster()
    for number in range(4):
        a_node(made, f"gpu-{number}", gpus=8)
    a_queue(made, "main", "shared")
    made.put(kinds.LOCAL_QUEUE, "main", namespace="others", spec={"clusterQueue": "shared"}, status={})
    quotas = {GPU: "24", "cpu": "100", "memory": "400Gi"}
    a_cluster_queue(made, "shared", quotas, {GPU: "16", "cpu": "2", "memory": "2Gi"})
    return made


def wanting(gpus: int, workers: int = 2, **fields: Any) -> MPIJob:
    resources = Resources(cpu="1", memory="1Gi", gpu=gpus)
    return a_job(workers=workers, queue="main", resources=resources, **fields)


def asked(cluster: Cluster, job: MPIJob) -> Fit:
    return answer(Broker(cluster, Settings(), "cluster test"), TOKEN, job).fit


def test_a_job_that_fits_now_is_told_so(cluster: Cluster) -> None:
    found = asked(cluster, wanting(4))
    assert (found.verdict, found.message) == (Verdict.NOW, "Fits now: 2 workers would start")
    assert found.starts_now == 2


def test_a_job_that_waits_is_told_for_what_and_what_would_start(cluster: Cluster) -> None:
    found = asked(cluster, wanting(4, workers=4))
    assert found.verdict is Verdict.WAITS
    assert "Waiting for 8 GPUs" in found.message
    assert (found.starts_now, found.hint) == (2, "2 workers of this size would start now")
    assert found.wait_range is None
    assert "unknown time" in found.message


@pytest.mark.parametrize(
    ("guess", "span", "told"),
    [
        (None, None, "at an unknown time"),
        (16.0, None, "within 16 seconds"),
        (600.0, None, "in about 10 minutes"),
        (9000.0, None, "in about 2.5 hours"),
        (16.0, (300.0, 600.0), "in 5 to 10 minutes"),
        (None, (0.0, 120.0), "within 2 minutes"),
    ],
)
def test_when_it_may_start_is_told_by_a_range_or_by_one_number(
    guess: float | None, span: tuple[float, float] | None, told: str
) -> None:
    none = Amounts()
    facts = Facts(
        place="here", capacity=none, free=none, wait_estimate_seconds=guess, wait_range_seconds=span
    )
    assert format_start(facts) == f"may start {told}"


def test_a_job_that_can_never_fit_is_told_with_the_largest_that_could(cluster: Cluster) -> None:
    found = asked(cluster, wanting(8, workers=8))
    assert found.verdict is Verdict.NEVER
    assert "64" in found.message
    assert found.hint


def test_who_is_ahead_counts_by_number_and_amount_and_never_by_name(cluster: Cluster) -> None:
    now = time.time()
    cluster.workload("trainjob-secret-project-aaaaa", 8, priority=10)
    cluster.workload("trainjob-lower-bbbbb", 8, priority=-5)
    cluster.workload("trainjob-runs-ccccc", 16, admitted=now - 60)
    for number, minutes in enumerate((10, 12, 14, 16, 18)):
        end = now - 3600
        cluster.workload(f"trainjob-past-{number}", 1, admitted=end - 60 * minutes, finished=end)
    told = answer(Broker(cluster, Settings(), "cluster test"), TOKEN, wanting(8, workers=2))
    found = told.fit
    assert (found.verdict, found.position, found.ahead_jobs, found.ahead[GPU]) == (Verdict.WAITS, 2, 1, 8)
    assert found.wait_range is not None
    low, high = found.wait_range
    assert found.wait_seconds is not None
    assert low < found.wait_seconds < high
    assert round(found.wait_seconds / 60) == 13, "14 minutes is usual, and one has passed"
    assert found.wait_basis == (
        "1 job running and 1 job ahead of it, estimated from 5 jobs of any program that ended here"
    )
    assert f"({found.wait_basis})" in found.message
    written = msgspec.json.encode(told)
    assert b"secret-project" not in written
    assert b"others" not in written


def test_only_a_known_user_who_may_create_jobs_there_is_answered(cluster: Cluster) -> None:
    broker = Broker(cluster, Settings(), "cluster test")
    with pytest.raises(Unauthenticated):
        broker.seen("another token", wanting(4))
    with pytest.raises(
        NotAllowed, match="User 'jane' lacks 'create' permission for MPIJobs in namespace 'others'"
    ):
        broker.seen(TOKEN, wanting(4, namespace="others"))
    cluster.may.clear()
    with pytest.raises(NotAllowed):  # a right that was taken away is gone at once
        broker.seen(TOKEN, wanting(4))


@pytest.mark.security
def test_who_waits_is_told_to_whoever_may_list_the_jobs_and_of_no_other_namespace(cluster: Cluster) -> None:
    now = time.time()
    cluster.workload("trainjob-runs-ccccc", 24, admitted=now - 60)
    for number in range(3):
        cluster.workload(f"trainjob-past-{number}", 24, admitted=now - 900, finished=now - 300)
    cluster.workload("trainjob-theirs-aaaaa", 8)
    cluster.workload("trainjob-mine-aaaaa", 8, namespace=NAMESPACE)
    mine = cluster.objects[kinds.WORKLOAD.path(NAMESPACE, "trainjob-mine-aaaaa")]["metadata"]
    mine["labels"]["kueue.x-k8s.io/job-uid"] = "uid-mine"
    with served(cluster) as url:
        body = msgspec.json.encode({"namespace": NAMESPACE})
        status, told = posted(url, body, path="/v1/waits")
        others = posted(url, msgspec.json.encode({"namespace": "others"}), path="/v1/waits")
        strange = [posted(url, b"{}", path="/v1/waits"), posted(url, body, token="x", path="/v1/waits")]
        access = Access(server="https://api.example", token=TOKEN)
        found = client.ask_waits(NAMESPACE, access, Settings(broker=url))
    assert (status, [*told["waits"]]) == (200, ["uid-mine"])
    assert "theirs" not in json.dumps(told)
    assert found["uid-mine"].position == 2
    assert round((found["uid-mine"].seconds or 0) / 60) == 9, "ten minutes is usual, and one has passed"
    assert [others[0], *(status for status, _ in strange)] == [403, 400, 401]


# -- over the wire ----------------------------------------------------------------------------------
@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    with Server(Broker(cluster, Settings(), "cluster test"), ("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.port}"


def posted(url: str, body: bytes, token: str = TOKEN, path: str = "/v1/fit") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} if token else {}
    request = urllib.request.Request(url + path, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.security
def test_the_door_refuses_strangers_and_nonsense_and_repeats_no_token(cluster: Cluster) -> None:
    body = msgspec.json.encode({"job": wanting(4)})
    with served(cluster) as url:
        assert posted(url, body)[0] == 200
        refusals = [
            posted(url, body, token=""),
            posted(url, body, token="canary-token-of-nobody"),
            posted(url, b"{"),
            posted(url, b'{"job": 3}'),
            posted(url, b"[" * 100_000),
            posted(url, b" " * (MAX_BYTES + 1)),
            posted(url, body, path="/v1/../admin"),
            posted(url, msgspec.json.encode({"job": wanting(4, namespace="others")})),
        ]
    assert [status for status, _ in refusals] == [401, 401, 400, 400, 400, 413, 404, 403]
    assert "canary" not in json.dumps(refusals)


@pytest.mark.security
def test_metrics_of_all_tenants_are_read_by_whom_the_cluster_lets_read_them(cluster: Cluster) -> None:
    tokens = Tokens(cluster)
    assert not tokens.reads("/metrics", TOKEN)
    cluster.may.add(("jane", "/metrics"))
    assert tokens.reads("/metrics", TOKEN)
    assert not tokens.reads("/metrics", "another token")
    assert not tokens.reads("/metrics", "")


def test_beyond_this_machine_it_speaks_tls_only(cluster: Cluster) -> None:
    with pytest.raises(InvalidJob, match="requires TLS"):
        Server(Broker(cluster, Settings(), "x"), ("0.0.0.0", 0))


def blind(cluster: Cluster) -> Cluster:
    """Return the cluster as a user sees it who may read neither queues' quotas nor machines."""
    seen = Cluster()
    seen.objects = cluster.objects
    seen.refuse(kinds.CLUSTER_QUEUE, kinds.NODE, kinds.POD)
    return seen


@pytest.mark.thorough
def test_a_user_who_sees_little_is_told_more_by_the_broker_and_as_much_as_before_without(
    cluster: Cluster,
) -> None:
    job = wanting(4, workers=4)
    own = gathered(blind(cluster), job).facts
    assert fit(job, JANE, own).verdict is Verdict.UNKNOWN
    with served(cluster) as url:
        access = Access(server="https://api.example", token=TOKEN)
        more = client.with_broker(own, job, access, Settings(broker=url))
        strange = client.with_broker(own, job, Access(server=url, token="unknown"), Settings(broker=url))
    told = fit(job, JANE, more)
    assert (told.verdict, told.starts_now) == (Verdict.WAITS, 2)
    assert more.cluster is not None
    assert more.cluster.unread == ()
    gone = client.with_broker(own, job, access, Settings(broker=url))
    for facts in (strange, gone):
        assert fit(job, JANE, facts).verdict is Verdict.UNKNOWN
        assert facts.cluster is not None
        assert facts.cluster.unread[-1].what == "the fit broker"


@pytest.mark.security
def test_a_token_is_never_shown_to_a_broker_without_tls(cluster: Cluster) -> None:
    access = Access(server="https://api.example", token=TOKEN)
    with pytest.raises(InvalidJob, match="https://"):
        client.ask(wanting(1), access, Settings(broker="http://broker.example"))


@pytest.mark.security
def test_only_the_jobs_shape_is_sent(cluster: Cluster) -> None:
    job = wanting(4, env={"API_TOKEN": "canary-env"}, args=("canary-arg",))
    assert b"canary" not in msgspec.json.encode(client._shape(job))


# -- the page's server ------------------------------------------------------------------------------
def test_the_pages_server_answers_the_same() -> None:
    with api_served() as browser:
        job = {"name": "small", "workers": 2, "command": ["true"]}
        answer = browser.sign_in().post("/fit", {"job": job})
        assert (answer.status_code, answer.json()["verdict"]) == (200, "fits now")
        large = browser.post("/fit", {"job": job | {"workers": 90, "resources": {"gpu": 8}}}).json()
        assert large["verdict"] == "can never fit"
        assert browser.get("/overview/cluster").status_code == 501  # nothing to govern on this machine
