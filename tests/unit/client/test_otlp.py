"""A job's life as a trace: stages in order under one span, in OTLP's own shape, sent once to a collector."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.unit.cli_support import Cli
from tests.unit.receiving import receiving

from mpijob import Client, MPIJob
from mpijob.backends.memory import MemoryBackend, Outcome, Script
from mpijob.client.integrations import otlp
from mpijob.client.integrations.metric_sources import OfClient
from mpijob.errors import BackendError, InvalidJob


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the address of a receiver, and what it was sent."""
    taken: list[dict[str, Any]] = []

    def answer(path: str, headers: dict[str, str], content: bytes) -> int:
        assert path == "/v1/traces"
        taken.append(json.loads(content))
        return status

    with receiving(answer) as address:
        yield address, taken


@pytest.mark.req("PMV-011")
def test_a_trace_has_the_stages_of_a_job_in_otlps_shape() -> None:
    cli = Cli(MemoryBackend(script=Script(jobs={"bad": Outcome(exit_code=3, worker=1)})))
    cli("run", "bad", "--workers", "2", "--label", "team=cv", "--env", "TOKEN=hidden", "--", "true")
    document = cli.json("trace", "bad")
    read = json_format.ParseDict(document, ExportTraceServiceRequest())
    spans = read.resource_spans[0].scope_spans[0].spans
    root, *stages = spans
    assert (root.name, root.status.code, len(root.events) > 2) == ("mpijob bad", 2, True)
    assert "run" in [one.name for one in stages]
    raw = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {len(one["traceId"]) for one in raw} == {32}
    assert {len(one["spanId"]) for one in raw} == {16}
    assert {one["parentSpanId"] for one in raw[1:]} == {raw[0]["spanId"]}
    for before, after in pairwise(stages):
        assert before.end_time_unix_nano <= after.start_time_unix_nano
    assert root.start_time_unix_nano <= stages[0].start_time_unix_nano
    assert "hidden" not in json.dumps(document)
    assert cli.ok("trace", "bad").splitlines()[0].split() == ["STAGE", "TIME", "BEGAN", "AFTER"]


@pytest.mark.thorough
@pytest.mark.req("PMV-011")
def test_each_job_that_ends_is_sent_once_and_again_when_it_was_not_taken() -> None:
    backend = MemoryBackend()
    with Client(backend) as client, collector(503) as (broken, refused), collector() as (good, taken):
        sender = otlp.Sender(OfClient(client), broken, threading.Event(), clock=lambda: backend.now)
        client.run(MPIJob(name="a", workers=2, command=("true",)))
        with pytest.raises(BackendError, match="rejected the trace"):
            sender.send_new()
        assert len(refused) == 1
        sender._endpoint = good
        for _ in range(3):
            sender.send_new()
        assert len(taken) == 1


def test_what_is_no_address_of_a_collector_is_refused() -> None:
    for address in ("file:///etc/passwd", "ftp://host/x", "collector:4318"):
        with pytest.raises(InvalidJob, match="not the URL of a collector"):
            otlp.send(address, {})
