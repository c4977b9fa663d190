"""What admission costs: a create with the webhook and without, side by side, and how soon too much is refused.

Both namespaces are asked about alike but for one label (`mpijob.dev/admission: off`). A create is a dry run on
the server: every webhook is asked, nothing is kept, so that no engine disturbs the next round. The difference
stands where other lines have a ratio.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster.admission_support import Governed, governed
from tests.e2e.cluster.support import Place, a_job, image, own_place

from bench.line import Line, Unmeasured, at_most
from bench.places import Options
from bench.timing import interleaved, median
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Document
from mpijob.formats.kubernetes import trainjob

REFUSED_GOAL_SECONDS, REFUSED_MUST_SECONDS = 0.3, 2.0
ADDED_P50_MS, ADDED_P99_MS = 10.0, 50.0


def measure(options: Options) -> Iterator[Line]:
    """Yield what the webhook adds, at the middle and at the slow end, and the time of a refusal."""
    kubeconfig = _kubeconfig()
    with governed(kubeconfig) as webhook, own_place(kubeconfig, "bench-on", webhook.labels) as on:
        with own_place(kubeconfig, "bench-off", webhook.labels | {"mpijob.dev/admission": "off"}) as off:
            yield from _added(on, off, options.rounds(200))
        yield _refused(webhook, on, options.rounds(30))


def _kubeconfig() -> Path:
    from testbed import cluster, places

    if not cluster.is_up():
        raise Unmeasured("the test bed is down: make cluster")
    return places.kubeconfig()


def _added(on: Place, off: Place, rounds: int) -> Iterator[Line]:
    jobs = {name: _written(place) for name, place in (("on", on), ("off", off))}
    for name, place in (("on", on), ("off", off)):
        _known(place, jobs[name])
    found = interleaved(
        rounds, {"on": lambda: _create(on, jobs["on"]), "off": lambda: _create(off, jobs["off"])}
    )
    for words, at, goal in (("p50", 0.5, ADDED_P50_MS), ("p99", 0.99, ADDED_P99_MS)):
        with_it, without = (_quantile(found[name], at) * 1e3 for name in ("on", "off"))
        note = f"with {with_it:.1f} ms, without {without:.1f} ms, {rounds} rounds each; the ratio is the difference"
        title = f"admission: added to a create at {words}"
        yield Line(title, "ms", with_it, without, with_it - without, at_most(goal), at_most(goal), note)


def _refused(webhook: Governed, place: Place, rounds: int) -> Line:
    place.put(resources.RESOURCE_QUOTA, "small", spec={"hard": {"requests.cpu": "100m"}})
    job = _written(place, "wide")
    deadline = time.monotonic() + 30
    while not _is_refused(place, job)[0]:
        if time.monotonic() > deadline:
            raise Unmeasured("the webhook does not know the quota")
        time.sleep(0.2)
    taken = [_is_refused(place, job)[1] for _ in range(rounds)]
    pods = place.api.list(resources.POD.path(place.namespace)).items
    note = (
        f"slowest of {rounds}: {max(taken):.3f} s; pods in the namespace: {len(pods)}; asked {webhook.name}"
    )
    goal, must = at_most(REFUSED_GOAL_SECONDS), at_most(REFUSED_MUST_SECONDS)
    return Line(
        "admission: over quota, until refused",
        "s",
        median(taken),
        REFUSED_MUST_SECONDS,
        median(taken),
        goal,
        must,
        note,
    )


def _written(place: Place, name: str = "timed") -> Document:
    job = a_job(name, namespace=place.namespace, image=image("openmpi4"))
    runtime, document = trainjob.write(job, place.shape())
    place.api.create(resources.TRAINING_RUNTIME.path(place.namespace), runtime)
    return document


def _known(place: Place, job: Document) -> None:
    """Wait until Trainer's own webhook has heard of the runtime."""
    deadline = time.monotonic() + 30
    while True:
        try:
            place.api.create(resources.TRAINJOB.path(place.namespace), job, dry_run=True)
        except ApiError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _create(place: Place, job: Document) -> float:
    begun = time.perf_counter()
    place.api.create(resources.TRAINJOB.path(place.namespace), job, dry_run=True)
    return time.perf_counter() - begun


def _is_refused(place: Place, job: Document) -> tuple[bool, float]:
    begun = time.perf_counter()
    try:
        place.api.create(resources.TRAINJOB.path(place.namespace), job)
    except ApiError as error:
        return "project quota" in error.message, time.perf_counter() - begun
    place.api.delete(resources.TRAINJOB.path(place.namespace, job["metadata"]["name"]))
    return False, 0.0


def _quantile(values: list[float], at: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * at))]
