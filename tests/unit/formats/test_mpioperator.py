"""MPIJob v2beta1: the operator's defaults that bite, golden files, and the way back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster_support import a_job, a_rich_job, expect_golden
from tests.unit.formats.test_jobfile_roundtrip import plain
from tests.unit.formats.test_trainjob import SETTINGS, mappings, outcome, whole_jobs

from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata.passthrough import Foreign
from mpijob.formats.kubernetes.metadata.well_known import Gang, Shape
from mpijob.model import Elastic, Family, MPIJob, Resources

FAMILIES = (Family.OPENMPI, Family.INTEL, Family.MPICH)


def spec(job: MPIJob, **shape: Any) -> dict[str, Any]:
    (document,) = mpijob.write(job, Shape(**shape))
    found: dict[str, Any] = document["spec"]
    return found


def launcher(job: MPIJob, **shape: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec(job, **shape)["mpiReplicaSpecs"]["Launcher"]["template"]["spec"][
        "containers"
    ][0]
    return found


@pytest.mark.req("FR-007", "FR-CLI-005")
@pytest.mark.parametrize(
    ("name", "job", "shape"),
    [
        ("mpijob-mpich", a_job(), Shape(family=Family.MPICH)),
        (
            "mpijob-intel-gpu",
            a_job(resources=Resources(gpu=1, gpu_kind="gpu.intel.com/xe")),
            Shape(family=Family.INTEL),
        ),
        ("mpijob-elastic", a_job(elastic=Elastic(min_workers=2, max_workers=8)), Shape(gang=Gang.VOLCANO)),
        ("mpijob-intel-rich", a_rich_job(), Shape(family=Family.INTEL, uid="u1", gang=Gang.VOLCANO)),
    ],
)
def test_the_document_is_the_one_that_was_reviewed(name: str, job: MPIJob, shape: Shape) -> None:
    expect_golden(name, mpijob.write(job, shape))


@pytest.mark.parametrize(
    ("family", "name"), [(Family.OPENMPI, "OpenMPI"), (Family.INTEL, "Intel"), (Family.MPICH, "MPICH")]
)
def test_every_library_that_the_operator_knows_is_named(family: Family, name: str) -> None:
    assert spec(a_job(), family=family)["mpiImplementation"] == name


def test_the_operators_defaults_are_all_replaced() -> None:
    said = spec(a_job(deadline_seconds=60.0), ttl_seconds=300, suspend=True)
    assert said["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert said["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "backoffLimit": 0,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 300,
        "suspend": True,
    }
    for replica in said["mpiReplicaSpecs"].values():
        assert replica["restartPolicy"] == "Never"
        assert "restartPolicy" not in replica["template"]["spec"], "the operator warns about it there"


def test_a_gang_counts_the_workers_alone_because_the_launcher_comes_later() -> None:
    assert "schedulingPolicy" not in spec(a_job())["runPolicy"]
    policy = spec(a_job(workers=5), gang=Gang.COSCHEDULING)["runPolicy"]["schedulingPolicy"]
    assert policy["minAvailable"] == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_no_variable_is_set_twice_with_the_operator(family: Family) -> None:
    names = [one["name"] for one in launcher(a_job(), family=family)["env"]]
    assert len(names) == len(set(names))
    assert not {"OMPI_MCA_orte_default_hostfile", "I_MPI_PERHOST", "HYDRA_HOST_FILE"} & set(names)


def test_open_mpi_5_is_told_its_workers_here_too() -> None:
    container = launcher(a_job())
    assert {"name": "PRTE_MCA_prte_default_hostfile", "value": "/etc/mpi/hostfile"} in container["env"]
    assert container["args"][:3] == ["mpirun", "--hostfile", "/etc/mpi/hostfile"]


def test_an_own_hydra_command_waits_until_workers_can_find_the_launcher() -> None:
    env = launcher(a_job(command=("mpiexec.hydra", "-n", "4", "x")), family=Family.MPICH)["env"]
    assert {"name": "MPIJOB_SELF", "value": "bert-launcher.bert"} in env


def test_a_name_that_the_operator_would_refuse_in_an_event_is_refused_here() -> None:
    with pytest.raises(InvalidJob, match="64 characters; at most 63 are allowed"):
        mpijob.write(a_job(name="n" * 55))


def test_a_library_that_the_operator_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidJob, match="does not support the MPI library 'custom'"):
        mpijob.write(a_job(), Shape(family=Family.CUSTOM))


@pytest.mark.thorough
@pytest.mark.req("FR-007", "FR-CLI-005")
@SETTINGS
@given(
    whole_jobs.filter(lambda job: len(job.name) < 50),
    st.sampled_from(FAMILIES),
    st.booleans(),
)
def test_what_is_written_reads_back_as_the_same_job(job: MPIJob, family: Family, named: bool) -> None:
    job = job.replace(mpi=family if named else Family.AUTO, groups=())
    reading = mpijob.read(mpijob.write(job, Shape(family=family)))
    assert reading.job == job
    assert reading.foreign == Foreign()


@pytest.mark.thorough
@pytest.mark.req("FR-INT-008")
@SETTINGS
@given(st.dictionaries(st.sampled_from(["x", "y z"]), plain, min_size=1), st.data())
def test_unknown_fields_survive_wherever_they_stand(unknown: dict[str, Any], data: st.DataObject) -> None:
    documents = copy.deepcopy(mpijob.write(a_rich_job(), Shape(family=Family.INTEL)))
    place = data.draw(st.sampled_from(mappings(documents[0]["spec"])))
    place |= unknown
    reading = mpijob.read(documents)
    assert mpijob.write(reading.job, Shape(family=Family.INTEL), reading.foreign) == documents


PI: dict[str, Any] = {
    "apiVersion": mpijob.API,
    "kind": "MPIJob",
    "metadata": {"name": "pi"},
    "spec": {
        "slotsPerWorker": 2,
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runPolicy": {"cleanPodPolicy": "All", "schedulingPolicy": {"minAvailable": 1}},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{
                "name": "mpi-launcher", "image": "front:1", "command": ["mpirun"], "args": ["-n", "4", "/pi"],
                "env": [{"name": "A", "value": "1"}]}]}}},
            "Worker": {"replicas": 2, "template": {"spec": {
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                            {"name": "host", "hostPath": {"path": "/x"}}],
                "containers": [{
                    "name": "mpi-worker", "image": "pi:1", "command": ["/usr/sbin/sshd"], "args": ["-De"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "host", "mountPath": "/x"}],
                    "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 2}}},
                    {"name": "sidecar", "image": "side:1"}]}}},
        },
    },
}  # fmt: skip


def test_somebody_elses_mpijob_is_read_in_our_words() -> None:
    job = mpijob.read((PI,)).job
    assert (job.name, job.workers, job.slots, job.image) == ("pi", 2, 2, "pi:1")
    assert job.command == ("mpirun", "-n", "4", "/pi")
    assert job.env == {"A": "1"}
    assert (job.resources.cpu, job.resources.gpu) == ("1", 2)
    assert [(one.mount, one.source) for one in job.volumes] == [("/data", "c")]


def test_what_somebody_elses_mpijob_says_beyond_survives() -> None:
    reading = mpijob.read((PI,))
    (written,) = mpijob.write(reading.job, None, reading.foreign)
    policy, replicas = written["spec"]["runPolicy"], written["spec"]["mpiReplicaSpecs"]
    assert policy["cleanPodPolicy"] == "All"
    assert policy["schedulingPolicy"] == {"minAvailable": 1}, "the least number of an elastic job"
    front, worker = (replicas[role]["template"]["spec"] for role in ("Launcher", "Worker"))
    assert front["containers"][0]["image"] == "front:1", "a launcher image of its own"
    assert [one["name"] for one in worker["containers"]] == ["node", "sidecar"]
    assert {"name": "host", "hostPath": {"path": "/x"}} in worker["volumes"]
    assert worker["containers"][0]["command"][3] == "mpijob-worker"
    assert [one.field for one in reading.remarks] == ["command"]


def test_an_mpijob_becomes_a_trainjob_with_the_same_world() -> None:
    reading = mpijob.read((PI,))
    _, job = trainjob.write(reading.job)
    assert (job["spec"]["trainer"]["numNodes"], job["spec"]["trainer"]["numProcPerNode"]) == (2, 2)


@pytest.mark.parametrize("version", ["kubeflow.org/v1", "kubeflow.org/v1alpha1"])
def test_an_old_mpijob_is_refused_with_the_version_that_is_read(version: str) -> None:
    with pytest.raises(InvalidJob, match=r"kubeflow\.org/v2beta1"):
        mpijob.read((PI | {"apiVersion": version},))


@pytest.mark.security
@SETTINGS
@given(plain, st.sampled_from(["spec", "metadata"]))
def test_a_document_of_any_form_is_read_or_refused_in_words(noise: Any, field: str) -> None:
    assert outcome(mpijob.read, PI | {field: noise})
