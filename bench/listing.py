"""`mpijob list` (first page) with few and with many jobs, against kubectl's own start-up."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

from msgspec.structs import replace

from bench import kubectl
from bench.line import Line, at_most, compared
from bench.places import Options, Place, place, small_job
from bench.timing import Cost, command, median
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.storage.paths import Home
from mpijob.model import JobRef

MUST = {100: at_most(1.8), 10_000: at_most(2.0)}


def measure(options: Options) -> Iterator[Line]:
    """Yield a line for each number of jobs."""
    with ExitStack() as stack:
        places = {jobs: stack.enter_context(place()) for jobs in MUST}
        for jobs, there in places.items():
            fill(there, jobs)
        costs = _costs(places, options.rounds(31))
        for jobs in MUST:
            yield _line(jobs, costs[str(jobs)], costs["kubectl"])


def _line(jobs: int, ours: list[Cost], reference: list[Cost]) -> Line:
    wall = tuple(median([cost.wall for cost in costs]) * 1e3 for costs in (ours, reference))
    cpu = tuple(median([cost.cpu for cost in costs]) * 1e3 for costs in (ours, reference))
    note = f"wall; CPU {cpu[0]:.0f} and {cpu[1]:.0f} ms, ratio {cpu[0] / cpu[1]:.2f}"
    return compared(
        f"list: {jobs} jobs against kubectl", "ms", wall[0], wall[1], at_most(1.0), MUST[jobs], note
    )


def _costs(places: dict[int, Place], rounds: int) -> dict[str, list[Cost]]:
    yardstick = (kubectl.find(), "version", "--client")
    costs: dict[str, list[Cost]] = {"kubectl": [], **{str(jobs): [] for jobs in places}}
    for number in range(rounds + 1):
        found = {"kubectl": command(yardstick)}
        for jobs, there in places.items():
            program = shutil.which("mpijob", path=there.environ["PATH"]) or "mpijob"
            found[str(jobs)] = command((program, "list"), there.environ)
        for name, cost in found.items():
            costs[name] += [cost] if number else []  # the first round fills caches
    return costs


def fill(there: Place, jobs: int) -> None:
    """Run one job, then put copies of its record into the store until there are so many."""
    handle = there.client.run(small_job("finished-0", 2, "true"), timeout=60)
    there.idle()
    store = Store(Home(there.client.settings.home))
    row = store.rows("uid=?", handle.ref.uid)[0]
    plan = store.plan(row.uid)
    for number in range(1, jobs):
        ref = JobRef(handle.ref.namespace, f"finished-{number}", uuid.uuid4().hex[:16])
        copy = replace(plan, uid=ref.uid, job=replace(plan.job, name=ref.name))
        store.add(copy, replace(row.state, ref=ref), "", 0)
    store.close()
