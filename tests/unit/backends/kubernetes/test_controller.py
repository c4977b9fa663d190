"""The controller over an API server's memory: told once, whenever it is killed. The bed has its twin tests."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.cluster_objects import BEGIN, Cluster, at_work, condition, ended, stamp
from tests.unit.kube_node import TEAM, Node, lay_out
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Document
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.watch import Change
from mpijob.backends.kubernetes.controller import controller, garbage_collector, status_publisher
from mpijob.backends.kubernetes.controller.controller import Controller
from mpijob.backends.kubernetes.controller.leader_election import LEASE, Election
from mpijob.backends.kubernetes.controller.node_heartbeat import SOURCE, NodeHeartbeats
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.errors import Finding
from mpijob.formats.kubernetes.metadata import user_actions, well_known
from mpijob.formats.kubernetes.metadata.controller_notes import FINDINGS_ANNOTATION, PROGRESS_ANNOTATION
from mpijob.model import JobRef, Resources
from mpijob.model.platform.governance import Idle, IdleAction, NamespaceLimits


class Killed(BaseException):
    """The controller's end at this very moment."""


class Leading(Election):
    """An election that is won."""

    def __init__(self, wins: bool = True) -> None:
        self.wins = wins

    def __enter__(self) -> Leading:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def leads(self) -> bool:
        return self.wins

    @property
    def well_seconds(self) -> float:
        return 100.0


class Versioned(Node):
    """An API server that counts versions and refuses a change of what has changed."""

    def __init__(self) -> None:
        super().__init__()
        self._versions = itertools.count(10)

    def create(self, path: str, body: Any, **more: Any) -> Document:
        made = super().create(path, body, **more)
        address = f"{path}/{made['metadata']['name']}"
        self.objects[address]["metadata"]["resourceVersion"] = str(next(self._versions))
        return self.objects[address]

    def patch(self, path: str, body: Any, **more: Any) -> Document:
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and self.objects[path]["metadata"].get("resourceVersion") != wanted:
            raise ApiError("the object has been modified", status=409, reason="Conflict")
        changed = super().patch(path, body, **more)
        changed["metadata"]["resourceVersion"] = str(next(self._versions))
        notes = changed["metadata"].get("annotations") or {}
        changed["metadata"]["annotations"] = {key: one for key, one in notes.items() if one is not None}
        self.objects[path] = changed
        self.after("PATCH", path)
        return changed

    @property
    def writes(self) -> int:
        return sum(method != "GET" for method, _ in self.asked)

    def now(self) -> float:
        return BEGIN + 4000.0

    def told(self) -> list[tuple[str, str]]:
        events = [one for key, one in self.objects.items() if "/events/" in key]
        return sorted((one["reason"], one["message"]) for one in events)


def laid_out(node: Node, cluster: Cluster) -> str:
    """Put a job's objects where an API server has them; return the job's path."""
    assert cluster.runtime is not None
    owner = {"uid": "a-uid", "name": cluster.job["metadata"]["name"]}
    cluster.runtime["metadata"] |= {
        "uid": "r-uid",
        "creationTimestamp": stamp(0),
        "ownerReferences": [owner],
    }
    return lay_out(node, cluster)


def a_controller(node: Node, *, leads: bool = True) -> Controller:
    return Controller(node, Leading(leads), TEAM)


def finish(node: Node, cluster: Cluster, path: str, code: int) -> None:
    name = cluster.name_of("launcher", 0)
    pod = node.objects[resources.POD.path(TEAM, name)]
    node.put(resources.POD.path(TEAM, name), pod | {"status": ended(code, 60)})
    job = node.objects[path]
    cluster.condition("Complete" if code == 0 else "Failed")
    job["status"] = cluster.job["status"]
    node.put(path, job)


def ref_of(cluster: Cluster) -> JobRef:
    return JobRef(TEAM, cluster.spec.name, "u-1")


def a_life(node: Versioned, code: int, attend: Callable[[Versioned, JobRef], None]) -> Document:
    """Let a job run and end under controllers; return its object."""
    cluster = at_work()
    path = laid_out(node, cluster)
    attend(node, ref_of(cluster))
    finish(node, cluster, path, code)
    attend(node, ref_of(cluster))
    return node.objects[path]


def plainly(node: Versioned, ref: JobRef) -> None:
    a_controller(node)._reconcile(ref)


