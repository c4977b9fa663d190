"""Rules about the layout and start of ranks: options that the MPI family in use does not have, or that change the
plan.

`formats/launch/command_line` translates options into mpirun's and mpiexec's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mpijob.checks.rule import Findings, Limits, at, error, unfit_line
from mpijob.model import Family, MPIJob
from mpijob.model.spec.command_options import MPIRUN, pairs
from mpijob.model.spec.enums import BIND_TO, MAP_BY, choice_hint, shown

_HYDRA = (Family.MPICH, Family.INTEL)
_ENVIRONMENT_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_MCA_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LAYOUT = re.compile(r"[A-Za-z0-9_:=,.+\-]*")
_OWNERS = (("MPIR_CVAR_", (Family.MPICH,)), ("I_MPI_", (Family.INTEL,)), ("OMPI_MCA_", (Family.OPENMPI,)))
_RIGHT_FORM = {
    Family.MPICH: "MPICH takes variables, for example MPIR_CVAR_CH4_NETMOD: ofi",
    Family.INTEL: "Intel MPI takes variables, for example I_MPI_FABRICS: shm:ofi",
}
_AGENTS = frozenset(
    {"-launcher", "--launcher", "-launcher-exec", "--launcher-exec", "-bootstrap", "--bootstrap"}
    | {
        "-bootstrap-exec",
        "--bootstrap-exec",
        "--launch-agent",
        "-rmk",
        "--rmk",
        "--dvm",
        "-configfile",
        "--app",
    }
)
_AGENT_SETTINGS = frozenset(
    {"plm_ssh_agent", "plm_rsh_agent", "prte_default_hostfile", "orte_default_hostfile", "plm", "ras"}
)
_MCA_FLAGS = frozenset({"mca", "prtemca", "pmixmca", "gmca", "gpmixmca", "omca"})
_OPENMPI_FLAGS = _MCA_FLAGS | {"x", "tune", "report-bindings"}
_HYDRA_FLAGS = frozenset({"genv", "env", "genvall", "genvlist", "ppn", "perhost", "iface", "prepend-rank"})


def layout(job: MPIJob, limits: Limits) -> Findings:
    """map_by and bind_to have values of the family."""
    yield from _layout_word("launch.map_by", job.launch.map_by, _known(MAP_BY, job.mpi))
    yield from _layout_word("launch.bind_to", job.launch.bind_to, _known(BIND_TO, job.mpi))
    if job.launch.map_by == "node" and not job.has_equal_slots:
        message = "map_by: node places one rank on each worker in turn, but the groups have different slots"
        yield error("launch.map_by", message, "remove map_by, or set the same slots in all groups")
    yield from _file("launch.rankfile", job.launch.rankfile)
    yield from _file("launch.stdin", job.launch.stdin)
    if job.launch.rankfile and job.mpi in _HYDRA:
        message = f"a rankfile is an option of Open MPI; {job.mpi} does not support it"
        yield error("launch.rankfile", message, "use map_by and bind_to, or mpi: openmpi")
    elif job.launch.rankfile and (job.launch.map_by or job.launch.bind_to):
        yield error("launch.rankfile", "the rankfile already maps each rank", "remove map_by and bind_to")


def _file(field: str, path: str) -> Findings:
    if reason := unfit_line(path):
        yield error(field, f"the path {reason}", "name one file")
    elif ".." in path.split("/"):
        yield error(field, f"{shown(path)} is outside the job's directory", "set a file in it")


def _known(words: dict[str, tuple[str, ...]], family: Family) -> tuple[str, ...]:
    if family in words:
        return words[family]
    return tuple(dict.fromkeys(word for own in words.values() for word in own))


def _layout_word(field: str, text: str, known: tuple[str, ...]) -> Findings:
    word = re.split("[:=]", text, maxsplit=1)[0].lower()
    if text and (not _LAYOUT.fullmatch(text) or (word and word not in known)):
        yield error(field, f"{shown(text)} is not a valid value", choice_hint(word, known))


def settings(job: MPIJob, limits: Limits) -> Findings:
    """Settings have the family's form: MCA parameters for Open MPI, variables for the others."""
    for key, value in job.launch.settings.items():
        if reason := unfit_line(value):
            yield error(at("launch.settings", key), f"the value {reason}", "write it on one line")
        if not _ENVIRONMENT_NAME.fullmatch(key) and not _MCA_NAME.fullmatch(key):
            yield error(
                "launch.settings",
                f"{shown(key)} cannot be the name of a setting",
                "for example: btl_tcp_if_include",
            )
        elif key.removeprefix("OMPI_MCA_").removeprefix("PRTE_MCA_") in _AGENT_SETTINGS:
            yield error(at("launch.settings", key), f"{key} {_BREAKS}", "remove it")
        else:
            yield from _owner_of(job.mpi, key)
    yield from _mixed(job)


