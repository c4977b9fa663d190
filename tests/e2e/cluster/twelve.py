"""Twelve failures to be provoked in real pods: what goes wrong, how it must be told, and how late it was told.

The clock starts when it goes wrong: what fails by itself says the time as its last word, what is done to a job
is timed by whoever does it, and where nothing of ours runs any more the cluster's own time of the end counts. It
stops when `why` has answered with everything, for whoever waited for the job.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.e2e.cluster.support import PATIENCE, Place, a_job, a_program, begun, image

from mpijob import Job, MPIJob, Phase
from mpijob.diagnosis.report import Diagnosis
from mpijob.model import Resources

AT_ONCE = 3  # jobs on the small machine of the test bed: what is measured is the telling, not the crowd
TINY = Resources(cpu="50m", memory="64Mi")
MODEST = Resources(cpu="100m", memory="160Mi")
LONG = "echo begun; sleep 300"
_MOMENT = re.compile(r"failing at (\d+\.\d+)")
_SHELL = 'if [ "$MPIJOB_RANK" = 1 ]; then echo failing at $(date +%s.%N); {act}; fi; sleep 300'
_PYTHON = """
import sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 1:
    print("failing at", repr(time.time()), flush=True)
    {act}
comm.barrier()
time.sleep(300)
"""


def in_shell(name: str, act: str) -> MPIJob:
    return a_job(name, _SHELL.format(act=act), resources=TINY)


def in_python(name: str, act: str) -> MPIJob:
    return a_program(name, _PYTHON.format(act=act), resources=MODEST)


@dataclass(frozen=True)
class Failure:
    """What goes wrong, how it must be told, and what is done to the job, if it does not fail by itself."""

    job: MPIJob
    code: str
    worker: int | None = 1
    act: Callable[[Place, Job], None] | None = None
    says: str = ""


def lose_worker(place: Place, job: Job) -> None:
    name = place.worker(job, 1)["metadata"]["name"]
    place.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")


def lose_launcher(place: Place, job: Job) -> None:
    name = place.launcher(job)["metadata"]["name"]
    place.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")


FAILURES = (
    Failure(in_shell("exits", "exit 3"), "RANK_EXIT"),
    Failure(in_shell("killed", "kill -9 $$"), "RANK_KILLED"),
    Failure(in_shell("crashes", "kill -SEGV $$"), "SEGFAULT"),
    Failure(in_python("hungry", "block = bytearray(1 << 30)"), "MEMORY_LIMIT"),
    Failure(in_python("raises", "1 / 0"), "PYTHON_EXCEPTION", says="ZeroDivisionError"),
    Failure(in_python("imports", "import no_such_module"), "IMPORT_ERROR"),
    Failure(in_python("aborts", "comm.Abort(42)"), "MPI_ABORT"),
    Failure(in_python("asks-nobody", "comm.send(1, dest=99)"), "INVALID_RANK"),
    Failure(a_job("misspelt", command=("no-such-program",), resources=TINY), "MISSING_EXECUTABLE", None),
    Failure(a_job("no-sshd", image=image("nosshd"), resources=TINY), "NO_SSHD", None),
    Failure(a_job("lose-worker", LONG, resources=TINY), "WORKER_LOST", 1, lose_worker),
    Failure(a_job("lose-launcher", LONG, resources=TINY), "LAUNCHER_KILLED", None, lose_launcher),
)


@dataclass(frozen=True)
class Told:
    """What was told of a failure, and how many seconds after it went wrong."""

    why: Diagnosis
    late: float


def provoked(place: Place) -> Mapping[str, Told]:
    """Provoke them all, a few at a time, each waited for by a user of its own; return what was told of each job."""
    with ThreadPoolExecutor(AT_ONCE) as users:
        told = users.map(lambda one: tell(place, one), FAILURES)
        return {one.job.name: each for one, each in zip(FAILURES, told, strict=True)}


def tell(place: Place, failure: Failure) -> Told:
    job = place.client.submit(failure.job)
    moment = 0.0
    if failure.act is not None:
        begun(job)
        moment = time.time()
        failure.act(place, job)
    state = job.wait(PATIENCE)
    why = job.diagnose()
    now = time.time()
    assert state.phase is Phase.FAILED, state
    said = [] if moment else [_MOMENT.search(line.text.decode()) for line in job.logs()]
    moments = [float(found[1]) for found in said if found]
    moment = moment or min(moments, default=state.finished or 0.0)
    job.delete(0)
    return Told(why, now - moment)


def wrongly(failure: Failure, told: Told) -> str:
    """Return what is wrong with how a failure was told; "" when it is as it must be."""
    first = told.why.first
    if first is None or (first.code, first.worker) != (failure.code, failure.worker or first.worker):
        return f"told as {told.why}"
    if not first.fixes or failure.says not in first.message:
        return f"without fixes or {failure.says!r}: {first}"
    return ""
