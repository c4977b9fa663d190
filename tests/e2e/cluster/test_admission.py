"""Admission on a real API server with real users: what is added, and what is refused in which words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.admission_support import (
    REFUSED_SECONDS,
    Governed,
    asked,
    by_hand,
    create,
    judged,
    plainly,
    refusal,
    run,
    scientist,
)
from tests.e2e.cluster.fault_checks import server_audit
from tests.e2e.cluster.furniture import a_queue
from tests.e2e.cluster.support import Place, a_job, eventually, image, own_place, said

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Document
from mpijob.errors import NotAllowed, QuotaExceeded
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Family

pytestmark = [pytest.mark.testbed, pytest.mark.security]
webhook = pytest.fixture(scope="module")(asked)
place = pytest.fixture(scope="module")(judged)


@pytest.fixture(scope="module")
def alice(place: Place, kubeconfig_of: Callable[[str], Path]) -> Iterator[Place]:
    made = Place(kubeconfig_of("alice"), place.namespace, place.settings.home)
    eventually(lambda: made.mpijob("list").returncode == 0, "alice may look")
    yield made
    made.client.close()
    made.api.close()


# -- what is added -----------------------------------------------------------------------------------
@pytest.mark.req("E-webhook", "D-istio", "FR-024", "D-scc")
def test_a_job_written_by_hand_is_made_safe_and_owned_by_who_asked(place: Place, alice: Place) -> None:
    forged = by_hand("hand")
    forged["metadata"]["labels"] = {well_known.OWNER_LABEL: "bob"}
    status, text = create(alice, forged)
    assert status == 0, text
    kept = place.api.get(resources.MPIJOB.path(place.namespace, "hand"))
    assert kept["metadata"]["labels"][well_known.OWNER_LABEL] == "alice"
    assert kept["metadata"]["labels"]["cost.mpijob.dev/user"] == "alice"
    for replica in kept["spec"]["mpiReplicaSpecs"].values():
        template = replica["template"]
        assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
        assert template["spec"]["automountServiceAccountToken"] is False
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        assert template["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    alice.kubectl("delete", "mpijobs.kubeflow.org", "hand")


@pytest.mark.req("E-webhook", "R5")
@pytest.mark.parametrize("family", [Family.OPENMPI, Family.MPICH])
def test_jobs_run_as_before_and_belong_to_who_sent_them(place: Place, alice: Place, family: Family) -> None:
    base = "openmpi4" if family is Family.OPENMPI else "mpich"
    job = alice.succeeded(a_job(f"runs-{base}", "echo rank", mpi=family, image=image(base), owner="somebody"))
    assert sorted(said(job)) == [0, 1]
    kind = resources.TRAINJOB if family is Family.OPENMPI else resources.MPIJOB
    kept = place.api.get(kind.path(place.namespace, f"runs-{base}"))
    assert kept["metadata"]["annotations"][well_known.OWNER_LABEL] == "alice"
    for pod in place.pods(job):
        assert pod["metadata"]["labels"][well_known.OWNER_LABEL] == "alice"
    job.delete()


@pytest.mark.long
def test_a_job_of_a_queue_is_completed_by_its_queue_and_runs(place: Place, alice: Place) -> None:
    with a_queue(place, "900m") as queue:
        job = alice.succeeded(a_job("queued", "echo rank", queue=queue))
        assert sorted(said(job)) == [0, 1]
        job.delete()


# -- limits ------------------------------------------------------------------------------------------
@pytest.mark.req("E-webhook", "B-10", "Q-SEC-004")
def test_limits_of_the_namespace_hold_for_kubectl_and_for_us_in_the_same_words(
    webhook: Governed, place: Place, alice: Place
) -> None:
    with webhook.limits(place, maxWorkers=3, maxDurationSeconds=600, allowedImages=["testbed.local"]):
        text = refusal(alice, by_hand("many", workers=4))
        sentence = f"4 workers requested, but namespace '{place.namespace}' allows 1 to 3"
        assert sentence in text
        with pytest.raises(QuotaExceeded) as ours:
            alice.client.submit(a_job("many", workers=4))
        assert (ours.value.message, ours.value.hint) == (sentence, "use at most 3 workers")
        with pytest.raises(QuotaExceeded, match="the job may run 3600 s"):
            alice.client.submit(a_job("long", deadline_seconds=3600.0))
        with pytest.raises(QuotaExceeded, match=r"image 'evil\.example\.org/x:1' is not allowed"):
            alice.client.submit(a_job("evil", image="evil.example.org/x:1"))
        status, text = create(alice, by_hand("short"))
        assert status == 0, text
        kept = place.api.get(resources.MPIJOB.path(place.namespace, "short"))
        assert kept["spec"]["runPolicy"]["activeDeadlineSeconds"] == 600
        alice.kubectl("delete", "mpijobs.kubeflow.org", "short")
    assert not [
        one
        for one in place.api.list(resources.POD.path(place.namespace)).items
        if "many" in one["metadata"]["name"]
    ]


@pytest.mark.req("D-migrate")
def test_old_jobs_are_left_in_peace_then_warned_of_then_refused_and_ours_never(
    webhook: Governed, place: Place, alice: Place
) -> None:
    words, job = "MPIJobs not created by mpijob", by_hand("old")

    def told() -> str:
        """Create an old job with kubectl, which is taken, and remove it again; return what the server said to it."""
        status, text = create(alice, job)
        assert status == 0, text
        alice.kubectl("delete", "mpijobs.kubeflow.org", "old")
        return text

    with webhook.limits(place, oldJobs={"stage": "Announce", "until": "2027-05-31"}):
        assert words not in told()
    with webhook.limits(place, oldJobs={"stage": "Warn", "until": "2027-05-31"}):
        warned = f"Warning: {words} will be refused in namespace '{place.namespace}' after 2027-05-31"
        eventually(lambda: warned in told(), "a warning at the create")
    with webhook.limits(place, oldJobs={"stage": "Refuse"}):
        text = refusal(alice, job)
        assert f"{words} are no longer accepted in namespace '{place.namespace}'" in text
        assert "mpijob convert FILE" in text
        ours = alice.client.submit(a_job("ours-of-the-operator", mpi=Family.MPICH, image=image("mpich")))
        assert place.find(resources.MPIJOB, ours.ref.name) is not None
        ours.delete()


@pytest.mark.req("B-100jobs")
def test_a_job_too_many_is_refused_with_the_count(webhook: Governed, place: Place, alice: Place) -> None:
    with webhook.limits(place, concurrentJobs=2):
        for name in ("first", "second"):
            eventually(lambda name=name: create(alice, by_hand(name))[0] == 0, f"{name} is created")  # type: ignore[misc]  # bound per turn
        assert "Quota exceeded: 2/2 jobs running" in refusal(alice, by_hand("third"))
        with pytest.raises(QuotaExceeded, match="Quota exceeded: 2/2 jobs running"):
            alice.client.submit(a_job("third"))
        alice.kubectl("delete", "mpijobs.kubeflow.org", "first", "second")
        eventually(lambda: create(alice, by_hand("third"))[0] == 0, "there is room again")
        alice.kubectl("delete", "mpijobs.kubeflow.org", "third")


def pods_ever(place: Place) -> list[str]:
    """Return every pod that was created in a namespace, whoever made it, by the API server's own audit."""
    made = (
        one for one in server_audit(place) if one["verb"] == "create" and one["responseStatus"]["code"] == 201
    )
    return [one["objectRef"].get("name", "") for one in made if one["objectRef"]["resource"] == "pods"]


