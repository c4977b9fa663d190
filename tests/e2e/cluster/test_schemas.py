"""What the dialects write, held against the real CRDs of Trainer 2.2.1, JobSet 0.12.0 and MPI Operator 0.8.2."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.crds import Schemas
from tests.unit.cluster_support import GOLDEN, a_job, a_rich_job

from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata.well_known import Gang, Shape
from mpijob.model import Family, MPIJob, Network, Placement, Topology

SHAPES = (
    Shape(),
    Shape(user=1000660000, service_account="runner", code="bert-code", uid="u1", attempt=2, suspend=True),
    Shape(gang=Gang.COSCHEDULING, ipc_lock=True, topology_aware=True),
    Shape(gang=Gang.VOLCANO, launcher_cores=0.0, workload_priority="gold", ttl_seconds=60),
)
JOBS = (
    a_job(),
    a_rich_job(),
    a_rich_job(placement=Placement(topology=Topology.SPREAD), deadline_seconds=0.5),
    a_job(command=("mpirun", "-np", "4", "./solver")),
    a_job(network=Network(attachments=("fabric/ib-a",))),
)


@pytest.fixture(scope="session")
def schemas(crd_files: tuple[Path, ...]) -> Schemas:
    """Return the schemas of all engines."""
    return Schemas(crd_files)


@pytest.mark.req("FR-007", "FR-CLI-005")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("job", JOBS)
def test_the_server_takes_every_field_of_a_trainjob_and_its_runtime(
    schemas: Schemas, job: MPIJob, shape: Shape
) -> None:
    """No field of ours is unknown, of a wrong type, or missing."""
    assert [schemas.problems(one) for one in trainjob.write(job, shape)] == [[], []]


@pytest.mark.req("FR-007", "FR-CLI-005")
@pytest.mark.parametrize("family", [Family.OPENMPI, Family.INTEL, Family.MPICH])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("job", JOBS)
def test_the_server_takes_every_field_of_an_mpijob(
    schemas: Schemas, job: MPIJob, shape: Shape, family: Family
) -> None:
    """No field of ours is unknown, of a wrong type, or missing."""
    (document,) = mpijob.write(job, _with(shape, family))
    assert schemas.problems(document) == []


def _with(shape: Shape, family: Family) -> Shape:
    return Shape(**{name: getattr(shape, name) for name in shape.__struct_fields__} | {"family": family})


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_reviewed_files_are_documents_that_the_server_takes(schemas: Schemas, path: Path) -> None:
    """The golden files themselves are held against the schemas too."""
    documents = list(yaml.safe_load_all(path.read_text()))
    assert [schemas.problems(one) for one in documents] == [[] for _ in documents]


def test_the_jobset_that_a_runtime_makes_is_one_that_jobset_takes(schemas: Schemas) -> None:
    """Trainer copies the runtime's template into a JobSet."""
    runtime, _ = trainjob.write(a_rich_job())
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": runtime["spec"]["template"]["spec"],
    }
    assert schemas.problems(jobset) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "trainer", "numNode"), 2, "numNode"),
        (("spec", "trainer", "numNodes"), "two", "is not of type"),
        (("spec", "suspend"), "yes", "is not of type"),
    ],
)
def test_the_check_itself_finds_what_the_server_would_drop_or_refuse(
    schemas: Schemas, path: tuple[str, ...], value: Any, said: str
) -> None:
    """A check that finds nothing would prove nothing."""
    document = copy.deepcopy(trainjob.write(a_job())[1])
    _put(document, path, value)
    assert said in " ".join(schemas.problems(document))


def test_a_wrong_word_of_an_enumeration_is_found(schemas: Schemas) -> None:
    """Intel MPI in a TrainingRuntime is what Trainer's schema refuses."""
    runtime = copy.deepcopy(trainjob.write(a_job())[0])
    _put(runtime, ("spec", "mlPolicy", "mpi", "mpiImplementation"), "Intel")
    assert "is not one of" in " ".join(schemas.problems(runtime))


def test_every_kind_that_is_written_has_a_schema(schemas: Schemas) -> None:
    """All engines' CRDs were found in their modules."""
    assert {"TrainJob", "TrainingRuntime", "JobSet", "MPIJob"} <= schemas.kinds


def _put(document: Mapping[str, Any], path: tuple[str, ...], value: Any) -> None:
    inner: Any = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
