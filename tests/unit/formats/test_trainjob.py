"""TrainJob and its own TrainingRuntime: the known traps of Trainer, golden files, and the way back."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.cluster_support import a_job, a_rich_job, expect_golden
from tests.unit.formats.test_jobfile_roundtrip import KINDS, part, plain
from tests.unit.properties import examples

from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import trainjob
from mpijob.formats.kubernetes.metadata import passthrough
from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.formats.kubernetes.metadata.well_known import SCHEDULERS, Gang, Shape
from mpijob.model import Family, MPIJob, Resources, Retry, Secret, Volume, VolumeKind

Document = dict[str, Any]


def jobs(runtime: Document) -> dict[str, Document]:
    return {one["name"]: one for one in runtime["spec"]["template"]["spec"]["replicatedJobs"]}


def container(replicated: Document) -> Document:
    found: Document = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.req("FR-007", "FR-CLI-005")
@pytest.mark.parametrize(
    ("name", "job", "shape"),
    [
        ("trainjob-small", a_job(), Shape()),
        ("trainjob-rich", a_rich_job(), Shape(uid="u1", user=1000660000, priority_classes={"high": "gold"})),
        ("trainjob-amd", a_job(resources=Resources(gpu=2, gpu_kind="amd.com/gpu")), Shape()),
        ("trainjob-mig", a_job(resources=Resources(gpu=1, gpu_kind="nvidia.com/mig-1g.5gb")), Shape()),
        ("trainjob-gang", a_job(queue="gpu"), Shape(gang=Gang.COSCHEDULING, attempt=2)),
    ],
)
def test_the_documents_are_those_that_were_reviewed(name: str, job: MPIJob, shape: Shape) -> None:
    expect_golden(name, trainjob.write(job, shape))


def test_workers_get_the_users_image_from_the_jobs_own_runtime() -> None:
    runtime, job = trainjob.write(a_job(image="mine:2"))
    assert {container(one)["image"] for one in jobs(runtime).values()} == {"mine:2"}
    assert job["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "bert",
    }
    assert runtime["metadata"]["namespace"] == job["metadata"]["namespace"] == "team-cv"


def test_the_number_of_workers_stands_in_the_job_alone() -> None:
    runtime, job = trainjob.write(a_job(workers=8))
    assert runtime["spec"]["mlPolicy"]["numNodes"] == 1, "Trainer would start as many launchers"
    assert job["spec"]["trainer"]["numNodes"] == 8
    assert runtime["spec"]["mlPolicy"]["mpi"]["runLauncherAsNode"] is False


def test_slots_are_said_outright_because_trainer_takes_gpus_for_slots_otherwise() -> None:
    _, job = trainjob.write(a_job(slots=1))
    assert job["spec"]["trainer"]["numProcPerNode"] == 1


def test_every_container_that_trainer_fills_in_is_called_node() -> None:
    runtime, _ = trainjob.write(a_job())
    assert [container(one)["name"] for one in jobs(runtime).values()] == ["node", "node"]


def test_a_failed_launcher_is_not_tried_again_behind_the_users_back() -> None:
    runtime, _ = trainjob.write(a_job())
    for one in jobs(runtime).values():
        assert one["template"]["spec"]["backoffLimit"] == 0
        assert one["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert "failurePolicy" not in runtime["spec"]["template"]["spec"]


def test_the_launcher_starts_when_all_workers_are_ready_and_its_end_is_the_jobs() -> None:
    runtime, _ = trainjob.write(a_job())
    jobset = runtime["spec"]["template"]["spec"]
    assert [one["name"] for one in jobset["replicatedJobs"]] == ["node", "launcher"]
    assert jobs(runtime)["launcher"]["dependsOn"] == [{"name": "node", "status": "Ready"}]
    assert jobset["network"]["publishNotReadyAddresses"] is True
    assert jobset["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["launcher"]}


@pytest.mark.parametrize("gang", [Gang.COSCHEDULING, Gang.VOLCANO])
def test_a_gang_never_waits_for_a_launcher_that_waits_for_the_gang(gang: Gang) -> None:
    runtime, _ = trainjob.write(a_job(), Shape(gang=gang))
    assert gang.value in runtime["spec"]["podGroupPolicy"]
    for one in jobs(runtime).values():
        scheduler = one["template"]["spec"]["template"]["spec"]["schedulerName"]
        assert scheduler == SCHEDULERS[gang], (
            "Trainer groups the pods and leaves them to the default scheduler"
        )
    launcher = jobs(runtime)["launcher"]
    assert "dependsOn" not in launcher
    assert {"name": "MPIJOB_ORDER", "value": "open"} in container(launcher)["env"]


def test_a_queue_is_kueues_label_or_volcanos_annotation() -> None:
    _, job = trainjob.write(a_job(queue="gpu"), Shape(workload_priority="urgent"))
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    runtime, job = trainjob.write(a_job(queue="gpu"), Shape(gang=Gang.VOLCANO))
    assert runtime["spec"]["template"]["metadata"]["annotations"] == {
        "scheduling.volcano.sh/queue-name": "gpu"
    }
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]


def test_a_later_attempt_has_objects_of_its_own() -> None:
    runtime, job = trainjob.write(a_job(), Shape(attempt=3))
    assert (
        runtime["metadata"]["name"]
        == job["metadata"]["name"]
        == job["spec"]["runtimeRef"]["name"]
        == "bert-a3"
    )
    assert trainjob.read((runtime, job)).job.name == "bert"


def test_the_deadline_and_suspension_stand_in_the_job() -> None:
    _, job = trainjob.write(a_job(deadline_seconds=59.5), Shape(suspend=True))
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["suspend"]) == (60, True)


@pytest.mark.parametrize("family", [Family.INTEL, Family.MPICH, Family.CUSTOM])
def test_a_library_that_trainer_does_not_start_is_refused(family: Family) -> None:
    with pytest.raises(InvalidJob, match="Trainer starts Open MPI only"):
        trainjob.write(a_job(), Shape(family=family))


def test_a_job_too_large_for_one_object_is_refused_before_the_server_does() -> None:
    with pytest.raises(InvalidJob, match="description makes the job too large"):
        trainjob.write(a_job(description="x" * 300_000))


def a_volume(volume: Volume) -> Volume:
    """A volume with the words that its kind has, and no others."""
    word = re.sub("[^a-z]", "", volume.source)
    sources = {
        VolumeKind.NFS: f"server{word}:/{word}",
        VolumeKind.S3: f"connection{word}/folder",
        VolumeKind.SCRATCH: "",
        VolumeKind.SHM: "",
    }
    made = volume.replace(source=sources.get(volume.kind, word or "name"), size="")
    return made.replace(size="1Gi") if volume.kind in (VolumeKind.SCRATCH, VolumeKind.SHM) else made


def amounts(resources: Resources) -> Resources:
    """Resources with numbers in their place."""
    others = {name: amount if isinstance(amount, int) else "2" for name, amount in resources.others.items()}
    cpu, memory = (
        one if isinstance(one, int) else default
        for one, default in ((resources.cpu, 0.5), (resources.memory, "2Gi"))
    )
    gpus = abs(resources.gpu) % 3
    kind = "amd.com/gpu" if gpus else resources.gpu_kind
    return resources.replace(cpu=cpu, memory=memory, gpu=gpus, gpu_kind=kind, others=others)


def of_groups(job: MPIJob, workers: int) -> dict[str, Any]:
    """Groups with names of their own, within the workers or beside them, and with GPUs of one kind."""
    groups = tuple(
        group.replace(
            name=f"group-{at}",
            workers=abs(group.workers) % 3 + 1,
            slots=group.slots if group.slots is None else abs(group.slots) % 9 + 1,
            resources=group.resources if group.resources is None else amounts(group.resources),
        )
        for at, group in enumerate(job.groups)
    )
    most = sum(group.workers for group in groups)
    return {"groups": groups, "elastic": None, "workers": max(workers, most)} if groups else {}


def sensible(job: MPIJob) -> MPIJob:
    """A job with a shape that can be written: a world, an image, no directory of one machine."""
    volumes = tuple(a_volume(one) for one in job.volumes if one.kind is not VolumeKind.PATH)
    seconds = ("grace_seconds", "gang_timeout_seconds", "keep_on_failure_seconds")
    changes: dict[str, Any] = {name: abs(getattr(job, name)) % 1e6 for name in seconds}
    if job.deadline_seconds is not None:
        changes["deadline_seconds"] = abs(job.deadline_seconds) % 1e6
    changes["signal"] = job.signal.replace(seconds_before=abs(job.signal.seconds_before) % 1e6)
    changes["programs"] = tuple(one.replace(ranks=abs(one.ranks) % 9) for one in job.programs)
    if job.elastic is not None:
        changes["elastic"] = job.elastic.replace(max_workers=abs(job.elastic.max_workers) % 9 + 1)
    changes |= {"workers": abs(job.workers) % 9 + 1, "slots": abs(job.slots) % 9 + 1, "ranks": None}
    if job.programs:
        changes |= {"command": (), "args": (), "script": ""}
    elif job.script:
        changes |= {"command": (), "elastic": None}
    sources = {one.env: f"env:{one.source}" if one.source else "name/key" for one in job.secrets}
    changes["secrets"] = tuple(Secret(env=env, source=source) for env, source in sources.items())
    changes |= {"resources": amounts(job.resources), "launcher": amounts(job.launcher)}
    changes |= of_groups(job, changes["workers"])
    return job.replace(image="i", namespace=job.namespace or "default", volumes=volumes, **changes)


whole_jobs = part(MPIJob).map(sensible)
SETTINGS = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.thorough
@pytest.mark.req("FR-007", "FR-CLI-005")
@SETTINGS
@given(whole_jobs)
@example(sensible(MPIJob(name="j", command=("true",), cost={"/": ""})))
def test_what_is_written_reads_back_as_the_same_job(job: MPIJob) -> None:
    documents = trainjob.write(job)
    reading = trainjob.read(documents)
    assert reading.job == job
    assert reading.foreign == Foreign()
    notes = documents[1]["metadata"].get("annotations") or {}
    told = passthrough.contradictions(trainjob.native(documents), notes, trainjob.launch_line(documents))
    assert told == (), "what we write ourselves never contradicts itself"


SHAPES = (
    Shape(object="bert-r2", uid="u1", user=1000660000, launcher_cores=2.5, python="x = 1"),
    Shape(gang=Gang.VOLCANO, priority_classes={"high": "gold"}, service_image="services:1"),
    Shape(gang=Gang.COSCHEDULING, nfs_driver="nfs.csi.k8s.io", code="bert-mpijob-code", ipc_lock=True),
)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_reads_back_the_same_whatever_the_cluster_adds_to_its_documents(shape: Shape) -> None:
    job = a_rich_job(volumes=(*a_rich_job().volumes, Volume(mount="/n", kind=VolumeKind.NFS, source="s:/p")))
    assert trainjob.read(trainjob.write(job, shape)).job == job


@pytest.mark.thorough
@pytest.mark.req("FR-INT-008")
@SETTINGS
@given(
    st.sampled_from([(1,), (0,), (0, 1)]),
    st.dictionaries(st.sampled_from(["x", "y z"]), plain, min_size=1),
    st.data(),
)
def test_unknown_fields_survive_wherever_they_stand(
    which: tuple[int, ...], unknown: dict[str, Any], data: st.DataObject
) -> None:
    documents = copy.deepcopy(trainjob.write(a_rich_job()))
    for at in which:
        place = data.draw(st.sampled_from(mappings(documents[at]["spec"])))
        place |= unknown
    reading = trainjob.read(documents)
    assert trainjob.write(reading.job, None, reading.foreign) == documents


def mappings(value: Any) -> list[Document]:
    """Return every mapping in a document whose content is not the job's own free text."""
    if isinstance(value, list):
        return [one for item in value for one in mappings(item)]
    if not isinstance(value, dict):
        return []
    free = {
        "resources",
        "affinity",
        "nodeSelector",
        "tolerations",
        "volumes",
        "volumeMounts",
        "env",
        "lifecycle",
    }
    free |= {
        "labels",
        "annotations",
        "imagePullSecrets",
        "dependsOn",
        "runtimeRef",
        "mlPolicy",
        "securityContext",
    }
    free |= {"initContainers", "ports"}
    return [value, *(one for key, item in value.items() if key not in free for one in mappings(item))]


