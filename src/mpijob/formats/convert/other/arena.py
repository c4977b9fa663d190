"""Arena's command lines (`arena submit mpi …`) as jobs, also in scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from mpijob.errors import InvalidJob
from mpijob.formats.convert import unrequested_resources
from mpijob.formats.convert.header import units
from mpijob.formats.convert.header.request import noted_name
from mpijob.formats.convert.kubernetes import launch_command
from mpijob.formats.convert.report import Converted, FieldEntry, FieldOutcome, Notes
from mpijob.model import MPIJob, Placement, Volume, VolumeKind
from mpijob.model.spec.command import shell_commands, unwrapped

_SUBMIT = re.compile(r"^[ \t]*(?:exec[ \t]+)?arena[ \t]+submit[ \t]+(?:mpi|mpijob|horovod)\b", re.MULTILINE)
_KINDS = frozenset({"mpi", "mpijob", "horovod"})
_FLAGS = frozenset({"--rdma", "--gang", "--sync-mode-none", "--tensorboard", "--mounts-on-launcher"})
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|\\.""", re.DOTALL)
# Private-use characters for literal `$` and backquotes while the line is split into words.
_LITERAL = {"$": "\ue000", "`": "\ue001"}
_PLAIN = re.compile(r"[^|;&<>$`\n()]*")


def is_arena(text: str) -> bool:
    """Return whether a text submits a job with Arena, alone or in a script."""
    return _SUBMIT.search(text) is not None


def read(text: str, file: str = "") -> tuple[Converted, ...]:
    """Return the jobs of the command lines in a text."""
    commands = [unwrapped(words) for words in shell_commands(_marked(text))]
    submits = [words for words in commands if words[:2] == ("arena", "submit") and {*words[2:3]} & _KINDS]
    if not submits:
        raise InvalidJob(
            "there is no arena submit in the file", hint="arena submit mpi --name NAME --workers 2 …"
        )
    found = [_read(words, file) for words in submits]
    rest = [_plain(" ".join(words)) for words in commands if words and words not in submits]
    if rest:
        note = f"{len(rest)} other commands of the script are ignored"
        todo = "if the job needs them, run them before mpijob run"
        entry = FieldEntry("script", FieldOutcome.DROPPED, "; ".join(rest)[:200], "", note, todo)
        found[0] = msgspec.structs.replace(found[0], entries=(*found[0].entries, entry))
    return tuple(found)


def _marked(text: str) -> str:
    """Return a shell text with literal dollars and backquotes replaced by `_LITERAL`."""

    # Single quotes and backslashes protect them from the shell; all others are expanded by it, and their value is
    # unknown.
    def marked(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith("'"):
            return "".join(_LITERAL.get(letter, letter) for letter in found)
        return re.sub(r"\\([$`])", lambda one: _LITERAL[one[1]], found)

    return _QUOTED.sub(marked, text)


def _plain(word: str) -> str:
    for letter, mark in _LITERAL.items():
        word = word.replace(mark, letter)
    return word


def _is_expanded(word: str) -> bool:
    return "$" in word or "`" in word


def _read(words: Sequence[str], file: str) -> Converted:
    notes = Notes()
    fields: dict[str, Any] = {}
    options: dict[str, Any] = {}
    at = 3
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if not equals and name not in _FLAGS and at < len(words):
            value = words[at]
            at += 1
        if _is_expanded(value):
            _unknown(notes, name, value)
        else:
            _take(notes, fields, options, name, _plain(value))
    text = " ".join(words[at:])
    if _is_expanded(text):
        _unknown(notes, "command", text)
    fields["resources"] = unrequested_resources.NOTHING.replace(**options)
    fields.setdefault("slots", max(1, fields["resources"].gpu))
    fields.setdefault("name", "job")
    job = _commanded(MPIJob(**fields), _plain(text), notes)
    entries = (
        *unrequested_resources.first_line(job),
        *notes.entries,
        *unrequested_resources.added_launcher(job),
    )
    return Converted(source="Arena command", jobs=(job,), entries=entries, file=file)


def _unknown(notes: Notes, name: str, value: str) -> None:
    notes.dropped(
        name,
        _plain(value),
        "its value is known only when the script runs",
        "write the value",
        blocks=True,
    )


def _commanded(job: MPIJob, text: str, notes: Notes) -> MPIJob:
    """Return the job with the command that Arena gives to a shell in the launcher."""
    if not text:
        return job
    words = tuple(shlex.split(text)) if _PLAIN.fullmatch(text) else ("sh", "-c", text)
    return launch_command.unwrapped(job.replace(command=words), notes, "command")


def _take(notes: Notes, fields: dict[str, Any], options: dict[str, Any], name: str, value: str) -> None:
    number = units.whole(value)
    if name == "--name":
        fields["name"] = noted_name(notes, name, value)
    elif name in ("--workers", "--slots-per-worker", "--slotsPerWorker") and number:
        ours = "workers" if name == "--workers" else "slots"
        fields[ours] = number
        notes.exact(name, value, ours)
    elif name == "--gpus" and number is not None:
        options["gpu"] = number
        notes.exact(name, value, "resources.gpu", "per worker; slots are set to the number of GPUs")
    elif name in ("--cpu", "--memory"):
        options[name[2:]] = value
        notes.exact(name, value, f"resources.{name[2:]}")
    elif name in ("--image", "--namespace"):
        fields[name[2:]] = value
        notes.exact(name, value, name[2:])
    else:
        _more(notes, fields, name, value)


def _more(notes: Notes, fields: dict[str, Any], name: str, value: str) -> None:
    key, _, rest = value.partition("=" if name in ("--env", "-e", "--label", "-l", "--selector") else ":")
    if name in ("--env", "-e", "--label", "-l"):
        ours = "env" if name in ("--env", "-e") else "labels"
        fields[ours] = fields.get(ours, {}) | {key: rest}
        notes.exact(name, value, f"{ours}.{key}")
    elif name in ("--data", "-d"):
        volume = Volume(mount=rest or "/data", kind=VolumeKind.CLAIM, source=key)
        fields["volumes"] = (*fields.get("volumes", ()), volume)
        notes.exact(name, value, "volumes")
    elif name == "--data-dir":
        notes.dropped(
            name,
            value,
            "a directory of one machine is not available on every worker",
            "use a claim: --data NAME:DIR",
        )
    elif name in ("--priority", "-p"):
        fields["priority"] = value
        notes.exact(name, value, "priority")
    elif name == "--selector":
        before = fields.get("placement", Placement())
        fields["placement"] = before.replace(node_selector={**before.node_selector, key: rest})
        notes.exact(name, value, "placement.node_selector")
    elif name == "--gang":
        notes.exact(name, "", "", "all workers always start together or not at all")
    elif name in ("--image-pull-secret", "--image-pull-secrets"):
        fields["pull_secrets"] = (*fields.get("pull_secrets", ()), *value.split(","))
        notes.exact(name, value, "pull_secrets")
    else:
        notes.dropped(name, value, "unknown setting", "check whether the job needs it")
