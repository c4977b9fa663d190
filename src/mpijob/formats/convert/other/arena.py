"""A command line of Arena (`arena submit mpi …`) as our job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.convert.header import units
from mpijob.formats.convert.header.request import noted_name
from mpijob.formats.convert.kubernetes import launch_command
from mpijob.formats.convert.report import Converted, Notes
from mpijob.formats.convert.shell.constants import constant
from mpijob.formats.convert.shell.parser import statements
from mpijob.model import MPIJob, Resources, Volume, VolumeKind

_START = re.compile(r"\s*(?:#!.*\n)?\s*arena\s+submit\s+(?:mpi|mpijob|horovod)\b")
_FLAGS = frozenset({"--rdma", "--gang", "--sync-mode-none", "--tensorboard", "--mounts-on-launcher"})


def is_arena(text: str) -> bool:
    """Return whether a text is such a command line."""
    return _START.match(text) is not None


def read(text: str, file: str = "") -> Converted:
    """Return the job of the first such command line in a text."""
    for statement in statements(text):
        for command in statement.commands:
            if command.words[:1] == ("arena",):
                return _read([constant(word) for word in command.words], file)
    raise InvalidJob(
        "there is no arena submit in the file", hint="arena submit mpi --name NAME --workers 2 …"
    )


def _read(words: Sequence[str | None], file: str) -> Converted:
    notes = Notes()
    fields: dict[str, Any] = {}
    amounts_said: dict[str, Any] = {}
    at = 3
    while at < len(words) and str(words[at]).startswith("-"):
        name, equals, value = str(words[at]).partition("=")
        at += 1
        if not equals and name not in _FLAGS and at < len(words):
            value = words[at] or ""
            at += 1
        _take(notes, fields, amounts_said, name, value)
    rest = words[at:]
    if any(word is None for word in rest):
        notes.dropped("command", "", "a shell would expand it", "write the command", blocks=True)
    text = " ".join(word or "" for word in rest)
    fields["resources"] = Resources(**amounts_said)
    if "slots" not in fields:
        fields["slots"] = max(1, fields["resources"].gpu)
    fields.setdefault("name", "job")
    job = MPIJob(command=("sh", "-c", text), **fields) if text else MPIJob(**fields)
    if text:
        words_ = [constant(one) for one in statements(text)[0].commands[0].words] if _simple(text) else []
        if words_ and all(one is not None for one in words_):
            job = job.replace(command=tuple(one for one in words_ if one is not None))
        job = launch_command.unwrapped(job, notes, "command")
    return Converted(source="Arena command", jobs=(job,), entries=tuple(notes.entries), file=file)


def _simple(text: str) -> bool:
    found = statements(text)
    return len(found) == 1 and len(found[0].commands) == 1 and not found[0].commands[0].redirects


def _take(notes: Notes, fields: dict[str, Any], said: dict[str, Any], name: str, value: str) -> None:
    number = units.whole(value)
    if name == "--name":
        fields["name"] = noted_name(notes, name, value)
    elif name in ("--workers", "--slots-per-worker", "--slotsPerWorker") and number:
        ours = "workers" if name == "--workers" else "slots"
        fields[ours] = number
        notes.exact(name, value, ours)
    elif name == "--gpus" and number is not None:
        said["gpu"] = number
        notes.exact(name, value, "resources.gpu", "for each worker; as many slots as GPUs")
    elif name in ("--cpu", "--memory"):
        said[name[2:]] = value
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
            name, value, "a directory of one machine is not on every worker", "use a claim: --data NAME:DIR"
        )
    elif name in ("--priority", "-p"):
        fields["priority"] = value
        notes.exact(name, value, "priority")
    elif name == "--gang":
        notes.exact(name, "", "", "workers start all together or not at all, always")
    elif name == "--image-pull-secret":
        fields["pull_secrets"] = (*fields.get("pull_secrets", ()), value)
        notes.exact(name, value, "pull_secrets")
    else:
        notes.dropped(name, value, "there is no such setting here", "look whether the job needs it")
