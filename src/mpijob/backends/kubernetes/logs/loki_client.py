"""Lines of deleted pods, from the Loki that the cluster's log collector writes to.

Collectors label pods in one of a few ways: Grafana's, OpenShift's, OpenTelemetry's. Lines have the format of
the API server, timestamp first, so that `pod_logs` parses both. Loki is read with a token of its own; callers
therefore check first that the API server lets the user read the log. If Loki does not respond, a warning is
logged and there are no lines.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from mpijob.backends.kubernetes.logs.http_service import FAILURES, HttpService, configured_service
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
# Below Loki's max_entries_limit_per_query (5000).
_PAGE = 2000
# Loki's default max_query_length.
_LONGEST_NS = 30 * 24 * 3600 * cri.SECOND_NS
# The workers' lines may be earlier or later than the launcher's by this.
_LATE_NS = 600 * cri.SECOND_NS
# The world is counted in the first lines of a launcher.
_HEAD = 500
_OPENMPI_TAG = re.compile(rb"\[\d+,\d+\]<std")
_LAUNCHER = "-launcher(?:-0-0)?-[a-z0-9]{5}"
_MEMBER = f"{_LAUNCHER}|-node-0-([0-9]+)-[a-z0-9]{{5}}|-worker-([0-9]+)"
_log = logging.getLogger(__name__)


class Span(NamedTuple):
    """A time range."""

    since_ns: int
    until_ns: int


class Loki:
    """A Loki server, and the labels that its collector uses."""

    def __init__(self, server: HttpService) -> None:
        self._server = server
        self._named: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        """The URL of the server."""
        return self._server.address

    def pods(self, namespace: str, pattern: str, span: Span) -> list[str]:
        """Return the pods with lines in the range; the pattern must match the whole name."""
        found = self._request(
            "series", span, {"match[]": self._select(namespace, f"=~{json.dumps(pattern)}")}
        )
        return sorted({labels[self._names()[1]] for labels in found})

    def lines(self, namespace: str, pod: str, span: Span) -> Iterator[bytes]:
        """Yield the lines of a pod in order, with timestamps like the kubelet's."""
        select, since, seen = self._select(namespace, f"={json.dumps(pod)}"), span.since_ns, 0
        while True:
            page = self._page(select, Span(since, span.until_ns))
            yield from (b"%s %s\n" % (cri.stamp(moment), _text(line)) for moment, line in page[seen:])
            if len(page) < _PAGE:
                return
            last = page[-1][0]
            # More lines of one nanosecond than a page has: the rest of them cannot be selected.
            full = last == since
            since, seen = last + full, 0 if full else sum(moment == last for moment, _ in page)

    def last(self, namespace: str, pattern: str, span: Span) -> int | None:
        """Return the time of the last line of these pods."""
        select = self._select(namespace, f"=~{json.dumps(pattern)}")
        found = self._page(select, span, direction="backward", limit="1")
        return found[-1][0] if found else None

    def _page(self, select: str, span: Span, **more: str) -> list[tuple[int, str]]:
        parameters = {"query": select, "limit": str(_PAGE), "direction": "forward", **more}
        streams = self._request("query_range", span, parameters)["result"]
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

    def _request(self, endpoint: str, span: Span, parameters: dict[str, str]) -> Any:
        times = {"start": str(span.since_ns), "end": str(span.until_ns)}
        return self._server.get(f"/loki/api/v1/{endpoint}", parameters | times)


class Gone(NamedTuple):
    """The deleted pods of a job in Loki, and their time ranges."""

    loki: Loki
    spans: Mapping[PodLogSource, Span]

    def lines(self, source: PodLogSource) -> Iterator[bytes]:
        """Yield the lines of one of the pods; nothing for another pod."""
        span = self.spans.get(source)
        if span is None:
            return
        try:
            yield from self.loki.lines(source.namespace, source.pod, span)
        except FAILURES as error:
            _warn(self.loki, error)


def of_settings(settings: Settings) -> Loki | None:
    """Return the Loki of the settings, None if none is set."""
    found = configured_service(settings.loki, settings.loki_token_file)
    return None if found is None else Loki(found)


def of_job(loki: Loki, found: Found, there: Collection[str], now_ns: int) -> Gone:
    """Return the pods of a job that exist in Loki only; `there` are the others."""
    return _found(loki, lambda: _of_job(loki, found, there, now_ns))


def of_name(loki: Loki, ref: JobRef, now_ns: int) -> Gone:
    """Return the pods of the last job of a name that the cluster no longer has."""
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
        created = int((time_of(metadata.get("creationTimestamp", "")) or 0.0) * cri.SECOND_NS)
        span = Span(created, min(created + _LONGEST_NS, now_ns))
        for pod, role, worker in _members(loki, namespace, re.escape(metadata["name"]), span):
            if pod not in there:
                spans[PodLogSource(namespace, pod, "", role, worker, attempt, family, tagged)] = span
    return spans


def _of_name(loki: Loki, ref: JobRef, now_ns: int) -> dict[PodLogSource, Span]:
    name = f"{re.escape(ref.name)}(?:-a[0-9]+)?"
    span = _last_span(loki, ref.namespace, name, Span(now_ns - _LONGEST_NS, now_ns))
    if span is None:
        return {}
    members = [*_members(loki, ref.namespace, name, span)]
    launchers = [pod for pod, role, _ in members if role is Role.LAUNCHER]
    heads = [islice(loki.lines(ref.namespace, pod, span), _HEAD) for pod in launchers]
    family, tagged = _tags(b"".join(line for head in heads for line in head))
    return {
        PodLogSource(ref.namespace, pod, "", role, worker, _attempt(ref.name, pod), family, tagged): span
        for pod, role, worker in members
    }


def _last_span(loki: Loki, namespace: str, name: str, whole: Span) -> Span | None:
    """Return the time range of the last job of a name, from its launcher's first line to its last."""
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
    """Yield the pods of jobs with this name, with their roles and indices."""
    pattern = re.compile(f"{name}(?:{_MEMBER})")
    for pod in loki.pods(namespace, pattern.pattern, span):
        if member := pattern.fullmatch(pod):
            index = member[1] or member[2]
            yield pod, Role.WORKER if index else Role.LAUNCHER, int(index) if index else None


def _attempt(name: str, pod: str) -> int:
    found = re.match(r"-a([0-9]+)-(?:launcher|node|worker)-", pod.removeprefix(name))
    return int(found[1]) if found else 1


def _tags(head: bytes) -> tuple[Family, bool]:
    """Return the MPI family of a launcher's log and whether its lines are tagged."""
    return Family.OPENMPI if _OPENMPI_TAG.search(head) else Family.MPICH, b"mpijob-world " in head


def _text(line: str) -> bytes:
    # OpenShift's collector (Vector) wraps each line into a JSON record.
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
