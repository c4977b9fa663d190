"""A place of a test module's own on the cluster, jobs that fit a small node, and patient conditions.

Every module works in a namespace that it makes and removes, as the cluster's administrator; whoever else uses
the cluster is left alone. Times are generous: only what is broken takes that long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from testbed import places
from testbed.session import uses_another_cluster

from mpijob import Client, Job, JobState, MPIJob, Phase
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, Document
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.logs.pod_logs import role_of
from mpijob.backends.kubernetes.preflight.preflight import PLAIN_USER
from mpijob.backends.kubernetes.status.derive_state import worker_index
from mpijob.errors import NotFound
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import JobRef, Placement, Resources, Role
from mpijob.settings import CLUSTER, Settings

PATIENCE = 400.0  # seconds until a job has ended, on a small and busy machine
MOMENT = 120.0  # seconds until a cluster that others use too has noticed something
SMALL = Resources(cpu="200m", memory="160Mi")
LAUNCHER = Resources(cpu="50m", memory="128Mi")
TINY = Resources(cpu="50m", memory="96Mi")  # for programs that do nothing: several jobs at once find room
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
        self.shared: set[str] = set()  # jobs of a crowd, which several tests look at

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

    def shape(self, **fields: Any) -> Shape:
        """Return what this place adds to a job that is written by hand."""
        return Shape(uid=os.urandom(8).hex(), user=PLAIN_USER, **fields)

    def pods(self, job: Job | str) -> list[Document]:
        """Return the pods of a job that was written here."""
        name = job if isinstance(job, str) else job.name
        return self.api.list(resources.POD.path(self.namespace), labels=f"mpijob.dev/job={name}").items

    def uids(self, job: Job | str) -> set[str]:
        """Return which pods a job has: those that are made anew are others."""
        return {pod["metadata"]["uid"] for pod in self.pods(job)}

    def empty(self) -> None:
        """Delete every job that is here, but those that other tests share."""
        jobs = [state.ref for state in self.client.jobs(namespace=self.namespace)]
        delete_together(self.client, [ref for ref in jobs if ref.name not in self.shared])

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
        return begun(self.client.submit(job))

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


class Told(NamedTuple):
    """How a job ended."""

    job: Job
    state: JobState


class Crowd:
    """Jobs that run side by side: most of a job's start is waiting, and one machine can wait for several.

    On the test bed each asks for next to no CPU, which is a share there and no ceiling: half of their workers
    placed, and no room for the others, they would all wait for each other. Between two tests one that has the cluster
    for itself may take an engine away, with every job of it: such a job is started again.
    """

    def __init__(self, place: Place, *jobs: MPIJob, slender: bool = True) -> None:
        self._place = place
        self._asked = {job.name: _slender(job) if slender else job for job in jobs}
        self._jobs = {name: place.client.submit(job) for name, job in self._asked.items()}
        place.shared |= self._jobs.keys()

    def there(self, name: str) -> Job:
        """Return a job of the crowd, whatever it does."""
        try:
            self._jobs[name].state()
        except NotFound:
            self._jobs[name] = self._place.client.submit(self._asked[name])
        return self._jobs[name]

    def __getitem__(self, name: str) -> Told:
        """Return how a job of the crowd ended, once it has."""
        job = self.there(name)
        state = job.wait(PATIENCE)
        assert state.phase.final, f"{name} has not ended: {state}"
        return Told(job, state)

    def succeeded(self, job: MPIJob) -> Job:
        """Return a job once it has succeeded, be it of the crowd or not."""
        if job.name not in self._jobs:
            return self._place.succeeded(job)
        told = self[job.name]
        assert told.state.phase is Phase.SUCCEEDED, told.state
        return told.job


def _slender(job: MPIJob) -> MPIJob:
    if uses_another_cluster():
        return job
    return job.replace(resources=job.resources.replace(cpu="15m"), launcher=job.launcher.replace(cpu="15m"))


_CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "check": False}


@contextmanager
def own_place(kubeconfig: Path, name: str, labels: Mapping[str, str] = RESTRICTED) -> Iterator[Place]:
    """Make a namespace and remove it again, with everything in it."""
    namespace = f"{name}-{os.urandom(3).hex()}"
    with tempfile.TemporaryDirectory() as home:
        place = Place(kubeconfig, namespace, home)
        metadata = {"name": namespace, "labels": dict(labels)}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        place.api.create(resources.NAMESPACE.path(), document)
        try:
            yield place
        finally:
            place.api.delete(resources.NAMESPACE.path("", namespace))
            place.client.close()
            place.api.close()


def delete_together(client: Client, jobs: Iterable[JobRef]) -> None:
    """Delete jobs all at once: each takes until the last of its pods is gone."""
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(client.delete, ref, grace_period=0) for ref in jobs]:
            done.result()


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


def begun(job: Job) -> Job:
    """Return a job once every rank's program runs, which says `begun` first."""
    world = job.wait(PATIENCE, {Phase.RUNNING}).world
    eventually(lambda: len(said(job, regex="^begun$")) == world, f"every rank of {job.name} has begun")
    return job


def blamed(state: JobState) -> tuple[Phase, str, int | None]:
    """Return what a state tells of a failure: phase, code of the first finding, its worker."""
    first = state.findings[0] if state.findings else None
    return state.phase, first.code if first else "", first.worker if first else None


def shows(job: Job, sign: Callable[[JobState], object], what: str, seconds: float = PATIENCE) -> JobState:
    """Return a job's state once it shows something; fail with the sentence, and what it shows, when it never does."""
    last: list[JobState] = []

    def look() -> JobState | None:
        last[:] = [job.state()]
        return last[0] if sign(last[0]) else None

    try:
        return eventually(look, f"{job.name} {what}", seconds)
    except AssertionError as error:
        happened = [f"{one.reason}: {one.message}" for one in job.events()]
        raise AssertionError(f"{error}: {last}; {happened}") from None


def eventually(look: Callable[[], T | None], what: str, seconds: float = MOMENT) -> T:
    """Return what a look gives once it gives something; fail with the sentence when it never does."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s it is still not so: {what}")
        time.sleep(0.1)
