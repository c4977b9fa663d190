"""What checks say about jobs: one test or row for each rule, with the numbers in the sentence."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from mpijob import checks
from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import (
    Code,
    Family,
    Launch,
    MPIJob,
    Program,
    Resources,
    Secret,
    Volume,
    VolumeKind,
)
from mpijob.model.spec.enums import GPU_KINDS


def a_job(**fields: Any) -> MPIJob:
    return MPIJob(**{"name": "bert", "command": ("python", "train.py")} | fields)


def found(job: MPIJob, code: str, **limits: int) -> list[Finding]:
    return [finding for finding in checks.run(job, **limits) if finding.code == code]


def the_one(job: MPIJob, code: str, **limits: int) -> Finding:
    findings = found(job, code, **limits)
    assert len(findings) == 1, [str(finding) for finding in checks.run(job)]
    return findings[0]


def test_a_plain_job_has_no_findings() -> None:
    assert checks.run(a_job()) == ()


def test_errors_come_before_warnings_and_notices() -> None:
    job = a_job(name="Bad", workers=1, resources=Resources(cpu="500m"))
    severities = [finding.severity for finding in checks.run(job)]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.NOTICE]


BAD_NAMES = [
    "",
    "Bert",
    "-bert",
    "bert-",
    "bért",
    "a b",
    "a.b",
    "../etc",
    "a\nb",
    "a\0b",
    "--help",
    "a" * 64,
    "$(id)",
]


@pytest.mark.security
@pytest.mark.req("FR-030")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_and_a_good_one_suggested(name: str) -> None:
    finding = the_one(a_job(name=name), "BAD_NAME")
    better = finding.fixes[0].patch["name"]
    assert better in finding.hint
    assert found(a_job(name=better), "BAD_NAME") == []


def test_the_longest_name_made_from_a_name_must_fit() -> None:
    longest = 63 - len("-a99-worker-99")
    assert found(a_job(name="a" * longest, workers=100), "BAD_NAME") == []
    finding = the_one(a_job(name="a" * (longest + 1), workers=100), "BAD_NAME")
    assert f"at most {longest} characters" in finding.hint
    assert "64 characters" in finding.message


@pytest.mark.security
@pytest.mark.parametrize("namespace", ["", "Team", "a/b", "..", "team_cv", "ä"])
def test_a_namespace_is_a_dns_label(namespace: str) -> None:
    assert the_one(a_job(namespace=namespace), "BAD_NAMESPACE").field == "namespace"


@pytest.mark.parametrize("workers", [0, -1, 101])
def test_workers_out_of_range_are_refused_with_the_range(workers: int) -> None:
    finding = the_one(a_job(workers=workers), "BAD_WORKERS")
    assert f"{workers} workers requested; 1 to 100 are allowed" in finding.message


def test_the_upper_bound_of_workers_is_the_administrators() -> None:
    assert found(a_job(workers=200), "BAD_WORKERS", max_workers=256) == []
    assert "1 to 8" in the_one(a_job(workers=9), "BAD_WORKERS", max_workers=8).message


def test_one_worker_is_a_warning() -> None:
    assert the_one(a_job(workers=1), "BAD_WORKERS").severity is Severity.WARNING
    assert found(a_job(workers=1, slots=2), "BAD_WORKERS") == [], "two ranks run"


@pytest.mark.parametrize("slots", [0, -3, 513])
def test_slots_out_of_range_are_refused(slots: int) -> None:
    assert the_one(a_job(slots=slots), "BAD_SLOTS").severity is Severity.ERROR


@pytest.mark.req("FR-003")
def test_more_ranks_than_slots_are_refused_with_the_numbers() -> None:
    finding = the_one(a_job(workers=4, slots=2, ranks=9), "BAD_RANKS")
    assert finding.message == "9 ranks do not fit: 4 workers × 2 slots = 8"
    assert finding.fixes[0].patch == {"slots": 3}


@pytest.mark.parametrize(
    "launch",
    [
        Launch(flags=("--oversubscribe",)),
        Launch(flags=("--map-by", ":OVERSUBSCRIBE")),
        Launch(map_by="core:oversubscribe"),
        Launch(settings={"rmaps_base_oversubscribe": "1"}),
    ],
)
def test_more_ranks_than_slots_may_be_asked_for(launch: Launch) -> None:
    assert found(a_job(workers=4, ranks=9, launch=launch), "BAD_RANKS") == []


def test_forbidding_oversubscription_does_not_ask_for_it() -> None:
    assert found(a_job(ranks=9, launch=Launch(flags=("--nooversubscribe",))), "BAD_RANKS")


def test_no_ranks_are_refused() -> None:
    assert "at least 1" in the_one(a_job(ranks=0), "BAD_RANKS").message


def test_threads_beyond_the_cores_are_a_warning_with_the_fix() -> None:
    finding = the_one(a_job(slots=2, cores_per_rank=4, resources=Resources(cpu="4")), "BAD_CORES")
    assert finding.message == "2 ranks × 4 cores = 8 cores, but resources.cpu is 4"
    assert finding.severity is Severity.WARNING
    assert the_one(a_job(cores_per_rank=0), "BAD_CORES").severity is Severity.ERROR


@pytest.mark.req("FR-003", "R6")
@pytest.mark.parametrize("kind", [*GPU_KINDS, "nvidia.com/mig-1g.5gb"])
def test_known_gpu_kinds_are_taken(kind: str) -> None:
    assert found(a_job(resources=Resources(gpu=8, gpu_kind=kind)), "BAD_GPUS") == []


def test_gpus_out_of_range_or_of_unknown_kind_are_refused() -> None:
    nine = the_one(a_job(resources=Resources(gpu=9)), "BAD_GPUS")
    assert "9 GPUs requested; 0 to 8" in nine.message
    odd = the_one(a_job(resources=Resources(gpu=1, gpu_kind="nvidia.com/gpus")), "BAD_GPUS")
    assert "did you mean 'nvidia.com/gpu'?" in odd.hint
    assert the_one(a_job(launcher=Resources(gpu=-1)), "BAD_GPUS").field == "launcher.gpu"


def test_slots_that_do_not_go_with_the_gpus_are_warned_about() -> None:
    shared = the_one(a_job(slots=4, resources=Resources(cpu=4, gpu=2)), "SLOTS_AND_GPUS")
    assert "4 slots share 2 GPUs" in shared.message
    idle = the_one(a_job(slots=3, resources=Resources(cpu=4, gpu=4)), "SLOTS_AND_GPUS")
    assert "1 stay idle" in idle.message
    assert found(a_job(slots=2, resources=Resources(cpu=4, gpu=4)), "SLOTS_AND_GPUS") == []


def test_cpu_and_memory_may_be_none_and_other_resources_may_not() -> None:
    nothing = Resources(cpu="none", memory="none")
    job = a_job(resources=nothing, launcher=nothing, cores_per_rank=4)
    assert found(job, "BAD_AMOUNT") == found(job, "BAD_CORES") == []
    others = found(a_job(resources=Resources(others={"rdma/hca": "none"})), "BAD_AMOUNT")
    assert [finding.field for finding in others] == ["resources.others.rdma/hca"]


@pytest.mark.parametrize("amount", ["", "x", "4GB", "-1", "0", 0, -2, float("nan"), float("inf"), "1" * 30])
def test_amounts_that_are_none_are_refused(amount: Any) -> None:
    findings = found(a_job(resources=Resources(cpu=amount, memory=amount)), "BAD_AMOUNT")
    assert {finding.field for finding in findings} == {"resources.cpu", "resources.memory"}
    assert all(finding.severity is Severity.ERROR for finding in findings)


@pytest.mark.req("D-minres")
def test_a_small_worker_is_only_noticed_and_the_default_one_is_not() -> None:
    findings = found(a_job(resources=Resources(cpu="500m", memory="512Mi")), "BAD_AMOUNT")
    assert [finding.severity for finding in findings] == [Severity.NOTICE, Severity.NOTICE]
    assert (Resources().cores, Resources().memory_bytes) == (1, 1024**3)


def test_a_gpu_or_an_odd_name_among_other_resources_is_refused() -> None:
    odd = Resources(others={"nvidia.com/gpu": 1, "a b": 1, "rdma/hca": "many", "rdma/ib": 1})
    assert len(found(a_job(resources=odd), "BAD_AMOUNT")) == 3


def test_exactly_one_of_command_and_programs_is_needed() -> None:
    programs = (Program(ranks=4, command=("a",)),)
    assert "no command" in the_one(MPIJob(name="x"), "BAD_COMMAND").message
    assert "both" in the_one(a_job(programs=programs), "BAD_COMMAND").message
    assert the_one(MPIJob(name="x", args=("-v",)), "BAD_COMMAND").field == "args"
    assert checks.run(MPIJob(name="x", programs=programs)) == ()


@pytest.mark.security
def test_a_nul_byte_in_a_command_is_refused_and_shell_letters_are_not() -> None:
    assert the_one(a_job(command=("a", "b\0c")), "BAD_COMMAND").field == "command[1]"
    assert checks.run(a_job(command=("echo", "$(reboot)", "; rm -rf /", "a\nb", "--", "*"))) == ()


def test_programs_are_held_to_their_ranks() -> None:
    job = MPIJob(
        name="x", ranks=3, programs=(Program(ranks=0, command=()), Program(ranks=4, command=("mpirun", "a")))
    )
    messages = [str(finding) for finding in found(job, "BAD_PROGRAMS")]
    assert any("programs[0].ranks: 0 ranks" in message for message in messages)
    assert any("programs[0].command: the program has no command" in message for message in messages)
    assert any("nest a second MPI launch" in message for message in messages)
    assert any("4 ranks in all, but ranks is 3" in message for message in messages)


@pytest.mark.req("UC2-cmd", "UC3-cmd")
def test_an_own_launcher_with_other_ranks_is_refused_with_both_numbers() -> None:
    finding = the_one(a_job(workers=4, slots=2, command=("mpirun", "-np", "6", "a")), "OWN_LAUNCHER_RANKS")
    assert finding.message == "mpirun -np asks for 6 ranks, but the job has 8 (4 workers × 2 slots)"
    assert "-np 8" in finding.hint
    assert finding.fixes[0].patch == {"ranks": 6}
    assert checks.run(a_job(workers=4, slots=2, command=("mpirun", "-np", "8", "a"))) == ()


def test_deepspeed_is_held_to_the_slots() -> None:
    job = a_job(slots=2, command=("deepspeed", "--num_gpus", "4", "t.py"))
    assert the_one(job, "OWN_LAUNCHER_RANKS").fixes[0].patch == {"slots": 4}


@pytest.mark.security
def test_an_own_launcher_may_not_bring_its_own_hosts() -> None:
    finding = the_one(a_job(command=("sh", "-c", "mpirun -H other:4 a")), "OWN_LAUNCHER_HOSTS")
    assert "mpirun -H" in finding.message


def test_an_own_launcher_of_another_family_is_warned_about() -> None:
    finding = the_one(a_job(mpi=Family.OPENMPI, command=("mpiexec.hydra", "a")), "OWN_LAUNCHER_FAMILY")
    assert finding.severity is Severity.WARNING


@pytest.mark.security
@pytest.mark.parametrize(
    "key",
    [
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_MCA_orte_x",
        "PRTE_MCA_prte_default_hostfile",
        "HYDRA_LAUNCHER_EXEC",
        "MPIJOB_HOME",
    ],
)
def test_variables_of_the_launcher_are_reserved(key: str) -> None:
    assert the_one(a_job(env={key: "1"}), "BAD_ENVIRONMENT").field == f"env.{key}"
    assert found(a_job(secrets=(Secret(env=key, source="env:A"),)), "BAD_SECRET")


@pytest.mark.security
@pytest.mark.parametrize("key", ["", "1A", "A B", "A=B", "A\nB", "A\0", "Ä"])
def test_a_variable_has_a_valid_name(key: str) -> None:
    assert "cannot be the name of a variable" in the_one(a_job(env={key: "x"}), "BAD_ENVIRONMENT").message


def test_values_that_no_process_can_have_are_refused() -> None:
    assert "NUL" in the_one(a_job(env={"A": "x\0y"}), "BAD_ENVIRONMENT").message
    assert "Unicode" in the_one(a_job(env={"A": "\ud800"}), "BAD_ENVIRONMENT").message
    assert "bytes" in the_one(a_job(env={"A": "x" * 200_000}), "BAD_ENVIRONMENT").message
    assert the_one(a_job(env={"PATH": "/bin"}), "BAD_ENVIRONMENT").severity is Severity.WARNING


@pytest.mark.parametrize("source", ["env:TOKEN", "file:/run/token", "tracking/token"])
def test_the_three_forms_of_a_secret_are_taken(source: str) -> None:
    assert found(a_job(secrets=(Secret(env="TOKEN", source=source),)), "BAD_SECRET") == []


@pytest.mark.security
@pytest.mark.parametrize(
    "source", ["", "hunter2-the-secret", "file:rel", "file:/a/../b", "env:A B", "a/b/c", "x\n/y"]
)
def test_other_forms_of_a_secret_are_refused_without_repeating_them(source: str) -> None:
    finding = the_one(a_job(secrets=(Secret(env="TOKEN", source=source),)), "BAD_SECRET")
    assert len(source) < 5 or source not in finding.message


def test_a_variable_may_not_be_set_twice() -> None:
    twice = (Secret(env="A", source="env:A"), Secret(env="A", source="env:B"))
    assert the_one(a_job(secrets=twice), "BAD_SECRET").field == "secrets[1].env"
    assert "env as well" in the_one(a_job(env={"A": "1"}, secrets=twice[:1]), "BAD_SECRET").message


@pytest.mark.security
@pytest.mark.parametrize("mount", ["", "data", "/", "//", "/a/../etc", "/a\0", "/a:b", "/a\nb"])
def test_a_mount_is_an_absolute_directory_of_its_own(mount: str) -> None:
    assert (
        the_one(a_job(volumes=(Volume(mount=mount, source="/srv"),)), "BAD_VOLUME").field
        == "volumes[0].mount"
    )


@pytest.mark.security
@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (VolumeKind.PATH, ""),
        (VolumeKind.PATH, "/srv/../etc"),
        (VolumeKind.PATH, "/a\0"),
        (VolumeKind.NFS, "server"),
        (VolumeKind.NFS, "s:/../x"),
        (VolumeKind.CLAIM, "../x"),
        (VolumeKind.CONFIG, ""),
        (VolumeKind.SHM, "/x"),
    ],
)
def test_a_volumes_source_suits_its_kind(kind: VolumeKind, source: str) -> None:
    finding = the_one(a_job(volumes=(Volume(mount="/data", kind=kind, source=source),)), "BAD_VOLUME")
    assert finding.field == "volumes[0].source"


def test_two_volumes_cannot_share_a_mount() -> None:
    volumes = (Volume(mount="/data", source="/a"), Volume(mount="/data/", source="/b"))
    assert "two volumes" in the_one(a_job(volumes=volumes), "BAD_VOLUME").message


@pytest.mark.parametrize("mount", ["/mpijob", "/mpijob/home", "/mpijob/ssh/", "//mpijob//code", "/etc/./mpi"])
def test_a_volume_cannot_lie_where_pods_have_files_of_their_own(mount: str) -> None:
    finding = the_one(a_job(volumes=(Volume(mount=mount, kind=VolumeKind.SCRATCH),)), "BAD_VOLUME")
    assert (finding.field, finding.severity) == ("volumes[0].mount", Severity.ERROR)
    assert "the pods of a job use " in finding.message
    beside = Volume(mount="/mpijobs", kind=VolumeKind.SCRATCH)
    assert found(a_job(volumes=(beside,)), "BAD_VOLUME") == []


@pytest.mark.parametrize("engine", [trainjob, mpijob])
def test_every_place_that_pods_take_themselves_is_refused_to_volumes(engine: Any) -> None:
    shape = Shape(uid="u", family=Family.MPICH if engine is mpijob else Family.OPENMPI, code="c")
    written = msgspec.json.encode(engine.write(a_job(image="x/y:1"), shape)).decode()
    taken = {
        *re.findall(r'"mountPath":"([^"]+)"', written),
        well_known.SSH,
        well_known.HOSTFILE,
        well_known.DISCOVERY,
    }
    assert {well_known.HOME, well_known.CODE, "/etc/passwd"} <= taken
    for mount in taken:
        volume = Volume(mount=mount, kind=VolumeKind.SCRATCH)
        assert the_one(a_job(volumes=(volume,)), "BAD_VOLUME").severity is Severity.ERROR, mount


def test_a_scratch_volume_has_a_readable_size() -> None:
    assert (
        found(a_job(volumes=(Volume(mount="/s", kind=VolumeKind.SCRATCH, size="10Gi"),)), "BAD_VOLUME") == []
    )
    unreadable = the_one(a_job(volumes=(Volume(mount="/s", kind=VolumeKind.SHM, size="big"),)), "BAD_VOLUME")
    assert unreadable.field == "volumes[0].size"


@pytest.mark.security
@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../b", "~/x", "", "a\0b"])
def test_code_stays_inside_its_directory(path: str) -> None:
    assert found(a_job(code=Code(include=(path,))), "BAD_CODE")
    assert found(a_job(code=Code(files={path: "x"})), "BAD_CODE")


def test_the_whole_directory_may_go_along_and_large_inline_files_may_not() -> None:
    assert found(a_job(code=Code(path=".", include=("src", "."), exclude=("data/*",))), "BAD_CODE") == []
    assert "characters" in the_one(a_job(code=Code(files={"a": "x" * (1 << 21)})), "BAD_CODE").message


@pytest.mark.req("FR-SDK-002")
def test_wrong_types_are_told_with_their_path_and_the_rest_is_still_checked() -> None:
    job = a_job(name="Bad", workers="four", resources=Resources(cpu=[1]), env={"A": 1})  # type: ignore[arg-type] # on purpose
    told = [str(finding) for finding in checks.run(job)]
    assert "workers: expected a whole number, got 'four'" in told
    assert "resources.cpu: expected an amount such as 2, 500m or 4Gi, got a list" in told
    assert "env.A: expected text, got 1" in told
    assert len(told) == 3, "the name is not judged: its length depends on the workers"
    assert found(a_job(namespace="Bad", workers="four"), "BAD_NAMESPACE")


def test_words_lists_and_mappings_given_in_python_become_their_types() -> None:
    job = a_job(mpi="mpich", launch=Launch(flags=["-v"]), programs=[])  # type: ignore[arg-type] # as people write it
    normal = checks.normal(job)
    assert normal.mpi is Family.MPICH
    assert normal.launch.flags == ("-v",)
    with pytest.raises(InvalidJob, match=r"did you mean"):
        checks.normal(a_job(mpi="mpch"))


def test_every_code_that_is_told_is_listed() -> None:
    job = a_job(name="Bad", workers=1, mpi="x", ranks=9, slots=0, env={"1": ""})
    assert {finding.code for finding in checks.run(job)} <= checks.codes()
