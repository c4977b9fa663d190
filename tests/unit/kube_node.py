"""A `kube_store` whose pods speak and whose watches tell: for those who listen, the recorder and the controller."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.unit.cluster_objects import COUNTED, Cluster
from tests.unit.kube_store import Store, holds

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.formats.kubernetes.metadata.well_known import Document

TEAM = "team-cv"
SERVED = {"groups": [{"versions": [{"groupVersion": resources.TRAINER_API}]}]}


def stamped(number: int, text: str = "") -> bytes:
    return (
        f"2026-11-15T00:00:{number // 10:02}.{number % 10:d}00000000Z {text or f'line {number}'}\n".encode()
    )


class Stream:
    """Lines that may break off, or a watch that waits for what the test does."""

    def __init__(self, lines: list[bytes], breaks: bool = False) -> None:
        self.items: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for one in lines:
            self.items.put(one)
        self._breaks = breaks

    def over(self) -> Stream:
        self.items.put(None)
        return self

    def wait(self, seconds: float | None) -> bool:
        deadline = time.monotonic() + (30 if seconds is None else seconds)
        while self.items.empty():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        item = self.items.get(timeout=30)
        if item is None:
            if self._breaks:
                raise ApiError("cut", reason="Cut")
            raise StopIteration
        return item

    def close(self) -> None:
        self._breaks = False
        self.items.put(None)


class Node(Store):
    """An API server with pods that speak; `breaks` are the numbers of lines after which streams are cut."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, list[bytes]] = {}
        self.before_restart: dict[str, list[bytes]] = {}
        self.breaks: list[int] = []
        self.opened: list[dict[str, str]] = []
        self.watches: dict[str, list[Stream]] = {}
        self.objects["/apis"] = {"metadata": {}, **SERVED}

    def lines(self, path: str, **query: Any) -> Any:
        if query.get("watch"):
            self.watches.setdefault(path, []).append(stream := Stream([]))
            return stream
        self.opened.append({key: value for key, value in query.items() if value})
        known = self.before_restart if query.get("previous") else self.said
        if path not in known:
            raise ApiError("gone", status=404)
        lines = [line for line in known[path] if line.partition(b" ")[0] >= query["sinceTime"].encode()]
        if self.breaks:
            return Stream(lines[: self.breaks.pop(0)], breaks=True).over()
        return Stream(lines).over()

    def raw(self, path: str, **query: str) -> bytes:
        return b"".join(self.said.get(path, []))

    def put(self, path: str, document: Document) -> None:
        """Make or change an object, and tell the watches of its collection."""
        document["metadata"].setdefault("resourceVersion", "1")
        kind = "MODIFIED" if path in self.objects else "ADDED"
        self.objects[path] = document
        self._tell(path, kind, document)

    def remove(self, path: str) -> None:
        self._tell(path, "DELETED", self.objects.pop(path))

    def _tell(self, path: str, kind: str, document: Document) -> None:
        for watched, streams in self.watches.items():
            if holds(watched, path):
                for stream in streams:
                    stream.items.put(msgspec.json.encode({"type": kind, "object": document}))


def lay_out(node: Node, cluster: Cluster, said: str = "hello") -> str:
    """Put a job's objects where an API server has them, its ranks having said something; return the job's path."""
    name, namespace = cluster.job["metadata"]["name"], cluster.spec.namespace
    path = resources.TRAINJOB.path(namespace, name)
    node.put(path, cluster.job)
    if cluster.runtime is not None:
        node.put(resources.TRAINING_RUNTIME.path(namespace, name), cluster.runtime)
    for pod in cluster.pods.values():
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = name
        launcher = "launcher" in pod["metadata"]["name"]
        ranks = [f"[1,{rank}]<stdout>:{said}" for rank in range(2)]
        words = [*COUNTED.splitlines(), *ranks] if launcher else ["sshd"]
        node.said[resources.POD.path(namespace, pod["metadata"]["name"], "log")] = [
            stamped(number, text) for number, text in enumerate(words)
        ]
        node.put(resources.POD.path(namespace, pod["metadata"]["name"]), pod)
    return path
