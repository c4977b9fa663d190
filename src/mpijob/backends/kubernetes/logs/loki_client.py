"""What pods said that are gone, as the cluster's own log collector has put it into Loki.

Collectors name a pod in one of a few ways: Grafana's, OpenShift's, OpenTelemetry's. Lines are given as the API server
gives them, time stamp first, so that `pod_logs` reads both alike. Loki is asked with a right of its own, which is why a
pod's log is always asked of the API server first: whoever may not read it there is refused there. A Loki that is
away tells nothing, and that is said.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from mpijob.backends.kubernetes.logs.http_service import FAILURES, HttpService, neighbour
from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource
from mpijob.backends.kubernetes.status import job_objects
from mpijob.model import Family, Role
from mpijob.observation.logs import cri

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.status.job_objects import Found
    from mpijob.model import JobRef
    from mpijob.settings import Settings

_NAMES = (
    ("namespace", "pod"),
    ("kubernetes_namespace_name", "kubernetes_pod_name"),
    ("k8s_namespace_name", "k8s_pod_name"),
)
_PAGE = 2000
_LONGEST_NS = 30 * 24 * 3600 * cri.SECOND_NS  # that one question may reach back, as Loki comes
_LATE_NS = 600 * cri.SECOND_NS  # between what a launcher says and what its workers do
_HEAD = 500  # of a launcher's lines: the world is counted in its first
_OPENMPI_TAG = re.compile(rb"\[\d+,\d+\]<std")
_LAUNCHER = "-launcher(?:-0-0)?-[a-z0-9]{5}"
_MEMBER = f"{_LAUNCHER}|-node-0-([0-9]+)-[a-z0-9]{{5}}|-worker-([0-9]+)"
_log = logging.getLogger(__name__)


class Span(NamedTuple):
    """A stretch of time."""

    since_ns: int
    until_ns: int


class Loki:
    """One server, and how the collector names pods there."""

    def __init__(self, server: HttpService) -> None:
        self._server = server
        self._named: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        """Where it is."""
        return self._server.address

    def pods(self, namespace: str, pattern: str, span: Span) -> list[str]:
        """Return the pods of which it has lines; the pattern is of the whole name."""
        found = self._ask("series", span, {"match[]": self._select(namespace, f"=~{json.dumps(pattern)}")})
        return sorted({labels[self._names()[1]] for labels in found})

    def lines(self, namespace: str, pod: str, span: Span) -> Iterator[bytes]:
        """Yield what a pod has said, in order, as its log has it."""
        select, since, seen = self._select(namespace, f"={json.dumps(pod)}"), span.since_ns, 0
        while True:
            page = self._page(select, Span(since, span.until_ns))
            yield from (b"%s %s\n" % (cri.stamp(moment), _text(line)) for moment, line in page[seen:])
            if len(page) < _PAGE:
                return
            last = page[-1][0]
            full = (
                last == since
            )  # more lines of one moment than a page holds: the rest of them cannot be asked for
            since, seen = last + full, 0 if full else sum(moment == last for moment, _ in page)

    def last(self, namespace: str, pattern: str, span: Span) -> int | None:
        """Return when one of these pods has said something last."""
        select = self._select(namespace, f"=~{json.dumps(pattern)}")
        found = self._page(select, span, direction="backward", limit="1")
        return found[-1][0] if found else None

    def _page(self, select: str, span: Span, **more: str) -> list[tuple[int, str]]:
        words = {"query": select, "limit": str(_PAGE), "direction": "forward", **more}
        streams = self._ask("query_range", span, words)["result"]
        entries = [(int(moment), text) for stream in streams for moment, text, *_ in stream["values"]]
        return sorted(entries, key=lambda entry: entry[0])

    def _select(self, namespace: str, pod: str) -> str:
        of_namespace, of_pod = self._names()
        return f"{{{of_namespace}={json.dumps(namespace)}, {of_pod}{pod}}}"

    def _names(self) -> tuple[str, str]:
        if self._named is None:
            labels = set(self._server.get("/loki/api/v1/labels", {"since": "720h"}) or ())
            self._named = next((names for names in _NAMES if labels.issuperset(names)), _NAMES[0])
        return self._named

    def _ask(self, what: str, span: Span, words: dict[str, str]) -> Any:
        times = {"start": str(span.since_ns), "end": str(span.until_ns)}
        return self._server.get(f"/loki/api/v1/{what}", words | times)


class Gone(NamedTuple):
    """Pods of a job that are gone, and where and when they spoke."""

    loki: Loki
    spans: Mapping[PodLogSource, Span]

    def lines(self, voice: PodLogSource) -> Iterator[bytes]:
        """Yield what one of them has said; nothing for a pod that is none of them."""
        span = self.spans.get(voice)
        if span is None:
            return
        try:
            yield from self.loki.lines(voice.namespace, voice.pod, span)
        except FAILURES as error:
            _warn(self.loki, error)


def of_settings(settings: Settings) -> Loki | None:
    """Return the Loki of the settings, None where none is set."""
    found = neighbour(settings.loki, settings.loki_token_file)
    return None if found is None else Loki(found)


def of_job(loki: Loki, found: Found, there: Collection[str], now_ns: int) -> Gone:
    """Return the pods of a job that are not there any more."""
    return _found(loki, lambda: _of_job(loki, found, there, now_ns))


def of_name(loki: Loki, ref: JobRef, now_ns: int) -> Gone:
    """Return the pods of the last job of a name, of which the cluster knows nothing any more."""
    return _found(loki, lambda: _of_name(loki, ref, now_ns))


def _found(loki: Loki, look: Callable[[], dict[PodLogSource, Span]]) -> Gone:
    try:
        return Gone(loki, look())
    except FAILURES as error:
        _warn(loki, error)
        return Gone(loki, {})


def _of_job(loki: Loki, found: Found, there: Collection[str], now_ns: int) -> dict[PodLogSource, Span]:
    from mpijob.backends.kubernetes.status import derive_state
    from mpijob.formats.status.nested_fields import time_of

    spans: dict[PodLogSource, Span] = {}
    for job in (*found.earlier, found.job):
        metadata, (family, tagged) = job["metadata"], derive_state.speech(job)
        namespace, attempt = metadata["namespace"], job_objects.attempt_of(job)
        made = int((time_of(metadata.get("creationTimestamp", "")) or 0.0) * cri.SECOND_NS)
        span = Span(made, min(made + _LONGEST_NS, now_ns))
        for pod, role, worker in _members(loki, namespace, re.escape(metadata["name"]), span):
            if pod not in there:
                spans[PodLogSource(namespace, pod, "", role, worker, attempt, family, tagged)] = span
    return spans


def _of_name(loki: Loki, ref: JobRef, now_ns: int) -> dict[PodLogSource, Span]:
    name = f"{re.escape(ref.name)}(?:-a[0-9]+)?"
    span = _last_run(loki, ref.namespace, name, Span(now_ns - _LONGEST_NS, now_ns))
    if span is None:
        return {}
    members = [*_members(loki, ref.namespace, name, span)]
    launchers = [pod for pod, role, _ in members if role is Role.LAUNCHER]
    heads = [islice(loki.lines(ref.namespace, pod, span), _HEAD) for pod in launchers]
    family, tagged = _speech(b"".join(line for head in heads for line in head))
    return {
        PodLogSource(ref.namespace, pod, "", role, worker, _attempt(ref.name, pod), family, tagged): span
        for pod, role, worker in members
    }


def _last_run(loki: Loki, namespace: str, name: str, whole: Span) -> Span | None:
    """Return from when to when the last run of a name has spoken: from its launcher's first line to its last."""
    launcher = name + _LAUNCHER
    last = loki.last(namespace, launcher, whole)
    if last is None:
        return None
    near = Span(last, last + 1)
    pods = loki.pods(namespace, launcher, near)
    firsts = [next(loki.lines(namespace, pod, Span(whole.since_ns, last + 1)), b"") for pod in pods]
    since = min((cri.nanoseconds(line.partition(b" ")[0]) for line in firsts if line), default=last)
    return Span(since - _LATE_NS, last + _LATE_NS)


