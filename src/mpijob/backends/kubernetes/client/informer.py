"""Keeps the current objects of several collections in memory, each updated by one watch, for all readers.

Memory is bounded by what `trim` leaves of an object. A collection that may not be read, or that the cluster
does not serve, is in `errors` and tried again later; the others are not affected. `watch` provides the
changes.
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

_RETRY_SECONDS = 60.0
# For a collection that was never listed: the server may be starting.
_FIRST_RETRY_SECONDS = 1.0
Listener = Callable[[str, Change], None]


class ListWatch(NamedTuple):
    """A collection to watch."""

    path: str
    labels: str = ""
    fields: str = ""
    trim: Trim | None = None


class Cache:
    """Keeps the objects of its sources; safe to use from several threads."""

    def __init__(
        self, api: Api, sources: Mapping[str, ListWatch], *, again_seconds: float = _RETRY_SECONDS
    ) -> None:
        self._api = api
        self._reflectors = {
            name: _Reflector(self, name, source, again_seconds) for name, source in sources.items()
        }
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()

    def __enter__(self) -> Cache:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        for reflector in self._reflectors.values():
            reflector.start()

    def close(self, seconds: float = 5.0) -> None:
        """End the watches; waits `seconds` for each thread."""
        for reflector in self._reflectors.values():
            reflector.close()
        for reflector in self._reflectors.values():
            reflector.join(seconds)

    def settled(self, seconds: float) -> bool:
        """Return whether, within this time, each source was listed or failed."""
        deadline = time.monotonic() + seconds
        reflectors = self._reflectors.values()
        return all(reflector.settled.wait(max(deadline - time.monotonic(), 0.0)) for reflector in reflectors)

    def knows(self, source: str) -> bool:
        """Return whether a source was listed once, or will not be (no permission, not served)."""
        reflector = self._reflectors[source]
        return reflector.known or _lasts(reflector.error)

    def objects(self, source: str) -> list[Document]:
        """Return the current objects of a source; they are shared: do not change them."""
        with self._lock:
            return list(self._reflectors[source].objects.values())

    def find(self, source: str, namespace: str, name: str) -> Document | None:
        """Return one object by its name."""
        with self._lock:
            return self._reflectors[source].objects.get((namespace, name))

    @property
    def errors(self) -> dict[str, ApiError]:
        """The sources that cannot be read at present, with the reason."""
        return {
            name: error
            for name, reflector in self._reflectors.items()
            if (error := reflector.error) is not None
        }

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(source, change)` for each later change; return a function that ends that.

        It is called in the source's thread, after the objects were updated, and must return quickly.
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
        """Update the objects under the lock, then call the listeners."""
        with self._lock:
            yield
            listeners = self._listeners
        # Without the lock: a listener reads objects of other sources.
        for listener in listeners:
            listener(source, change)


def _lasts(error: ApiError | None) -> bool:
    """Return whether the error stays until an administrator acts."""
    return error is not None and error.status in (401, 403, 404)


class _Reflector(threading.Thread):
    """The thread that lists and watches one source."""

    def __init__(self, cache: Cache, name: str, source: ListWatch, again_seconds: float) -> None:
        super().__init__(daemon=True, name=f"watch of {name}")
        self._cache = cache
        self._source_name = name
        self._source = source
        self._again_seconds = again_seconds
        self._ended = threading.Event()
        self._watch: Watch | None = None
        self.objects: dict[tuple[str, str], Document] = {}
        self.settled = threading.Event()
        self.error: ApiError | None = None
        # All its objects were listed once.
        self.known = False

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._keep()
            except ApiError as error:
                self.error = error
                self.settled.set()
            except Exception:
                # An error of a listener must not end the watch for the others.
                logging.getLogger(__name__).exception(
                    "a listener of the watch of %s failed", self._source_name
                )
                continue
            self._ended.wait(
                self._again_seconds if self.known or _lasts(self.error) else _FIRST_RETRY_SECONDS
            )

    def close(self) -> None:
        self._ended.set()
        if self._watch:
            self._watch.close()

    def _keep(self) -> None:
        self._watch = self._cache._watch(self._source, self._troubled)
        if self._ended.is_set():
            return
        # After an error this is a new watch; what it does not list was deleted meanwhile.
        missed = set(self.objects)
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
        with self._cache._changing(self._source_name, change):
            if change.kind == "DELETED":
                self._remove(change.object)
            elif change.kind != "RESET":
                self.objects[_key(change.object)] = change.object

    def _remove(self, item: Document) -> None:
        # Unless another object has its name already: events of a recreated object may arrive after it.
        kept = self.objects.get(_key(item))
        if kept is not None and kept["metadata"]["uid"] == item["metadata"]["uid"]:
            del self.objects[_key(item)]


def _key(item: Document) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
