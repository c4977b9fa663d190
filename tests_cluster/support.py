"""A place of a test module's own on the cluster, jobs that fit a small node, and patient conditions.

Every module works in a namespace that it makes and removes, as the cluster's administrator; whoever else uses
the cluster is left alone. Times are generous: only what is broken takes that long.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from testbed import places
from testbed.session import uses_another_cluster

from mpijob import Client, Job, JobState, MPIJob, Phase
from mpijob.backends.kubernetes import kinds
from mpijob.backends.kubernetes.api import Api, Document
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.kinds import Kind
from mpijob.backends.kubernetes.kubeconfig import load
from mpijob.backends.kubernetes.logs import role_of
from mpijob.backends.kubernetes.preflight import PLAIN_USER
from mpijob.backends.kubernetes.states import worker_index
from mpijob.dialects.terms import Shape
from mpijob.model import Placement, Resources, Role
from mpijob.settings import CLUSTER, Settings

PATIENCE = 120.0  # seconds until a job has ended, on a small and busy machine
PROMPT = 15.0  # seconds from what happened in the cluster until the client tells it with its cause
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
VOLUME = Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)
FLAVOR = Kind(kinds.KUEUE_API, "ResourceFlavor", "resourceflavors", namespaced=False)
SMALL = Resources(cpu="100m", memory="160Mi")
LAUNCHER = Resources(cpu="50m", memory="128Mi")
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
T = TypeVar("T")


def image(name: str) -> str:
    """Return one of the images openmpi4, openmpi5, mpich, intel and nosshd, as the cluster has them."""
    return f"{os.environ.get('MPIJOB_TEST_IMAGES', places.IMAGES)}/{name}:1"


class Place:
    """One namespace, with a client and a connection that work there."""

    def __init__(self, kubeconfig: Path, namespace: str, home: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.settings = Settings(
            home=home,
            engine=CLUSTER,
            kubeconfig=str(kubeconfig),
            namespace=namespace,
            image=image("openmpi4"),
        )
        self.api = Api(load(path=str(kubeconfig)))
        self.client = Client(KubernetesBackend(self.settings), settings=self.settings)

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl in the namespace and return what it says."""
        done = self._kubectl(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _kubectl(self, *words: str, stdin: str) -> subprocess.CompletedProcess[str]:
        argv = ["kubectl", f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *words]
        return subprocess.run(argv, input=stdin, **_CAPTURED)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Hand documents to the cluster as a user of kubectl would."""
        all_of_them = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(all_of_them))

    def apply_job(self, job: Mapping[str, Any], *before: Mapping[str, Any]) -> None:
        """Hand over a TrainJob behind its runtime; it is refused until Trainer's webhook knows the runtime."""
        if before:
            self.apply(*before)
        words, text = ("apply", "--filename=-"), json.dumps(job)
        eventually(lambda: self._kubectl(*words, stdin=text).returncode == 0, "the runtime is known")

    def mpijob(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user of this place would."""
        return subprocess.run(self.argv(*words), env=self.environ(**environ), **_CAPTURED)

    def argv(self, *words: str) -> list[str]:
        """Return the command line's words."""
        return [sys.executable, "-m", "mpijob", *words]

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment in which the command line works at this place."""
        told = {
            "KUBECONFIG": str(self.kubeconfig),
            "MPIJOB_ENGINE": CLUSTER,
            "MPIJOB_HOME": self.settings.home,
            "MPIJOB_NAMESPACE": self.namespace,
            "MPIJOB_IMAGE": self.settings.image,
            "NO_COLOR": "1",
        }
        return os.environ | told | more

    def put(self, kind: Kind, name: str, **parts: Any) -> Document:
        """Create an object of the namespace."""
        metadata = {"name": name} | parts.pop("metadata", {})
        document = {"apiVersion": kind.api, "kind": kind.name, "metadata": metadata} | parts
        return self.api.create(kind.path(self.namespace), document)

    def take_away(self, kind: Kind, name: str) -> None:
        """Delete an object of the namespace."""
        self.api.delete(kind.path(self.namespace, name))

    def find(self, kind: Kind, name: str) -> Document | None:
        """Return an object of the namespace, if it is there."""
        return self.api.find(kind.path(self.namespace, name))

    def shape(self) -> Shape:
        """Return what this place adds to a job that is written by hand."""
        return Shape(uid=os.urandom(8).hex(), user=PLAIN_USER)

    def pods(self, job: Job | str) -> list[Document]:
        """Return the pods of a job that was written here."""
        name = job if isinstance(job, str) else job.name
        return self.api.list(kinds.POD.path(self.namespace), labels=f"mpijob.dev/job={name}").items

    def launcher(self, job: Job) -> Document:
        """Return the launcher's pod."""
        return next(pod for pod in self.pods(job) if role_of(pod) is Role.LAUNCHER)

    def worker(self, job: Job, index: int) -> Document:
        """Return the pod of one worker."""
        mine = (pod for pod in self.pods(job) if role_of(pod) is Role.WORKER)
        return next(pod for pod in mine if worker_index(pod) == index)

    # -- jobs ------------------------------------------------------------------------------------
    def running(self, job: MPIJob) -> Job:
        """Return the job once it runs."""
        handle = self.client.submit(job)
        handle.wait(PATIENCE, {Phase.RUNNING})
        return handle

    def busy(self, job: MPIJob) -> Job:
        """Return the job once every rank's program runs: it must say `begun` first."""
        handle = self.running(job)
        eventually(lambda: len(said(handle, regex="^begun$")) == job.world, "every rank has begun")
        return handle

    def ended(self, job: MPIJob) -> Job:
        """Return the job once it has ended, however it did."""
        handle = self.client.submit(job)
        handle.wait(PATIENCE)
        return handle

    def succeeded(self, job: MPIJob) -> Job:
        """Return the job once it has succeeded; anything else is an error with the findings."""
        handle = self.client.submit(job)
        handle.wait_for_completion(PATIENCE)
        return handle


_CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "check": False}


@contextmanager
def own_place(kubeconfig: Path, name: str, labels: Mapping[str, str] = RESTRICTED) -> Iterator[Place]:
    """Make a namespace and remove it again, with everything in it."""
    namespace = f"{name}-{os.urandom(3).hex()}"
    with tempfile.TemporaryDirectory() as home:
        place = Place(kubeconfig, namespace, home)
        metadata = {"name": namespace, "labels": dict(labels)}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        place.api.create(kinds.NAMESPACE.path(), document)
        try:
            yield place
        finally:
            place.api.delete(kinds.NAMESPACE.path("", namespace))
            place.client.close()
            place.api.close()


@contextmanager
def a_claim(place: Place, name: str) -> Iterator[str]:
    """Make a volume claim; afterwards its volume is free and empty again, where nobody else sees to that."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    place.put(CLAIM, name, spec=spec)
    bound = eventually(lambda: _volume_of(place, name), f"claim {name} has a volume", 30.0)
    try:
        yield name
    finally:
        remove_claim(place, name)
        _give_back(place, place.api.find(VOLUME.path("", bound)))


def remove_claim(place: Place, name: str) -> None:
    """Delete a claim and the pods that hold it, and wait until it is gone."""
    place.take_away(CLAIM, name)
    for pod in place.api.list(kinds.POD.path(place.namespace)).items:
        if any(
            (one.get("persistentVolumeClaim") or {}).get("claimName") == name
            for one in pod["spec"]["volumes"]
        ):
            place.api.delete(kinds.POD.path(place.namespace, pod["metadata"]["name"]), grace_seconds=0)
    eventually(lambda: place.find(CLAIM, name) is None, f"claim {name} is gone", 60.0)


def _give_back(place: Place, volume: Document | None) -> None:
    """Free a volume that is retained: the test bed has few, and wipes none by itself."""
    if volume is None or volume["spec"]["persistentVolumeReclaimPolicy"] != "Retain":
        return
    folder = Path((volume["spec"].get("hostPath") or {}).get("path", "/nowhere"))
    if folder.is_relative_to(places.run_state()):
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    place.api.patch(VOLUME.path("", volume["metadata"]["name"]), {"spec": {"claimRef": None}})


def _volume_of(place: Place, claim: str) -> str:
    found = place.find(CLAIM, claim)
    bound = found is not None and found["status"].get("phase") == "Bound"
    return str(found["spec"]["volumeName"]) if found is not None and bound else ""


@contextmanager
def a_queue(place: Place, cpu: str) -> Iterator[str]:
    """Make a Kueue queue of so many CPUs for one namespace, in which the higher priority wins."""
    name = place.namespace
    amounts = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "4Gi"}]
    flavor = {"name": name, "resources": amounts}
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}],
    }
    place.put(FLAVOR, name)
    place.put(kinds.CLUSTER_QUEUE, name, spec=spec)
    place.put(kinds.LOCAL_QUEUE, "own", spec={"clusterQueue": name})
    try:
        yield "own"
    finally:
        for kind in (kinds.CLUSTER_QUEUE, FLAVOR):
            place.take_away(kind, name)


def a_job(name: str = "job", script: str = "true", **fields: Any) -> MPIJob:
    """Return a small job: two workers that run a shell script, on the node that is real."""
    if not uses_another_cluster():  # other tests bring nodes that exist on paper
        real = {"kubernetes.io/hostname": places.NODE}
        fields.setdefault("placement", Placement(node_selector=real))
    fields.setdefault("workers", 2)
    fields.setdefault("grace_seconds", 1.0)
    fields.setdefault("resources", SMALL)
    fields.setdefault("launcher", LAUNCHER)
    fields.setdefault("command", ("sh", "-c", script))
    return MPIJob(name=name, **fields)


def a_program(name: str, program: str, **fields: Any) -> MPIJob:
    """Return a small job whose ranks run a Python program."""
    return a_job(name, command=("python3", "-c", program), **fields)


def said(job: Job, **wanted: Any) -> dict[int, list[str]]:
    """Return what each rank said."""
    lines: dict[int, list[str]] = {}
    for line in job.logs(**wanted):
        if line.rank is not None:
            lines.setdefault(line.rank, []).append(line.text.decode())
    return lines


def blamed(state: JobState) -> tuple[Phase, str, int | None]:
    """Return what a state tells of a failure: phase, code of the first finding, its worker."""
    first = state.findings[0] if state.findings else None
    return state.phase, first.code if first else "", first.worker if first else None


def lateness(state: JobState) -> float:
    """Return how long ago a job ended, by the cluster's own time: it is asked when the client tells it."""
    assert state.finished is not None
    return time.time() - state.finished


def shows(job: Job, sign: Callable[[JobState], object], what: str, seconds: float = PROMPT) -> JobState:
    """Return a job's state once it shows something; fail with the sentence when it never does."""

    def look() -> JobState | None:
        state = job.state()
        return state if sign(state) else None

    found = eventually(look, f"{job.name} {what}", seconds)
    assert found is not None
    return found


def eventually(look: Callable[[], T], what: str, seconds: float = 30.0) -> T:
    """Return what a look gives once it gives something; fail with the sentence when it never does."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s it is still not so: {what}")
        time.sleep(0.1)
