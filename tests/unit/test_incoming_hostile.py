"""Jobs whose documents were written to get past a cluster's limits, or at what is somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.incoming_support import Knowing, a_job, a_review, documents, limited

from mpijob.cluster import reviewing
from mpijob.dialects import runtimes, terms, trainjob
from mpijob.dialects.terms import Document
from mpijob.model import Resources
from mpijob.model.incoming import Around

pytestmark = pytest.mark.security
OVER = ("runtimePatches", "podTemplateOverrides", "podSpecOverrides")
Change = Callable[[Document], object]


def answered(document: Document, around: Around, *runtime: Document, **more: Any) -> list[str]:
    """Return what is refused of a request in a namespace that is not strict."""
    known = Knowing(around, *runtime)
    response = reviewing.answer("/judge", a_review(document, **more), known)["response"]
    if response["allowed"]:
        assert "could not judge" not in str(response.get("warnings"))
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
    runtime = runtimes.document(runtimes.SHIPPED[0], image="good/x:1")
    metadata = {"name": "t", "namespace": "cv"}
    spec = {"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": {"numNodes": 2}} | spec
    return runtime, {"apiVersion": trainjob.API, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def over_pods(field: str, **spec: Any) -> Document:
    """Return what a TrainJob lays over its runtime's pods, by the name that a version of Trainer has for it."""
    metadata = {"labels": {terms.UID_LABEL: "victim"}}
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
    document["metadata"]["annotations"] = {terms.REST_ANNOTATION: rest}
    around = limited(max_workers=4, max_gpus=8, max_duration_seconds=60.0, allowed_images=("good/",))
    response = reviewing.answer("/judge", a_review(document), Knowing(around, *runtime))["response"]
    causes = [one["field"] for one in response["status"]["details"]["causes"]]
    assert causes == ["image", "workers", "resources.gpu", "deadline_seconds"]


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
    assert "9 workers are asked for" in answered(document, limited(max_workers=4), runtime)[0]


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
    assert told.startswith("MPIJob 'bert' cannot be held against the limits of namespace 'cv': ")
    assert answered(document, Around()) == []


# -- what pods are given -----------------------------------------------------------------------------
@pytest.mark.parametrize("field", OVER)
def test_what_is_laid_over_a_runtime_is_judged_by_whichever_name_trainer_has_for_it(field: str) -> None:
    over = over_pods(field, volumes=[{"name": "h", "hostPath": {"path": "/"}}])
    runtime, document = on_a_shared_runtime(**over)
    told = answered(document, Around(), runtime)
    assert any("asks for the host's directory /, which jobs do not get here" in one for one in told)
    assert any("mpijob.dev/uid=victim" in one for one in told) == (field != "podSpecOverrides")


def test_an_image_is_judged_wherever_it_is_named() -> None:
    around, evil = limited(allowed_images=("good/",)), {"numNodes": 2, "image": "evil/miner:1"}
    sentence = "image 'evil/miner:1' is not among those that namespace 'cv' allows"
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
    around, sentence = limited(priority_classes=("low",)), "priority class '{}' is not among those that"
    document = an_mpijob()
    document["metadata"]["labels"] = {terms.PRIORITY_LABEL: "first"}
    document["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": "second"}
    pod(document)["priorityClassName"] = "third"
    told = answered(document, around)
    assert [one.partition(" namespace")[0] for one in told] == [
        sentence.format(name) for name in ("first", "second", "third")
    ]
    runtime, document = on_a_shared_runtime()
    document["metadata"]["labels"] = {terms.PRIORITY_LABEL: "first"}
    assert len(answered(document, around, runtime)) == 1
    document["metadata"]["labels"] = {terms.PRIORITY_LABEL: "low"}
    assert answered(document, around, runtime) == []
