"""A day on a busy cluster: jobs come, run, end well or badly and go; kubelets renew their leases all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random

from tests.unit import cluster_objects
from tests.unit.cluster_objects import Cluster, census, condition, ended, running, stamp
from tests.unit.cluster_support import a_job

from bench.soak.standin import Document, Where, World, place_of
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.controller.leader_election import LEASE
from mpijob.cluster.operator import PLATFORM
from mpijob.formats.kubernetes.metadata.controller_notes import PROGRESS_ANNOTATION
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import MPIJob

NAMESPACES = ("team-a", "team-b", "team-c")
NODES = 16
WORKERS = 4
SIDE_BY_SIDE = 10
LOOKS_PER_HOUR = 60
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_PATIENCE_SECONDS = 120.0


class Day:
    """Plays hours, one after the other, each as fast as the services keep up."""

    def __init__(
        self,
        world: World,
        jobs_per_hour: int,
        *,
        operated: bool = True,
        alive: Callable[[], bool] = lambda: True,
        seed: int = 1,
    ) -> None:
        self._alive = alive  # whether every service still runs: nobody waits for one that has ended
        self._world, self._jobs_per_hour, self._chance = world, jobs_per_hour, Random(seed)
        self._operated = operated
        self._logs: dict[str, bytes] = {}
        self._number = 0
        self.looks = 0  # of the operator
        world.log = lambda namespace, pod: self._logs.get(pod, b"")
        for namespace in (*NAMESPACES, "kube-node-lease", "mpijob-system"):
            world.put(resources.NAMESPACE.path("", namespace), {"kind": "Namespace", "metadata": {}})
        self._leases()
        platform = {"apiVersion": PLATFORM.api, "kind": PLATFORM.name, "metadata": {"generation": 1}}
        quiet = {name: {"managementState": "Removed"} for name in ("controller", "admission")}
        engines = {name: {"managementState": "Unmanaged"} for name in ("jobset", "trainer", "kueue")}
        spec = {"services": quiet, "engines": engines, "queues": [{"name": "q", "quota": {"cpu": "10"}}]}
        world.put(PLATFORM.path("", "default"), {**platform, "spec": spec})

    def hour(self, number: int) -> int:
        """Play one hour; return how many jobs were told to their end."""
        self._forget_events()
        done, minutes = 0, threading.Thread(target=self._minutes, args=(number,))
        minutes.start()
        for _ in range(0, self._jobs_per_hour, SIDE_BY_SIDE):
            if not self._alive():
                break
            jobs = [self._begin() for _ in range(min(SIDE_BY_SIDE, self._jobs_per_hour))]
            self._leases()
            for cluster in jobs:
                self._run(cluster)
            self._leases()
            for cluster in jobs:
                self._end(cluster)
            done += self._told(jobs)
            for cluster in jobs:
                self._remove(cluster)
        minutes.join()
        return done

    def _forget_events(self) -> None:
        """A cluster forgets what was told after an hour, also of jobs that are long gone."""
        for namespace in NAMESPACES:
            for one in self._world.listed(_events(namespace), "", ""):
                self._world.remove(resources.EVENT.path(namespace, one["metadata"]["name"]))

    def _minutes(self, hour: int) -> None:
        for minute in range(LOOKS_PER_HOUR if self._operated else 0):
            if self._alive():
                self._touch_platform(hour + minute)

    # -- one job ----------------------------------------------------------------------------------
    def _begin(self) -> Cluster:
        self._number += 1
        cluster_objects.BEGIN = int(time.time()) - 5  # what the builders count from
        job = self._spec(f"job-{self._number}")
        cluster = Cluster(job, Shape(uid=f"u-{self._number}"))
        cluster.job["metadata"] |= {"uid": f"job-uid-{self._number}"}
        assert cluster.runtime is not None
        self._world.put(resources.TRAINING_RUNTIME.path(job.namespace, job.name), cluster.runtime)
        self._world.put(resources.TRAINJOB.path(job.namespace, job.name), cluster.job)
        return cluster

    def _spec(self, name: str) -> MPIJob:
        return a_job(name=name, namespace=self._chance.choice(NAMESPACES), workers=WORKERS, slots=1)

    def _run(self, cluster: Cluster) -> None:
        cluster.workers(running(1)).launcher(running(2))
        said = census(cluster.spec, name=cluster.spec.name)
        lines = "".join(f"[1,0]<stdout>:step {step}/100 loss=0.{step:02}\n" for step in range(50))
        self._say(cluster, said + lines)
        self._put_pods(cluster)
        event = {"kind": "Event", "involvedObject": {"kind": "TrainJob", "name": cluster.spec.name},
                 "reason": "BackOff", "message": "waits", "type": "Warning", "lastTimestamp": stamp(2),
                 "metadata": {}}  # fmt: skip
        self._world.put(resources.EVENT.path(cluster.spec.namespace, f"{cluster.spec.name}.1"), event)

    def _say(self, cluster: Cluster, text: str) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        stamped = "".join(f"{at} {line}\n" for line in text.splitlines())
        self._logs[cluster.name_of("launcher", 0)] = stamped.encode()

    def _end(self, cluster: Cluster) -> None:
        fails = self._chance.random() < 0.3
        code = 3 if fails else 0
        cluster.launcher(ended(code, 4, began=2))
        cluster.workers(ended(0, 4, began=1))
        self._put_pods(cluster)
        word = condition(
            "Failed" if fails else "Complete", reason="JobsFailed" if fails else "AllJobsCompleted", at=5
        )
        status = {"status": {"conditions": [word]}}
        self._world.merge(
            resources.TRAINJOB.path(cluster.spec.namespace, cluster.spec.name), status, make=False
        )

    def _put_pods(self, cluster: Cluster) -> None:
        for name, pod in cluster.pods.items():
            pod["metadata"]["labels"] = pod["metadata"]["labels"] | {_JOBSET: cluster.spec.name}
            self._world.put(resources.POD.path(cluster.spec.namespace, name), pod)

    def _told(self, jobs: list[Cluster]) -> int:
        """Wait until the controller has told every end; return how many it told."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left := [one for one in jobs if not self._is_told(one)]:
            if time.monotonic() > deadline or not self._alive():
                break
            time.sleep(0.02)
        return len(jobs) - len(left)

    def _is_told(self, cluster: Cluster) -> bool:
        found = self._world.find(resources.TRAINJOB.path(cluster.spec.namespace, cluster.spec.name)) or {}
        notes = found.get("metadata", {}).get("annotations") or {}
        return any(word in notes.get(PROGRESS_ANNOTATION, "") for word in ("Succeeded", "Failed"))

    def _remove(self, cluster: Cluster) -> None:
        for path in self._paths(cluster):
            self._world.remove(path)
        self._logs.pop(cluster.name_of("launcher", 0), None)

    def _paths(self, cluster: Cluster) -> Iterator[str]:
        namespace, name = cluster.spec.namespace, cluster.spec.name
        yield resources.TRAINJOB.path(namespace, name)
        yield resources.TRAINING_RUNTIME.path(namespace, name)
        yield from (resources.POD.path(namespace, pod) for pod in cluster.pods)
        policies = self._world.listed(_policies(namespace), f"mpijob.dev/job={name}", "")
        yield from (resources.NETWORK_POLICY.path(namespace, one["metadata"]["name"]) for one in policies)

    # -- everybody --------------------------------------------------------------------------------
    def _leases(self) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for number in range(NODES):
            lease: Document = {"kind": "Lease", "metadata": {}, "spec": {"renewTime": at}}
            self._world.put(LEASE.path("kube-node-lease", f"node-{number + 1}"), lease)

    def _touch_platform(self, number: int) -> None:
        """Have the operator look: every minute it would by itself, and a queue's quota changes now and then."""
        queue = {"name": "q", "quota": {"cpu": str(10 + number % 5)}, "namespaces": [NAMESPACES[number % 3]]}
        path = PLATFORM.path("", "default")
        generation = int((self._world.find(path) or {})["metadata"]["generation"]) + 1
        change = {"metadata": {"generation": generation}, "spec": {"queues": [queue]}}
        self._world.merge(path, change, make=False)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline and self._alive():
            status = (self._world.find(path) or {}).get("status") or {}
            if status.get("observedGeneration") == generation:
                self.looks += 1
                return
            time.sleep(0.01)


def _events(namespace: str) -> Where:
    return place_of(resources.EVENT.path(namespace))


def _policies(namespace: str) -> Where:
    return place_of(resources.NETWORK_POLICY.path(namespace))
