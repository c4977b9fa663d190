"""The two ends of a launcher's log: the beginning, where the world is counted, and the last lines.

A state needs no more of it, however much the ranks have said in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpijob.backends.kubernetes import kinds
from mpijob.backends.kubernetes.api import Api, ApiError
from mpijob.backends.kubernetes.logs import launcher_of
from mpijob.backends.kubernetes.states import Document
from mpijob.dialects import pods as pod_words
from mpijob.observation import cri

HEAD_BYTES = 256 * 1024
TAIL_LINES = 400
_WORLD = b"mpijob-world "


class LauncherLog(msgspec.Struct, frozen=True):
    """What the launcher said first and last, with the kubelet's time stamps; `proved` is when the world stood."""

    text: str | None = ""  # None: it cannot be read
    proved: float | None = None


def read(api: Api, pods: Sequence[Document], refused: list[ApiError]) -> LauncherLog:
    """Return the ends of the launcher's log, empty while it has said nothing; a refusal is added to those given."""
    launcher = launcher_of(pods)
    if launcher is None:
        return LauncherLog()
    try:
        head = _part(api, launcher, limitBytes=str(HEAD_BYTES))
    except ApiError as error:
        if error.status not in (403, 500):
            raise
        refused += [error] if error.status == 403 else []
        return LauncherLog(None)  # not allowed, or its node does not answer: what it said is not known
    tail = _part(api, launcher, tailLines=str(TAIL_LINES)) if len(head) >= HEAD_BYTES else b""
    lines = _joined([*cri.stamped(head.splitlines())], [*cri.stamped(tail.splitlines())])
    return LauncherLog(b"\n".join(lines).decode(errors="replace"), _proved(lines))


def _part(api: Api, launcher: Document, **query: str) -> bytes:
    metadata = launcher["metadata"]
    main = pod_words.container_of(launcher["spec"])["name"]
    path = kinds.POD.path(metadata["namespace"], metadata["name"], "log")
    try:
        return api.raw(path, container=main, timestamps="true", **query)
    except ApiError as error:
        if error.status in (400, 404):  # not started, or gone
            return b""
        raise


def _joined(head: list[bytes], tail: list[bytes]) -> list[bytes]:
    """Return both ends once, by their time stamps."""
    last = head[-1].partition(b" ")[0] if head else b""
    return head + [line for line in tail if line.partition(b" ")[0] > last]


def _proved(lines: list[bytes]) -> float | None:
    for line in lines:
        stamp, _, text = line.partition(b" ")
        if text.startswith(_WORLD):
            return cri.nanoseconds(stamp) / 1e9
    return None
