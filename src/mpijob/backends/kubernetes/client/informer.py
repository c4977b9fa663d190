"""The present objects of several kinds, kept up to date by one watch each for everybody who asks.

Memory is bounded by what `trim` leaves of an object. A kind that may not be read, or that the
cluster does not have, is told by `errors` and tried again now and then; the other kinds go on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from mpijob.backends.kubernetes.client.api import Api, Document
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.watch import Change, Trim, Watch, watch

_AGAIN_SECONDS = 60.0
_SOON_SECONDS = 1.0  # what was never told yet, and may be in a moment
Listener = Callable[[str, Change], None]


class ListWatch(NamedTuple):
    """One collection to keep."""

    path: str
    labels: str = ""
    fields: str = ""
    trim: Trim | None = None


class Cache:
    """Keeps the objects of its sources; safe to use from several threads."""

    def __init__(
        self, api: Api, sources: Mapping[str, ListWatch], *, again_seconds: float = _AGAIN_SECONDS
    ) -> None:
        self._api = api
        self._handlers = {
            name: _Keeper(self, name, source, again_seconds) for name, source in sources.items()
        }
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()

    def __enter__(self) -> Cache:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to watch, one thread for each source."""
        for keeper in self._handlers.values():
            keeper.start()

    def close(self, seconds: float = 5.0) -> None:
        """End the watches and wait a while for their threads."""
        for keeper in self._handlers.values():
            keeper.close()
        for keeper in self._handlers.values():
            keeper.join(seconds)

    def settled(self, seconds: float) -> bool:
        """Return whether, within this time, each source has told all its objects or why it cannot."""
        deadline = time.monotonic() + seconds
        keepers = self._handlers.values()
        return all(keeper.settled.wait(max(deadline - time.monotonic(), 0.0)) for keeper in keepers)

    def knows(self, source: str) -> bool:
        """Return whether a source has told all its objects once, or never will."""
        keeper = self._handlers[source]
        return keeper.known or _lasts(keeper.error)

    def objects(self, source: str) -> list[Document]:
        """Return the present objects of a source; they are shared: read, do not change."""
        with self._lock:
            return list(self._handlers[source].objects.values())

    def find(self, source: str, namespace: str, name: str) -> Document | None:
        """Return one object by its name."""
        with self._lock:
            return self._handlers[source].objects.get((namespace, name))

    @property
    def errors(self) -> dict[str, ApiError]:
        """Which sources have trouble at present, and what kind."""
        return {name: error for name, keeper in self._handlers.items() if (error := keeper.error) is not None}

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(source, change)` for each change from now on; return how to end that.

        It is called in the source's thread, after the objects are up to date, and must not dawdle.
        """
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return end

    def _watch(self, source: ListWatch, trouble: Callable[[ApiError | None], None]) -> Watch:
        return watch(
            self._api,
            source.path,
            labels=source.labels,
            fields=source.fields,
            trim=source.trim,
            trouble=trouble,
        )

    @contextlib.contextmanager
    def _changing(self, source: str, change: Change) -> Iterator[None]:
        """Change the objects under the lock, then tell the listeners without it."""
        with self._lock:
            yield
            listeners = self._listeners
        for listener in listeners:
            listener(source, change)


def _lasts(error: ApiError | None) -> bool:
    """Return whether trouble is there to stay: a kind that may not be read, or that the cluster does not have."""
    return error is not None and error.status in (401, 403, 404)


class _Keeper(threading.Thread):
    """The thread that keeps one source."""

    def __init__(self, cache: Cache, name: str, source: ListWatch, again_seconds: float) -> None:
        super().__init__(daemon=True, name=f"watch of {name}")
        self._cache = cache
        self._called = name
        self._source = source
        self._again_seconds = again_seconds
        self._ended = threading.Event()
        self._watch: Watch | None = None
        self.objects: dict[tuple[str, str], Document] = {}
        self.settled = threading.Event()
        self.error: ApiError | None = None
        self.known = False  # its objects were all told once

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._keep()
            except ApiError as error:
                self.error = error
                self.settled.set()
            except Exception:  # a listener's: the others are to be served further
                logging.getLogger(__name__).exception("a listener of the watch of %s failed", self._called)
                continue
            self._ended.wait(self._again_seconds if self.known or _lasts(self.error) else _SOON_SECONDS)

    def close(self) -> None:
        self._ended.set()
        if self._watch:
            self._watch.close()

    def _keep(self) -> None:
        self._watch = self._cache._watch(self._source, self._troubled)
        if self._ended.is_set():
            return
        missed = set(self.objects)  # after an error the watch is a new one: what it does not tell is gone
        for change in self._watch:
            if change.kind == "BOOKMARK":
                self._forget(missed)
                missed = set()
                self.error = None
                self.known = True
                self.settled.set()
            else:
                missed.discard(_key(change.object) if change.kind != "RESET" else ("", ""))
                self._apply(change)

    def _troubled(self, error: ApiError | None) -> None:
        self.error = error

    def _forget(self, missed: set[tuple[str, str]]) -> None:
        for key in missed:
            self._apply(Change("DELETED", self.objects[key]))

    def _apply(self, change: Change) -> None:
        with self._cache._changing(self._called, change):
            if change.kind == "DELETED":
                self._remove(change.object)
            elif change.kind != "RESET":
                self.objects[_key(change.object)] = change.object

    def _remove(self, item: Document) -> None:
        """Remove an object, unless another has taken its name meanwhile."""
        kept = self.objects.get(_key(item))
        if kept is not None and kept["metadata"]["uid"] == item["metadata"]["uid"]:
            del self.objects[_key(item)]


def _key(item: Document) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
