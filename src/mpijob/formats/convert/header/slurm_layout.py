"""Options of sbatch and srun that say how ranks are laid out and started."""

from __future__ import annotations

import re

from mpijob.formats.convert.header.request import Request
from mpijob.model import Launch


def distribution(request: Request, field: str, value: str) -> None:
    """Lay ranks out over nodes one after the other, or round and round."""
    word = {"block": "slot", "cyclic": "node"}.get(re.split("[:,]", value)[0])
    if word is None:
        request.notes.dropped(field, value, "there is no such layout here", "set launch.map_by")
        return
    launch: Launch = request.fields.get("launch", Launch())
    request.fields["launch"] = launch.replace(map_by=word)
    if value in ("block", "cyclic"):
        request.notes.exact(field, value, f"launch.map_by: {word}")
    else:
        request.notes.changed(field, value, f"launch.map_by: {word}", "only the layout over nodes is kept")


def bind(request: Request, field: str, value: str) -> None:
    """Bind ranks to cores and the like."""
    words = {"cores": "core", "threads": "hwthread", "sockets": "socket", "ldoms": "numa", "none": "none"}
    word = words.get(value.split(",")[-1].lower())
    if word is None:
        request.notes.dropped(
            field, value, "masks and lists of cores are not taken over", "set launch.bind_to"
        )
        return
    launch: Launch = request.fields.get("launch", Launch())
    request.fields["launch"] = launch.replace(bind_to=word)
    request.notes.exact(field, value, f"launch.bind_to: {word}")


def input(request: Request, field: str, value: str) -> None:
    """Give rank 0 a file to read."""
    if value.startswith("/dev/null"):
        request.notes.exact(field, value, "", "no rank reads input unless launch.stdin names a file")
        return
    launch: Launch = request.fields.get("launch", Launch())
    request.fields["launch"] = launch.replace(stdin=value)
    request.notes.changed(field, value, "launch.stdin", "rank 0 reads it, from the files that go along")


def oversubscribe(request: Request, field: str, value: str) -> None:
    """Allow more ranks than slots."""
    launch: Launch = request.fields.get("launch", Launch())
    request.fields["launch"] = launch.replace(flags=(*launch.flags, "--oversubscribe"))
    request.notes.exact(field, value, "launch.flags")