def _members(loki: Loki, namespace: str, name: str, span: Span) -> Iterator[tuple[str, Role, int | None]]:
    """Yield the pods of the jobs of a name, each with its role and its index."""
    pattern = re.compile(f"{name}(?:{_MEMBER})")
    for pod in loki.pods(namespace, pattern.pattern, span):
        if member := pattern.fullmatch(pod):
            index = member[1] or member[2]
            yield pod, Role.WORKER if index else Role.LAUNCHER, int(index) if index else None


def _attempt(name: str, pod: str) -> int:
    found = re.match(r"-a([0-9]+)-(?:launcher|node|worker)-", pod.removeprefix(name))
    return int(found[1]) if found else 1


def _speech(head: bytes) -> tuple[Family, bool]:
    """Return whose tags a launcher's log carries, and whether it carries any: of a job of ours, as its log begins."""
    return Family.OPENMPI if _OPENMPI_TAG.search(head) else Family.MPICH, b"mpijob-world " in head


def _text(line: str) -> bytes:
    """Return what a pod has said in one line; OpenShift's collector puts it into a record of its own."""
    if line.startswith("{") and '"kubernetes"' in line:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("message"), str) and "kubernetes" in record:
            line = record["message"]
    return line.encode(errors="replace")


def _warn(loki: Loki, error: BaseException) -> None:
    _log.warning("Loki at %s does not respond: %s", loki.address, error)
