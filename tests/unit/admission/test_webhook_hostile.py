"""Jobs whose documents were written to get past a cluster's limits, or at what is somebody else's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.incoming_support import Knowing, a_job, a_review, documents, limited

from mpijob.cluster.webhook import admission_review
from mpijob.formats.admission import request_reader
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin
from mpijob.model import Network, Resources
from mpijob.model.platform.admission_request import Around

pytestmark = pytest.mark.security
OVER = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
Change = Callable[[Document], object]


def answered(document: Document, around: Around, *runtime: Document, **more: Any) -> list[str]:
    """Return what is refused of a request in a namespace that is not strict."""
    known = Knowing(around, *runtime)
    response = admission_review.respond("/judge", a_review(document, **more), known)["response"]
    if response["allowed"]:
        assert "could not evaluate" not in str(response.get("warnings"))
        return []
    return [one["message"].partition("\n")[0] for one in response["status"]["details"]["causes"]]


def an_mpijob(**fields: Any) -> Document:
    """Return an MPIJob that is written by hand."""
    (document,) = documents(a_job(**fields), "MPIJob", "")
    document["metadata"] |= {"labels": {}, "annotations": {}}
    return document


def pod(document: Document, role: str = "Worker") -> Document:
    """Return the pod spec of one role, to be changed."""
    found: Document = document["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]
    return found


def on_a_shared_runtime(**spec: Any) -> tuple[Document, Document]:
    """Return a runtime of the cluster's, and a TrainJob that somebody wrote for it."""
    runtime = builtin.document(builtin.SHIPPED[0], image="good/x:1")
    metadata = {"name": "t", "namespace": "cv"}
    spec = {"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": {"numNodes": 2}} | spec
    return runtime, {"apiVersion": trainjob.API, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def over_pods(field: str, **spec: Any) -> Document:
    """Return what a TrainJob lays over its runtime's pods, by the name that a version of Trainer has for it."""
    metadata = {"labels": {well_known.UID_LABEL: "victim"}}
    if field == "podSpecOverrides":
        return {field: [{"targetJobs": [{"name": "node"}], **spec}]}
    if field == "podTemplateOverrides":
        return {field: [{"targetJobs": [{"name": "node"}], "metadata": metadata, "spec": spec}]}
    template = {"metadata": metadata, "spec": spec}
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    over = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {field: [{"manager": "me.io/x", "trainingRuntimeSpec": over}]}


def using(**amounts: Any) -> Document:
    names = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "mig": "nvidia.com/mig-1g.5gb"}
    return {"resources": {"limits": {names.get(key, key): value for key, value in amounts.items()}}}


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
@pytest.mark.parametrize(
    "rest",
    [
        '{"workers":2,"resources":{"gpu":0},"deadline_seconds":1,"image":"good/x"}',
        '{"elastic":{"min_workers":1,"max_workers":2}}',
        '{"presets":["nonsense"]}',
        *("{", "[]", "null", "1", '{"elastic":{"min_workers":"x"}}'),
    ],
)
def test_what_a_job_says_of_itself_in_our_annotation_gets_it_past_no_limit(kind: str, rest: str) -> None:
    job = a_job(workers=100, image="evil:1", deadline_seconds=99.0, resources=Resources(gpu=8))
    *runtime, document = documents(job, kind)
    document["metadata"]["annotations"] = {well_known.REST_ANNOTATION: rest}
    around = limited(max_workers=4, max_gpus=8, max_duration_seconds=60.0, allowed_images=("good/",))
    response = admission_review.respond("/judge", a_review(document), Knowing(around, *runtime))["response"]
    causes = [one["field"] for one in response["status"]["details"]["causes"]]
    assert causes[-4:] == ["image", "workers", "resources.gpu", "deadline_seconds"]


# -- what is counted ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "gpus"),
    [
        (lambda spec: spec["containers"][0].update(using(nvidia="8000m")), 16),
        (lambda spec: spec["containers"][0].update(using(nvidia="8e0")), 16),
        (lambda spec: spec["containers"][0].update(using(nvidia=4, amd="5")), 18),
        (lambda spec: spec["containers"].append({"name": "side", **using(nvidia="64")}), 128),
        (lambda spec: spec.update(initContainers=[{"name": "first", **using(mig="7")}]), 14),
        (
            lambda spec: spec.update(
                initContainers=[{"name": "beside", "restartPolicy": "Always", **using(nvidia="9")}]
            ),
            18,
        ),
    ],
)
def test_gpus_are_counted_in_every_form_kind_and_container(change: Change, gpus: int) -> None:
    document = an_mpijob(workers=2)
    change(pod(document))
    assert answered(document, limited(max_gpus=8)) == [
        f"Requested {gpus} GPUs, but project quota is 8. Contact admin or reduce workers."
    ]
    assert answered(document, limited(max_gpus=gpus)) == []


