"""One collection of objects, watched for as long as anybody wants to know.

A watch tells what is there, then each change, and outlives everything that ends the stream below it:
time-outs, restarts of the API server, a line that is dead without having been closed, a version that
the server has forgotten (410: the difference is told then), an expired token. `informer` keeps the
objects; whoever only wants to hear of changes is served here.
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

# The server ends a watch after this time (and some, so that not all end together) and sends a bookmark
# every minute; a stream that is silent for longer is taken for dead and taken up again, which costs one
# request where it was not.
WATCH_SECONDS = 300
IDLE_SECONDS = 75.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 4.0
_LIVED_SECONDS = 5.0  # a stream that lasted this long was a good one
_LASTING = frozenset({NO_API, NO_LOGIN, CERTIFICATE})
_PASSING = frozenset({408, 410, 429})
Kind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "RESET"]
Trim = Callable[[Document], Document]


class Change(NamedTuple):
    """What happened to one object.

    BOOKMARK says that all that was there when the watch began, or began anew, has been told. RESET
    says that some history was missed; the differences follow as changes, and objects that are gone
    are DELETED with their metadata only.
    """

    kind: Kind
    object: Document


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


_EVENT = codec.decoder(_Event)


class _Seen(NamedTuple):
    """What is remembered of an object to tell later whether it has changed."""

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
    """Return the changes of a collection: an iterator that ends only by `close`.

    It raises ApiError when the collection cannot be read at the beginning, and later only for what
    does not pass by itself: no right (403), no login (401), no such kind (404). `trouble` hears of
    what passes, and None when all is well again. `trim` makes objects smaller and keeps their name,
    namespace, uid and resourceVersion.
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
        self._seen: dict[str, _Seen] = {}
        self._version = ""
        self._changes = self._run()

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

    def _run(self) -> Iterator[Change]:
        yield from self._listed(first=True)
        failures = 0
        while not self._closed.is_set():
            began, heard = time.monotonic(), 0
            try:
                for change in self._streamed():
                    heard += 1
                    yield change
            except _Forgotten:
                yield from self._relisted()
            except ApiError as error:
                self._bear(error)
            lived = heard > 0 or time.monotonic() - began > _LIVED_SECONDS
            failures = 0 if lived else failures + 1
            self._closed.wait(_pause(failures))

    def _relisted(self) -> Iterator[Change]:
        """List again, however long it takes, and tell the differences."""
        failures = 0
        while not self._closed.is_set():
            try:
                changes = self._listed(first=False)
            except ApiError as error:
                self._bear(error)
                failures += 1
                self._closed.wait(_pause(failures))
            else:
                self._well()
                yield from changes
                return

    def _bear(self, error: ApiError) -> None:
        """Report what passes by itself; raise what does not."""
        if self._closed.is_set() or error.reason == IDLE:
            return
        if error.reason in _LASTING or (400 <= error.status < 500 and error.status not in _PASSING):
            raise error
        self._troubled = True
        if self._trouble:
            self._trouble(error)

    def _well(self) -> None:
        if self._troubled and self._trouble:
            self._trouble(None)
        self._troubled = False

    def _listed(self, *, first: bool) -> list[Change]:
        labels, fields = self._selected["labelSelector"], self._selected["fieldSelector"]
        listing = self._api.list(self._path, labels=labels, fields=fields, trim=self._trim)
        self._version = listing.version
        mark: Document = {"metadata": {"resourceVersion": listing.version}}
        before, self._seen = self._seen, dict(map(_seen, listing.items))
        gone = [
            Change("DELETED", _remains(uid, seen)) for uid, seen in before.items() if uid not in self._seen
        ]
        reset = [] if first else [Change("RESET", mark)]
        news = [change for item in listing.items if (change := _news(item, before))]
        return [*reset, *gone, *news, Change("BOOKMARK", mark)]

    def _streamed(self) -> Iterator[Change]:
        """Yield the changes of one stream; raise _Forgotten or ApiError when it ends badly."""
        stream = self._opened()
        try:
            self._well()
            for line in stream:
                yield from self._understood(line)
        finally:
            stream.close()

    def _opened(self) -> Stream:
        seconds = WATCH_SECONDS + random.randrange(60)  # noqa: S311 - no secret
        try:
            stream = self._api.lines(
                self._path,
                idle_seconds=self._idle_seconds,
                longest=None,
                attempts=1,
                watch="true",
                allowWatchBookmarks="true",
                resourceVersion=self._version,
                timeoutSeconds=str(seconds),
                **self._selected,
            )
        except ApiError as error:
            if error.status == 410:
                raise _Forgotten from error
            raise
        self._stream = stream
        if self._closed.is_set():  # by another thread, before it could see this stream
            stream.close()
        return stream

    def _understood(self, line: bytes) -> Iterator[Change]:
        try:
            event = _EVENT.decode(line)
        except msgspec.DecodeError:  # the line was cut in its middle: take it up again from the last version
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
        uid, seen = _seen(item)
        if event.type == "DELETED":
            self._seen.pop(uid, None)
        else:
            self._seen[uid] = seen
        yield Change(cast(Kind, event.type), item)

    def _failure(self, status: Document) -> Exception:
        code, reason = int(status.get("code") or 500), str(status.get("reason") or "")
        if code == 410 or reason in ("Expired", "Gone"):
            return _Forgotten()
        message = str(status.get("message") or reason)
        return ApiError(message, status=code, reason=reason, server=self._api.access.server, path=self._path)


class _Forgotten(Exception):
    """The server no longer knows what happened since the version that we have."""


def _seen(item: Document) -> tuple[str, _Seen]:
    metadata = item["metadata"]
    seen = _Seen(metadata["resourceVersion"], metadata.get("namespace", ""), metadata["name"])
    return metadata["uid"], seen


def _news(item: Document, before: Mapping[str, _Seen]) -> Change | None:
    uid, seen = _seen(item)
    known = before.get(uid)
    if known and known.version == seen.version:
        return None
    return Change("MODIFIED" if known else "ADDED", item)


def _remains(uid: str, seen: _Seen) -> Document:
    return {"metadata": {"uid": uid, "name": seen.name, "namespace": seen.namespace}}


def _pause(failures: int) -> float:
    """Return how long to wait before the next try: at once after a good stream, never in step with others."""
    if not failures:
        return 0.0
    longest: float = min(_FIRST_PAUSE * 2 ** min(failures, 10), _LONGEST_PAUSE)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