@pytest.mark.req("SC-006", "D-quota", "FR-027")
def test_over_quota_is_refused_at_once_and_no_pod_ever_exists(
    webhook: Governed, kubeconfig: Path, kubeconfig_of: Callable[[str], Path]
) -> None:
    """In a namespace of its own: first a pod that is seen by the audit, then a refusal, and no other pod ever."""
    with own_place(kubeconfig, "adm-quota", webhook.labels) as place:
        scientist(place, "alice")
        alice = Place(kubeconfig_of("alice"), place.namespace, place.settings.home)
        eventually(lambda: create(alice, a_pod("witness", ""))[0] == 0, "alice may create")
        place.put(resources.RESOURCE_QUOTA, "small", spec={"hard": {"requests.cpu": "1"}})
        eventually(
            lambda: "used" in (place.find(resources.RESOURCE_QUOTA, "small") or {}).get("status", {}),
            "it counts",
        )
        wide = by_hand("wide", workers=40)
        wide["spec"]["runPolicy"]["suspend"] = False
        text = refusal(alice, wide)
        assert "but project quota is 1 cores. Request quota increase or reduce workers." in text
        begun = time.monotonic()
        assert create(alice, wide)[0] != 0
        taken = time.monotonic() - begun
        print(f"refused by kubectl in {taken:.2f} s")
        assert taken < REFUSED_SECONDS
        events = place.api.list(resources.EVENT.path(place.namespace)).items
        assert not [one for one in events if one["involvedObject"]["name"].startswith("wide")]
        (refused, *_) = (one for one in server_audit(place) if one["objectRef"]["resource"] == "mpijobs")
        assert (refused["user"]["username"], refused["responseStatus"]["code"]) == ("alice", 403)
        assert pods_ever(place) == ["witness"]
        alice.client.close()
        alice.api.close()


