"""From the wish to "created", against the Kubeflow SDK: cold from the shell, and warm in a process.

The SDK sends one object and checks nothing. `create` looks at quota, rights, room, policies and names first,
sends the job with a runtime of its own, and reads its state back. What is left of that when the preflight's
answers are there already is measured apart.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cluster.places import Place, place, until
from bench.line import Bound, Line, Unmeasured, at_most, compared
from bench.places import PROGRAMS, Options
from bench.timing import command, interleaved, median, milliseconds
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Document

RUNTIME = "bench"
WORKERS = 2
REST_SECONDS = 1.0  # the node takes the pods' remains away after they are gone from the API
_number = itertools.count()


def measure(options: Options) -> Iterator[Line]:
    """Yield the cold line and the warm ones."""
    python = kubeflow_python()
    with place("create") as there:
        _install_runtime(there)
        yield _cold(there, python, options.rounds(9))
        with _sdk(there, python) as sdk:
            yield from _warm(there, sdk, options.rounds(15))


def kubeflow_python() -> str:
    """Return the interpreter of the environment that has the SDK."""
    path = os.environ.get("MPIJOB_BENCH_KUBEFLOW", ".make/kubeflow/bin/python")
    if not Path(path).exists():
        raise Unmeasured("no Kubeflow SDK: make bench-cluster installs it, or set MPIJOB_BENCH_KUBEFLOW")
    return str(Path(path).absolute())


def _install_runtime(there: Place) -> None:
    """Give the SDK a runtime for MPI, without which it can do nothing."""
    jobs = [_replicated(there, "launcher", "trainer"), _replicated(there, "node")]
    mpi = {"mpiImplementation": "OpenMPI", "numProcPerNode": 1, "runLauncherAsNode": False}
    document = {
        "apiVersion": resources.TRAINER_API,
        "kind": resources.TRAINING_RUNTIME.name,
        "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "mpi"}},
        "spec": {
            "mlPolicy": {"numNodes": WORKERS, "mpi": mpi},
            "template": {"spec": {"replicatedJobs": jobs}},
        },
    }
    there.api.create(resources.TRAINING_RUNTIME.path(there.namespace), document)


def _replicated(there: Place, name: str, step: str = "") -> Document:
    container = {"name": "node", "image": there.image, "command": ["true"]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    spec = {"template": {"spec": {"containers": [container]}}}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": spec}}


def _cold(there: Place, python: str, rounds: int) -> Line:
    program = str(PROGRAMS / "kubeflow_train.py")
    sdk = (python, program, there.namespace, RUNTIME, there.image, str(WORKERS))

    def ours() -> float:
        name = f"cold-{next(_number)}"
        size = ("--workers", str(WORKERS), "--cpu", "20m", "--memory", "64Mi", "--launcher-cpu", "20m")
        taken = command((there.mpijob, "create", name, *size, "--", "true"), there.environ).wall
        _remove_all(there)
        return taken

    def theirs() -> float:
        taken = command(sdk, there.environ).wall
        _remove_all(there)
        return taken

    found = interleaved(rounds, {"ours": ours, "sdk": theirs})
    return _line("cold, from the shell to created", found["ours"], found["sdk"], at_most(0.35))


def _warm(there: Place, sdk: subprocess.Popen[str], rounds: int) -> Iterator[Line]:
    found = interleaved(
        rounds,
        {
            "sdk": lambda: _train(there, sdk),
            "sent": lambda: _without_preflight(there),
            "whole": lambda: _with_preflight(there),
        },
    )
    yield _line("warm, without preflight", found["sent"], found["sdk"], at_most(1.0))
    yield _line("warm, with full preflight", found["whole"], found["sdk"], at_most(2.5))


def _line(what: str, ours: list[float], sdk: list[float], goal: Bound) -> Line:
    note = f"ours {milliseconds(ours)}, SDK {milliseconds(sdk)}"
    title = f"create: {what}, against the Kubeflow SDK"
    return compared(title, "ms", median(ours) * 1e3, median(sdk) * 1e3, goal, note=note)


def _with_preflight(there: Place) -> float:
    job = there.small_job(f"warm-{next(_number)}", WORKERS, "true")
    start = time.perf_counter()
    there.client.submit(job)
    taken = time.perf_counter() - start
    _remove_all(there)
    return taken


def _without_preflight(there: Place) -> float:
    """Plan and send a job about which everything is known already."""
    backend, job = there.client.backend, there.small_job(f"sent-{next(_number)}", WORKERS, "true")
    who = backend.whoami()
    found = backend.preflight(job, who)
    start = time.perf_counter()
    backend.submit(backend.plan(job, found), who)
    taken = time.perf_counter() - start
    _remove_all(there)
    return taken


def _train(there: Place, sdk: subprocess.Popen[str]) -> float:
    assert sdk.stdin is not None
    assert sdk.stdout is not None
    sdk.stdin.write("train\n")
    sdk.stdin.flush()
    said = sdk.stdout.readline()
    if not said:
        raise Unmeasured("the Kubeflow SDK ended")
    _remove_all(there)
    return float(said)


def _remove_all(there: Place) -> None:
    """Delete every job and wait until its pods are gone, so that each round meets a cluster that rests."""
    for job in there.api.list(resources.TRAINJOB.path(there.namespace)).items:
        there.remove(job["metadata"]["name"])
    until(lambda: not there.api.list(resources.JOBSET.path(there.namespace)).items, "the end of the jobs")
    there.cleared()
    time.sleep(REST_SECONDS)


@contextmanager
def _sdk(there: Place, python: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has the SDK loaded and calls `train` for each line it is sent."""
    argv = (python, str(PROGRAMS / "kubeflow_train.py"), there.namespace, RUNTIME, there.image, str(WORKERS))
    child = subprocess.Popen(
        (*argv, "warm"), env=there.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
