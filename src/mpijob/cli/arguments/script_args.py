"""A script as the first argument of create, run, plan and array, as with sbatch.

Its header gives the fields of the job, flags override it, and the words after `--` are its $1 ….
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from mpijob.cli.arguments.overlay import Change, Tree, overlay
from mpijob.errors import InvalidJob

if TYPE_CHECKING:
    from mpijob.formats.convert.report import FieldEntry

_SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".pbs", ".lsf", ".bsub", ".csh", ".tcsh", ".ksh", ".zsh")
_SHELL = re.compile(r"#!\s*(?:\S*/env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|da|a|k|z|c|tc)?sh(?:\s|$)")
_JOB_NAME = re.compile(r"[a-z0-9-]+")
_MOST_BYTES = 1 << 20
_FLAGS_FOR = {
    "memory": {"resources.memory"},
    "cpu": {"resources.cpu", "slots", "cores_per_rank"},
    "size": {"workers", "slots", "ranks"},
}


class Script(NamedTuple):
    """The header of a script: its job, the values of an array, and notes for the user."""

    file: str
    tree: Tree
    values: Mapping[str, tuple[str, ...]]
    entries: tuple[FieldEntry, ...]
    waits: str

    def notes(self, changes: Sequence[Change]) -> list[str]:
        """Return what the user must do about the header, unless a flag does it."""
        from mpijob.formats.convert.report import UNASKED

        said = {change.path for change in changes}
        return [
            f"{f'line {entry.line}: {entry.field} {entry.value}: ' if entry.line else ''}{entry.note}; {entry.todo}"
            for entry in self.entries
            if entry.matters and not (entry.value == UNASKED and said & _FLAGS_FOR[entry.field])
        ]

    def job_tree(self, changes: Sequence[Change]) -> Tree:
        """Return the job's tree with flags merged."""
        said = {change.path for change in changes}
        tree = dict(self.tree)
        # The header's number of ranks and CPUs only follow from its sizes, so they follow the flags.
        if said & {"workers", "slots"}:
            tree.pop("ranks", None)
        resources = dict(tree.get("resources", {}))
        implied = tree.get("slots", 1) * tree.get("cores_per_rank", 1)
        made = overlay(tree, changes)
        if said & {"slots", "cores_per_rank"} and resources.get("cpu", "1") == str(implied):
            slots, cores = made.get("slots", 1), made.get("cores_per_rank", 1)
            if "resources.cpu" not in said and isinstance(slots, int) and isinstance(cores, int):
                made["resources"] = {**made.get("resources", {}), "cpu": str(slots * cores)}
        return made


def find(words: Sequence[str], after: Sequence[str]) -> Script | None:
    """Return the script that the first word names; None if it is the name of a job."""
    word = words[0] if words else ""
    if not os.path.isfile(word):
        if word.lower().endswith(_SUFFIXES):
            raise click.UsageError(f"{word}: No such file or directory")
        return None
    text = _text(word)
    if not _is_script(word, text, given_words=bool(after)):
        return None
    if len(words) > 1:
        raise click.UsageError(f"the script's arguments go after --: {word} -- {' '.join(words[1:])}")
    return _read(word, text)


def _text(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read(_MOST_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _is_script(word: str, text: str, *, given_words: bool) -> bool:
    from mpijob.formats.convert import batch_script

    if batch_script.kind(text) not in ("", batch_script.PLAIN):
        return True
    if _JOB_NAME.fullmatch(word) and given_words:
        # `NAME -- COMMAND`, and a file of that name happens to exist.
        return False
    return _SHELL.match(text) is not None or (bool(text) and word.lower().endswith(_SUFFIXES))


def _read(word: str, text: str) -> Script:
    from mpijob.client.convert.script_folder import too_much
    from mpijob.formats.convert import batch_script
    from mpijob.formats.jobfile import jobfile_writer
    from mpijob.model import Code

    one = batch_script.read(text, word)
    for entry in one.blockers:
        place = f"{word}, line {entry.line}" if entry.line else word
        raise InvalidJob(
            f"{place}: {' '.join(filter(None, (entry.field, entry.value)))}: {entry.note}", hint=entry.todo
        )
    (job,) = one.jobs
    path = os.path.normpath(word)
    if os.path.isabs(path) or path.startswith(".."):
        job = job.replace(code=Code(path="" if too_much(".") else ".", files={job.script: text}))
    else:
        job = job.replace(script=path, code=Code())
    return Script(word, jobfile_writer.plain(job), one.values, one.entries, one.after)