_BREAKS = "is set by mpijob: a custom value would break the start"


def _owner_of(family: Family, key: str) -> Findings:
    field = at("launch.settings", key)
    if family in _HYDRA and _MCA_NAME.fullmatch(key):
        message = f"{key} is a parameter of Open MPI; {family} does not support it"
        yield error(field, message, f"{_RIGHT_FORM[family]}; or use mpi: openmpi")
    for prefix, owners in _OWNERS:
        if key.startswith(prefix) and family not in (*owners, Family.AUTO, Family.CUSTOM):
            yield error(
                field, f"{key} belongs to {owners[0]}; {family} does not support it", f"use mpi: {owners[0]}"
            )


def _mixed(job: MPIJob) -> Findings:
    owners = {owner for key in job.launch.settings if (owner := _one_owner(key))}
    if job.mpi is Family.AUTO and len(owners) > 1:
        message = f"the settings belong to different MPI families: {', '.join(sorted(owners))}"
        yield error("launch.settings", message, "keep the settings of one family, and set it in mpi")


def _one_owner(key: str) -> Family | None:
    if _MCA_NAME.fullmatch(key):
        return Family.OPENMPI
    return next((owners[0] for prefix, owners in _OWNERS if key.startswith(prefix)), None)


def flags(job: MPIJob, limits: Limits) -> Findings:
    """Extra flags belong to the family, and do not change what is planned."""
    words = job.launch.flags
    for index, word in enumerate(words):
        if reason := unfit_line(word):
            yield error(f"launch.flags[{index}]", f"the flag {reason}", "write one word on one line")
    if words and not words[0].startswith("-"):
        message = f"{shown(words[0])} would be read as the program"
        yield error("launch.flags[0]", message, "flags start with '-'; set the program in command")
    if ":" in words:
        yield error(
            "launch.flags",
            "':' starts a second program",
            "use the programs field for several programs",
        )
    for option, value in _options(words):
        yield from _breaking(option, value)
        yield from _foreign(job.mpi, option)


def _options(words: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    """Return every option, also ones after words that may be the value of an unknown option."""
    found: list[tuple[str, str]] = []
    rest = words
    while rest:
        found += pairs(rest, MPIRUN)
        skipped = next((at for at, word in enumerate(rest) if not word.startswith("-")), len(rest))
        taken = next((at for at in range(skipped + 1, len(rest)) if rest[at].startswith("-")), len(rest))
        rest = rest[taken:]
    return dict.fromkeys(found)


def _breaking(option: str, value: str) -> Findings:
    decided = {
        **dict.fromkeys(MPIRUN.ranks, "workers, slots and ranks"),
        **dict.fromkeys(MPIRUN.hosts, "workers"),
    }
    if option in decided:
        yield error("launch.flags", f"{option} {_BREAKS}", f"remove it and use {decided[option]}")
    elif option in _AGENTS:
        yield error("launch.flags", f"{option} {_BREAKS}", "remove it")
    elif option.lstrip("-") in _MCA_FLAGS and value in _AGENT_SETTINGS:
        yield error("launch.flags", f"{option} {value} {_BREAKS}", "remove it")


def _foreign(family: Family, option: str) -> Findings:
    name = option.lstrip("-")
    if family in _HYDRA and name in _OPENMPI_FLAGS:
        message = f"{option} is an option of Open MPI; {family} does not support it"
        yield error(
            "launch.flags", message, f"{_RIGHT_FORM[family]}, in launch.settings; or use mpi: openmpi"
        )
    elif family is Family.OPENMPI and name in _HYDRA_FLAGS:
        message = f"{option} is an option of MPICH and Intel MPI; {family} does not support it"
        yield error("launch.flags", message, "variables go into env; or use mpi: mpich")
