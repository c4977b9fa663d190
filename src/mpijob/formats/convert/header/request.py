"""What the header of a batch script asks for, for any batch system."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

from mpijob.formats.convert.header.size import Asked
from mpijob.formats.convert.report import Notes

LONGEST_NAME = 40
_NAME_VARIABLE = {"Slurm": "SLURM_JOB_NAME", "PBS": "PBS_JOBNAME", "LSF": "LSB_JOBNAME"}
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")


class Request(msgspec.Struct, kw_only=True):
    """Fields of the job, the shape of each component, values of an array, and the job to wait for with `after`."""

    system: str
    name: str = ""
    fields: dict[str, Any] = {}
    components: list[Asked] = []
    values: dict[str, tuple[str, ...]] = {}
    after: str = ""
    mail: dict[str, tuple[str, str, int]] = {}
    notes: Notes = msgspec.field(default_factory=Notes)

    def ask(self, **changes: Any) -> None:
        """Change the current component's request."""
        self.components[-1] = msgspec.structs.replace(self.components[-1], **changes)

    def of(self, ours: str) -> str:
        """Return the field that the current component sets: the job's own, or a group's."""
        if len(self.components) < 2:
            return ours
        shared = {"ranks": "slots", "cores_per_rank": "resources.cpu"}
        return f"groups[{len(self.components) - 2}].{shared.get(ours, ours)}"

    def env(self, name: str, value: str) -> None:
        self.fields["env"] = self.fields.get("env", {}) | {name: value}


def name_of(wanted: str, fallback: str = "job") -> str:
    """Return a valid job name, as similar as possible."""
    if _NAME.fullmatch(wanted) and len(wanted) <= LONGEST_NAME:
        return wanted
    plain = unicodedata.normalize("NFKD", wanted[:200]).encode("ascii", "ignore").decode().lower()
    dashed = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_NAME].strip("-")
    if dashed and dashed[0].isdigit():
        dashed = f"job-{dashed}"[:LONGEST_NAME].strip("-")
    return dashed or fallback


def take_name(request: Request, field: str, value: str) -> None:
    """Name the job; the batch system's variable keeps the original name for the script."""
    request.name = noted_name(request.notes, field, value)
    if request.name != value:
        request.env(_NAME_VARIABLE[request.system], value)


def noted_name(notes: Notes, field: str, value: str) -> str:
    """Return a valid name for the job, and report a changed one."""
    name = name_of(value)
    if name == value:
        notes.exact(field, value, "name")
    else:
        note = "a name has lowercase letters, digits and hyphens, and starts with a letter"
        notes.changed(field, value, f"name: {name}", note)
    return name


def take_variables(request: Request, field: str, text: str, inherited: str) -> None:
    """Take `A=1,B=2,C`: pairs become `env`; names alone refer to the submitting shell's environment."""
    for part in _split(text):
        name, equals, value = part.partition("=")
        if part in ("ALL", "NONE", "NIL", ""):
            if part == "ALL":
                request.notes.changed(field, part, "", inherited, NAMED)
            elif part:
                request.notes.exact(field, part, "", "a job gets no variables of your shell")
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            request.env(name, value)
            request.notes.exact(field, part, f"env.{name}")
        else:
            request.notes.dropped(
                field,
                part,
                "its value is only in the shell that submits the job",
                f"set env: {{{part}: …}}",
            )


def _split(text: str) -> list[str]:
    """Return the parts between commas; quotes group."""
    return [
        part.strip().replace("'", "").replace('"', "")
        for part in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,])+", text)
    ]


INHERITED = (
    "a job gets the variables in env; on this machine also PATH and the Python environment of your shell"
)
NAMED = "nothing, or add --env NAME for each variable that the program needs"
DEADLINE = "a limit of the whole job; queues do not use it for planning"
LOGS = "mpijob keeps the output of every rank: mpijob logs NAME"
