"""What checks say about how a job is launched and treated: options against families, times, placement."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.checks.test_checks import a_job, found, the_one

from mpijob import checks
from mpijob.errors import Severity
from mpijob.model import CustomLaunch, Family, Launch, MPIJob, Placement, Retention, Retry, Signal


@pytest.mark.req("NFR-003")
@pytest.mark.parametrize(
    ("family", "launch", "code"),
    [
        (Family.OPENMPI, Launch(map_by="cores"), "BAD_LAYOUT"),
        (Family.OPENMPI, Launch(bind_to="rr"), "BAD_LAYOUT"),
        (Family.MPICH, Launch(map_by="ppr:2:node"), "BAD_LAYOUT"),
        (Family.AUTO, Launch(bind_to="core; reboot"), "BAD_LAYOUT"),
        (Family.AUTO, Launch(rankfile="r", map_by="core"), "BAD_LAYOUT"),
        (Family.MPICH, Launch(rankfile="r"), "BAD_LAYOUT"),
        (Family.AUTO, Launch(stdin="a\nb"), "BAD_LAYOUT"),
        (Family.AUTO, Launch(flags=("-v\n",)), "BAD_FLAGS"),
        (Family.MPICH, Launch(settings={"btl": "tcp,self"}), "BAD_SETTINGS"),
        (Family.INTEL, Launch(settings={"MPIR_CVAR_X": "1"}), "BAD_SETTINGS"),
        (Family.OPENMPI, Launch(settings={"I_MPI_FABRICS": "shm"}), "BAD_SETTINGS"),
        (Family.AUTO, Launch(settings={"btl": "tcp", "I_MPI_FABRICS": "shm"}), "BAD_SETTINGS"),
        (Family.OPENMPI, Launch(settings={"plm_ssh_agent": "/tmp/x"}), "BAD_SETTINGS"),
        (Family.OPENMPI, Launch(settings={"bad name": "1"}), "BAD_SETTINGS"),
        (Family.MPICH, Launch(flags=("--mca", "btl", "tcp")), "BAD_FLAGS"),
        (Family.OPENMPI, Launch(flags=("-genv", "A", "b")), "BAD_FLAGS"),
        (Family.AUTO, Launch(flags=("python",)), "BAD_FLAGS"),
        (Family.AUTO, Launch(flags=("-v", "a", ":", "b")), "BAD_FLAGS"),
    ],
)
def test_options_that_mean_nothing_to_the_family_are_refused(
    family: Family, launch: Launch, code: str
) -> None:
    finding = the_one(a_job(mpi=family, launch=launch), code)
    assert finding.severity is Severity.ERROR
    assert finding.hint


def test_mca_parameters_for_mpich_are_answered_with_the_right_form() -> None:
    finding = the_one(a_job(mpi=Family.MPICH, launch=Launch(settings={"btl": "tcp"})), "BAD_SETTINGS")
    assert "MPIR_CVAR_" in finding.hint
    assert "mpi: openmpi" in finding.hint


@pytest.mark.parametrize(
    ("family", "launch"),
    [
        (Family.OPENMPI, Launch(map_by="ppr:2:package", bind_to="core", settings={"btl": "tcp,self"})),
        (Family.OPENMPI, Launch(flags=("--mca", "pml", "ob1", "-x", "A", "--report-bindings"))),
        (
            Family.MPICH,
            Launch(bind_to="core:2", settings={"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}),
        ),
        (Family.INTEL, Launch(settings={"I_MPI_FABRICS": "shm:ofi"}, flags=("-iface", "lo"))),
        (Family.AUTO, Launch(map_by=":OVERSUBSCRIBE")),
        (Family.OPENMPI, Launch(map_by="pe-list=0,1")),
        (Family.OPENMPI, Launch(rankfile="ranks.txt", stdin="input.txt")),
    ],
)
def test_options_of_the_family_are_taken(family: Family, launch: Launch) -> None:
    assert checks.run(a_job(mpi=family, launch=launch)) == ()


@pytest.mark.security
@pytest.mark.parametrize(
    "flags",
    [
        ("-n", "4"),
        ("-np", "4"),
        ("--np=4",),
        ("--hostfile", "h"),
        ("-f", "h"),
        ("-host", "a"),
        ("-H", "a"),
        ("-launcher", "ssh"),
        ("-launcher-exec", "/tmp/x"),
        ("--prtemca", "plm_ssh_agent", "/tmp/x"),
        ("--mca", "plm_rsh_agent", "/tmp/x"),
        ("--unknown", "value", "-np", "4"),
        ("-v", "-np", "4"),
    ],
)
def test_flags_that_would_break_the_plan_are_refused(flags: tuple[str, ...]) -> None:
    assert "set by mpijob" in the_one(a_job(launch=Launch(flags=flags)), "BAD_FLAGS").message


def custom(**fields: Any) -> MPIJob:
    launch = CustomLaunch(**{"command": ("myrun", "-n", "{ranks}", "-f", "{hostfile}")} | fields)
    return a_job(mpi=Family.CUSTOM, launch=Launch(custom=launch))


@pytest.mark.req("C-custom-mpi")
def test_a_custom_launch_stands_beside_mpi_custom_and_only_there() -> None:
    assert checks.run(custom(tag=r"\[(?P<rank>\d+)\]", rank_variable="MY_RANK")) == ()
    assert the_one(a_job(mpi=Family.CUSTOM), "BAD_CUSTOM_LAUNCH").message == "mpi: custom needs launch.custom"
    lonely = a_job(launch=Launch(custom=CustomLaunch(command=("a",))))
    assert the_one(lonely, "BAD_CUSTOM_LAUNCH").fixes[0].patch == {"mpi": "custom"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"command": ("a", "{hostfile}", "{rank}")}, "did you mean '{ranks}'?"),
        ({"command": ("a", "{hostfile}", "{")}, "{{ and }}"),
        ({"command": ("a", "{hostfile.__class__}")}, "allowed"),
        ({"command": ()}, "for example"),
        ({"host_line": "{slots}"}, "{worker}"),
        ({"host_line": "{worker} {cores}"}, "allowed"),
        ({"host_line": "{worker}\n"}, "one line"),
        ({"tag": "("}, "for example"),
        ({"tag": "[0-9]+"}, "(?P<rank>"),
        ({"rank_variable": "A B"}, "MY_RANK"),
    ],
)
def test_a_custom_launch_is_held_to_its_placeholders(fields: dict[str, Any], said: str) -> None:
    findings = found(custom(**fields), "BAD_CUSTOM_LAUNCH")
    assert any(said in finding.hint for finding in findings)


def test_a_custom_command_without_a_hostfile_is_warned_about() -> None:
    assert the_one(custom(command=("myrun",)), "BAD_CUSTOM_LAUNCH").severity is Severity.WARNING


NAN, ENDLESS = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"placement": Placement(exclude_nodes=("A B",))}, "BAD_PLACEMENT", "placement.exclude_nodes[0]"),
        ({"placement": Placement(node_selector={"a b": "c"})}, "BAD_PLACEMENT", "placement.node_selector"),
        (
            {"placement": Placement(tolerations=({"effect": "No"},))},
            "BAD_PLACEMENT",
            "placement.tolerations[0].effect",
        ),
        ({"priority": 2_000_000_000}, "BAD_PRIORITY", "priority"),
        ({"priority": "Not A Class"}, "BAD_PRIORITY", "priority"),
        ({"retry": Retry(limit=-1)}, "BAD_RETRY", "retry.limit"),
        ({"retry": Retry(limit=99)}, "BAD_RETRY", "retry.limit"),
        ({"retry": Retry(factor=0.5)}, "BAD_RETRY", "retry.factor"),
        ({"retry": Retry(backoff_seconds=NAN)}, "BAD_RETRY", "retry.backoff_seconds"),
        ({"deadline_seconds": 0.0}, "BAD_TIME", "deadline_seconds"),
        ({"deadline_seconds": ENDLESS}, "BAD_TIME", "deadline_seconds"),
        ({"gang_timeout_seconds": 0.0}, "BAD_TIME", "gang_timeout_seconds"),
        ({"grace_seconds": -1.0}, "BAD_TIME", "grace_seconds"),
        ({"keep_on_failure_seconds": -1.0}, "BAD_TIME", "keep_on_failure_seconds"),
        ({"retention": Retention(logs_days=-1)}, "BAD_TIME", "retention.logs_days"),
        ({"signal": Signal(name="SIGKILL")}, "BAD_SIGNAL", "signal.name"),
        (
            {"signal": Signal(seconds_before=60), "deadline_seconds": 60},
            "BAD_SIGNAL",
            "signal.seconds_before",
        ),
        ({"queue": "Big Queue"}, "BAD_QUEUE", "queue"),
        ({"pull_secrets": ("A/b",)}, "BAD_PULL_SECRET", "pull_secrets[0]"),
        ({"labels": {"a b": "c"}}, "BAD_LABEL", "labels.a b"),
        ({"labels": {"team": "c v"}}, "BAD_LABEL", "labels.team"),
        ({"cost": {"-x": "1"}}, "BAD_LABEL", "cost.-x"),
        ({"labels": {"Bad Prefix/x": "1"}}, "BAD_LABEL", "labels.Bad Prefix/x"),
        ({"owner": "jane\nroot"}, "BAD_TEXT", "owner"),
        ({"image": "a b"}, "BAD_TEXT", "image"),
        ({"description": "x" * 20_000}, "BAD_TEXT", "description"),
    ],
)
def test_how_a_job_is_treated_is_checked(fields: dict[str, Any], code: str, field: str) -> None:
    finding = the_one(a_job(**fields), code)
    assert finding.field == field
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": "high"},
        {"priority": "gpu-class"},
        {"priority": -5},
        {"signal": Signal(name="SIGUSR1", seconds_before=60), "deadline_seconds": 61},
        {"signal": Signal(name="USR2")},
        {"labels": {"example.org/team": "cv", "empty": ""}, "cost": {"centre": "4711"}},
        {"queue": "gpu.large"},
        {"retry": Retry(limit=98)},
    ],
)
def test_good_values_are_taken(fields: dict[str, Any]) -> None:
    assert checks.run(a_job(**fields)) == ()


def test_a_misspelt_priority_is_asked_about() -> None:
    assert "did you mean 'high'?" in the_one(a_job(priority="hihg"), "BAD_PRIORITY").hint
