"""A further attempt is a copy of judged objects: no annotation or label of anybody makes it something else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cluster_support import a_job, a_rich_job
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.actions.lifecycle import LifecycleActions
from mpijob.backends.kubernetes.auth import impersonation
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.logs.follow_job import JobFollower
from mpijob.backends.kubernetes.preflight.context import ClusterContext
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.job_reader import JobReader
from mpijob.backends.kubernetes.submit import create_objects, planner, retry
from mpijob.formats.kubernetes import mpijob, next_attempt, trainjob
from mpijob.formats.kubernetes.metadata import identity, passthrough, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.history import account_store
from mpijob.model import (
    Amounts,
    Facts,
    Family,
    JobRef,
    JobState,
    LogQuery,
    MPIJob,
    Network,
    Phase,
    Plan,
    Program,
    Resources,
    Retry,
    job_uid,
)
from mpijob.settings import Settings

pytestmark = [pytest.mark.security, pytest.mark.hostile]
SERVED = frozenset({resources.TRAINER_API, resources.JOBSET_API, resources.MPI_OPERATOR_API})
ROOM = Amounts(cores=64, memory_bytes=1 << 40)
# The annotation of the review: after a failure it made the controller create a job in any namespace with any Secret.
EXPLOIT = {
    "name": "innocent",
    "namespace": "team-b",
    "owner": "admin",
    "image": "evil",
    "command": ["cat", "/secret"],
    "workers": 64,
    "slots": 64,
    "env": {"A": "b"},
    "secrets": [{"env": "S", "source": "bobs-secret/password"}],
    "volumes": [{"mount": "/secret", "kind": "secret", "source": "bobs-secret"}],
    "resources": {"gpu": 8},
    "launcher": {"cpu": "64"},
    "pull_secrets": ["bobs-pull-secret"],
    "placement": {"node_selector": {"pool": "control-plane"}},
    "queue": "somebody-elses",
    "labels": {"team": "b"},
    "cost": {"team": "b"},
    "deadline_seconds": 1e9,
    "grace_seconds": 1e9,
    "programs": [{"ranks": 1, "command": ["cat", "/secret"]}],
}


def annotated(document: Document, rest: object) -> Document:
    changed = copy.deepcopy(document)
    changed["metadata"].setdefault("annotations", {})[well_known.REST_ANNOTATION] = json.dumps(rest)
    return changed


@pytest.mark.thorough
@pytest.mark.parametrize("family", [Family.OPENMPI, Family.MPICH])
@pytest.mark.parametrize("field", sorted(EXPLOIT))
def test_an_annotation_is_believed_in_nothing_that_the_document_tells_itself(
    family: Family, field: str
) -> None:
    dialect: Any = trainjob if family is Family.OPENMPI else mpijob
    mpi = Family.AUTO if family is Family.OPENMPI else family
    *runtime, document = dialect.write(a_job(mpi=mpi), Shape(family=family))
    before = dialect.read((*runtime, document)).job
    changed = annotated(document, {field: EXPLOIT[field]})
    assert dialect.read((*runtime, changed)).job == before
    told = dialect.native((*runtime, changed)) if family is Family.OPENMPI else dialect.native(changed)
    line = dialect.launch_line((*runtime, changed) if family is Family.OPENMPI else changed)
    assert passthrough.contradictions(told, changed["metadata"]["annotations"], line) == (field,)


def test_what_no_field_tells_is_read_from_the_annotation() -> None:
    *runtime, document = trainjob.write(a_job())
    told = {"description": "x", "retry": {"limit": 2}, "network": {"egress": ["internet:443"]}}
    job = trainjob.read((*runtime, annotated(document, told))).job
    assert (job.description, job.retry.limit, job.network.egress) == ("x", 2, ("internet:443",))


def test_programs_are_believed_only_as_the_launch_line_starts_them() -> None:
    programs = (Program(ranks=1, command=("a", "b")), Program(ranks=2, command=("c",), args=("d",)))
    documents = trainjob.write(a_job(command=(), programs=programs))
    assert trainjob.read(documents).job.programs == programs
    runtime, document = documents
    for wrong in (
        programs[:1],
        programs[::-1],
        (*programs, programs[0]),
        (programs[0], Program(ranks=2, command=("e",))),
    ):
        forged = annotated(document, {"programs": msgspec.to_builtins(wrong)})
        assert trainjob.read((runtime, forged)).job.programs == ()


# -- the next attempt -----------------------------------------------------------------------------
def a_plan(user: str = "alice", names: frozenset[str] = frozenset(), **fields: Any) -> Plan:
    job = MPIJob(**{"name": "x", "namespace": "team-a", "image": "img:1", "command": ("false",)} | fields)
    around = ClusterContext(served=SERVED, names=names, user=1000, owner=user, isolates=True)
    facts = Facts(place="cluster", capacity=ROOM, free=ROOM)
    return planner.plan(job, facts, around, Settings(), Path("/nonexistent"), "cluster")


def submitted(api: Store, plan: Plan) -> JobRef:
    create_objects.submit(api, plan).owned()
    return JobRef(plan.job.namespace, plan.job.name, plan.uid)


def started_again(api: Store, ref: JobRef) -> None:
    found = job_objects.find(api, ref, lambda: SERVED)
    retry.start(api, found, job_objects.runtime(api, found.job))


def stripped(document: Document) -> Document:
    """Return a document without what one attempt must have of its own."""
    text = json.dumps({"metadata": document["metadata"].get("labels"), "spec": document["spec"]})
    text = text.replace("x-a2", "x").replace('"mpijob.dev/attempt": "2"', '"mpijob.dev/attempt": "1"')
    found: Document = json.loads(
        text.replace('"MPIJOB_ATTEMPT", "value": "2"', '"MPIJOB_ATTEMPT", "value": "1"')
    )
    return found


@pytest.mark.parametrize("mpi", [Family.AUTO, Family.MPICH])
def test_the_second_attempt_is_the_first_one_whatever_the_annotation_has_become(mpi: Family) -> None:
    api, plan = Store(), a_plan(mpi=mpi, retry=Retry(limit=1), env={"LR": "0.1"}, network=Network())
    ref = submitted(api, plan)
    (path,) = [one for one in api.objects if one.endswith(("trainjobs/x", "mpijobs/x"))]
    api.objects[path] = annotated(api.objects[path], EXPLOIT | {"retry": {"limit": 1, "backoff_seconds": 0}})
    before = copy.deepcopy(api.objects)
    started_again(api, ref)
    made = {key: one for key, one in api.objects.items() if key not in before}
    assert made
    assert {one["metadata"]["namespace"] for one in made.values()} == {"team-a"}
    for key, one in made.items():
        assert stripped(one) == stripped(before[key.replace("x-a2", "x")]), key


def test_what_users_queues_and_the_server_wrote_onto_a_job_does_not_come_along() -> None:
    runtime, job = trainjob.write(a_rich_job(), Shape(uid="u1"))
    job["metadata"]["annotations"] |= {
        well_known.CANCELLED_ANNOTATION: "now",
        well_known.ACTS_ANNOTATION: "[]",
        "a/b": "c",
    }
    job["metadata"] |= {
        "uid": "1",
        "resourceVersion": "2",
        "ownerReferences": [{"uid": "3"}],
        "finalizers": ["f"],
    }
    job["spec"] |= {
        "suspend": True,
        "runtimePatches": [{"manager": "kueue.x-k8s.io/manager"}, {"manager": "somebody"}],
    }
    job["status"] = {"conditions": []}
    made = next_attempt.documents(job, runtime, first="bert", attempt=3)[-1]
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert set(made["metadata"]["annotations"]) == {well_known.REST_ANNOTATION, well_known.OWNER_LABEL}
    assert "suspend" not in made["spec"]
    assert [one["manager"] for one in made["spec"]["runtimePatches"]] == ["somebody"]
    assert (made["metadata"]["name"], made["spec"]["runtimeRef"]["name"]) == ("bert-a3", "bert-a3")


def test_kueues_choice_of_nodes_for_one_attempt_is_not_that_of_the_next() -> None:
    (job,) = mpijob.write(a_rich_job(), Shape(uid="u1", family=Family.MPICH))
    replicas = job["spec"]["mpiReplicaSpecs"]
    podsets = [
        {"name": role.lower(), "template": copy.deepcopy(one["template"])} for role, one in replicas.items()
    ]
    for one in replicas.values():
        one["template"]["spec"].setdefault("nodeSelector", {})["flavor"] = "spot"
    made = next_attempt.documents(
        job, None, first="bert", attempt=2, workload={"spec": {"podSets": podsets}}
    )[-1]
    placed = [
        one["template"]["spec"].get("nodeSelector") or {} for one in made["spec"]["mpiReplicaSpecs"].values()
    ]
    assert all("flavor" not in one for one in placed)
    assert {"pool": "gpu"} in placed


# -- reading never writes -------------------------------------------------------------------------
def failed(api: Store, ref: JobRef) -> None:
    failed_at(api, resources.TRAINJOB.path(ref.namespace, ref.name))


def failed_at(api: Store, path: str) -> None:
    job = api.objects[path]
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "x",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    job["status"] = {"conditions": [condition]}


@pytest.mark.parametrize("how", ["look", "state", "lines", "over", "events"])
def test_looking_waiting_and_following_only_read(how: str) -> None:
    api, plan = Store(), a_plan(retry=Retry(limit=3, backoff_seconds=0))
    ref = submitted(api, plan)
    failed(api, ref)
    eye = JobReader(api)
    eye.__dict__["served"] = SERVED
    attendance = JobFollower(api, eye)
    api.asked = []
    match how:
        case "look":
            eye.read(ref)
        case "state":
            attendance._state(ref)
        case "over":
            attendance._has_ended(ref)
        case "lines":
            assert [*attendance.lines(ref, LogQuery())] == []
        case "events":
            next(attendance.events(ref, follow=True), None)
    assert {method for method, _ in api.asked} == {"GET"}
    assert api.names("trainjobs") == ["x"]


# -- whose a job is -------------------------------------------------------------------------------
def test_a_uid_is_the_users_and_namespaces_that_it_was_issued_for() -> None:
    uid = job_uid.issue("team-a", "alice")
    assert job_uid.belongs_to(uid, "team-a", "alice")
    others = [("team-a", "bob"), ("team-b", "alice"), ("team-a", ""), ("team-a", "alice\0")]
    assert not any(job_uid.belongs_to(uid, *other) for other in others)
    assert not job_uid.belongs_to(uid[:16], "team-a", "alice")
    assert len({job_uid.issue("team-a", "alice") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("x", True),
        ("x-r2", True),
        ("x-a3", True),
        ("x-r2-a3", True),
        ("evil", False),
        ("x-evil", False),
        ("xa2", False),
    ],
)
def test_a_label_is_believed_only_on_an_object_whose_name_fits(name: str, belongs: bool) -> None:
    uid = job_uid.issue("team-a", "alice")
    labels = {well_known.JOB_LABEL: "x", well_known.UID_LABEL: uid, well_known.ATTEMPT_LABEL: "9"}
    metadata = {"name": name, "namespace": "team-a", "uid": "given", "labels": labels}
    found = identity.of(metadata | {"annotations": {well_known.OWNER_LABEL: "alice"}})
    own = (JobRef("team-a", name, "given"), 1)
    assert found[:2] == ((JobRef("team-a", "x", uid), 9) if belongs else own)
    assert identity.of(metadata | {"annotations": {well_known.OWNER_LABEL: "mallory"}})[:2] == own
    assert identity.of(metadata)[:2] == own, "nobody knows whose it is"


def impostor(api: Store, victim: JobRef, name: str, owner: str, uid: str = "") -> None:
    """Put a job there that says it is the victim's ninth attempt, and has succeeded."""
    document = copy.deepcopy(api.objects[resources.TRAINJOB.path(victim.namespace, victim.name)])
    document["metadata"] |= {
        "name": name,
        "uid": f"uid-of-{name}",
        "creationTimestamp": "2099-01-01T00:00:00Z",
    }
    document["metadata"]["labels"] |= {well_known.ATTEMPT_LABEL: "9", well_known.UID_LABEL: uid or victim.uid}
    document["metadata"]["annotations"][well_known.OWNER_LABEL] = owner
    document["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    api.objects[resources.TRAINJOB.path(victim.namespace, name)] = document


@pytest.mark.parametrize("name", ["evil", "x-r2", "x-a9", "x-r2-a9"])
@pytest.mark.parametrize("by_uid", [True, False])
def test_nobodys_success_is_taken_for_anothers(name: str, by_uid: bool) -> None:
    api, plan = Store(), a_plan()
    ref = submitted(api, plan)
    failed(api, ref)
    impostor(api, ref, name, "mallory")
    asked = ref if by_uid else JobRef("team-a", "x")
    assert job_objects.find(api, asked, lambda: SERVED).name == "x"
    assert job_objects.find(api, asked, lambda: SERVED).earlier == ()


def test_whoever_has_a_job_of_the_name_finds_their_own() -> None:
    api = Store()
    submitted(api, a_plan("alice"))
    submitted(api, a_plan("bob", names=frozenset({"x"})))
    for user, name in (("alice", "x"), ("bob", "x-r2"), ("carol", "x")):
        found = job_objects.find(api, JobRef("team-a", "x"), lambda: SERVED, lambda user=user: user)  # type: ignore[misc] # mypy knows no defaults of a lambda
        assert found.name == name, user


# -- whom a controller may act as -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("alice", ["team-a", "system:authenticated"], ("team-a",)),
        ("alice", ["system:masters"], ()),
        ("system:serviceaccount:team-a:ci", ["system:serviceaccounts"], ()),
        ("system:kube-controller-manager", [], None),
        ("system:admin", ["team-a"], None),
        ("", ["team-a"], None),
    ],
)
def test_nobody_of_the_cluster_itself_is_acted_for(
    user: str, groups: list[str], expected: tuple[str, ...] | None
) -> None:
    notes = {well_known.OWNER_LABEL: user, well_known.OWNER_GROUPS: "\n".join(groups)}
    found = impersonation.owner({"annotations": notes})
    assert (None if found is None else found.groups) == expected


