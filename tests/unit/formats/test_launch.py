"""The launch dialect: hostfiles, lines and variables of each MPI family."""

from __future__ import annotations

import pytest

from mpijob.formats.launch import command_line, hostfile
from mpijob.model import CustomLaunch, Family, Launch, MPIJob, PlannedWorker, Program

WORKERS = (PlannedWorker(0, "j-worker-0", 2, (0, 1)), PlannedWorker(1, "j-worker-1", 2, (2, 3)))


def a_job(**fields: object) -> MPIJob:
    base: dict[str, object] = {"name": "j", "workers": 2, "slots": 2, "command": ("python", "train.py")}
    return MPIJob(**(base | fields))  # type: ignore[arg-type]  # a builder for tests


def a_line(family: Family, job: MPIJob, *names: str) -> tuple[str, ...]:
    return command_line.line(
        family, job, launcher="mpi", hostfile="/hosts", agent="/agent", shim=("shim",), names=names
    )


@pytest.mark.req("FR-004", "NFR-003")
@pytest.mark.parametrize(
    ("family", "text"),
    [
        (Family.MPICH, "j-worker-0:2\nj-worker-1:2\n"),
        (Family.INTEL, "j-worker-0:2\nj-worker-1:2\n"),
        (Family.OPENMPI, "j-worker-0 slots=2\nj-worker-1 slots=2\n"),
    ],
)
def test_each_family_gets_the_hostfile_in_its_own_form(family: Family, text: str) -> None:
    assert hostfile.text(family, WORKERS, Launch()) == text


def test_hydra_is_started_over_the_hostfile_with_the_shim_before_the_command() -> None:
    expected = ("mpi", "-f", "/hosts", "-n", "4", "shim", "python", "train.py")
    assert a_line(Family.MPICH, a_job()) == expected


@pytest.mark.parametrize("family", [Family.MPICH, Family.INTEL, Family.OPENMPI])
def test_one_daemon_is_told_no_hosts_and_no_mapping(family: Family) -> None:
    line = command_line.line(
        family, a_job(launch=Launch(map_by="node", bind_to="core")), launcher="mpi", hostfile="/hosts", agent="/agent",
        shim=("shim",), names=(), nodes=False,
    )  # fmt: skip
    bound = "--bind-to" if family is Family.OPENMPI else "-bind-to"
    assert line == ("mpi", bound, "core", "-n", "4", "shim", "python", "train.py")


def test_shared_memory_has_its_name_in_each_open_mpi() -> None:
    names = {
        version: command_line.one_daemon(Family.OPENMPI, version)["OMPI_MCA_btl"]
        for version in ("4.1.4", "5.0.8")
    }
    assert names == {"4.1.4": "self,vader,tcp", "5.0.8": "self,sm,tcp"}


def test_open_mpi_hands_over_variables_by_name_never_by_value() -> None:
    line = a_line(Family.OPENMPI, a_job(env={"TOKEN": "hush"}), "TOKEN")
    assert line == ("mpi", "--hostfile", "/hosts", "-x", "TOKEN", "-n", "4", "shim", "python", "train.py")
    assert "hush" not in " ".join(line)


def test_settings_are_mca_options_for_open_mpi_and_variables_for_the_others() -> None:
    chosen = Launch(settings={"btl": "self,tcp", "UCX_TLS": "tcp"})
    assert a_line(Family.OPENMPI, a_job(launch=chosen))[3:6] == ("--mca", "btl", "self,tcp")
    assert command_line.settings_as_variables(Family.OPENMPI, chosen) == {"UCX_TLS": "tcp"}
    assert command_line.settings_as_variables(Family.MPICH, chosen) == {"btl": "self,tcp", "UCX_TLS": "tcp"}


def test_several_programs_share_one_world() -> None:
    programs = (
        Program(ranks=1, command=("server",)),
        Program(ranks=3, command=("client",), env={"A": "1"}),
    )
    line = a_line(Family.MPICH, a_job(command=(), programs=programs))
    assert line[3:] == ("-n", "1", "shim", "server", ":", "-n", "3", "-env", "A", "1", "shim", "client")