# -- what touches others -----------------------------------------------------------------------------
@pytest.mark.req("E-webhook", "Q19")
def test_a_secret_that_the_user_may_not_read_is_not_given_to_his_pods(
    webhook: Governed, kubeconfig: Path, place: Place, kubeconfig_of: Callable[[str], Path]
) -> None:
    with own_place(kubeconfig, "adm-secret", webhook.labels) as other:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "adm-blind"}
        rules = [
            {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "verbs": ["create", "get", "delete"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["mine"]},
        ]
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "blind"},
            "rules": rules,
        }
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "blind"},
            "roleRef": reference | {"kind": "Role", "name": "blind"},
            "subjects": [subject],
        }
        other.apply(role, binding)
        bob = Place(kubeconfig_of("bob"), other.namespace, other.settings.home)
        theirs = by_hand("thief", volumes=[{"name": "s", "secret": {"secretName": "theirs"}}])
        eventually(lambda: "Forbidden" not in create(bob, by_hand("ok"))[1] or None, "bob may create")
        assert "User 'bob' may not read Secret 'theirs'" in refusal(bob, theirs)
        mine = by_hand("fair", volumes=[{"name": "s", "secret": {"secretName": "mine"}}])
        status, text = create(bob, mine)
        assert status == 0, text
        bob.client.close()
        bob.api.close()


def a_pod(name: str, uid: str) -> Document:
    container = {"name": "m", "image": image("openmpi4"), "command": ["sleep", "600"]}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"securityContext": security, "containers": [container | {"securityContext": own}]}
    labels = {well_known.UID_LABEL: uid} if uid else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.mark.req("E-webhook", "FR-025")
def test_nobody_enters_a_jobs_network_by_its_label(place: Place, alice: Place) -> None:
    words = "lets pods into a job's network"
    assert words in refusal(alice, a_pod("spy", "victim"))
    admin = Place(place.kubeconfig, place.namespace, place.settings.home)
    pod = a_pod("spy", "victim")
    template = {"metadata": {"labels": pod["metadata"]["labels"] | {"app": "spy"}}, "spec": pod["spec"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "spy"}}
    spec = {"template": {**template, "spec": template["spec"] | {"restartPolicy": "Never"}}}
    assert words in refusal(admin, job | {"spec": spec})
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "spy"}}
    selected = {"selector": {"matchLabels": {"app": "spy"}}, "template": template}
    assert words in refusal(admin, deployment | {"spec": selected})
    status, text = create(alice, a_pod("plain", ""))
    assert status == 0, text
    label = json.dumps({"metadata": {"labels": {well_known.UID_LABEL: "victim"}}})
    patch = ("patch", "pod", "plain", "--type=merge", "--patch", label)
    labelled = run(place.kubeconfig, *patch, namespace=place.namespace)
    assert labelled.returncode != 0
    assert "lets pods into" in labelled.stderr
    place.kubectl("delete", "pod", "plain", "--grace-period=0", "--force")
    admin.client.close()
    admin.api.close()


