"""Attacks of one tenant on another that worked on release 0.1, and variations of each: all end refused.

Alice works in one namespace, Bob in another; Carol may create jobs in Alice's and nothing else. The webhook and the
policies are those that are shipped; the controller has exactly the rights that are shipped, and acts as the owners
that the operator would name.
"""

from __future__ import annotations

import copy
import http.client
import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.accounts import allowed_everywhere, an_account, kubeconfig_with, shipped_account
from tests.e2e.cluster.admission_support import (
    DEPLOY,
    ROLE_BINDING,
    Governed,
    apply,
    asked,
    by_hand,
    create,
    refusal,
    run,
    scientist,
)
from tests.e2e.cluster.fault_checks import server_audit
from tests.e2e.cluster.governed import Service, told
from tests.e2e.cluster.support import PATIENCE, TINY, Place, a_job, eventually, image, own_place

from mpijob import Job, Phase
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError, Document
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.cluster import owners
from mpijob.cluster.webhook import certificates
from mpijob.errors import NotFound
from mpijob.formats.kubernetes import network_policy
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Code, Network, Retry, job_uid

pytestmark = [pytest.mark.testbed, pytest.mark.security, pytest.mark.hostile]
webhook = pytest.fixture(scope="module")(asked)
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
TRAINJOBS, RUNTIMES, MPIJOBS = "trainjobs.trainer.kubeflow.org", "trainingruntimes", "mpijobs.kubeflow.org"


# -- who is there -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def team_a(kubeconfig: Path, webhook: Governed) -> Iterator[Place]:
    """Alice's namespace: her team may work there, by the group of her certificate, and Carol may create jobs."""
    with own_place(kubeconfig, "hostile-a", webhook.labels) as place:
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-a"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "data-scientist"}
        place.put(ROLE_BINDING, "team-a", roleRef=role, subjects=[group])
        yield place


@pytest.fixture(scope="module")
def team_b(kubeconfig: Path, webhook: Governed) -> Iterator[Place]:
    with own_place(kubeconfig, "hostile-b", webhook.labels) as place:
        scientist(place, "bob")
        secret = {"password": "aHVudGVyMg=="}
        place.put(resources.SECRET, "bobs-secret", data=secret)
        yield place


@contextmanager
def somebody(kubeconfig: Path, place: Place) -> Iterator[Place]:
    found = Place(kubeconfig, place.namespace, place.settings.home)
    try:
        yield found
    finally:
        found.client.close()
        found.api.close()


@pytest.fixture
def alice(team_a: Place, kubeconfig_of: Callable[[str], Path]) -> Iterator[Place]:
    with somebody(kubeconfig_of("alice"), team_a) as found:
        yield found


@pytest.fixture
def bob(team_a: Place, kubeconfig_of: Callable[[str], Path]) -> Iterator[Place]:
    """Bob, who was let into Alice's namespace to work there."""
    scientist(team_a, "bob")
    try:
        with somebody(kubeconfig_of("bob"), team_a) as found:
            yield found
    finally:
        team_a.take_away(ROLE_BINDING, "scientist-bob")


@pytest.fixture
def creator(team_a: Place) -> Iterator[Place]:
    """An account that may create jobs in Alice's namespace, with exactly the role that is shipped for that."""
    roles = yaml.safe_load_all((DEPLOY / "base" / "roles" / "roles.yaml").read_text())
    rules = next(one["rules"] for one in roles if one["metadata"]["name"] == "mpijob-creator")
    name = f"creator-{team_a.namespace}"
    document = {
        "apiVersion": CLUSTER_ROLE.api,
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    team_a.api.create(CLUSTER_ROLE.path(), document)
    token = an_account(team_a, "carol")
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "carol", "namespace": team_a.namespace}
    team_a.put(ROLE_BINDING, "carol", roleRef=ref, subjects=[subject])
    try:
        with somebody(kubeconfig_with(team_a, "carol", token), team_a) as found:
            yield found
    finally:
        team_a.take_away(ROLE_BINDING, "carol")
        team_a.take_away(resources.SERVICE_ACCOUNT, "carol")
        team_a.api.delete(CLUSTER_ROLE.path("", name))


