"""The page's server at a cluster: a page of the list against the raw list of the API server, and what the server holds.

The server is `mpijob ui --cluster` as a process; its visitors have tokens of their own, each of which is a person to
it with access reviews of their own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.cluster.crowd import fill
from bench.cluster.places import Place, place, until
from bench.line import Line, Unmeasured, at_most, compared
from bench.pageload import Headers, answers, percentile, resident_mb, watching
from bench.places import Options
from bench.timing import median
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.resources import Kind

MANY, FEWER = 10_000, 1000
VIEWERS, PEOPLE, QUESTIONS = 200, 20, 400
LIMIT_MS, LIMIT_MB = 20.0, 200.0
_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
_GROUP = "rbac.authorization.k8s.io"


def measure(options: Options) -> Iterator[Line]:
    """Yield the time of an answer, its share of the raw list, and the memory with all viewers there."""
    jobs = FEWER if options.quick else MANY
    with place(f"page-{jobs}") as there:
        fill(there, jobs)
        visitors = [{"x-forwarded-access-token": token} for token in _tokens(there, VIEWERS)]
        raw = median([_raw_list(there) for _ in range(5)]) * 1e3
        with _serving(there) as (base, pid):
            taken, held = asyncio.run(_visited(base, pid, visitors))
    p99 = percentile(taken, 0.99) * 1e3
    note = f"p50 {percentile(taken, 0.5) * 1e3:.1f} ms; {QUESTIONS} different questions of {VIEWERS} people"
    yield compared(
        f"page: one answer of the list, {jobs} jobs, p99", "ms", p99, LIMIT_MS, at_most(1), note=note
    )
    yield compared(f"page: the same against the raw list, {jobs} jobs", "ms", p99, raw, at_most(0.05))
    name = f"memory: the page's server, {jobs} jobs, {VIEWERS} viewers"
    yield compared(name, "MB", held, LIMIT_MB, at_most(1))


async def _visited(base: str, pid: int, visitors: Sequence[Headers]) -> tuple[list[float], float]:
    streams = []
    for first in range(0, len(visitors), 20):  # each who comes is asked about at the cluster
        streams += await asyncio.gather(*(watching(base, one) for one in visitors[first : first + 20]))
    people = [*visitors] * (QUESTIONS // len(visitors))
    paths = [f"/trainjobs?since={number}" for number in range(len(people))]
    taken = await answers(base, people, paths, at_once=1)
    held = resident_mb(pid)
    for one in streams:
        one.writer.close()
    return taken, held


def _raw_list(there: Place) -> float:
    begun = time.perf_counter()
    there.api.raw(resources.TRAINJOB.path(there.namespace))
    return time.perf_counter() - begun


def _tokens(there: Place, count: int) -> list[str]:
    """Return so many tokens of people who may list the jobs; one alone may not have so many streams."""
    people = [f"viewer-{number}" for number in range(PEOPLE)]
    for name in people:
        there.api.create(_ACCOUNT.path(there.namespace), _named(_ACCOUNT, name))
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": there.namespace} for name in people]
    ref = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": "data-scientist"}
    binding = _named(_BINDING, "viewers") | {"roleRef": ref, "subjects": subjects}
    there.api.create(_BINDING.path(there.namespace), binding)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    paths = [_ACCOUNT.path(there.namespace, people[number % PEOPLE], "token") for number in range(count)]
    return [str(there.api.create(path, request)["status"]["token"]) for path in paths]


def _named(kind: Kind, name: str) -> dict[str, object]:
    return {"apiVersion": kind.api, "kind": kind.name, "metadata": {"name": name}}


@contextmanager
def _serving(there: Place) -> Iterator[tuple[str, int]]:
    argv = [sys.executable, "-m", "mpijob", "ui", "--cluster", "--port", "0"]
    environ = {**os.environ, **there.environ}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            assert process.stdout is not None
            base = process.stdout.readline().strip().rstrip("/")
            if not base.startswith("http"):
                said.seek(0)
                raise Unmeasured(f"the page's server does not start: {base}{said.read()[-300:]}")
            until(lambda: _answers(base), "the page's server")
            yield base, process.pid
        finally:
            process.kill()
            process.wait(20)


def _answers(base: str) -> bool:
    import urllib.request

    try:
        return bool(urllib.request.urlopen(f"{base}/api/v1/health", timeout=30).status == 200)
    except OSError:
        return False