def test_the_gpus_that_a_job_gives_to_every_node_of_a_shared_runtime_are_counted() -> None:
    trainer = {"numNodes": 4, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "64"}}}
    runtime, document = on_a_shared_runtime(trainer=trainer)
    assert "Requested 256 GPUs" in answered(document, limited(max_gpus=255), runtime)[0]
    assert answered(document, limited(max_gpus=256), runtime) == []
    del trainer["numNodes"]
    runtime["spec"]["mlPolicy"]["numNodes"] = 9
    assert "9 workers requested" in answered(document, limited(max_workers=4), runtime)[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["containers"][0].update(using(nvidia="eight")),
        lambda spec: spec["containers"][0].update(using(nvidia="-8")),
        lambda spec: spec["containers"][0].update(using(nvidia="1e999")),
        lambda spec: spec["containers"][0].update(using(cpu="1e000")),
    ],
)
@pytest.mark.parametrize("limits", [{"max_gpus": 8}, {"queue": "q"}, {"concurrent_jobs": 5}])
def test_what_cannot_be_counted_is_refused_where_something_limits(
    change: Change, limits: dict[str, Any]
) -> None:
    document = an_mpijob(workers=2)
    change(pod(document))
    (told,) = answered(document, limited(**limits))
    assert told.startswith("MPIJob 'bert' cannot be checked against the limits of namespace 'cv': ")
    assert answered(document, Around()) == []


# -- what pods are given -----------------------------------------------------------------------------
@pytest.mark.parametrize("field", OVER)
def test_what_is_laid_over_a_runtime_is_judged_by_whichever_name_trainer_has_for_it(field: str) -> None:
    over = over_pods(field, volumes=[{"name": "h", "hostPath": {"path": "/"}}])
    runtime, document = on_a_shared_runtime(**over)
    told = answered(document, Around(), runtime)
    assert any("requests the host's directory /, which is not allowed for jobs here" in one for one in told)
    assert any("mpijob.dev/uid=victim" in one for one in told) == (field != "podSpecOverrides")


def test_an_image_is_judged_wherever_it_is_named() -> None:
    around, evil = limited(allowed_images=("good/",)), {"numNodes": 2, "image": "evil/miner:1"}
    sentence = "image 'evil/miner:1' is not allowed in namespace 'cv'"
    runtime, document = on_a_shared_runtime(trainer=evil)
    assert answered(document, around, runtime) == [sentence]
    del runtime["spec"]["mlPolicy"]["mpi"]  # nor is it run by a runtime that is none of MPI
    assert answered(document, around, runtime) == [sentence]
    assert answered(document, around) == [sentence]
    document = an_mpijob(image="good/x:1")
    assert answered(document, around) == []
    pod(document)["volumes"].append({"name": "files", "image": {"reference": "evil/miner:1"}})
    assert answered(document, around) == [sentence]


def test_a_priority_class_is_judged_wherever_it_is_named() -> None:
    around, sentence = limited(priority_classes=("low",)), "priority class '{}' is not allowed in"
    document = an_mpijob()
    document["metadata"]["labels"] = {well_known.PRIORITY_LABEL: "first"}
    document["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "second"}
    pod(document)["priorityClassName"] = "third"
    told = answered(document, around)
    assert [one.partition(" namespace")[0] for one in told] == [
        sentence.format(name) for name in ("first", "second", "third")
    ]
    runtime, document = on_a_shared_runtime()
    document["metadata"]["labels"] = {well_known.PRIORITY_LABEL: "first"}
    assert len(answered(document, around, runtime)) == 1
    document["metadata"]["labels"] = {well_known.PRIORITY_LABEL: "low"}
    assert answered(document, around, runtime) == []


TOKEN = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def accounts(document: Document, *runtime: Document) -> list[str]:
    """Return the service accounts that a user is asked about."""
    return sorted(
        {name for one in request_reader.read(a_review(document), *runtime).pods for name in one.accounts}
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"serviceAccountName": "mighty", "automountServiceAccountToken": True},
        {"serviceAccountName": "mighty", "automountServiceAccountToken": None},
        {"serviceAccount": "mighty", "automountServiceAccountToken": None},
        {"serviceAccountName": "mighty", "volumes": [TOKEN]},
    ],
)
def test_who_lets_pods_hold_an_accounts_token_is_asked_for_the_right(spec: Document) -> None:
    document = an_mpijob()
    pod(document).update(spec)
    assert accounts(document) == ["mighty"]


