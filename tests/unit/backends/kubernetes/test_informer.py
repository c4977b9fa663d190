"""A cache of what watches tell: up to date for everybody, whatever may not be read, vanishes or fails."""

from __future__ import annotations

import threading

import pytest
from tests.unit.kube_support import MAPS, FakeApi, refusing, shortened

from mpijob.backends.kubernetes.client import watch
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.informer import Cache, ListWatch
from mpijob.backends.kubernetes.client.watch import Change

short_pauses = pytest.fixture(autouse=True)(shortened(watch))


def names(cache: Cache, source: str = "maps") -> list[str]:
    return sorted(item["metadata"]["name"] for item in cache.objects(source))


class Ear:
    """A listener of a cache."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self._moved = threading.Condition()

    def __call__(self, source: str, change: Change) -> None:
        with self._moved:
            self.told.append((source, change.kind, change.object.get("metadata", {}).get("name", "")))
            self._moved.notify_all()

    def expect_told(self, *told: tuple[str, str, str]) -> None:
        with self._moved:
            self._moved.wait_for(lambda: len(self.told) >= len(told), timeout=10)
            assert self.told == list(told)
            self.told = []


def test_a_cache_keeps_trimmed_objects_up_to_date_for_everybody(server: FakeApi, api: Api) -> None:
    server.maps.put("a", large="x")
    ears = Ear(), Ear()
    with Cache(api, {"maps": ListWatch(MAPS, trim=lambda item: {"metadata": item["metadata"]})}) as cache:
        assert cache.settled(10)
        assert cache.objects("maps") == [{"metadata": server.maps.objects["a"]["metadata"]}]
        ends = [cache.subscribe(ear) for ear in ears]
        server.maps.wait_for_watches()
        server.maps.put("b")
        for ear in ears:
            ear.expect_told(("maps", "ADDED", "b"))
        ends[0]()
        server.maps.remove("a")
        ears[1].expect_told(("maps", "DELETED", "a"))
        assert (names(cache), cache.find("maps", "team-a", "a")) == (["b"], None)
        assert ears[0].told == []
    assert sum("watch" in seen.query for seen in server.requests) == 1


def test_a_kind_that_may_not_be_read_is_told_and_the_others_go_on(server: FakeApi, api: Api) -> None:
    server.maps.put("a")
    secrets = MAPS.replace("configmaps", "secrets")
    with Cache(api, {"maps": ListWatch(MAPS), "secrets": ListWatch(secrets)}) as cache:
        assert cache.settled(10)
        assert (names(cache), cache.objects("secrets")) == (["a"], [])
        assert {name: error.status for name, error in cache.errors.items()} == {"secrets": 404}


@pytest.mark.thorough
def test_what_could_not_be_read_at_first_is_read_soon(server: FakeApi, api: Api) -> None:
    """Not only after a minute: until then a webhook would know no limits."""
    server.maps.put("a")
    server.says(*(refusing(500, "InternalError", "etcd has no leader") for _ in range(6)))
    ear = Ear()
    with Cache(api, {"maps": ListWatch(MAPS)}, again_seconds=600.0) as cache:
        cache.subscribe(ear)
        ear.expect_told(("maps", "ADDED", "a"))
        assert names(cache) == ["a"]


def test_a_cache_forgets_what_vanished_while_it_could_not_look(server: FakeApi, api: Api) -> None:
    for name in ("a", "b"):
        server.maps.put(name)
    ear = Ear()
    with Cache(api, {"maps": ListWatch(MAPS)}, again_seconds=0.05) as cache:
        assert cache.settled(10)
        cache.subscribe(ear)
        server.maps.wait_for_watches()
        server.maps.frozen = True
        server.maps.remove("a")
        server.says(refusing(403, "Forbidden", "no"))
        server.maps.cut()
        ear.expect_told(("maps", "ADDED", "b"), ("maps", "DELETED", "a"))
        assert (names(cache), cache.errors) == (["b"], {})


def test_a_listener_that_fails_does_not_end_the_cache(
    server: FakeApi, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail(*_: object) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("oops")

    ear = Ear()
    with Cache(api, {"maps": ListWatch(MAPS)}) as cache:
        assert cache.settled(10)
        ends = [cache.subscribe(listener) for listener in (ear, fail)]
        server.maps.wait_for_watches()
        server.maps.put("a")
        ear.expect_told(("maps", "ADDED", "a"), ("maps", "ADDED", "a"))
        server.maps.put("b")
        ear.expect_told(("maps", "ADDED", "b"))
        assert (names(cache), len(ends)) == (["a", "b"], 2)
    assert "a listener of the watch of maps failed" in caplog.text


def test_an_object_that_was_replaced_under_its_name_is_the_new_one(server: FakeApi, api: Api) -> None:
    first = server.maps.put("a")
    ear = Ear()
    with Cache(api, {"maps": ListWatch(MAPS)}) as cache:
        assert cache.settled(10)
        cache.subscribe(ear)
        server.maps.wait_for_watches()
        server.maps.frozen = True
        server.maps.remove("a")
        server.maps.put("a")
        server.maps.forget()
        server.maps.cut()
        ear.expect_told(("maps", "RESET", ""), ("maps", "DELETED", "a"), ("maps", "ADDED", "a"))
        found = cache.find("maps", "team-a", "a")
        assert found is not None
        assert found["metadata"]["uid"] != first["metadata"]["uid"]