# -- accounts -------------------------------------------------------------------------------------
def test_what_a_job_held_is_counted_by_its_own_fields() -> None:
    """128 GPUs were counted as none, and paid by nobody, where the annotation said so."""
    runtime, document = trainjob.write(a_job(workers=16, resources=Resources(gpu=8, cpu="4")))
    forged = annotated(document, {"workers": 1, "resources": {"gpu": 0, "cpu": "1m"}, "cost": {"team": "b"}})
    state = JobState(ref=JobRef("team-cv", "bert", "u"), phase=Phase.SUCCEEDED, started=1.0, finished=3601.0)
    accounts = [
        account_store.build_account(
            state, msgspec.json.encode(trainjob.read((runtime, one)).job), None, {}, 7200.0
        )
        for one in (document, forged)
    ]
    assert accounts[0] == accounts[1]
    assert accounts[1].gpu_hours == 128.0


def test_who_deletes_a_job_by_its_name_leaves_other_peoples_jobs_of_that_name() -> None:
    api = Store()
    submitted(api, a_plan("alice"))
    submitted(api, a_plan("bob", names=frozenset({"x"})))
    for path in [*api.objects]:
        if "/trainjobs/" in path:
            failed_at(api, path)

    def collected(method: str, path: str) -> None:  # what a deleted job owns goes with it
        if method == "DELETE" and "/trainjobs/" in path:
            api.objects.pop(path.replace("/trainjobs/", "/trainingruntimes/"), None)

    api.before = collected
    eye = JobReader(api, me=lambda: "alice")
    eye.__dict__["served"] = SERVED
    LifecycleActions(api, eye, lambda: "alice").delete(JobRef("team-a", "x"), 0)
    assert api.names("trainjobs") == ["x-r2"]
