"""The two ends of a launcher's log: the beginning with the census of ranks, and the last lines.

A state needs no more of it. Of a failed launcher more is read: the lines of the rank that failed first may be
followed by tracebacks of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.logs.pod_logs import launcher_of, state_of
from mpijob.backends.kubernetes.status.derive_state import Document
from mpijob.formats.kubernetes import pod_template as pod_words
from mpijob.observation.logs import cri

HEAD_BYTES = 256 * 1024
TAIL_LINES = 400
# After a failure: 20 lines of each of 1000 ranks. That is 3 MB of typical lines, read and parsed in half a second.
FAILED_LINES = 20_000
FAILED_BYTES = 4 * 1024 * 1024
_WORLD = b"mpijob-world "


class LauncherLog(msgspec.Struct, frozen=True):
    """The first and last lines of the launcher with timestamps, None if unreadable; when the world was proved."""

    text: str | None = ""
    proved: float | None = None


def read(api: Api, pods: Sequence[Document], refused: list[ApiError]) -> LauncherLog:
    """Return the ends of the launcher's log, "" if it has no lines; a 403 is appended to `refused`."""
    launcher = launcher_of(pods)
    if launcher is None:
        return LauncherLog()
    try:
        head = _part(api, launcher, limitBytes=str(HEAD_BYTES))
    except ApiError as error:
        if error.status not in (403, 500):
            raise
        refused += [error] if error.status == 403 else []
        # Not allowed, or the node is unreachable: the lines are unknown.
        return LauncherLog(None)
    lines = _lines(head, HEAD_BYTES)
    for part in _rest(api, launcher) if len(head) >= HEAD_BYTES else ():
        lines = _merge(lines, part)
    return LauncherLog(b"\n".join(lines).decode(errors="replace"), _proved(lines))


def _lines(part: bytes, limit: int) -> list[bytes]:
    """Return the complete lines of a part; a cut line is left to the part that contains all of it."""
    whole = part[: part.rfind(b"\n") + 1] if len(part) >= limit else part
    return [*cri.stamped(whole.splitlines())]


def _rest(api: Api, launcher: Document) -> Iterator[list[bytes]]:
    ended = state_of(launcher).get("terminated") or {}
    if ended.get("exitCode"):
        failed = _part(api, launcher, tailLines=str(FAILED_LINES), limitBytes=str(FAILED_BYTES))
        yield _lines(failed, FAILED_BYTES)
        if len(failed) < FAILED_BYTES:
            # limitBytes counts from the first of the tailLines, so at the limit the last lines are missing.
            return
    yield [*cri.stamped(_part(api, launcher, tailLines=str(TAIL_LINES)).splitlines())]


def _part(api: Api, launcher: Document, **query: str) -> bytes:
    metadata = launcher["metadata"]
    main = pod_words.container_of(launcher["spec"])["name"]
    path = resources.POD.path(metadata["namespace"], metadata["name"], "log")
    try:
        return api.raw(path, container=main, timestamps="true", **query)
    except ApiError as error:
        # 400: the container has not started; 404: the pod was deleted.
        if error.status in (400, 404):
            return b""
        raise


def _merge(head: list[bytes], tail: list[bytes]) -> list[bytes]:
    """Return the lines of both parts; lines in both, by their timestamps, once."""
    last = head[-1].partition(b" ")[0] if head else b""
    return head + [line for line in tail if line.partition(b" ")[0] > last]


def _proved(lines: list[bytes]) -> float | None:
    for line in lines:
        stamp, _, text = line.partition(b" ")
        if text.startswith(_WORLD):
            return cri.nanoseconds(stamp) / 1e9
    return None