def thrice(node: Versioned, ref: JobRef) -> None:
    one = a_controller(node)
    for _ in range(3):
        one._reconcile(ref)


def killed_once(node: Versioned, ref: JobRef) -> None:
    try:
        plainly(node, ref)
    except Killed:
        plainly(node, ref)


# -- what is told ------------------------------------------------------------------------------------
@pytest.mark.req("FR-019")
def test_every_transition_is_told_once_with_its_duration_and_findings_are_noted() -> None:
    node = Versioned()
    job = a_life(node, 3, thrice)
    reasons = [reason for reason, _ in node.told()]
    assert reasons.count("Running") == 1
    assert reasons.count("Failed") == 1
    (failed,) = [message for reason, message in node.told() if reason == "Failed"]
    assert "Running" in failed
    assert "from submit to end" in failed
    notes = job["metadata"]["annotations"]
    assert msgspec.json.decode(notes[PROGRESS_ANNOTATION])["phase"] == "Failed"
    found = msgspec.json.decode(notes[FINDINGS_ANNOTATION])
    assert found[0]["code"] in reasons
    assert found[0]["message"]


@pytest.mark.req("C-ha")
def test_a_job_that_is_being_cancelled_does_not_go_backwards_while_its_pods_go_one_by_one() -> None:
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    plainly(node, ref_of(cluster))
    node.patch(path, {"metadata": {"annotations": {well_known.CANCELLED_ANNOTATION: stamp(4000)}}})
    del node.objects[resources.POD.path(TEAM, cluster.name_of("launcher", 0))]  # it goes first
    plainly(node, ref_of(cluster))
    assert [reason for reason, _ in node.told()] == ["Running"]
    for pod in [one for one in node.objects if "/pods/" in one]:
        del node.objects[pod]
    plainly(node, ref_of(cluster))
    assert sorted(reason for reason, _ in node.told()) == ["Cancelled", "Running"]


@pytest.mark.req("C-ha")
def test_a_job_that_is_cancelled_in_the_middle_of_a_look_does_not_go_backwards() -> None:
    """Its object was read before, its pods afterwards: what is missing then was taken on purpose."""
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    plainly(node, ref_of(cluster))

    def cancel(method: str, asked: str) -> None:
        if asked.endswith("/pods") and method == "GET":
            node.before = lambda method, path: None
            node.patch(path, {"metadata": {"annotations": {well_known.CANCELLED_ANNOTATION: stamp(4000)}}})
            for pod in [one for one in node.objects if "/pods/" in one]:
                del node.objects[pod]

    node.before = cancel
    plainly(node, ref_of(cluster))
    assert [reason for reason, _ in node.told()] == ["Running"]
    plainly(node, ref_of(cluster))  # the change brings the next look
    assert sorted(reason for reason, _ in node.told()) == ["Cancelled", "Running"]


def test_a_finding_whose_numbers_change_is_not_told_again_and_again() -> None:
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    one, ref = a_controller(node), ref_of(cluster)
    for seconds in range(1, 5):
        look = one._reader.read(ref)
        status_publisher.publish(node, look, [Finding("WAITS", f"for {seconds} s")])
    assert [message for reason, message in node.told() if reason == "WAITS"] == ["for 1 s"]
    assert "for 1 s" in node.objects[path]["metadata"]["annotations"][FINDINGS_ANNOTATION]


@pytest.mark.thorough
@pytest.mark.req("C-ha")
@pytest.mark.parametrize("code", [0, 3])
def test_killed_at_any_step_and_started_again_it_comes_to_the_same_end(code: int) -> None:
    """Every change is a step; the one in which it is killed may have reached the API server or not."""
    whole = Versioned()
    job = a_life(whole, code, plainly)
    assert whole.writes >= 4
    for step in range(whole.writes):
        for heard in (False, True):
            node = Versioned()
            count = itertools.count()

            def die(method: str, path: str, count: Any = count, step: int = step) -> None:
                if method != "GET" and next(count) == step:
                    raise Killed

            if heard:
                node.after = die
            else:
                node.before = die
            again = a_life(node, code, killed_once)
            assert node.told() == whole.told(), (step, heard)
            notes = again["metadata"]["annotations"]
            assert notes[PROGRESS_ANNOTATION] == job["metadata"]["annotations"][PROGRESS_ANNOTATION]


