"""The stand-in for an API server that the soak plays a day against tells what a real one would."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest
from bench.soak import standin
from bench.soak.standin import World

from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.watch import watch

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
KEPT = 5


@pytest.fixture
def world() -> World:
    return World(kept=KEPT)


@pytest.fixture
def server(world: World) -> Iterator[str]:
    serving = standin.serve(world)
    yield f"http://127.0.0.1:{serving.server_address[1]}"
    serving.shutdown()
    serving.server_close()


def renew(world: World, name: str = "node-1") -> str:
    lease = {"kind": "Lease", "metadata": {}, "spec": {"renewTime": str(world.version)}}
    return str(world.put(f"{LEASES}/{name}", lease)["metadata"]["uid"])


def test_what_is_put_again_is_the_same_object(world: World) -> None:
    assert renew(world) == renew(world) != renew(world, "node-2")


@pytest.mark.thorough
def test_who_is_too_far_behind_is_told_to_begin_anew(world: World, server: str) -> None:
    for _ in range(2 * KEPT):
        renew(world)
    with urllib.request.urlopen(f"{server}{LEASES}?watch=true&resourceVersion=1", timeout=10) as answer:
        told = json.loads(answer.readline())
    assert (told["type"], told["object"]["code"]) == ("ERROR", 410)


@pytest.mark.thorough
def test_a_watch_that_was_left_behind_goes_on(world: World, server: str) -> None:
    renew(world)
    with watch(Api(Access(server=server)), LEASES, idle_seconds=5.0) as changes:
        assert [next(changes).kind for _ in range(2)] == ["ADDED", "BOOKMARK"]
        for _ in range(3 * KEPT):
            renew(world)
        assert next(changes).kind == "RESET"
        assert next(changes).kind == "MODIFIED"
