"""What the head of a batch script asks for, whichever batch system it is written for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import msgspec

from mpijob.formats.convert.header.size import Asked
from mpijob.formats.convert.report import Notes

LONGEST_NAME = 40
OWN_NUMBER = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "PBS_JOBID")
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")


class Request(msgspec.Struct, kw_only=True):
    """Fields of the job, the shape of each component, values of an array, the job to wait for with `after`, whether it
    waits for another at all, variables whose value is known, files whose text is known, the text of the script itself,
    and the names of what lies beside it.
    """

    system: str
    name: str = ""
    fields: dict[str, Any] = {}
    components: list[Asked] = []
    values: dict[str, tuple[str, ...]] = {}
    after: str = ""
    waits: bool = False
    known: dict[str, str] = {}
    files: dict[str, str] = {}
    text: str = ""
    beside: frozenset[str] = frozenset()
    notes: Notes = msgspec.field(default_factory=Notes)

    def ask(self, **changes: Any) -> None:
        """Change what the component in hand asks for."""
        self.components[-1] = msgspec.structs.replace(self.components[-1], **changes)

    def env(self, name: str, value: str) -> None:
        """Give the job a variable."""
        self.fields["env"] = self.fields.get("env", {}) | {name: value}


def free_name(wanted: str, request: Request) -> str:
    """Return a name for a file of ours that neither the script nor its folder has for one of the user's."""

    def is_taken(name: str) -> bool:
        named = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", request.text)
        return named is not None or name in request.files or name in request.beside

    return unused(wanted, is_taken)


def unused(wanted: str, is_taken: Callable[[str], bool]) -> str:
    """Return the name that is wanted for a file of ours, or one like it that nobody has."""
    for name in (wanted, *(f"mpijob-{count}-{wanted}" for count in range(1, 100))):
        if not is_taken(name):
            return name
    return wanted


def name_of(wanted: str, fallback: str = "job") -> str:
    """Return a name that a job may have, as near as can be to the one wanted."""
    if _NAME.fullmatch(wanted) and len(wanted) <= LONGEST_NAME:
        return wanted
    plain = unicodedata.normalize("NFKD", wanted[:200]).encode("ascii", "ignore").decode().lower()
    dashed = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_NAME].strip("-")
    if dashed and dashed[0].isdigit():
        dashed = f"job-{dashed}"[:LONGEST_NAME].strip("-")
    return dashed or fallback


def take_name(request: Request, field: str, value: str) -> None:
    """Name the job, and say so where the name had to change."""
    request.name = noted_name(request.notes, field, value)


def noted_name(notes: Notes, field: str, value: str) -> str:
    """Return the name for a job, and take note of what became of the one that was wanted."""
    name = name_of(value)
    if name == value:
        notes.exact(field, value, "name")
    else:
        note = "names are small letters, digits and dashes here, beginning with a letter"
        notes.changed(field, value, f"name: {name}", note)
    return name


def take_variables(request: Request, field: str, text: str, inherited: str) -> None:
    """Take `A=1,B=2,C` over: values become env, names alone are of the submitting shell."""
    for part in _split(text):
        name, equals, value = part.partition("=")
        if part in ("ALL", "NONE", "NIL", ""):
            if part == "ALL":
                request.notes.changed(field, part, "", inherited, NAMED)
            elif part:
                request.notes.exact(
                    field, part, "", "a job here begins with nothing of your shell's variables"
                )
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            request.env(name, value)
            request.notes.exact(field, part, f"env.{name}")
        else:
            request.notes.dropped(
                field,
                part,
                "its value is in the shell from which the job is submitted",
                f"write env: {{{part}: …}}",
            )


def given_by(name: str) -> str:
    """Return how a job gets a variable of the user's shell."""
    return f"add --env {name} when you run it, which takes your shell's value, or write env: {{{name}: …}}"


def _split(text: str) -> list[str]:
    """Return the parts between commas; quotes group."""
    return [
        part.strip().replace("'", "").replace('"', "")
        for part in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^,])+", text)
    ]


INHERITED = (
    "a job gets the variables of env; of your shell only PATH and what finds its Python, on this machine"
)
NAMED = "nothing, or add --env NAME when you run it for each variable of your shell that the program needs"
DEADLINE = "a limit for the whole job; no queue here uses it to plan ahead"
LOGS = "the output of every rank is kept by the job itself: mpijob logs NAME"
KEPT = "what a job leaves in its directory is kept with it: mpijob artifacts list NAME"
STARTER = "mpijob chooses how ranks are started"
