"""Watches and caches on a real API server: every change is told, whatever happens to their line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.e2e.cluster.api_support import (
    MAPS,
    NAMESPACE,
    AccessOf,
    a_map,
    accesses,
    connected,
    ended_after,
    labelled,
)

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.informer import Cache, ListWatch
from mpijob.backends.kubernetes.client.watch import Change, Watch, watch

access_of = pytest.fixture(scope="module")(accesses)
alice = pytest.fixture(scope="module")(connected)
label = pytest.fixture(labelled)


class Relay:
    """Passes bytes on to the API server, until its lines are cut or frozen."""

    def __init__(self, server: str) -> None:
        self._target = (urlsplit(server).hostname, urlsplit(server).port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._door.getsockname()[1]}"
        self._lines: list[socket.socket] = []
        self._thawed = threading.Event()
        self._thawed.set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._door.accept()
                callee = socket.create_connection(self._target)
                self._lines += [caller, callee]
                thawed = self._thawed
                for source, sink in ((caller, callee), (callee, caller)):
                    threading.Thread(target=_pump, args=(source, sink, thawed), daemon=True).start()

    def cut(self) -> None:
        lines, self._lines = self._lines, []
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Leave the present lines open and let nothing through any more; new ones work."""
        frozen, self._thawed = self._thawed, threading.Event()
        self._thawed.set()
        frozen.clear()

    def close(self) -> None:
        self._door.close()
        self.cut()


def _pump(source: socket.socket, sink: socket.socket, thawed: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            thawed.wait()
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def relay(access_of: AccessOf) -> Iterator[Relay]:
    relay = Relay(access_of("alice").server)
    yield relay
    relay.close()


@pytest.fixture
def relayed(access_of: AccessOf, relay: Relay) -> Iterator[Api]:
    access = access_of("alice")
    name = urlsplit(access.server).hostname or ""
    with Api(msgspec.structs.replace(access, server=relay.url, tls_server_name=name)) as api:
        yield api


def until(changes: Watch, kind: str, name: str = "") -> list[Change]:
    """Read up to the change that is waited for; return all that was read."""
    read = []
    with ended_after(30, changes):
        for change in changes:
            read.append(change)
            if change.kind == kind and name in (change.object.get("metadata") or {}).get("name", ""):
                return read
    raise AssertionError([(one.kind, one.object.get("metadata")) for one in read])


@pytest.mark.req("B-watch")
@pytest.mark.parametrize("trouble", ["none", "cut", "frozen"])
def test_a_watch_tells_every_change_whatever_happens_to_its_line(
    alice: Api, relayed: Api, relay: Relay, label: str, trouble: str
) -> None:
    name = f"m-{label}"
    with watch(relayed, MAPS, labels=f"test={label}", idle_seconds=2) as changes:
        until(changes, "BOOKMARK")
        alice.create(MAPS, a_map(name, label))
        until(changes, "ADDED", name)
        {"none": lambda: None, "cut": relay.cut, "frozen": relay.freeze}[trouble]()
        alice.patch(f"{MAPS}/{name}", {"data": {"a": "1"}})
        alice.delete(f"{MAPS}/{name}")
        rest = until(changes, "DELETED", name)
    assert [change.kind for change in rest] == ["MODIFIED", "DELETED"]


class Outdated(Api):
    """Asks for a version that the server has forgotten, once."""

    asked: int = 0

    def lines(self, path: str, **query: Any) -> Any:
        self.asked += 1
        if self.asked == 1:
            query["resourceVersion"] = "1"
        return super().lines(path, **query)


def test_a_version_that_a_real_server_has_forgotten_is_listed_again(access_of: AccessOf) -> None:
    api = Outdated(access_of("alice"))
    with api, watch(api, resources.TRAINJOB.path(NAMESPACE)) as changes:
        until(changes, "BOOKMARK")
        read = until(changes, "RESET")
        assert read[-1].object["metadata"]["resourceVersion"]
        until(changes, "BOOKMARK")
    assert api.asked == 1


def test_a_cache_follows_a_real_server(alice: Api, label: str) -> None:
    moved = threading.Event()
    sources = {
        "maps": ListWatch(MAPS, f"test={label}", trim=lambda item: {"metadata": item["metadata"]}),
        "nodes": ListWatch(resources.NODE.path()),
    }
    with Cache(alice, sources) as cache:
        assert cache.settled(20)
        cache.subscribe(lambda *_: moved.set())
        alice.create(MAPS, a_map(f"m-{label}", label, key="value"))
        assert moved.wait(20)
        assert [sorted(item) for item in cache.objects("maps")] == [["metadata"]]
        assert {name: error.status for name, error in cache.errors.items()} == {"nodes": 403}