@pytest.fixture(scope="module")
def account(kubeconfig: Path, webhook: Governed, team_b: Place) -> Iterator[Path]:
    """The kubeconfig of the controller's own account, in the namespace that the shipped policies know it by."""
    rights = DEPLOY / "base" / "controller" / "rights.yaml"
    with (
        somebody(kubeconfig, Place(kubeconfig, webhook.namespace, team_b.settings.home)) as home,
        shipped_account(home, "mpijob-controller", rights) as found,
    ):
        yield found


@contextmanager
def controller(place: Place, account: Path, webhook: Governed) -> Iterator[Service]:
    """Run a controller of a namespace with the shipped rights; it may act as whom the operator would name now."""
    apply(place.kubeconfig, *owners.rbac_documents(owners.jobs_to_recreate(place.api), webhook.namespace))
    words = ("controller", f"--lease-namespace={place.namespace}")
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"}
    subject = {"kind": "ServiceAccount", "name": "mpijob-controller", "namespace": webhook.namespace}
    if place.find(resources.ROLE, "lease") is None:
        place.put(resources.ROLE, "lease", rules=[lease])
        place.put(ROLE_BINDING, "lease", roleRef=role, subjects=[subject])
    service = Service(place, *words, ready="controller of the jobs", KUBECONFIG=str(account))
    try:
        yield service
    finally:
        service.kill()


def everything(place: Place) -> set[tuple[str, str]]:
    """Return kind and name of all that a job could bring into a namespace."""
    found = (
        resources.TRAINJOB,
        resources.TRAINING_RUNTIME,
        resources.MPIJOB,
        resources.POD,
        resources.CONFIG_MAP,
        resources.NETWORK_POLICY,
    )
    return {
        (kind.name, one["metadata"]["name"])
        for kind in found
        for one in place.api.list(kind.path(place.namespace)).items
    }


def exploit(victim: Place) -> str:
    """Return the annotation that made a controller, or whoever followed the job, create a job anywhere."""
    return json.dumps(
        {
            "namespace": victim.namespace,
            "retry": {"limit": 1, "backoff_seconds": 0},
            "secrets": [{"env": "S", "source": "bobs-secret/password"}],
            "volumes": [{"mount": "/s", "kind": "secret", "source": "bobs-secret"}],
            "command": ["sh", "-c", "echo $S"],
            "network": {"isolated": False},
        }
    )


def annotate(place: Place, kind: str, name: str, key: str, value: str) -> tuple[int, str]:
    done = run(
        place.kubeconfig, "annotate", "--overwrite", kind, name, f"{key}={value}", namespace=place.namespace
    )
    return done.returncode, done.stderr


def patched(place: Place, kind: str, name: str, body: Document) -> tuple[int, str]:
    words = ("patch", kind, name, "--type=merge", f"--patch={json.dumps(body)}")
    done = run(place.kubeconfig, *words, namespace=place.namespace)
    return done.returncode, done.stdout + done.stderr


def failed(place: Place, name: str, **fields: Any) -> Job:
    job = place.client.submit(a_job(name, "exit 3", resources=TINY, **fields))
    eventually(
        lambda: job.state().phase in (Phase.FAILED, Phase.QUEUED) and ended(place, name), "it fails", PATIENCE
    )
    return job


def ended(place: Place, name: str) -> bool:
    job = place.find(resources.TRAINJOB, name) or {}
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


# -- C1: a further attempt ------------------------------------------------------------------------
def test_the_annotation_cannot_be_written_onto_a_job_that_was_judged(alice: Place, team_b: Place) -> None:
    failed(alice, "innocent")
    status, text = annotate(alice, TRAINJOBS, "innocent", well_known.REST_ANNOTATION, exploit(team_b))
    assert (status != 0, "mpijob-identity" in text) == (True, True), text
    alice.client.delete("innocent")


@pytest.mark.parametrize("field", ["namespace", "secrets", "volumes", "command"])
def test_a_job_is_not_created_with_an_annotation_that_says_something_else(
    alice: Place, team_b: Place, field: str
) -> None:
    document = by_hand("said")
    rest = {field: json.loads(exploit(team_b))[field]}
    document["metadata"]["annotations"] = {well_known.REST_ANNOTATION: json.dumps(rest)}
    assert f"contradicts the MPIJob: {field}" in refusal(alice, document)


