"""Presets: written out with golden manifests, never over what a job says, and TCP where a fabric is not there."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.cluster_support import GOLDEN, a_job, expect_golden, shown

from mpijob import Client
from mpijob.backends.local.planning import machine
from mpijob.backends.memory import MemoryBackend
from mpijob.errors import InvalidJob, Severity
from mpijob.formats.jobfile import presets
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import Family, Launch, MPIJob, Network, Resources, Volume, VolumeKind
from mpijob.model.spec.enums import FABRICS, PRESETS

GPUS = Resources(cpu="8", memory="64Gi", gpu=2)
EVERYTHING = frozenset({"rdma/hca", "vpc.amazonaws.com/efa", "hugepages-2Mi"})
CASES: dict[str, tuple[MPIJob, Shape]] = {
    "trainjob-infiniband": (
        a_job(presets=("infiniband", "nccl"), resources=GPUS, network=Network(attachments=("fabric/ib-a",))),
        Shape(uid="1", ipc_lock=True),
    ),
    "trainjob-roce": (a_job(presets=("roce", "cpu-pinning")), Shape(uid="1", ipc_lock=True)),
    "mpijob-efa": (
        a_job(presets=("efa",), mpi=Family.INTEL, resources=GPUS),
        Shape(uid="1", family=Family.INTEL, ipc_lock=True),
    ),
    "trainjob-huge-pages": (a_job(presets=("huge-pages", "tcp")), Shape(uid="1")),
}


def documents(name: str) -> tuple[dict[str, object], ...]:
    job, shape = CASES[name]
    settled, _ = presets.apply(job, EVERYTHING)
    write = mpijob.write if name.startswith("mpijob") else trainjob.write
    return tuple(dict(one) for one in write(settled, shape))


def write() -> None:
    """Write the golden files anew; they are to be reviewed by eye."""
    for name in CASES:
        (GOLDEN / f"{name}.yaml").write_text(shown(documents(name)))


@pytest.mark.thorough
@pytest.mark.req("AC8-rdma")
@pytest.mark.parametrize("name", CASES)
def test_a_preset_becomes_exactly_these_documents(name: str) -> None:
    expect_golden(name, documents(name))


@pytest.mark.req("AC8-rdma")
def test_every_preset_is_written_out_and_named_in_the_label() -> None:
    assert tuple(presets.PRESETS) == PRESETS
    settled, said = presets.apply(a_job(presets=("infiniband", "nccl", "nccl")), EVERYTHING)
    assert (settled.presets, settled.labels[presets.LABEL], said) == ((), "infiniband.nccl", ())
    assert settled.resources.others == {"rdma/hca": "1"}
    assert settled.env["OMPI_MCA_pml"] == "ucx"


def test_what_the_job_says_itself_wins() -> None:
    own = a_job(
        presets=("infiniband", "nccl", "cpu-pinning"),
        env={"UCX_TLS": "dc", "NCCL_DEBUG": "INFO"},
        launch=Launch(bind_to="numa"),
        resources=Resources(others={"rdma/ib0": "2"}),
        volumes=(Volume(mount="/dev/shm", kind=VolumeKind.SHM, size="1Gi"),),
    )
    settled, _ = presets.apply(own, frozenset({"rdma/ib0"}))
    assert (settled.env["UCX_TLS"], settled.env["NCCL_DEBUG"]) == ("dc", "INFO")
    assert settled.launch.bind_to == "numa"
    assert settled.resources.others == {"rdma/ib0": "2"}
    assert [one.size for one in settled.volumes] == ["1Gi"]


def test_gpu_direct_is_for_workers_with_nvidia_gpus() -> None:
    with_gpus, _ = presets.apply(a_job(presets=("infiniband",), resources=GPUS), EVERYTHING)
    without, _ = presets.apply(a_job(presets=("infiniband",)), EVERYTHING)
    assert with_gpus.env["NCCL_NET_GDR_LEVEL"] == "PHB"
    assert with_gpus.env["UCX_TLS"].endswith("gdr_copy")
    assert "NCCL_NET_GDR_LEVEL" not in without.env


def test_the_only_rdma_device_of_a_cluster_is_taken_whatever_it_is_called() -> None:
    settled, said = presets.apply(a_job(presets=("roce",)), frozenset({"rdma/hca_shared_devices_a", "cpu"}))
    assert (settled.resources.others, said) == ({"rdma/hca_shared_devices_a": "1"}, ())


@pytest.mark.req("Q7", "UC2-AF1")
@pytest.mark.parametrize("fabric", FABRICS)
def test_without_the_fabric_the_job_talks_over_tcp_and_says_so(fabric: str) -> None:
    settled, (warning,) = presets.apply(a_job(presets=(fabric,)), frozenset({"cpu", "memory"}))
    assert settled.resources.others == {}
    assert settled.env["NCCL_IB_DISABLE"] == "1"
    assert settled.env["FI_PROVIDER"] == "tcp"
    assert settled.labels[presets.LABEL] == "tcp"
    assert (warning.code, warning.severity) == ("RDMA_NOT_DETECTED", Severity.WARNING)
    assert warning.message.startswith("RDMA network not detected. Performance may be degraded.")
    assert FABRICS[fabric] in warning.message


def test_where_nobody_may_see_the_machines_the_device_is_asked_for_and_that_is_told() -> None:
    settled, (notice,) = presets.apply(a_job(presets=("infiniband",)), None)
    assert settled.resources.others == {"rdma/hca": "1"}
    assert (notice.code, notice.severity) == ("PRESET_LEFT_OUT", Severity.NOTICE)


def test_huge_pages_that_no_machine_has_are_left_out_and_that_is_told() -> None:
    settled, (notice,) = presets.apply(a_job(presets=("huge-pages",)), frozenset())
    assert (settled.resources.others, settled.labels) == ({}, {})
    assert notice.message == "no node offers hugepages-2Mi: the preset huge-pages is ignored"


@pytest.mark.req("Q7", "UC2-AF1")
def test_submitting_says_the_warning_and_the_job_that_runs_has_everything_written_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = MPIJob(name="fast", workers=2, command=("true",), presets=("infiniband",))
    with Client(MemoryBackend()) as client, caplog.at_level(logging.WARNING):
        handle = client.submit(job)
        assert handle.spec.env["OMPI_MCA_pml"] == "ob1"
        assert handle.spec.presets == ()
    assert "RDMA network not detected. Performance may be degraded." in caplog.text


def test_a_memory_engine_with_the_device_gives_it() -> None:
    job = MPIJob(name="fast", workers=2, command=("true",), presets=("infiniband",))
    with Client(MemoryBackend(devices=EVERYTHING)) as client:
        assert client.plan(job).job.resources.others == {"rdma/hca": "1"}


def test_unknown_presets_and_two_networks_are_refused() -> None:
    with Client(MemoryBackend()) as client, pytest.raises(InvalidJob) as caught:
        client.plan(MPIJob(name="fast", command=("true",), presets=("efa", "tcp", "infinband")))
    said = {finding.field: str(finding) for finding in caught.value.findings}
    assert "efa and tcp are different networks" in said["presets"]
    assert "'infinband' is not a preset" in said["presets[2]"]


def test_the_name_of_an_attached_network_is_checked() -> None:
    with Client(MemoryBackend()) as client, pytest.raises(InvalidJob) as caught:
        client.plan(MPIJob(name="fast", command=("true",), network=Network(attachments=("Fabric A",))))
    assert caught.value.findings[0].field == "network.attachments[0]"


def test_the_adapters_of_this_machine_are_told_by_kind(tmp_path: Path) -> None:
    for name, layer in (("mlx5_0", "InfiniBand"), ("mlx5_1", "Ethernet"), ("efa_0", "Unspecified")):
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "link_layer").write_text(f"{layer}\n")
    assert machine.fabrics(str(tmp_path)) == {"rdma/hca", "rdma/roce", "vpc.amazonaws.com/efa"}
    assert machine.fabrics(str(tmp_path / "none")) == frozenset()


@pytest.mark.parametrize("name", CASES)
def test_documents_with_presets_are_read_back_as_the_job_that_ran(name: str) -> None:
    settled, _ = presets.apply(CASES[name][0], EVERYTHING)
    read = mpijob.read if name.startswith("mpijob") else trainjob.read
    back = read(documents(name)).job
    assert (back.env, back.resources, back.network) == (settled.env, settled.resources, settled.network)