FOREIGN = (
    {
        "apiVersion": trainjob.API,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "deepspeed"},
        "spec": {
            "mlPolicy": {"numNodes": 1, "mpi": {"numProcPerNode": 4, "runLauncherAsNode": True}},
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [
                            {"name": "node", "image": "deepspeed:1", "command": ["/usr/sbin/sshd"]}]}}}}},
                        {"name": "launcher", "template": {"spec": {"template": {"spec": {"containers": [
                            {"name": "node", "image": "deepspeed:1"}]}}}}},
                    ]
                }
            },
        },
    },
    {
        "apiVersion": trainjob.API,
        "kind": "TrainJob",
        "metadata": {"name": "sdk-job", "namespace": "ml", "uid": "1", "labels": {"team": "x"}},
        "spec": {
            "runtimeRef": {"name": "deepspeed"},
            "trainer": {
                "numNodes": 1,
                "command": ["bash", "-c"],
                "args": ["mpirun python $$HOME"],
                "env": [{"name": "LR", "value": "1"}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                "resourcesPerNode": {"requests": {"cpu": 2, "nvidia.com/gpu": 1}},
            },
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "runtimePatches": [{"manager": "kueue.x-k8s.io/manager"}, {"manager": "me.example.org/x"}],
        },
        "status": {"conditions": []},
    },
)  # fmt: skip