def test_nothing_is_created_elsewhere_by_who_follows_the_job_or_by_the_controller(
    kubeconfig: Path,
    kubeconfig_of: Callable[[str], Path],
    webhook: Governed,
    team_b: Place,
    account: Path,
) -> None:
    """In a namespace that nobody judges the annotation can be written; it still moves nobody to anything."""
    labels = webhook.labels | {"mpijob.dev/admission": "off"}
    with (
        own_place(kubeconfig, "hostile-off", labels) as place,
        somebody(kubeconfig_of("alice"), place) as mallory,
    ):
        scientist(place, "alice")
        failed(mallory, "innocent", retry=Retry(limit=1, backoff_seconds=1))
        first = place.find(resources.TRAINJOB, "innocent")
        assert first is not None
        assert annotate(mallory, TRAINJOBS, "innocent", well_known.REST_ANNOTATION, exploit(team_b))[0] == 0
        before = {one.namespace: everything(one) for one in (place, team_b)}
        done = place.mpijob("logs", "innocent")
        assert done.returncode == 0, done.stderr
        with pytest.raises(TimeoutError):
            follow(place, "innocent", 8)
        for one in (place, team_b):  # pods of the failed attempt go meanwhile; nothing comes
            assert everything(one) - before[one.namespace] == set(), "whoever looks writes nothing"
        with controller(place, account, webhook):
            second = eventually(
                lambda: place.find(resources.TRAINJOB, "innocent-a2"), "the next attempt", PATIENCE
            )
        assert everything(team_b) - before[team_b.namespace] == set()
        assert everything(Place(kubeconfig, "kube-system", "")) & {("TrainJob", "innocent-a2")} == set()
        for field in ("trainer", "activeDeadlineSeconds"):
            assert second["spec"].get(field) == first["spec"].get(field)
        runtimes = [place.find(resources.TRAINING_RUNTIME, name) for name in ("innocent", "innocent-a2")]
        assert "bobs-secret" not in json.dumps(runtimes)