@pytest.mark.parametrize("field", OVER)
def test_who_lays_an_account_over_a_runtime_is_asked_where_its_pods_hold_a_token(field: str) -> None:
    runtime, document = on_a_shared_runtime(**over_pods(field, serviceAccountName="mighty"))
    assert accounts(document, runtime) == []  # ours mount none
    assert accounts(document) == ["mighty"]  # whatever cannot be known may
    for template in trainjob.pod_templates(runtime).values():
        del template["spec"]["automountServiceAccountToken"]
    assert accounts(document, runtime) == ["mighty"]
    runtime, document = on_a_shared_runtime(**over_pods(field, volumes=[TOKEN]))
    assert accounts(document, runtime) == ["default"]
    for template in trainjob.pod_templates(runtime).values():
        template["spec"]["serviceAccountName"] = "mighty"
    assert accounts(document, runtime) == ["mighty"]
    assert accounts(on_a_shared_runtime()[1], runtime) == []  # the administrator's own word


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_ordinary_jobs_are_asked_about_no_account(kind: str) -> None:
    *runtime, document = documents(a_job(), kind)
    assert accounts(document, *runtime) == []
    plain = an_mpijob()
    pod(plain).update(automountServiceAccountToken=None)  # who says nothing is given none
    pod(plain, "Launcher").update(serviceAccountName="own", automountServiceAccountToken=False)
    assert accounts(plain) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"automountServiceAccountToken": True},
        {"serviceAccountName": "default", "automountServiceAccountToken": True},
        {"automountServiceAccountToken": False, "volumes": [TOKEN]},
    ],
)
def test_who_lets_pods_hold_the_default_accounts_token_is_asked_for_the_right_too(spec: Document) -> None:
    document = an_mpijob()
    pod(document).update(spec)
    assert accounts(document) == ["default"]


def test_secrets_for_images_and_those_behind_another_name_are_found() -> None:
    document = an_mpijob()
    both = {"name": "v", "secret": {"secretName": "mine", "name": "bobs"}}
    pod(document).update(imagePullSecrets=[{"name": "pull"}], volumes=[both])
    assert request_reader.read(a_review(document)).secrets == ("bobs", "mine", "pull")


