"""A job as an OpenTelemetry trace: one span for the job, one for each stage, sent as OTLP/HTTP JSON.

Ids are derived from the job's namespace and uid, so that a trace that is sent twice is the same trace. Labels
of jobs become attributes; commands, variables and output are not sent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mpijob import __version__
from mpijob.client.observe.stages import moments
from mpijob.errors import BackendError, InvalidJob, MpiJobError
from mpijob.model import Event, JobKey, Phase
from mpijob.model.status.accounts import Account, AccountQuery
from mpijob.outbound import http

if TYPE_CHECKING:
    from mpijob.client.integrations.prometheus_exporter import Source

_SECONDS = 10.0
_EVERY_SECONDS = 5.0
_OVERLAP_SECONDS = 300.0
_INTERNAL, _OK, _ERROR = 1, 1, 2
_log = logging.getLogger(__name__)


def trace(account: Account, events: Iterable[Event], now: float) -> dict[str, Any]:
    """Return the trace of a job as OTLP JSON; spans of an unfinished job end at `now`."""
    events = tuple(events)
    root = _id(account.ref.key, "job", 8)
    end = account.ended or now
    spans = [_span(account, "job", f"mpijob {account.ref.name}", account.created, end, "", events)]
    spans += [
        _span(account, stage, stage, begin, until, root) for stage, begin, until in moments(account, events)
    ]
    resource = {
        "service.name": "mpijob",
        "service.version": __version__,
        "k8s.namespace.name": account.ref.namespace,
    }
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": "mpijob", "version": __version__}, "spans": spans}],
            }
        ]
    }


def _span(
    account: Account,
    part: str,
    name: str,
    begin: float,
    end: float,
    parent: str,
    events: Iterable[Event] = (),
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": _id(account.ref.key, "trace", 16),
        "spanId": _id(account.ref.key, part, 8),
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(int(begin * 1e9)),
        "endTimeUnixNano": str(int(max(begin, end) * 1e9)),
        "attributes": _attributes(_known(account) if not parent else {"mpijob.name": account.ref.name}),
    }
    if parent:
        return found | {"parentSpanId": parent}
    failed = account.phase is Phase.FAILED
    found["status"] = {"code": _ERROR, "message": account.message} if failed else {"code": _OK}
    found["events"] = [
        {
            "timeUnixNano": str(int(one.time * 1e9)),
            "name": one.reason,
            "attributes": _attributes({"message": one.message}),
        }
        for one in events
    ]
    return found


def _known(account: Account) -> dict[str, Any]:
    labels = {f"mpijob.label.{key}": value for key, value in account.labels.items()}
    return {
        "mpijob.name": account.ref.name, "mpijob.uid": account.ref.uid, "mpijob.phase": account.phase.value,
        "enduser.id": account.owner, "mpijob.workers": account.workers, "mpijob.ranks": account.ranks,
        "mpijob.engine": account.engine, "mpijob.cause": account.cause, "mpijob.core_hours": account.core_hours,
        **labels,
    }  # fmt: skip


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value not in ("", None)]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def _id(key: JobKey, part: str, size: int) -> str:
    return hashlib.blake2b("/".join((*key, part)).encode(), digest_size=size).hexdigest()


def send(endpoint: str, document: dict[str, Any]) -> None:
    """Send a trace to a collector (`http://host:4318`); raise BackendError if it is not accepted."""
    address = urlsplit(endpoint)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise InvalidJob(
            f"{endpoint!r} is not the URL of a collector", hint="write it as http://collector:4318"
        )
    url = endpoint if address.path.rstrip("/").endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
    body = json.dumps(document).encode()
    headers = {"content-type": "application/json"}
    try:
        answer = http.request("POST", url, body, headers, seconds=_SECONDS, max_bytes=0)
        if not answer.ok:
            raise OSError(f"it {answer}")
    except OSError as error:
        raise BackendError(
            f"the collector at {url} rejected the trace: {error}", hint="check the setting traces"
        ) from error


class Sender(threading.Thread):
    """Sends the trace of each job that ends; failures are tried again."""

    def __init__(
        self, source: Source, endpoint: str, stop: threading.Event, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(name="mpijob-traces", daemon=True)
        self._source, self._endpoint, self._stop_event, self._clock = source, endpoint, stop, clock
        self._since = clock()
        self._sent: set[JobKey] = set()

    def run(self) -> None:
        while not self._stop_event.wait(_EVERY_SECONDS):
            try:
                self.send_new()
            except MpiJobError as error:
                _log.warning("%s", error)

    def send_new(self) -> None:
        """Send the traces of jobs that ended since the last round."""
        now = self._clock()
        finals = tuple(phase.value for phase in Phase if phase.final)
        query = AccountQuery(since=self._since, phases=finals, by_end=True, limit=1000)
        for account in self._source.ended(query):
            if account.ref.key not in self._sent:
                send(self._endpoint, trace(account, self._source.events(account.ref), now))
                self._sent.add(account.ref.key)
        self._since = max(self._since, now - _OVERLAP_SECONDS)