@pytest.mark.req("E-webhook")
def test_a_job_stays_what_it_is_and_whose_it_is(place: Place, alice: Place) -> None:
    status, text = create(alice, by_hand("fixed"))
    assert status == 0, text

    def patched(body: Document) -> tuple[int, str]:
        words = ("patch", "mpijobs.kubeflow.org", "fixed", "--type=merge", "--patch", json.dumps(body))
        done = run(alice.kubeconfig, *words, namespace=place.namespace)
        return done.returncode, plainly(done.stdout + done.stderr)

    status, text = patched({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 9}}}})
    assert status != 0
    assert "is immutable: a job cannot be changed after its creation" in text
    status, text = patched({"metadata": {"labels": {well_known.OWNER_LABEL: "bob"}}})
    assert status != 0
    assert "cannot be added, changed or removed" in text
    assert patched({"metadata": {"labels": {"note": "mine"}}})[0] == 0
    alice.kubectl("delete", "mpijobs.kubeflow.org", "fixed")


@pytest.mark.req("E-webhook", "R8")
def test_an_elastic_job_is_scaled_within_its_bounds_and_the_namespaces_limits(
    webhook: Governed, place: Place, alice: Place
) -> None:
    document = by_hand("elastic")
    document["metadata"]["annotations"] = {well_known.REST_ANNOTATION: '{"elastic":{"max_workers":5}}'}
    status, text = create(alice, document)
    assert status == 0, text

    def refused(workers: int) -> str:
        body = json.dumps({"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}})
        words = ("patch", "mpijobs.kubeflow.org", "elastic", "--type=merge", "--patch", body)
        done = run(alice.kubeconfig, *words, namespace=place.namespace)
        return plainly(done.stderr) if done.returncode else ""

    assert refused(3) == ""
    assert "cannot be changed" in refused(6)
    with webhook.limits(place, maxWorkers=3):
        eventually(lambda: "allows 1 to 3" in refused(5), "the limit holds for the new number")
    alice.kubectl("delete", "mpijobs.kubeflow.org", "elastic")


def test_known_traps_are_warned_of(place: Place, alice: Place) -> None:
    trap = by_hand("trap")
    trap["spec"]["runPolicy"]["cleanPodPolicy"] = "None"
    status, text = create(alice, trap)
    assert status == 0
    assert "Warning: spec.runPolicy.cleanPodPolicy" in text
    assert "workers keep running, and hold their resources, after the job ends" in text
    alice.kubectl("delete", "mpijobs.kubeflow.org", "trap")


def test_pods_get_nothing_of_the_host(alice: Place) -> None:
    assert "which is not allowed for jobs here" in refusal(alice, by_hand("host", hostNetwork=True))


# -- two users ---------------------------------------------------------------------------------------
def test_somebody_elses_uid_opens_no_door(
    place: Place, alice: Place, kubeconfig_of: Callable[[str], Path]
) -> None:
    mine = alice.client.submit(a_job("mine", "sleep 60"))
    uid = mine.ref.uid
    bob = Place(kubeconfig_of("bob"), place.namespace, place.settings.home)
    theirs = by_hand("theirs")
    theirs["metadata"]["labels"] = {well_known.UID_LABEL: uid}
    assert "was not issued for user 'bob'" in refusal(bob, theirs)
    pods = by_hand("pods")
    for replica in pods["spec"]["mpiReplicaSpecs"].values():
        replica["template"]["metadata"] = {"labels": {well_known.UID_LABEL: uid}}
    assert "of another job" in refusal(bob, pods)
    mine.delete()
    with pytest.raises((ApiError, NotAllowed)):
        bob.api.create(resources.POD.path(place.namespace), a_pod("spy", uid))
    bob.client.close()
    bob.api.close()