def test_config_maps_are_found_wherever_they_stand_and_judged() -> None:
    document = an_mpijob()
    projected = {"name": "p", "projected": {"sources": [{"configMap": {"name": "c"}}]}}
    pod(document).update(volumes=[{"name": "v", "configMap": {"name": "a"}}, projected])
    pod(document)["containers"][0]["envFrom"] = [{"configMapRef": {"name": "b"}}]
    assert request_reader.read(a_review(document)).config_maps == ("a", "b", "c")
    (told,) = answered(document, Around(unreadable_config_maps=("a",)))
    assert "may not read ConfigMap 'a'" in told


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "kernel.msgmax"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "without seccomp"),
        ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "process of the host"),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "port 80"),
        ({"containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]}, "Unmasked"),
        (
            {"containers": [{"name": "c", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]},
            "without AppArmor",
        ),
    ],
)
def test_nothing_of_the_host_is_given_by_any_other_name(spec: Document, words: str) -> None:
    document = an_mpijob()
    pod(document).update(spec)
    assert any(words in one for one in answered(document, Around()))


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_a_way_out_that_the_namespace_does_not_allow_is_refused(kind: str) -> None:
    job = a_job(network=Network(egress=("10.0.0.0/8", "namespace/kube-system")), env={"U": "https://x.org"})
    *runtime, document = documents(job, kind)
    around = limited(allowed_egress=("internet:443", "10.1.0.0/16"))
    told = answered(document, around, *runtime)
    assert [one.partition(" need access to ")[2].partition(",")[0] for one in told] == [
        "10.0.0.0/8",
        "namespace/kube-system",
    ]
    assert answered(document, limited(allowed_egress=("*",)), *runtime) == []
    assert answered(document, Around(), *runtime) == [], "nothing is set: the controller opens nothing"


def test_more_accounts_than_can_be_asked_about_in_time_are_refused() -> None:
    patches = [over_pods(OVER[2], serviceAccountName=f"a{number}")[OVER[2]][0] for number in range(9)]
    _, document = on_a_shared_runtime(podSpecOverrides=patches)
    assert answered(document, Around()) == ["pods use 9 service accounts; at most 8 are checked"]


# -- what is changed later ---------------------------------------------------------------------------
LIMITS = {
    "queue": "main",
    "max_duration_seconds": 60.0,
    "allowed_images": ("good/",),
    "priority_classes": ("low",),
}


def updated(before: Document, change: Change, *runtime: Document, **limits: Any) -> list[str]:
    """Return what is refused when somebody changes a job, or a runtime, that is there."""
    after = copy.deepcopy(before)
    change(after)
    around = limited(**(LIMITS | limits))
    return answered(after, around, *runtime, operation="UPDATE", oldObject=before)


def policy(document: Document) -> Document:
    """Return where a job says how long it may take, and whether it rests."""
    found: Document = document["spec"]
    return found if document["kind"] == "TrainJob" else found.setdefault("runPolicy", {})


def a_queued(kind: str) -> list[Document]:
    """Return a job that is in a queue and has a deadline, behind its runtime."""
    *runtime, document = documents(a_job(image="good/x:1", queue="main", deadline_seconds=60.0), kind)
    return [*runtime, document]


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda one: one["metadata"]["labels"].update({well_known.QUEUE_LABEL: "vip"}),
            "queue 'vip' is set",
        ),
        (lambda one: one["metadata"]["labels"].pop(well_known.QUEUE_LABEL), "no queue is set"),
        (lambda one: one["metadata"]["labels"].update({well_known.PRIORITY_LABEL: "top"}), "class 'top'"),
        (lambda one: policy(one).pop("activeDeadlineSeconds"), "has no deadline"),
        (lambda one: policy(one).update(activeDeadlineSeconds=999), "the job may run 999 s"),
    ],
)
def test_a_job_is_held_to_the_limits_when_it_is_changed(kind: str, change: Change, words: str) -> None:
    *runtime, document = a_queued(kind)
    (told,) = updated(document, change, *runtime)
    assert words in told


def test_a_runtime_is_held_to_the_limits_when_it_is_changed_and_the_jobs_of_it_are_left_alone() -> None:
    runtime, document = a_queued("TrainJob")

    def evil(one: Document) -> None:
        for name in ("node", "launcher"):
            trainjob.pod_templates(one)[name]["spec"]["containers"][0]["image"] = "evil:1"

    assert any("image 'evil:1' is not allowed" in one for one in updated(runtime, evil))
    evil(runtime)
    assert updated(document, lambda one: one["metadata"].update(finalizers=["x"]), runtime) == []


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
@pytest.mark.parametrize(
    "change",
    [
        lambda one: None,
        lambda one: one["metadata"].update(finalizers=["x/y"]),
        lambda one: one.update(status={"conditions": []}),
        lambda one: policy(one).update(suspend=True),
    ],
)
def test_limits_that_became_stricter_leave_a_job_alone_whose_update_changes_none_of_it(
    kind: str, change: Change
) -> None:
    *runtime, document = a_queued(kind)
    document["metadata"]["labels"][well_known.PRIORITY_LABEL] = "top"
    policy(document)["suspend"] = False
    around = {"queue": "other", "max_duration_seconds": 5.0, "allowed_images": ("none",), "max_workers": 1}
    assert updated(document, change, *runtime, **around) == []


@pytest.mark.parametrize("kind", ["TrainJob", "MPIJob"])
def test_a_job_leaves_its_queue_only_to_rest_and_starts_in_none(kind: str) -> None:
    *runtime, document = a_queued(kind)

    def leave(one: Document) -> None:
        del one["metadata"]["labels"][well_known.QUEUE_LABEL]
        policy(one)["suspend"] = True

    assert updated(document, leave, *runtime) == []
    leave(document)
    (told,) = updated(document, lambda one: policy(one).update(suspend=False), *runtime)
    assert told == "no queue is set, but jobs of namespace 'cv' must use 'main'"
    back = {well_known.QUEUE_LABEL: "main"}
    assert updated(document, lambda one: one["metadata"]["labels"].update(back), *runtime) == []