def test_who_does_not_lead_does_nothing() -> None:
    node, cluster = Versioned(), at_work()
    laid_out(node, cluster)
    a_controller(node, leads=False)._reconcile(ref_of(cluster))
    assert node.told() == []


def test_a_running_controller_tells_what_its_watches_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_TICK_SECONDS", 0.01)
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    one, stop, ready = a_controller(node), threading.Event(), threading.Event()
    thread = threading.Thread(target=one.run, args=(stop, ready.set))
    thread.start()
    try:
        assert ready.wait(30)
        eventually(lambda: any(reason == "Running" for reason, _ in node.told()))
        finish(node, cluster, path, 0)
        eventually(lambda: any(reason == "Succeeded" for reason, _ in node.told()))
    finally:
        stop.set()
        thread.join(30)
    assert one.looks >= 2
    assert one.jobs == 1


def eventually(look: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.01)


# -- idle GPUs ---------------------------------------------------------------------------------------
class Measured(Versioned):
    """A cluster with a metrics API, in which the workers of a job with GPUs use no CPU; tests set its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = BEGIN + 100.0
        groups = (resources.TRAINER_API, pod_usage.METRICS_API)
        self.objects["/apis"] = {
            "metadata": {},
            "groups": [{"versions": [{"groupVersion": one} for one in groups]}],
        }

    def now(self) -> float:
        return self.clock

    def find(self, path: str, **query: str) -> Document | None:
        if path.startswith(f"/apis/{pod_usage.METRICS_API}"):
            return {
                "timestamp": stamp(self.clock - BEGIN),
                "containers": [{"usage": {"cpu": "1m", "memory": "1Mi"}}],
            }
        return super().find(path, **query)


def idle_job(monkeypatch: pytest.MonkeyPatch, action: IdleAction) -> tuple[Measured, str, Controller, JobRef]:
    """Return a job whose two GPUs have been idle for longer than its namespace allows, looked at ever since."""
    limits = NamespaceLimits(idle=Idle(after_seconds=100, action=action))
    monkeypatch.setattr(Controller, "_limits", lambda *_: limits)
    node, cluster = Measured(), at_work(resources=Resources(cpu="1", gpu=1))
    path, ref = laid_out(node, cluster), ref_of(cluster)
    one = a_controller(node)
    for seconds in (100, 150, 199):
        node.clock = BEGIN + float(seconds)
        one._reconcile(ref)
    assert "suspend" not in node.objects[path]["spec"]  # not measured for long enough
    node.clock = BEGIN + 201.0
    one._reconcile(ref)
    assert any(reason == "GPUS_IDLE" for reason, _ in node.told())
    return node, path, one, ref


def test_idle_gpus_are_only_warned_of_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    node, path, *_ = idle_job(monkeypatch, Idle().action)
    assert "suspend" not in node.objects[path]["spec"]
    assert user_actions.read(node.objects[path]) == ()


def test_a_job_with_idle_gpus_is_suspended_where_its_namespace_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, path, one, ref = idle_job(monkeypatch, IdleAction.SUSPEND)
    assert node.objects[path]["spec"]["suspend"] is True
    one._reconcile(ref)  # its pods still run
    rest(node, path)
    one._reconcile(ref)
    assert node.objects[path]["spec"]["suspend"] is True  # until its owner resumes it
    messages = [act.message for act in user_actions.read(node.objects[path])]
    assert messages == ["suspended by the idle GPU rule of this namespace"]


def test_a_job_with_idle_gpus_is_queued_again_by_a_controller_that_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, path, _, ref = idle_job(monkeypatch, IdleAction.REQUEUE)
    assert node.objects[path]["spec"]["suspend"] is True
    a_controller(node)._reconcile(ref)
    assert node.objects[path]["spec"]["suspend"] is True  # its pods are still there
    rest(node, path)
    a_controller(node)._reconcile(ref)
    assert node.objects[path]["spec"]["suspend"] is False
    reasons = [act.reason for act in user_actions.read(node.objects[path])]
    assert reasons == [user_actions.SUSPENDED, user_actions.RESUMED]


def test_a_job_that_its_owner_suspended_is_not_queued_again(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = NamespaceLimits(idle=Idle(action=IdleAction.REQUEUE))
    monkeypatch.setattr(Controller, "_limits", lambda *_: limits)
    node, cluster = Measured(), at_work()
    path, ref = laid_out(node, cluster), ref_of(cluster)
    look = a_controller(node)._reader.read(ref)
    patches.suspend(node, look.found, look.seen, "maria")
    rest(node, path)
    a_controller(node)._reconcile(ref)
    assert node.objects[path]["spec"]["suspend"] is True


def test_a_job_with_idle_gpus_is_cancelled_where_its_namespace_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(patches, "cancel", lambda *args: asked.append(args[-1]))
    idle_job(monkeypatch, IdleAction.CANCEL)
    assert asked == ["the idle GPU rule of this namespace"]


def rest(node: Node, path: str) -> None:
    """Let the engine take the pods of a suspended job away."""
    for key in [key for key in node.objects if "/pods/" in key]:
        node.objects.pop(key)
    job = node.objects[path]
    job["status"] = {"conditions": [condition("Suspended", at=210)]}


# -- leading -----------------------------------------------------------------------------------------
def elector(api: Store, name: str) -> Election:
    return Election(api, TEAM, "lease", name, lease_seconds=0.6, renew_seconds=0.1)


@pytest.mark.thorough
@pytest.mark.req("C-ha")
def test_one_of_two_leads_and_the_other_takes_over_from_a_killed_one() -> None:
    api = Versioned()
    first, second = elector(api, "one"), elector(api, "two")
    with first:
        eventually(lambda: first.leads)
        with second:
            for _ in range(50):
                assert not (first.leads and second.leads)
                time.sleep(0.01)
            first._stop.set()  # it renews no more, as one that was killed
            eventually(lambda: second.leads, 5)
            assert not first.leads
    lease = api.objects[LEASE.path(TEAM, "lease")]["spec"]
    assert lease["holderIdentity"] == ""
    assert lease["leaseTransitions"] >= 1


@pytest.mark.thorough
def test_who_cannot_renew_stops_leading_in_time() -> None:
    api = Versioned()
    with elector(api, "one") as one:
        eventually(lambda: one.leads)

        def away(method: str, path: str) -> None:
            raise ApiError("no answer", status=0, reason="NoAnswer")

        api.before = away
        eventually(lambda: not one.leads, 2)
        assert one.well_seconds == 0.0


# -- strays and silence ------------------------------------------------------------------------------
def test_what_nobody_owns_is_given_to_its_job_or_removed() -> None:
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    runtime = resources.TRAINING_RUNTIME.path(TEAM, cluster.job["metadata"]["name"])
    served = frozenset({resources.TRAINER_API})
    del node.objects[runtime]["metadata"]["ownerReferences"]
    assert garbage_collector.sweep(node, TEAM, served) == []
    assert [one["uid"] for one in node.objects[runtime]["metadata"]["ownerReferences"]] == ["a-uid"]
    del node.objects[runtime]["metadata"]["ownerReferences"]
    del node.objects[path]
    assert garbage_collector.sweep(node, TEAM, served, stray_seconds=1e12) == []
    assert garbage_collector.sweep(node, TEAM, served) == [runtime]
    assert runtime not in node.objects


def test_a_node_is_silent_only_while_the_api_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(
        "mpijob.backends.kubernetes.controller.node_heartbeat.time.monotonic", lambda: clock[0]
    )
    quiet = NodeHeartbeats(silent_seconds=22)

    def renew(name: str, when: str) -> None:
        quiet.on_change(SOURCE, Change("MODIFIED", {"metadata": {"name": name}, "renewed": when}))

    renew("n1", "a")
    renew("n2", "a")
    clock[0] = 15.0
    renew("n2", "b")
    clock[0] = 23.0
    assert quiet.silent(well_seconds=100) == {"n1": "a"}
    assert quiet.silent(well_seconds=10) == {}
    renew("n1", "b")
    assert quiet.silent(well_seconds=100) == {}


def test_a_silent_node_is_told_by_every_state_of_its_jobs() -> None:
    node, cluster = Versioned(), at_work()
    path = laid_out(node, cluster)
    one = a_controller(node)
    one._note_silence(ref_of(cluster), frozenset({"node-1"}), "since")
    assert node.objects[path]["metadata"]["annotations"][well_known.SILENT_NODES_ANNOTATION] == "node-1"
    assert [reason for reason, _ in node.told()] == ["NodeLost"]
    one._note_silence(ref_of(cluster), frozenset(), "")
    assert well_known.SILENT_NODES_ANNOTATION not in node.objects[path]["metadata"]["annotations"]
