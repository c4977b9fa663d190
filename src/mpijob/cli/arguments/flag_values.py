"""Parse the texts of flags into values of the job file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import IO, Any

import click
import msgspec

from mpijob.cli.render import text
from mpijob.model import VolumeKind

Reader = Callable[[str], Any]
MOST_BYTES = 32 << 20


# Invalid numbers and durations are returned unchanged: the job file's reader then refuses them with the same
# message as in a file.
def number(given: str) -> Any:
    """Return an integer or a float where the text is one."""
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    return given


def seconds(given: str) -> Any:
    """Return the seconds in `90`, `2h`, `1h30m`."""
    found = text.seconds_of(given)
    return given if found is None else found


def days(given: str) -> Any:
    """Return the days in `7`, `7d`, `12h`; a bare number means days."""
    plain = number(given)
    found = None if plain != given else text.seconds_of(given)
    return plain if found is None else found / 86400


def words(given: str) -> list[str]:
    """Return the words of a command line, split as a shell splits them."""
    try:
        return shlex.split(given)
    except ValueError as error:
        raise click.BadParameter(f"{given!r}: {error}") from error


def pair(given: str) -> dict[str, str]:
    """Return `K=V` as a mapping of one."""
    key, equals, value = given.partition("=")
    if not equals or not key:
        raise click.BadParameter(f"{given!r} is not of the form KEY=VALUE")
    return {key: value}


def variable(given: str) -> dict[str, str]:
    """Return `K=V`; a bare `K` takes the value that the variable has here."""
    if "=" in given:
        return pair(given)
    if given not in os.environ:
        raise click.BadParameter(f"{given!r} is not set here: write {given}=VALUE")
    return {given: os.environ[given]}


def secret(given: str) -> dict[str, str]:
    """Return `ENV=SOURCE` as a secret."""
    ((name, source),) = pair(given).items()
    return {"env": name, "source": source}


def volume(given: str) -> dict[str, Any]:
    """Return `[KIND:]SOURCE:MOUNT[:ro]` as a volume; scratch and shm take a size as their source."""
    # A source may contain colons: only the ends are taken off.
    parts = given.split(":")
    read_only = parts[-1] in ("ro", "rw") and parts.pop() == "ro"
    kind = parts.pop(0) if parts[0] in set(VolumeKind) else VolumeKind.PATH.value
    if len(parts) < 2 and kind not in ("scratch", "shm"):
        raise click.BadParameter(
            f"{given!r} is not of the form [KIND:]SOURCE:MOUNT[:ro], as in claim:data:/data:ro"
        )
    *source, mount = parts or [""]
    made: dict[str, Any] = {"mount": mount, "kind": kind}
    if joined := ":".join(source):
        made["size" if kind in ("scratch", "shm") else "source"] = joined
    return made | ({"read_only": True} if read_only else {})


def signal(given: str) -> dict[str, Any]:
    """Return `USR1@120` as a signal and the seconds before the end."""
    name, at, before = given.partition("@")
    return {"name": name.removeprefix("SIG")} | ({"seconds_before": seconds(before)} if at else {})


def program(given: str) -> dict[str, Any]:
    """Return `RANKS:COMMAND` as one of several programs in the same world."""
    ranks, colon, command = given.partition(":")
    if not colon:
        raise click.BadParameter(f"{given!r} is not of the form RANKS:COMMAND, as in '2:python coupler.py'")
    return {"ranks": number(ranks.strip()), "command": words(command)}


_IN_GROUPS: dict[str, Reader] = {"cpu": str, "memory": str, "gpu": number, "gpu_kind": str}


def worker_group(given: str) -> dict[str, Any]:
    """Return `NAME=WORKERS[,KEY=VALUE…]` as a group of workers."""
    first, *rest = given.split(",")
    name, equals, workers = first.partition("=")
    if not equals:
        raise click.BadParameter(f"{given!r} is not of the form NAME=WORKERS[,KEY=VALUE…], as in {_A_GROUP}")
    made: dict[str, Any] = {"name": name, "workers": number(workers)}
    for part in rest:
        key, equals, value = part.partition("=")
        field = key.replace("-", "_")
        if not equals or not (field in ("slots", *_IN_GROUPS) or key.startswith(_NODE)):
            known = ", ".join(("slots", *_IN_GROUPS, f"{_NODE}LABEL"))
            raise click.BadParameter(f"{part!r} is not a setting of a group: use {known}, as in {_A_GROUP}")
        if key.startswith(_NODE):
            place = made.setdefault("placement", {"node_selector": {}})
            place["node_selector"][key.removeprefix(_NODE)] = value
        elif field == "slots":
            made["slots"] = number(value)
        else:
            made.setdefault("resources", {})[field] = _IN_GROUPS[field](value)
    return made


_NODE, _A_GROUP = "node.", "cpu=2,slots=4,cpu=4,memory=8Gi,node.pool=cpu"


def toleration(given: str) -> dict[str, str]:
    """Return `KEY[=VALUE][:EFFECT]` as a toleration."""
    body, _, effect = given.partition(":")
    key, equals, value = body.partition("=")
    made = {"key": key, "operator": "Equal" if equals else "Exists"}
    return made | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})


def anything(given: str) -> Any:
    """Return JSON where the text is JSON, else the text."""
    try:
        return msgspec.json.decode(given.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return given


def document(given: str) -> Any:
    """Return a JSON document."""
    found = anything(given)
    if not isinstance(found, dict):
        raise click.BadParameter(f"{given!r} is not a JSON object")
    return found


def file_pair(given: str) -> dict[str, str]:
    """Return `NAME=PATH` as a file's name in the job and its content here."""
    ((name, path),) = pair(given).items()
    try:
        with open(path, "rb") as file:
            return {name: whole(file, path).decode("utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise click.BadParameter(f"{path!r} cannot be read: {reason}") from error


def whole(file: IO[bytes], name: str) -> bytes:
    """Return all that a file holds; one that is larger than any that people write, or endless, is refused."""
    # One byte more than allowed shows an endless file, such as /dev/zero, without reading it all.
    found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise click.UsageError(f"{name}: more than {MOST_BYTES >> 20} MiB; check the path")
    return found


def notify(text: str) -> dict[str, Any]:
    """Return `ann@example.org:failed,ended` as whom to tell, and when."""
    to, colon, moments = text.partition(":")
    if not to or (colon and not moments):
        raise click.BadParameter(f"{text!r} is not of the form TO or TO:WHEN,WHEN")
    return {"to": to} | ({"on": moments.split(",")} if colon else {})