def follow(place: Place, name: str, seconds: float) -> None:
    """Follow a job's log as the administrator for a while."""
    try:
        subprocess.run(
            place.argv("logs", "-f", name),
            env=place.environ(),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{name} is followed for {seconds:g} s") from error


def test_a_further_attempt_is_the_owners_own_act_and_judged_as_such(
    webhook: Governed, team_a: Place, alice: Place, account: Path
) -> None:
    failed(alice, "again", retry=Retry(limit=2, backoff_seconds=1))
    with controller(team_a, account, webhook):
        second = eventually(lambda: team_a.find(resources.TRAINJOB, "again-a2"), "a second attempt", PATIENCE)
        assert second["metadata"]["annotations"][well_known.OWNER_LABEL] == "alice"
        made = [
            one
            for one in server_audit(team_a)
            if one["verb"] == "create"
            and one["objectRef"].get("name") == "again-a2"
            and one["objectRef"]["resource"] == "trainjobs"
        ]
        assert {one["impersonatedUser"]["username"] for one in made} == {"alice"}
        assert "team-a" in made[0]["impersonatedUser"]["groups"], "her right comes by her group"
        binding = team_a.api.get(ROLE_BINDING.path(team_a.namespace, "team-a"))
        team_a.take_away(ROLE_BINDING, "team-a")
        try:
            eventually(lambda: ended(team_a, "again-a2"), "it fails, too", PATIENCE)
            refused = eventually(
                lambda: [one for one in told(team_a, "again-a2") if one["reason"] == "Refused"],
                "it is told",
                PATIENCE,
            )
            assert "alice" in refused[0]["message"]
            assert team_a.find(resources.TRAINJOB, "again-a3") is None, (
                "who has lost a right has lost it here, too"
            )
        finally:
            body = {key: binding[key] for key in ("roleRef", "subjects")}
            team_a.put(ROLE_BINDING, "team-a", **body)
        eventually(lambda: team_a.find(resources.TRAINJOB, "again-a3"), "with the right it goes on", PATIENCE)
    alice.client.delete("again")


# -- H2, H3: whose a job is -----------------------------------------------------------------------
def uid_of(job: Job) -> str:
    return job.ref.uid


def test_a_runtime_does_not_come_to_carry_another_jobs_uid(alice: Place, bob: Place) -> None:
    victim = alice.client.submit(a_job("victim", "sleep 600", resources=TINY))
    runtime = alice.find(resources.TRAINING_RUNTIME, "victim")
    assert runtime is not None
    mine = {"metadata": {"name": "trojan"}, "spec": copy.deepcopy(runtime["spec"])}
    for one in mine["spec"]["template"]["spec"]["replicatedJobs"]:
        one["template"]["spec"]["template"]["metadata"].pop("labels", None)
    bob.put(resources.TRAINING_RUNTIME, "trojan", spec=mine["spec"])
    labels = {"metadata": {"labels": {well_known.UID_LABEL: uid_of(victim)}}}
    status, text = patched(bob, RUNTIMES, "trojan", labels)
    assert (status != 0, "mpijob-identity" in text) == (True, True), text
    jobs = copy.deepcopy(mine["spec"])
    for one in jobs["template"]["spec"]["replicatedJobs"]:
        one["template"]["spec"]["template"]["metadata"] = {"labels": {well_known.UID_LABEL: uid_of(victim)}}
    status, text = patched(bob, RUNTIMES, "trojan", {"spec": jobs})
    assert (status != 0, "of another job" in text) == (True, True), text
    for label in well_known.ENGINE_NAMES.values():  # nor an engine's own label, by which a policy knows pods
        for one in jobs["template"]["spec"]["replicatedJobs"]:
            one["template"]["spec"]["template"]["metadata"] = {"labels": {label: "victim"}}
        status, text = patched(bob, RUNTIMES, "trojan", {"spec": jobs})
        assert (status != 0, "an engine names its jobs" in text) == (True, True), text
    bob.take_away(resources.TRAINING_RUNTIME, "trojan")
    victim.delete()


@pytest.mark.parametrize("key", [well_known.UID_LABEL, well_known.JOB_LABEL, well_known.ATTEMPT_LABEL])
def test_a_job_does_not_become_an_attempt_of_anothers(alice: Place, bob: Place, key: str) -> None:
    status, text = create(bob, by_hand("mine"))
    assert status == 0, text
    status, text = patched(bob, MPIJOBS, "mine", {"metadata": {"labels": {key: "victim"}}})
    assert (status != 0, "cannot be added, changed or removed" in text) == (True, True), text
    bob.kubectl("delete", MPIJOBS, "mine")


def test_a_runtime_is_not_rewritten_in_two_steps(alice: Place, bob: Place) -> None:
    victim = alice.client.submit(a_job("victim", "sleep 600", resources=TINY))
    gone: Document = {"metadata": {"labels": {well_known.UID_LABEL: None}}}
    assert patched(bob, RUNTIMES, "victim", gone)[0] != 0
    runtime = alice.find(resources.TRAINING_RUNTIME, "victim")
    assert runtime is not None
    spec = copy.deepcopy(runtime["spec"])
    spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ] = ["evil"]
    for body in ({"spec": spec}, {"spec": spec, **gone}):
        status, text = patched(bob, RUNTIMES, "victim", body)
        assert (status != 0, "cannot be" in text) == (True, True), text
    assert (alice.find(resources.TRAINING_RUNTIME, "victim") or {}).get("spec") == runtime["spec"]
    victim.delete()


def test_whoever_sees_a_uid_first_cannot_take_it(team_a: Place, alice: Place, bob: Place) -> None:
    """A job's runtime is there before the job: Bob copies its uid, and Alice's job is created all the same."""
    uid = job_uid.issue(team_a.namespace, "alice")
    early = by_hand("early")
    early["metadata"]["labels"] = {well_known.UID_LABEL: uid, well_known.JOB_LABEL: "early"}
    assert "was not issued for user 'bob'" in refusal(bob, early)
    status, text = create(alice, early)
    assert status == 0, text
    alice.kubectl("delete", MPIJOBS, "early")


