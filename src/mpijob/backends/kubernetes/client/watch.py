"""A watch of one collection that survives everything that ends a stream.

It yields the present objects, then each change. It is continued after timeouts, restarts of the API server,
dead connections, an expired token, and an expired resourceVersion (410: the differences to a new list are
yielded). `informer` keeps the objects; this module is for callers that need the changes only.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec

from mpijob import codec
from mpijob.backends.kubernetes.client.api import Api, Document
from mpijob.backends.kubernetes.client.api_errors import CERTIFICATE, CUT, IDLE, NO_API, NO_LOGIN, ApiError
from mpijob.backends.kubernetes.client.stream import Stream

# The server ends a watch after this time (plus a random part, so that not all end together) and sends a bookmark
# every minute. A stream without data for longer is considered dead; if it was not, one request is wasted.
WATCH_SECONDS = 300
IDLE_SECONDS = 75.0
# Seconds before a failed watch is opened again.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 4.0
# A stream that lasted this long was a working one: the next failure is not a repeated one.
_WORKED_SECONDS = 5.0
_LASTING = frozenset({NO_API, NO_LOGIN, CERTIFICATE})
_PASSING = frozenset({408, 410, 429})
Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "RESET"]
Trim = Callable[[Document], Document]


class Change(NamedTuple):
    """A change of one object.

    BOOKMARK: all objects that existed when the watch was (re)started were yielded. RESET: some changes were
    missed; the differences follow, and deleted objects have only their metadata.
    """

    kind: Kind
    object: Document


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


_EVENT = codec.decoder(_Event)


class _Known(NamedTuple):
    """What is kept of an object to detect later whether it changed."""

    version: str
    namespace: str
    name: str


def watch(
    api: Api,
    path: str,
    *,
    labels: str = "",
    fields: str = "",
    trim: Trim | None = None,
    idle_seconds: float = IDLE_SECONDS,
    trouble: Callable[[ApiError | None], None] | None = None,
) -> Watch:
    """Return an iterator over the changes of a collection, which ends only by `close`.

    It raises ApiError if the collection cannot be listed at the beginning, and later only for errors that do not
    pass by themselves: no permission (403), no login (401), no such kind (404). `trouble` is called with errors
    that pass, and with None when the watch works again. `trim` makes objects smaller and must keep name, namespace,
    uid and resourceVersion.
    """
    return Watch(
        api,
        path,
        {"labelSelector": labels, "fieldSelector": fields},
        trim=trim,
        idle_seconds=idle_seconds,
        trouble=trouble,
    )


class Watch:
    """The iterator that `watch` returns; `close` may be called from any thread."""

    def __init__(
        self,
        api: Api,
        path: str,
        selected: Mapping[str, str],
        *,
        trim: Trim | None,
        idle_seconds: float,
        trouble: Callable[[ApiError | None], None] | None,
    ) -> None:
        self._api = api
        self._path = path
        self._selected = selected
        self._trim = trim
        self._idle_seconds = idle_seconds
        self._trouble = trouble
        self._troubled = False
        self._closed = threading.Event()
        self._stream: Stream | None = None
        self._known: dict[str, _Known] = {}
        self._version = ""
        self._changes = self._changes_forever()

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        if self._closed.is_set():
            raise StopIteration
        return next(self._changes)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the watch; a thread that waits for a change is woken."""
        self._closed.set()
        if stream := self._stream:
            stream.close()

    def _changes_forever(self) -> Iterator[Change]:
        yield from self._list(first=True)
        failures = 0
        while not self._closed.is_set():
            began, received = time.monotonic(), 0
            try:
                for change in self._stream_changes():
                    received += 1
                    yield change
            except _Expired:
                yield from self._list_again()
            except ApiError as error:
                self._report(error)
            worked = received > 0 or time.monotonic() - began > _WORKED_SECONDS
            failures = 0 if worked else failures + 1
            self._closed.wait(_pause(failures))

    def _list_again(self) -> Iterator[Change]:
        """List until it succeeds, and yield the differences."""
        failures = 0
        while not self._closed.is_set():
            try:
                changes = self._list(first=False)
            except ApiError as error:
                self._report(error)
                failures += 1
                self._closed.wait(_pause(failures))
            else:
                self._report_recovery()
                yield from changes
                return

    def _report(self, error: ApiError) -> None:
        """Report an error that passes by itself; raise one that does not."""
        # An idle stream may be a healthy one of a quiet cluster without bookmarks.
        if self._closed.is_set() or error.reason == IDLE:
            return
        if error.reason in _LASTING or (400 <= error.status < 500 and error.status not in _PASSING):
            raise error
        self._troubled = True
        if self._trouble:
            self._trouble(error)

    def _report_recovery(self) -> None:
        if self._troubled and self._trouble:
            self._trouble(None)
        self._troubled = False

    def _list(self, *, first: bool) -> list[Change]:
        labels, fields = self._selected["labelSelector"], self._selected["fieldSelector"]
        listing = self._api.list(self._path, labels=labels, fields=fields, trim=self._trim)
        self._version = listing.version
        mark: Document = {"metadata": {"resourceVersion": listing.version}}
        before, self._known = self._known, dict(map(_known, listing.items))
        # Deletions before additions: a new object may have the name of a deleted one.
        gone = [
            Change("DELETED", _metadata_of(uid, seen))
            for uid, seen in before.items()
            if uid not in self._known
        ]
        reset = [] if first else [Change("RESET", mark)]
        news = [change for item in listing.items if (change := _change_of(item, before))]
        return [*reset, *gone, *news, Change("BOOKMARK", mark)]

    def _stream_changes(self) -> Iterator[Change]:
        """Yield the changes of one stream; raise _Expired or ApiError if it fails."""
        stream = self._open()
        try:
            self._report_recovery()
            for line in stream:
                yield from self._decode(line)
        finally:
            stream.close()

    def _open(self) -> Stream:
        seconds = WATCH_SECONDS + random.randrange(60)  # noqa: S311 - no secret
        try:
            stream = self._api.lines(
                self._path,
                idle_seconds=self._idle_seconds,
                longest=None,
                # `_changes_forever` repeats, with the version of the last change.
                attempts=1,
                watch="true",
                allowWatchBookmarks="true",
                resourceVersion=self._version,
                timeoutSeconds=str(seconds),
                **self._selected,
            )
        except ApiError as error:
            if error.status == 410:
                raise _Expired from error
            raise
        self._stream = stream
        # `close` of another thread may have run before it could see this stream.
        if self._closed.is_set():
            stream.close()
        return stream

    def _decode(self, line: bytes) -> Iterator[Change]:
        try:
            event = _EVENT.decode(line)
        except msgspec.DecodeError:
            # The connection was cut in the middle of a line: the watch continues from the last version.
            raise ApiError(
                "a watch event was truncated", reason=CUT, server=self._api.access.server
            ) from None
        if event.type == "ERROR":
            raise self._failure(event.object)
        item = event.object
        self._version = item["metadata"]["resourceVersion"]
        if event.type == "BOOKMARK":
            return
        item = self._trim(item) if self._trim else item
        uid, seen = _known(item)
        if event.type == "DELETED":
            self._known.pop(uid, None)
        else:
            self._known[uid] = seen
        yield Change(cast(Kind, event.type), item)

    def _failure(self, status: Document) -> Exception:
        code, reason = int(status.get("code") or 500), str(status.get("reason") or "")
        # etcd was compacted, or the watch cache has dropped the version: a new list is needed.
        if code == 410 or reason in ("Expired", "Gone"):
            return _Expired()
        message = str(status.get("message") or reason)
        return ApiError(message, status=code, reason=reason, server=self._api.access.server, path=self._path)


class _Expired(Exception):
    """The server no longer has the changes since our resourceVersion."""


def _known(item: Document) -> tuple[str, _Known]:
    metadata = item["metadata"]
    seen = _Known(metadata["resourceVersion"], metadata.get("namespace", ""), metadata["name"])
    return metadata["uid"], seen


def _change_of(item: Document, before: Mapping[str, _Known]) -> Change | None:
    uid, seen = _known(item)
    known = before.get(uid)
    if known and known.version == seen.version:
        return None
    return Change("MODIFIED" if known else "ADDED", item)


def _metadata_of(uid: str, seen: _Known) -> Document:
    return {"metadata": {"uid": uid, "name": seen.name, "namespace": seen.namespace}}


def _pause(failures: int) -> float:
    """Return the seconds before the next attempt."""
    if not failures:
        return 0.0
    # Random, so that the clients of a restarted API server do not return together.
    longest: float = min(_FIRST_PAUSE * 2 ** min(failures, 10), _LONGEST_PAUSE)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