def test_every_program_of_open_mpi_gets_the_variables() -> None:
    programs = (Program(ranks=1, command=("server",)), Program(ranks=3, command=("client",)))
    line = a_line(Family.OPENMPI, a_job(command=(), programs=programs), "LR")
    assert line[3:] == ("-x", "LR", "-n", "1", "shim", "server", ":", "-x", "LR", "-n", "3", "shim", "client")


def test_layout_options_are_translated() -> None:
    chosen = Launch(map_by="node", bind_to="core")
    assert a_line(Family.OPENMPI, a_job(launch=chosen))[3:7] == ("--map-by", "node", "--bind-to", "core")
    assert a_line(Family.MPICH, a_job(launch=chosen))[3:7] == ("-ppn", "1", "-bind-to", "core")


def test_a_custom_library_is_started_as_the_job_says() -> None:
    custom = CustomLaunch(
        command=("poe", "-hosts", "{hostfile}", "-n", "{ranks}", "-rsh", "{agent}"),
        host_line="{worker}*{slots}",
    )
    job = a_job(mpi=Family.CUSTOM, launch=Launch(custom=custom, flags=("-v",)))
    expected = ("poe", "-hosts", "/hosts", "-n", "4", "-rsh", "/agent", "-v", "shim", "python", "train.py")
    assert a_line(Family.CUSTOM, job) == expected
    assert hostfile.text(Family.CUSTOM, WORKERS, job.launch) == "j-worker-0*2\nj-worker-1*2\n"


@pytest.mark.req("NFR-003")
def test_both_mca_families_are_set_so_that_open_mpi_4_and_5_find_the_workers() -> None:
    found = command_line.variables(Family.OPENMPI, hostfile="/hosts", agent="/agent", slots=2)
    assert found["OMPI_MCA_orte_default_hostfile"] == found["PRTE_MCA_prte_default_hostfile"] == "/hosts"
    assert found["OMPI_MCA_plm_rsh_agent"] == found["PRTE_MCA_plm_ssh_agent"] == "/agent"


@pytest.mark.parametrize(("family", "extra"), [(Family.MPICH, set()), (Family.INTEL, {"2"})])
def test_hydra_finds_hosts_and_agent_by_variables_too(family: Family, extra: set[str]) -> None:
    found = command_line.variables(family, hostfile="/hosts", agent="/agent", slots=2)
    assert set(found.values()) == {"/hosts", "ssh", "/agent"} | extra


@pytest.mark.parametrize(
    ("fields", "ranks"),
    [
        ({}, [(0, 1), (2, 3)]),
        ({"launch": Launch(map_by="node")}, [(0, 2), (1, 3)]),
        ({"ranks": 3}, [(0, 1), (2,)]),
        ({"launch": Launch(map_by="numa")}, [(), ()]),
    ],
)
def test_the_plan_says_which_rank_goes_where(fields: dict[str, object], ranks: list[tuple[int, ...]]) -> None:
    placed = hostfile.place_ranks(a_job(**fields), ["j-worker-0", "j-worker-1"])
    assert [worker.ranks for worker in placed] == ranks


@pytest.mark.req("UC3-cmd")
def test_mpi_flags_in_the_environment_are_flags_of_the_launch_line() -> None:
    line = a_line(Family.OPENMPI, a_job(env={"MPI_FLAGS": "--mca btl tcp,self"}))
    assert line[3:6] == ("--mca", "btl", "tcp,self")


def test_nothing_binds_ranks_between_pods_unless_the_job_does() -> None:
    none = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}
    assert command_line.unbound(Family.OPENMPI, Launch()) == none
    assert command_line.unbound(Family.INTEL, Launch()) == {"I_MPI_PIN": "0"}
    assert command_line.unbound(Family.MPICH, Launch()) == {}
    for family in (Family.OPENMPI, Family.INTEL):
        assert command_line.unbound(family, Launch(bind_to="core")) == {}