def test_nobodys_success_is_anothers(team_a: Place, alice: Place, creator: Place) -> None:
    failed(alice, "nightly")
    for name in ("impostor", "nightly-r2", "nightly-a2"):
        document = by_hand(name)
        document["metadata"]["labels"] = {
            well_known.JOB_LABEL: "nightly",
            well_known.MANAGED_LABEL: well_known.MANAGED_BY,
        }
        create(creator, document)
    done = alice.mpijob("wait", "nightly", "--timeout=5s")
    assert done.returncode != 0
    assert "Succeeded" not in done.stdout
    assert (alice.client.state("nightly").phase, alice.client.state("nightly").owner) == (
        Phase.FAILED,
        "alice",
    )
    for name in ("impostor", "nightly-r2", "nightly-a2"):
        team_a.take_away(resources.MPIJOB, name)
    alice.client.delete("nightly")
    with pytest.raises(NotFound):
        alice.client.state("nightly")


# -- H5, the network: who is trusted ---------------------------------------------------------------
def a_pod(name: str, labels: dict[str, str]) -> Document:
    container = {"name": "m", "image": image("openmpi4"), "command": ["sleep", "600"]}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "securityContext": security,
        "containers": [container | {"securityContext": own}],
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("opendatahub", "kubeflow-trainer-controller-manager"),
        ("kubeflow", "mpi-operator"),
        ("volcano-system", "anybody"),
    ],
)
def test_a_namespace_that_bears_an_engines_name_is_not_the_engine(
    kubeconfig: Path, team_a: Place, namespace: str, name: str
) -> None:
    """A tenant takes a name that is free on this cluster, and an account of the engine's name in it."""
    team_a.api.create(
        resources.NAMESPACE.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "data-scientist"}
    try:
        with somebody(kubeconfig, Place(kubeconfig, namespace, team_a.settings.home)) as taken:
            token = an_account(taken, name)
            team_a.put(ROLE_BINDING, "taken", roleRef=role, subjects=[subject])
            config = kubeconfig_with(team_a, "taken", token)
        with somebody(config, team_a) as mallory:
            spy = a_pod("spy", {well_known.UID_LABEL: "victim"})
            assert "lets pods into a job's network" in refusal(mallory, spy)
            status, text = create(mallory, by_hand("patched"))
            assert status == 0, text
            status, text = patched(mallory, MPIJOBS, "patched", {"spec": {"slotsPerWorker": 9}})
            assert status != 0, text
            team_a.take_away(resources.MPIJOB, "patched")
    finally:
        team_a.api.delete(resources.NAMESPACE.path("", namespace))
        team_a.take_away(ROLE_BINDING, "taken")


def reaches(place: Place, pod: str, address: str) -> bool:
    done = run(
        place.kubeconfig, "exec", pod, "--", "nc", "-z", "-w", "2", address, "2222", namespace=place.namespace
    )
    return done.returncode == 0


def test_a_pod_that_says_it_is_a_jobs_does_not_reach_its_workers(team_a: Place, alice: Place) -> None:
    job = alice.running(a_job("walled", "sleep 600", resources=TINY))
    policy = team_a.find(resources.NETWORK_POLICY, f"walled{well_known.NETWORK_SUFFIX}")
    if policy is None:  # alice may not create policies: an administrator does it in the controller's place
        made = network_policy.of_object(
            team_a.find(resources.TRAINJOB, "walled") or {}, team_a.find(resources.TRAINING_RUNTIME, "walled")
        )
        assert made is not None
        team_a.api.create(resources.NETWORK_POLICY.path(team_a.namespace), made)
    target = str(team_a.worker(job, 0)["status"]["podIP"])
    launcher = team_a.launcher(job)["metadata"]["name"]
    engine = {well_known.ENGINE_NAMES["TrainJob"]: "walled", well_known.JOB_LABEL: "walled"}
    assert "lets pods into" in refusal(alice, a_pod("spy", engine | {well_known.UID_LABEL: job.ref.uid}))
    status, text = create(alice, a_pod("stranger", engine))  # the engine's own label alone says nothing
    assert status == 0, text
    team_a.kubectl("wait", "pod/stranger", "--for=condition=Ready", "--timeout=60s")
    eventually(lambda: not reaches(team_a, "stranger", target), "the stranger is held out")
    eventually(lambda: reaches(team_a, launcher, target), "the job's own pods talk")
    assert not reaches(team_a, "stranger", target)
    team_a.kubectl("delete", "pod", "stranger", "--grace-period=0", "--force")
    job.delete()


