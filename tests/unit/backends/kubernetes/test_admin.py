"""What administrators set for namespaces, and what they see of the whole cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.api_support import served
from tests.unit.cli_support import Cli
from tests.unit.client.test_audit_recorder import Audited
from tests.unit.kube_store import Store

from mpijob.admission import alerts
from mpijob.backends.kubernetes.admin import namespace_limits, overview
from mpijob.backends.kubernetes.admin.namespace_limits import Governor
from mpijob.backends.kubernetes.client import resources
from mpijob.client import Client
from mpijob.client.admin.limits import Administration, LimitChanges, changed_limits
from mpijob.errors import Conflict, InvalidJob, NotFound, Unsupported
from mpijob.model.platform.governance import GangKind, NamespaceLimits
from mpijob.model.status.overview import Line, NamespaceView, QueueView
from mpijob.settings import CLUSTER, Settings

TEAM = {"metadata": {"name": "team-cv"}}


@pytest.fixture
def api() -> Store:
    store = Store()
    store.objects[resources.NAMESPACE.path("", "team-cv")] = TEAM
    queue = {"metadata": {"name": "gpus"}, "spec": {}}
    store.objects[resources.CLUSTER_QUEUE.path("", "gpus")] = queue
    return store


@pytest.fixture
def admin(api: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Administration:
    monkeypatch.setattr(Administration, "_api", lambda self: api)
    client = Client(Audited(), settings=Settings(home=str(tmp_path), engine=CLUSTER))
    return Administration(client)


def spec(api: Store) -> Any:
    return api.objects[namespace_limits.LIMITS.path("", "team-cv")]["spec"]


@pytest.mark.req("US3")
def test_limits_are_set_one_by_one_and_taken_away(admin: Administration, api: Store) -> None:
    first = {
        "max_workers": 8,
        "concurrent_jobs": 2,
        "max_duration_seconds": 3600.0,
        "gang.timeout_seconds": 60.0,
    }
    told = admin.set("team-cv", LimitChanges(limits=first))
    assert "max_workers: None → 8" in told
    assert spec(api) == {
        "maxWorkers": 8,
        "concurrentJobs": 2,
        "maxDurationSeconds": 3600.0,
        "gang": {"timeoutSeconds": 60.0},
    }
    admin.set("team-cv", LimitChanges(limits={"allowed_images": ("repo/*",)}, unset=("max-workers", "gang")))
    assert spec(api) == {"concurrentJobs": 2, "maxDurationSeconds": 3600.0, "allowedImages": ("repo/*",)}
    assert admin.set("team-cv", LimitChanges(limits={"concurrent_jobs": 2})) == ""
    held = admin.limits("team-cv").effective
    assert (held.concurrent_jobs, held.max_workers) == (2, None)
    admin.set("team-cv", LimitChanges(limits={"idle.action": "Suspend", "idle.after_seconds": 600.0}))
    assert spec(api)["idle"] == {"action": "Suspend", "afterSeconds": 600.0}


def test_what_was_set_is_in_the_audit(admin: Administration) -> None:
    admin.set("team-cv", LimitChanges(limits={"max_gpus": 16}, quota={"gpu": "8"}))
    with pytest.raises(NotFound):
        admin.set("team-x", LimitChanges(quota={"gpu": "8"}))
    assert isinstance(admin._client, Client)
    done, refused = admin._client.audit()
    assert (done.verb, done.note("changed")) == ("set", "max_gpus: None → 16; quota gpu: 8")
    assert done.object_ref is not None
    assert (done.object_ref.resource, done.object_ref.namespace) == ("mpijoblimits", "team-cv")
    assert refused.response_status is not None
    assert refused.response_status.code == 404


def test_a_quota_and_a_queue_are_the_clusters_own_objects(admin: Administration, api: Store) -> None:
    admin.set("team-cv", LimitChanges(quota={"gpu": "8", "memory": "1Ti"}, cluster_queue="gpus"))
    quota = api.objects[resources.RESOURCE_QUOTA.path("team-cv", "mpijob")]["spec"]
    assert quota == {"hard": {"requests.nvidia.com/gpu": "8", "requests.memory": "1Ti"}}
    assert api.objects[resources.LOCAL_QUEUE.path("team-cv", "gpus")]["spec"] == {"clusterQueue": "gpus"}
    admin.set("team-cv", LimitChanges(quota={"gpu": ""}))
    quota = api.objects[resources.RESOURCE_QUOTA.path("team-cv", "mpijob")]["spec"]
    assert quota == {"hard": {"requests.memory": "1Ti"}}
    assert admin.limits("team-cv").queues == {"gpus": "gpus"}
    with pytest.raises(NotFound, match="there is no ClusterQueue 'none'"):
        admin.set("team-cv", LimitChanges(cluster_queue="none"))


def test_a_queue_with_jobs_is_not_sent_elsewhere(admin: Administration, api: Store) -> None:
    api.objects[resources.CLUSTER_QUEUE.path("", "others")] = {"metadata": {"name": "others"}, "spec": {}}
    admin.set("team-cv", LimitChanges(limits={"queue": "front"}, cluster_queue="gpus"))
    path = resources.LOCAL_QUEUE.path("team-cv", "front")
    api.objects[path]["status"] = {"pendingWorkloads": 1, "reservingWorkloads": 2}
    with pytest.raises(Conflict, match="has 3 jobs"):
        admin.set("team-cv", LimitChanges(cluster_queue="others"))
    api.objects[path]["status"] = {}
    admin.set("team-cv", LimitChanges(cluster_queue="others"))
    assert api.objects[path]["spec"] == {"clusterQueue": "others"}


def test_limits_that_cannot_be_are_refused_with_what_is_possible() -> None:
    with pytest.raises(InvalidJob, match="there is no limit 'max-worker'") as error:
        changed_limits(NamespaceLimits(), {}, ("max-worker",))
    assert "max_workers" in error.value.hint
    with pytest.raises(InvalidJob, match="not valid"):
        changed_limits(NamespaceLimits(), {"max_workers": 0})
    limits = changed_limits(NamespaceLimits(), {"gang.kind": "Volcano", "rates.gpu_hour": 2.5})
    assert limits.gang is not None
    assert limits.rates is not None
    assert (limits.gang.kind, limits.rates.gpu_hour) == (GangKind.VOLCANO, 2.5)


def test_this_machine_has_no_namespaces_to_govern(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="require a cluster"):
        Administration(Client(Audited(), settings=Settings(home=str(tmp_path))))
    result = Cli()("admin", "overview")
    assert result.exit_code == 6


# -- at a glance ------------------------------------------------------------------------------------
def a_pod(namespace: str, gpus: str) -> dict[str, Any]:
    container = {"name": "node", "resources": {"requests": {"nvidia.com/gpu": gpus}}}
    return {
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"nodeName": "n", "containers": [container]},
    }


@pytest.mark.req("US3", "B-admin")
def test_the_whole_cluster_is_seen_with_what_is_nearly_consumed(admin: Administration, api: Store) -> None:
    quota = {
        "metadata": {"name": "mpijob", "namespace": "team-cv"},
        "status": {"hard": {"requests.nvidia.com/gpu": "10"}, "used": {"requests.nvidia.com/gpu": "9"}},
    }
    api.objects[resources.RESOURCE_QUOTA.path("team-cv", "mpijob")] = quota
    api.objects[resources.NODE.path("", "n")] = {
        "metadata": {"name": "n"},
        "status": {"allocatable": {"nvidia.com/gpu": "16"}},
    }
    api.objects[resources.POD.path("team-cv", "pod")] = a_pod("team-cv", "9")
    admin.set("team-cv", LimitChanges(limits={"max_gpus": 9}))
    found = admin.overview()
    (team,) = found.namespaces
    assert (team.name, team.gpus, found.gpus, found.gpus_held) == ("team-cv", 9, 16, 9)
    assert [alert.message for alert in found.alerts] == [
        "team-cv quota 100% consumed: 9 of 9 GPUs (MPIJobLimits)",
        "team-cv quota 90% consumed: 9 of 10 GPUs (ResourceQuota mpijob)",
    ]


@pytest.mark.req("US3", "B-admin")
@pytest.mark.usefixtures("admin")
def test_the_page_is_told_what_is_nearly_consumed(api: Store) -> None:
    quota = {
        "metadata": {"name": "mpijob", "namespace": "team-cv"},
        "status": {"hard": {"requests.nvidia.com/gpu": "10"}, "used": {"requests.nvidia.com/gpu": "9"}},
    }
    api.objects[resources.RESOURCE_QUOTA.path("team-cv", "mpijob")] = quota
    with served(settings=Settings(home="/nowhere", engine=CLUSTER)) as browser:
        told = browser.sign_in().get("/overview/cluster").json()
    assert told["alerts"] == [
        {"namespace": "team-cv", "percent": 90.0,
         "message": "team-cv quota 90% consumed: 9 of 10 GPUs (ResourceQuota mpijob)"}
    ]  # fmt: skip


@pytest.mark.req("B-admin")
def test_only_what_is_at_least_ninety_percent_consumed_is_an_alert() -> None:
    def view(used: float) -> NamespaceView:
        return NamespaceView(name="nlp-team", lines=(Line(source="q", resource="cpu", used=used, most=100),))

    assert [one.percent for used in (89.9, 90, 100, 130) for one in alerts.alerts([view(used)])] == [
        90,
        100,
        130,
    ]
    queue = QueueView(name="gpus", lines=(Line(source="flavor a100", resource="cpu", used=95, most=100),))
    (alert,) = alerts.alerts((), (queue,))
    assert alert.message == "queue gpus quota 95% consumed: 95 of 100 CPU cores (flavor a100)"


def test_who_had_to_make_way_is_told_in_plain_words(api: Store) -> None:
    said = (
        "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue; x"
    )
    conditions = [
        {"type": kind, "status": "True", "reason": "Preempted", "message": said,
         "lastTransitionTime": "2026-11-15T14:02:30Z"}
        for kind in ("Evicted", "Preempted")
    ]  # fmt: skip
    owner = [{"name": "small", "uid": "1"}]
    metadata = {"name": "trainjob-small-aaaaa", "namespace": "team-a", "ownerReferences": owner}
    api.objects[resources.WORKLOAD.path("team-a", "trainjob-small-aaaaa")] = {
        "metadata": metadata,
        "spec": {"queueName": "main"},
        "status": {"conditions": conditions},
    }
    api.objects[resources.WORKLOAD.path("team-b", "trainjob-big-bbbbb")] = {
        "metadata": {
            "name": "trainjob-big-bbbbb",
            "namespace": "team-b",
            "labels": {"kueue.x-k8s.io/job-uid": "2"},
        },
        "spec": {"queueName": "main", "priorityClassRef": {"name": "high"}},
    }
    (one,) = overview.read(api).preemptions
    assert (one.namespace, one.job) == ("team-a", "small")
    assert one.message.startswith("Pre-empted at 14:02 UTC by team-b/big (priority high)")
    assert "will resume when" in one.message


# -- the command line -------------------------------------------------------------------------------
class ClusterCli(Cli):
    def __init__(self, home: Path) -> None:
        super().__init__(Audited(), home=str(home))
        self._settings = Settings(home=str(home), engine=CLUSTER)


def test_the_commands_say_what_they_do(api: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Administration, "_api", lambda self: api)
    cli = ClusterCli(tmp_path)
    words = ("--max-workers", "8", "--max-duration", "24h", "--allow-image", "repo/*", "--gpu-hour", "2.5")
    told = cli.ok("admin", "set", "team-cv", *words, "--quota", "gpu=8", "--priority-class", "high")
    assert told.startswith("team-cv: ")
    shown = cli.ok("admin", "limits", "team-cv")
    assert "at most 8" in shown
    assert "2.5 per GPU-hour" in shown
    assert "repo/*" in shown
    assert json.loads(cli.ok("admin", "limits", "team-cv", "-o", "json"))["own"]["maxWorkers"] == 8
    assert "team-cv" in cli.ok("admin", "overview")
    assert cli("admin", "set", "team-cv", "--quota", "gpu").exit_code == 2
    assert "nothing changes" in cli("admin", "set", "team-cv", "--max-workers", "8").stderr


def test_a_dry_run_changes_nothing(admin: Administration, api: Store) -> None:
    api.before = lambda method, path: None
    before = dict(api.objects)
    governor = Governor(_Dry(api))
    governor.write("team-cv", NamespaceLimits(max_workers=3), dry_run=True)
    governor.write_quota("team-cv", {"cpu": "3"}, dry_run=True)
    governor.write_queue("team-cv", "own", "gpus", dry_run=True)
    assert dict(api.objects) == before


class _Dry(Store):
    """A store that, as the real one, keeps nothing of a dry run; anything else is a mistake of the caller."""

    def __init__(self, inner: Store) -> None:
        super().__init__()
        self.objects = inner.objects

    def create(self, path: str, body: Any, **more: Any) -> Any:
        assert more["dry_run"]
        return dict(body)