def test_a_job_made_with_the_kubeflow_sdk_is_read_as_trainer_runs_it() -> None:
    reading = trainjob.read(FOREIGN)
    job = reading.job
    assert (job.name, job.namespace, job.labels) == ("sdk-job", "ml", {"team": "x"})
    assert (job.workers, job.slots, job.image) == (2, 4, "deepspeed:1"), "one node means two pods there"
    assert job.command == ("bash", "-c", "mpirun python $HOME")
    assert job.env == {"LR": "1"}
    assert [one.field for one in reading.remarks] == ["workers"]


def test_what_the_sdk_said_beyond_our_words_is_written_again() -> None:
    reading = trainjob.read(FOREIGN)
    _, job = trainjob.write(reading.job, None, reading.foreign)
    assert job["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    assert job["spec"]["runtimePatches"] == [{"manager": "me.example.org/x"}], "Kueue writes its own again"
    assert "status" not in job
    assert "uid" not in job["metadata"]


def test_a_job_without_its_runtime_is_read_as_far_as_it_goes() -> None:
    reading = trainjob.read(FOREIGN[1:])
    assert (reading.job.image, reading.job.workers) == ("", 1)
    assert "deepspeed is missing in the input" in reading.remarks[0].message


def test_a_changed_job_is_written_with_the_change_and_the_foreign_fields() -> None:
    documents = copy.deepcopy(trainjob.write(a_job()))
    documents[1]["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    reading = trainjob.read(documents)
    _, job = trainjob.write(reading.job.replace(workers=7), None, reading.foreign)
    assert job["spec"]["trainer"]["numNodes"] == 7
    assert job["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"


@pytest.mark.security
@SETTINGS
@given(plain, st.sampled_from(["spec", "metadata"]))
def test_a_document_of_any_form_is_read_or_refused_in_words(noise: Any, field: str) -> None:
    document = {"kind": "TrainJob", "metadata": {"name": "x"}, "spec": {}} | {field: noise}
    assert outcome(trainjob.read, document)


def outcome(read: Callable[[tuple[Document, ...]], trainjob.Reading], document: Document) -> str:
    """Return the name of the job that a document is, or what is said about it."""
    try:
        return f"a job called {read((document,)).job.name}"
    except InvalidJob as error:
        return error.message


@pytest.mark.security
def test_a_spoilt_annotation_is_told_and_not_believed() -> None:
    runtime, job = copy.deepcopy(trainjob.write(a_job(description="x")))
    job["metadata"]["annotations"]["mpijob.dev/rest"] = '{"workers": "many"}'
    with pytest.raises(InvalidJob, match=r"the annotation mpijob.dev/rest cannot be read"):
        trainjob.read((runtime, job))


def test_every_field_of_a_job_is_among_those_that_the_round_trip_draws() -> None:
    assert set(MPIJob.__annotations__.values()) <= set(KINDS)


@pytest.mark.parametrize(
    ("name", "retries", "fits"), [("n" * 44, 0, True), ("n" * 45, 0, False), ("n" * 42, 1, False)]
)
def test_a_name_whose_pods_jobset_would_refuse_is_refused_with_the_number(
    name: str, retries: int, fits: bool
) -> None:
    job = a_job(name=name, retry=Retry(limit=retries))
    if fits:
        assert trainjob.write(job)
    else:
        with pytest.raises(InvalidJob, match=f"at most {44 - 3 * retries} characters"):
            trainjob.write(job)