# -- M5, M6: our controller as somebody's deputy -----------------------------------------------------
def test_the_controller_opens_no_way_out_that_no_administrator_allowed(
    webhook: Governed, team_a: Place, creator: Place, account: Path
) -> None:
    words = ("0.0.0.0/0", "169.254.169.254", "namespace/kube-system")
    network = Network(egress=words)
    job = creator.client.submit(a_job("deputy", "sleep 600", resources=TINY, network=network))
    with controller(team_a, account, webhook):
        name = f"deputy{well_known.NETWORK_SUFFIX}"
        policy = eventually(
            lambda: team_a.find(resources.NETWORK_POLICY, name), "the controller makes its policy", PATIENCE
        )
        opened = json.dumps(policy["spec"]["egress"])
        assert not any(one in opened for one in ("0.0.0.0/0", "169.254.169.254"))
        assert opened.count("kube-system") == 1, "the name servers, and nobody else there"
        closed = eventually(
            lambda: [one for one in told(team_a, "deputy") if one["reason"] == "EgressNotAllowed"],
            "it is told",
            PATIENCE,
        )
        assert "namespace/kube-system" in closed[0]["message"]
    job.delete()
    with webhook.limits(team_a, allowedEgress=["internet:443"]):
        eventually(lambda: refused_egress(creator, network), "the limit is known")


def refused_egress(place: Place, network: Network) -> bool:
    try:
        place.client.submit(a_job("wide", "true", network=network)).delete()
    except Exception as error:  # whatever it is called: it must say why
        return "which namespace" in str(error)
    return False


def test_the_controllers_own_account_writes_nothing_but_what_is_a_jobs(
    webhook: Governed, team_a: Place, alice: Place, account: Path
) -> None:
    team_a.put(resources.CONFIG_MAP, "aws-auth", data={"a": "b"})
    policy = {"podSelector": {}, "policyTypes": ["Ingress"]}
    team_a.put(resources.NETWORK_POLICY, "deny-all", spec=policy)
    victim = alice.client.submit(a_job("kept", "sleep 600", resources=TINY))
    runtime = team_a.find(resources.TRAINING_RUNTIME, "kept")
    assert runtime is not None
    with Api(load(path=str(account))) as api:

        def forbidden(act: Callable[[], object]) -> None:
            with pytest.raises(ApiError) as caught:
                act()
            assert caught.value.status == 403, caught.value

        at = team_a.namespace
        forbidden(lambda: api.patch(resources.CONFIG_MAP.path(at, "aws-auth"), {"data": {"a": "c"}}))
        forbidden(lambda: api.delete(resources.CONFIG_MAP.path(at, "aws-auth")))
        forbidden(lambda: api.get(resources.SECRET.path(at, "any")))
        forbidden(lambda: api.delete(resources.NETWORK_POLICY.path(at, "deny-all")))
        forbidden(lambda: api.create(resources.MPIJOB.path(at), by_hand("mine")))
        forbidden(
            lambda: api.create(
                resources.TRAINING_RUNTIME.path(at),
                {
                    "apiVersion": resources.TRAINING_RUNTIME.api,
                    "kind": "TrainingRuntime",
                    "metadata": {"name": "x"},
                    "spec": runtime["spec"],
                },
            )
        )
        forbidden(
            lambda: api.create(
                resources.NETWORK_POLICY.path(at),
                {
                    "apiVersion": resources.NETWORK_POLICY.api,
                    "kind": "NetworkPolicy",
                    "metadata": {"name": "open"},
                    "spec": {"podSelector": {}, "ingress": [{}]},
                },
            )
        )
        pod = a_pod("bystander", {})
        team_a.api.create(resources.POD.path(at), pod)
        forbidden(lambda: api.delete(resources.POD.path(at, "bystander")))
    # Not "admin": the operator names it while a job of another test that it owns is to be created again.
    for user in ("kubernetes-admin", "bob", "system:serviceaccount:kube-system:default"):
        done = run(account, f"--as={user}", "get", "pods", namespace=team_a.namespace)
        assert "cannot impersonate" in done.stderr, user
    team_a.kubectl("delete", "pod", "bystander", "--grace-period=0", "--force")
    team_a.take_away(resources.NETWORK_POLICY, "deny-all")
    victim.delete()


