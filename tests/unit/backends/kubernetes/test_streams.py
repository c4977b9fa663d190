"""Lines that an API server streams: whole, bounded, and ended by a cut, by silence or by whoever reads them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.kube_support import (
    MAPS,
    Answer,
    FakeApi,
    Handler,
    doing,
    hanging_up,
    refusing,
    replying,
    shortened,
)

from mpijob.backends.kubernetes.client import api_errors, http
from mpijob.backends.kubernetes.client.api import Api, ApiError

short_pauses = pytest.fixture(autouse=True)(shortened(http))


def lines(*parts: bytes) -> Answer:
    def answer(handler: Handler) -> None:
        handler.begin_chunks()
        for part in parts:
            handler.chunk(part)
        handler.chunk(b"")

    return answer


def test_lines_arrive_whole_however_they_were_cut(server: FakeApi, api: Api) -> None:
    server.says(lines(b"one\ntw", b"o\n\nth", b"ree\n", b"last"))
    with api.lines(f"{MAPS}/m/log", follow="true") as stream:
        assert list(stream) == [b"one\n", b"two\n", b"\n", b"three\n", b"last"]


def test_an_answer_of_known_length_streams_too(server: FakeApi, api: Api) -> None:
    server.says(replying(b"one\ntwo"), replying(b""))
    assert list(api.lines(f"{MAPS}/m/log")) == [b"one\n", b"two"]
    assert list(api.lines(f"{MAPS}/m/log")) == []


@pytest.mark.security
def test_an_endless_line_is_shortened_and_counted(server: FakeApi, api: Api) -> None:
    server.says(lines(*[b"x" * 60000] * 40, b"\nnext\n"))
    first, second = api.lines(f"{MAPS}/m/log", longest=1000)
    assert first == b"x" * 1000 + b" [2399000 bytes left out]\n"
    assert second == b"next\n"


def test_a_stream_that_is_cut_says_so_after_what_arrived(server: FakeApi, api: Api) -> None:
    def cut(handler: Handler) -> None:
        handler.begin_chunks()
        handler.chunk(b"one\n")
        handler.hang_up()

    server.says(cut)
    stream = api.lines(f"{MAPS}/m/log")
    assert next(stream) == b"one\n"
    with pytest.raises(ApiError) as caught:
        next(stream)
    assert (caught.value.status, caught.value.reason) == (0, api_errors.CUT)


@pytest.fixture
def silence(server: FakeApi) -> Iterator[Callable[[Answer], None]]:
    """Answer the next request with a beginning, then with nothing until the test is over."""
    over = threading.Event()

    def begin(first: Answer) -> None:
        server.says(doing(first, lambda _: over.wait(20), hanging_up))

    yield begin
    over.set()


@pytest.mark.thorough
def test_a_silent_stream_ends_when_its_time_is_up(server: FakeApi, api: Api, silence: Any) -> None:
    silence(doing(Handler.begin_chunks, lambda handler: handler.chunk(b"one\n")))
    stream = api.lines(f"{MAPS}/m/log", idle_seconds=0.2)
    assert next(stream) == b"one\n"
    with pytest.raises(ApiError) as caught:
        next(stream)
    assert caught.value.reason == api_errors.IDLE


@pytest.mark.thorough
@pytest.mark.parametrize("head", [True, False], ids=["after its head", "before its head"])
def test_a_waiting_stream_is_closed_from_another_thread(
    api: Api, silence: Any, head: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_FIRST_BYTE_SECONDS", 0.2)
    silence(lambda handler: handler.begin_chunks() if head else None)
    stream = api.lines(f"{MAPS}/m/log")
    threading.Timer(0.1, stream.close).start()
    began = time.monotonic()
    assert list(stream) == []
    assert time.monotonic() - began < 5


def test_a_refused_stream_is_an_error_at_once(server: FakeApi, api: Api) -> None:
    server.says(refusing(400, "BadRequest", "container is waiting to start"))
    with pytest.raises(ApiError, match="waiting to start"):
        api.lines(f"{MAPS}/m/log")
