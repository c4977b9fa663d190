"""What is asked again after trouble, and what never is: nothing is done twice."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from tests.unit.backends.kubernetes.test_connection import Relay
from tests.unit.kube_support import (
    A_MAP,
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
from mpijob.outbound.connection import has_data

short_pauses = pytest.fixture(autouse=True)(shortened(http))


def methods(server: FakeApi) -> list[str]:
    return [seen.method for seen in server.requests]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "trouble", [refusing(503), refusing(500), refusing(429), hanging_up], ids=["503", "500", "429", "cut"]
)
def test_reading_is_repeated_until_it_works(server: FakeApi, api: Api, trouble: Answer) -> None:
    server.maps.put("m")
    server.says(trouble, trouble)
    assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"
    assert methods(server) == ["GET"] * 3


def test_an_answer_that_breaks_off_is_asked_for_again(server: FakeApi, api: Api) -> None:
    server.maps.put("m")

    def break_off(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"metadata":')
        handler.hang_up()

    server.says(break_off)
    assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"


def test_a_kept_connection_that_the_server_has_closed_is_not_used(server: FakeApi, api: Api) -> None:
    server.says(doing(replying({}), hanging_up))
    api.get(f"{MAPS}/m")
    kept = api._transport._kept[0].connection.sock
    assert has_data(kept, 10)
    assert api.create(MAPS, A_MAP)["metadata"]["name"] == "m"
    assert methods(server) == ["GET", "POST"]


@pytest.mark.thorough
def test_repeating_ends(server: FakeApi, api: Api) -> None:
    server.says(*[refusing(503, "ServiceUnavailable", "down")] * 9)
    with pytest.raises(ApiError, match="down"):
        api.get(f"{MAPS}/m")
    assert methods(server) == ["GET"] * 5


@pytest.mark.thorough
def test_retry_after_is_honoured(server: FakeApi, api: Api) -> None:
    server.maps.put("m")
    server.says(refusing(429, "TooManyRequests", "busy", Retry_After="1"))
    began = time.monotonic()
    api.get(f"{MAPS}/m")
    assert time.monotonic() - began >= 1.0


def test_a_server_that_asks_for_too_long_a_pause_is_not_waited_for(server: FakeApi, api: Api) -> None:
    server.says(refusing(429, "TooManyRequests", "busy", Retry_After="3600"))
    with pytest.raises(ApiError) as caught:
        api.get(f"{MAPS}/m")
    assert (caught.value.status, caught.value.retry_after) == (429, 3600.0)


@pytest.mark.parametrize(
    "trouble",
    [hanging_up, refusing(504, "Timeout"), refusing(500, "InternalError")],
    ids=["cut", "504", "500"],
)
def test_a_creation_that_may_have_happened_is_not_repeated(
    server: FakeApi, api: Api, trouble: Answer
) -> None:
    server.says(trouble)
    with pytest.raises(ApiError) as caught:
        api.create(MAPS, A_MAP)
    assert caught.value.ambiguous
    assert methods(server) == ["POST"]


@pytest.mark.thorough
def test_a_creation_that_gets_no_answer_is_ambiguous(server: FakeApi) -> None:
    ended = threading.Event()
    server.says(doing(lambda _: ended.wait(10), hanging_up))
    with Api(server.access(), timeout=0.2) as api, pytest.raises(ApiError) as caught:
        api.create(MAPS, A_MAP)
    ended.set()
    assert (caught.value.ambiguous, caught.value.reason) == (True, api_errors.TIMEOUT)
    assert methods(server) == ["POST"]


def test_a_creation_that_was_surely_refused_is_not_ambiguous(server: FakeApi, api: Api) -> None:
    server.says(refusing(500, "InternalError", 'failed calling webhook "v.trainer.kubeflow.org": refused'))
    with pytest.raises(ApiError) as caught:
        api.create(MAPS, A_MAP)
    assert not caught.value.ambiguous


@pytest.mark.thorough
@pytest.mark.parametrize("trouble", [refusing(429), refusing(429, Retry_After="0")])
def test_a_creation_that_the_server_did_not_look_at_is_repeated(
    server: FakeApi, api: Api, trouble: Answer
) -> None:
    server.says(trouble)
    assert api.create(MAPS, A_MAP)["metadata"]["name"] == "m"
    assert methods(server) == ["POST", "POST"]


def test_reviews_and_dry_runs_are_repeated(server: FakeApi, api: Api) -> None:
    server.says(hanging_up)
    api.create(MAPS, A_MAP, dry_run=True)
    server.says(hanging_up)
    api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}})
    assert methods(server) == ["POST"] * 4


def test_a_merge_is_repeated_and_a_json_patch_is_not(server: FakeApi, api: Api) -> None:
    server.says(hanging_up)
    api.patch(f"{MAPS}/m", {})
    server.says(hanging_up)
    with pytest.raises(ApiError) as caught:
        api.patch(f"{MAPS}/m", [], form="json")
    assert caught.value.ambiguous
    assert methods(server) == ["PATCH"] * 3


@pytest.mark.thorough
def test_a_creation_is_repeated_when_nobody_listened(
    server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port opens while the client tries: refused connections have sent nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.4)
    listening: list[Relay] = []
    opening = threading.Timer(0.3, lambda: listening.append(Relay(port, server.port)))
    opening.start()
    try:
        with Api(server.access(server=f"https://127.0.0.1:{port}")) as api:
            assert api.create(MAPS, A_MAP)["metadata"]["name"] == "m"
    finally:
        opening.join()
        listening[0].close()
    assert methods(server) == ["POST"]


def test_a_proxy_that_tires_of_a_kept_line_is_asked_again(server: FakeApi, api: Api) -> None:
    server.maps.put("m")
    server.says(refusing(408), refusing(408))
    assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"
    server.says(refusing(408))
    with pytest.raises(ApiError):
        api.create(MAPS, A_MAP)