# -- what pods are given ---------------------------------------------------------------------------
def test_what_the_user_may_not_read_is_not_given_to_pods_in_any_form(team_a: Place, creator: Place) -> None:
    team_a.put(resources.SECRET, "theirs", data={"k": "eA=="})
    team_a.put(resources.CONFIG_MAP, "their-map", data={"k": "x"})
    forms: dict[str, Document] = {
        "may not read Secret 'theirs'": {"imagePullSecrets": [{"name": "theirs"}]},
        "may not read ConfigMap 'their-map'": {
            "volumes": [{"name": "c", "configMap": {"name": "their-map"}}]
        },
        "may not use service account 'default'": {"automountServiceAccountToken": True},
    }
    for words, pod in forms.items():
        assert words in refusal(creator, by_hand("given", **pod)), words
    both = {"name": "s", "projected": {"sources": [{"secret": {"name": "theirs"}}]}}
    assert "may not read Secret 'theirs'" in refusal(creator, by_hand("given", volumes=[both]))
    status, text = create(creator, by_hand("plain"))
    assert status == 0, text
    team_a.take_away(resources.MPIJOB, "plain")


def test_a_creator_runs_jobs_with_code_that_goes_along(team_a: Place, creator: Place) -> None:
    """What is refused to others is a job's own: its code, which its creator cannot read back."""
    job = creator.client.submit(
        a_job("along", "cat hello.txt", code=Code(files={"hello.txt": "hi\n"}), resources=TINY)
    )
    job.wait_for_completion(PATIENCE)
    assert job.state().owner == f"system:serviceaccount:{team_a.namespace}:carol"
    job.delete()


def test_nobody_creates_a_job_in_another_teams_namespace(alice: Place, team_b: Place) -> None:
    document = by_hand("reach")
    document["metadata"]["namespace"] = team_b.namespace
    done = run(alice.kubeconfig, "create", "--filename=-", stdin=json.dumps(document))
    assert done.returncode != 0
    assert "forbidden" in done.stderr.lower()


# -- M7: what is told of all tenants -------------------------------------------------------------------
def scraped(port: int, token: str) -> int:
    """Return how a request for the metrics is answered."""
    context = ssl._create_unverified_context()
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)) as line:
        line.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
        return line.getresponse().status


def test_the_recorders_metrics_are_read_by_whom_the_cluster_lets_read_them(
    team_a: Place, tmp_path: Path
) -> None:
    keys = certificates.renew(("127.0.0.1",))
    (tmp_path / "tls.crt").write_bytes(keys.certificate)
    (tmp_path / "tls.key").write_bytes(keys.key)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    reader, stranger = an_account(team_a, "prometheus"), an_account(team_a, "stranger")
    name = f"metrics-{team_a.namespace}"
    rights = yaml.safe_load_all((DEPLOY / "base" / "recorder" / "rights.yaml").read_text())
    role = next(one for one in rights if one["metadata"]["name"] == "mpijob-metrics-reader")
    team_a.api.create(CLUSTER_ROLE.path(), role | {"metadata": {"name": name}})
    words = (
        f"--metrics-port={port}",
        f"--metrics-certificate={tmp_path}/tls.crt",
        f"--metrics-key={tmp_path}/tls.key",
    )
    try:
        with allowed_everywhere(team_a, "prometheus", name, name):
            service = Service(
                team_a, "recorder", "--metrics-address=0.0.0.0", *words, ready="recording",
                MPIJOB_HISTORY=str(tmp_path / "record"),
            )  # fmt: skip
            try:
                answers = [scraped(port, token) for token in (reader, stranger, "made-up", "")]
                assert answers == [200, 401, 401, 401]
            finally:
                service.kill()
            plain = team_a.mpijob("recorder", "--metrics-address=0.0.0.0", f"--metrics-port={port}")
            assert plain.returncode != 0
            assert "require TLS" in plain.stderr
    finally:
        team_a.api.delete(CLUSTER_ROLE.path("", name))
        for one in ("prometheus", "stranger"):
            team_a.take_away(resources.SERVICE_ACCOUNT, one)
