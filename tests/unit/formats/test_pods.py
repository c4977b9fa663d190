"""The pod template that both engines share: what it asks for, what it never asks for, exact words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster_support import a_job, a_rich_job, kubelet

from mpijob.errors import InvalidJob
from mpijob.formats.kubernetes import mpijob, pod_template, trainjob
from mpijob.formats.kubernetes.metadata import well_known as terms
from mpijob.formats.kubernetes.metadata.well_known import Gang, Order, Shape
from mpijob.model import (
    Family,
    Launch,
    MPIJob,
    Network,
    Placement,
    Resources,
    Role,
    Secret,
    Signal,
    Topology,
    Volume,
    VolumeKind,
)

HOSTILE = ("$(HOME)", "$$", "$(id)", "$((1))", "$$(HOME)", "a$", "${HOME}", "; rm", "\n")


def pod(job: MPIJob, role: Role = Role.WORKER, **shape: Any) -> dict[str, Any]:
    spec: dict[str, Any] = pod_template.template(job, Shape(**shape), role)["spec"]
    return spec


def main(job: MPIJob, role: Role = Role.WORKER, **shape: Any) -> dict[str, Any]:
    container: dict[str, Any] = pod(job, role, **shape)["containers"][0]
    return container


def values(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


@pytest.mark.security
def test_every_word_of_the_command_reaches_the_container_as_it_was_written() -> None:
    words, _ = pod_template.launch_words(a_job(command=HOSTILE), Shape())
    assert kubelet(words, {"HOME": "/evil", "id": "evil"})[-len(HOSTILE) :] == list(HOSTILE)


@pytest.mark.security
def test_every_value_of_the_environment_reaches_the_container_as_it_was_written() -> None:
    env = {f"V{at}": text for at, text in enumerate(HOSTILE)}
    written = values(main(a_job(env=env)))
    assert {name: kubelet([written[name]], {"HOME": "/evil"})[0] for name in env} == env


@pytest.mark.security
def test_no_word_of_the_user_stands_in_a_script() -> None:
    job = a_rich_job(command=("canary",), env={"CANARY": "canary"}, description="canary", owner="canary")
    for role in (Role.LAUNCHER, Role.WORKER):
        for container in (*pod(job, role)["containers"], *pod(job, role)["initContainers"]):
            assert "canary" not in container["command"][2]


@pytest.mark.security
def test_nothing_is_asked_for_that_the_restricted_policy_refuses() -> None:
    for role in (Role.LAUNCHER, Role.WORKER):
        spec = pod(a_rich_job(), role)
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert not spec["automountServiceAccountToken"]
        for container in (*spec["containers"], *spec["initContainers"]):
            expected = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container["securityContext"] == expected
        kinds = {kind for one in spec["volumes"] for kind in one if kind != "name"}
        assert kinds <= {"configMap", "csi", "emptyDir", "persistentVolumeClaim", "secret"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(spec)


def test_a_user_id_is_named_only_where_the_cluster_has_none_of_its_own() -> None:
    named = pod(a_job(), user=1000660000)["securityContext"]
    assert (named["runAsUser"], named["runAsGroup"], named["fsGroup"]) == (1000660000, 0, 1000660000)


def test_locked_memory_and_a_second_network_come_only_when_the_namespace_has_them() -> None:
    assert main(a_job(), ipc_lock=True)["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    attached = a_job(network=Network(attachments=("roce", "fabric/ib-a")))
    metadata = pod_template.template(attached, Shape(), Role.WORKER)["metadata"]
    assert metadata["annotations"]["k8s.v1.cni.cncf.io/networks"] == "roce, fabric/ib-a"


def test_the_users_image_runs_in_every_role() -> None:
    for role in (Role.LAUNCHER, Role.WORKER):
        spec = pod(a_job(image="mine:2"), role)
        assert {one["image"] for one in (*spec["containers"], *spec["initContainers"])} == {"mine:2"}


def test_a_launcher_image_of_its_own_is_the_launchers_alone() -> None:
    assert main(a_job(), Role.LAUNCHER, launcher_image="front:1")["image"] == "front:1"
    assert main(a_job(), Role.WORKER, launcher_image="front:1")["image"] == "example/mpi:1"


def test_a_job_without_an_image_is_refused_with_the_field() -> None:
    with pytest.raises(InvalidJob) as caught:
        pod(a_job(image=""))
    assert caught.value.findings[0].field == "image"


def test_launcher_and_workers_have_their_own_resources() -> None:
    job = a_job(
        resources=Resources(cpu=2, memory="4Gi", gpu=1, gpu_kind="amd.com/gpu", others={"rdma/hca": 1})
    )
    amounts = {"cpu": "2", "memory": "4Gi", "amd.com/gpu": "1", "rdma/hca": "1"}
    assert main(job)["resources"] == {"requests": amounts, "limits": amounts}
    launcher = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "4", "memory": "256Mi"}}
    assert main(job, Role.LAUNCHER)["resources"] == launcher, (
        "a throttled launcher starts a large world slowly, and with no CPU limit the Kubeflow SDK fails"
    )
    low = pod_template.template(job, Shape(launcher_cores=0.05), Role.LAUNCHER)["spec"]["containers"][0]
    assert low["resources"]["limits"] == launcher["requests"]
    assert pod(job)["initContainers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}


@pytest.mark.parametrize(
    ("amount", "text"), [(2, "2"), (1.5, "1.5"), (2.0, "2"), ("500m", "500m"), (1e-7, "0.0000001")]
)
def test_amounts_are_written_as_kubernetes_reads_them(amount: str | float, text: str) -> None:
    assert pod_template.quantity(amount) == text


@pytest.mark.parametrize("role", [Role.LAUNCHER, Role.WORKER])
@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "HOME", "PYTHONUNBUFFERED", "WANDB_NAME", "UCX_TLS"])
def test_a_variable_of_the_users_is_there_once_and_wins(name: str, role: Role) -> None:
    launch = Launch(settings={"UCX_TLS": "tcp"})
    hidden = main(a_job(secrets=(Secret(env=name, source="a/b"),), launch=launch), role)["env"]
    assert [one["valueFrom"]["secretKeyRef"]["name"] for one in hidden if one["name"] == name] == ["a"]
    plain = main(a_job(env={name: "mine"}, launch=launch), role)["env"]
    assert [one["value"] for one in plain if one["name"] == name] == ["mine"]


def test_secrets_are_named_and_never_written() -> None:
    found = {
        one["name"]: one["valueFrom"]["secretKeyRef"]
        for one in main(a_rich_job())["env"]
        if "KEY" in one["name"]
    }
    assert found == {"KEY": {"name": "bert-mpijob-secrets", "key": "KEY"}}
    token = next(one for one in main(a_rich_job(), Role.LAUNCHER)["env"] if one["name"] == "TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "tracking", "key": "token"}


def test_every_variable_is_handed_to_every_rank_by_name() -> None:
    words, _ = pod_template.launch_words(a_rich_job(), Shape())
    handed = {words[at + 1] for at, word in enumerate(words) if word == "-x"}
    assert {"LR", "ODD", "TOKEN", "KEY", "UCX_TLS", "PATH", "MPIJOB_CENSUS"} <= handed
    launcher = main(a_rich_job(), Role.LAUNCHER)
    assert handed - {one["name"] for one in launcher["env"]} == {"PATH", "MPIJOB_CENSUS"}, (
        "all others are set"
    )


def test_both_mca_families_the_hostfile_and_a_short_keepalive_are_set() -> None:
    env = values(main(a_job(), Role.LAUNCHER))
    assert (
        env["PRTE_MCA_prte_default_hostfile"] == env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    )
    assert env["PRTE_MCA_oob_tcp_keepalive_time"] == env["OMPI_MCA_oob_tcp_keepalive_time"] == "5"
    words, _ = pod_template.launch_words(a_job(), Shape())
    assert words[:3] == ["mpirun", "--hostfile", "/etc/mpi/hostfile"]


def test_hydra_is_told_the_launchers_address_because_workers_do_not_know_its_name() -> None:
    words, _ = pod_template.launch_words(a_job(), Shape(family=Family.MPICH))
    at = words.index("-localhost")
    assert kubelet(words, {"MPIJOB_POD_IP": "10.0.0.7"})[at + 1] == "10.0.0.7"


def test_a_command_with_its_own_launcher_is_not_wrapped_but_counted_before() -> None:
    job = a_job(command=("mpirun", "-np", "4", "./solver"))
    words, before = pod_template.launch_words(job, Shape())
    assert words[before:] == ["mpirun", "-np", "4", "./solver"]
    assert words[before - 3 : before] == ["/bin/sh", terms.SHIM, "true"]
    assert values(main(job, Role.LAUNCHER))["MPIJOB_CENSUS_WORDS"] == str(before)


@pytest.mark.parametrize(
    ("fields", "used", "most"),
    [
        ({}, "2", "2"),
        ({"ranks": 2}, "1", "2"),
        ({"ranks": 2, "launch": Launch(map_by="node")}, "2", "1"),
        ({"launch": Launch(map_by="numa")}, "0", "0"),
        ({"launch": Launch(flags=("--npernode", "1"))}, "0", "0"),
    ],
)
def test_the_census_knows_what_is_planned(fields: dict[str, object], used: str, most: str) -> None:
    env = values(main(a_job(**fields), Role.LAUNCHER))
    assert (env["MPIJOB_USED"], env["MPIJOB_MOST"]) == (used, most)


def test_missing_gpus_are_looked_for_unless_told_otherwise() -> None:
    job = a_job(resources=Resources(gpu=2))
    assert values(main(job, Role.LAUNCHER))["MPIJOB_DEVICES_PLANNED"] == "2"
    assert values(main(job, Role.LAUNCHER, prove_gpus=False))["MPIJOB_DEVICES_PLANNED"] == "0"
    mig = a_job(resources=Resources(gpu=3, gpu_kind="nvidia.com/mig-1g.5gb"))
    assert values(main(mig, Role.LAUNCHER))["MPIJOB_DEVICES_PLANNED"] == "1", "slices share one device"


@pytest.mark.parametrize(
    ("volume", "source"),
    [
        (
            Volume(mount="/v", kind=VolumeKind.CLAIM, source="c"),
            {"persistentVolumeClaim": {"claimName": "c"}},
        ),
        (Volume(mount="/v", kind=VolumeKind.NFS, source="s:/d"), {"nfs": {"server": "s", "path": "/d"}}),
        (Volume(mount="/v", kind=VolumeKind.CONFIG, source="c"), {"configMap": {"name": "c"}}),
        (Volume(mount="/v", kind=VolumeKind.SECRET, source="s"), {"secret": {"secretName": "s"}}),
        (Volume(mount="/v", kind=VolumeKind.SCRATCH, size="1Gi"), {"emptyDir": {"sizeLimit": "1Gi"}}),
        (Volume(mount="/dev/shm", kind=VolumeKind.SHM), {"emptyDir": {"medium": "Memory"}}),
    ],
)
def test_each_kind_of_volume_is_mounted_in_launcher_and_worker(
    volume: Volume, source: dict[str, Any]
) -> None:
    for role in (Role.LAUNCHER, Role.WORKER):
        spec = pod(a_job(volumes=(volume,)), role)
        assert spec["volumes"][-1] == {"name": "mpijob-volume-0"} | source
        assert spec["containers"][0]["volumeMounts"][-1]["mountPath"] == volume.mount


def test_nfs_goes_through_a_driver_where_the_cluster_has_one() -> None:
    volume = Volume(mount="/v", kind=VolumeKind.NFS, source="s:/d")
    driver = pod(a_job(volumes=(volume,)), nfs_driver="nfs.csi.k8s.io")["volumes"][-1]["csi"]
    assert driver == {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "s", "share": "/d"}}
    assert [one.field for one in pod_template.notices(a_job(volumes=(volume,)), Shape())] == ["volumes"]


def test_a_directory_of_one_machine_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(InvalidJob, match="kind: claim"):
        pod(a_job(volumes=(Volume(mount="/v", source="/srv"),)))


def test_workers_are_packed_or_spread_and_the_launcher_is_not() -> None:
    packed = a_job(placement=Placement(topology=Topology.PACKED_NODE))
    (term,) = pod(packed)["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert "affinity" not in pod(packed, Role.LAUNCHER)
    spread = a_job(placement=Placement(topology=Topology.SPREAD))
    assert pod(spread)["topologySpreadConstraints"][0]["maxSkew"] == 1


def test_excluded_machines_are_excluded_in_every_alternative_of_the_users_own_affinity() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchExpressions": [{"key": "b"}]}]
    own = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
    job = a_job(placement=Placement(affinity=own, exclude_nodes=("n1", "n2")))
    for term in pod(job)["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]:
        assert [one["values"] for one in term["matchFields"]] == [["n1"], ["n2"]]


def test_the_checkpoint_signal_goes_to_the_workers_and_the_launcher_waits() -> None:
    job = a_job(signal=Signal(name="SIGUSR1", seconds_before=90.5), grace_seconds=10.0)
    stop = main(job)["lifecycle"]["preStop"]["exec"]["command"]
    assert stop[-2:] == ["USR1", "91"]
    assert main(job, Role.LAUNCHER)["lifecycle"]["preStop"]["exec"]["command"][-2:] == ["0", "91"]
    assert pod(job)["terminationGracePeriodSeconds"] == 101
    assert "lifecycle" not in main(a_job())


def test_pods_tell_cluster_logging_whose_they_are_and_keep_meshes_away() -> None:
    metadata = pod_template.template(a_rich_job(), Shape(uid="u1"), Role.WORKER)["metadata"]
    expected = {
        "team": "cv",
        "cost.mpijob.dev/cost-centre": "4711",
        "mpijob.dev/job": "bert",
        "mpijob.dev/role": "worker",
        "mpijob.dev/uid": "u1",
        "mpijob.dev/owner": "jane-example.org",
        "sidecar.istio.io/inject": "false",
    }
    assert expected.items() <= metadata["labels"].items()
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"
    assert metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert metadata["annotations"]["mpijob.dev/owner"] == "jane@example.org"


@pytest.mark.parametrize(
    ("priority", "name"), [("important", "important"), ("high", "gold"), ("low", ""), (5, ""), (0, "")]
)
def test_a_priority_has_the_class_that_the_cluster_gives_it(priority: str | int, name: str) -> None:
    shape = Shape(priority_classes={"high": "gold"})
    assert pod_template.priority_class(a_job(priority=priority), shape) == name
    assert bool(list(pod_template.notices(a_job(priority=priority), shape))) == (name == "" and priority != 0)


def test_the_worker_is_ready_when_its_sshd_answers_and_is_then_left_alone() -> None:
    container = main(a_job())
    assert container["startupProbe"]["tcpSocket"] == {"port": 2222}
    assert "readinessProbe" not in container
    assert "startupProbe" not in main(a_job(), Role.LAUNCHER)


def test_code_that_goes_along_is_unpacked_and_run_in() -> None:
    spec = pod(a_job(), code="bert-code")
    assert {"name": "mpijob-code", "configMap": {"name": "bert-code"}} in spec["volumes"]
    assert spec["containers"][0]["workingDir"] == terms.WORK


def test_the_launcher_waits_itself_only_when_nobody_else_does() -> None:
    template = pod_template.template(a_job(), Shape(gang=Gang.VOLCANO), Role.LAUNCHER, order=Order.OPEN)
    assert values(template["spec"]["containers"][0])["MPIJOB_ORDER"] == "open"
    assert values(main(a_job(), Role.LAUNCHER))["MPIJOB_ORDER"] == "ready"


def test_a_job_that_asks_for_none_has_pods_without_request_and_limit_and_reads_back() -> None:
    """The namespace's LimitRange fills in what a pod does not say."""
    nothing = Resources(cpu="none", memory="none")
    job = a_job(resources=nothing.replace(gpu=1), launcher=nothing)
    for documents, read in ((mpijob.write(job), mpijob.read), (trainjob.write(job), trainjob.read)):
        assert read(documents).job == job
    for role, amounts in ((Role.WORKER, {"nvidia.com/gpu": "1"}), (Role.LAUNCHER, {})):
        pod = pod_template.template(job, Shape(), role)["spec"]
        assert pod["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}
        assert pod["initContainers"][0]["resources"] == {"requests": {}, "limits": {}}
