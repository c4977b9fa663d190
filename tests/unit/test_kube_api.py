"""Requests and answers over real TLS on loopback: pages, retries, proxies, and nothing done twice."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kube_support import (
    MAPS,
    Answer,
    Certificates,
    FakeApi,
    Handler,
    doing,
    hanging_up,
    made_certificates,
    make_certificates,
    refusing,
    replying,
    served,
)

from mpijob.backends.kubernetes import dialling, failures, http1, transport
from mpijob.backends.kubernetes.access import Impersonation
from mpijob.backends.kubernetes.api import METADATA, TABLE, Api, ApiError
from mpijob.errors import InvalidJob

certificates = pytest.fixture(scope="session")(made_certificates)
server = pytest.fixture(served)
A_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}


@pytest.fixture
def api(server: FakeApi) -> Iterator[Api]:
    with Api(server.access()) as api:
        yield api


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.01)


def methods(server: FakeApi) -> list[str]:
    return [seen.method for seen in server.requests]


def test_an_object_is_read_over_verified_tls(server: FakeApi, api: Api) -> None:
    made = server.maps.put("m", key="value")
    assert api.get(f"{MAPS}/m") == made
    assert server.requests[0].headers["user-agent"] == "mpijob"


def test_what_is_not_there_is_none_for_find_and_an_error_for_get(api: Api) -> None:
    assert api.find(f"{MAPS}/absent") is None
    with pytest.raises(ApiError) as caught:
        api.get(f"{MAPS}/absent")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert caught.value.details["name"] == "absent"


def test_connections_are_kept_for_the_next_request(server: FakeApi, api: Api) -> None:
    ports: set[Any] = set()
    server.says(*[doing(lambda handler: ports.add(handler.client_address), replying({}))] * 3)
    for _ in range(3):
        api.get(f"{MAPS}/m")
    assert len(ports) == 1


def test_a_list_comes_in_pages_of_one_version(server: FakeApi, api: Api) -> None:
    for number in range(7):
        server.maps.put(f"m{number}")
    listing = api.list(MAPS, chunk=3, labels="a=b", fields="metadata.name!=x")
    assert [item["metadata"]["name"] for item in listing.items] == [f"m{number}" for number in range(7)]
    assert listing.version == str(server.maps.version)
    assert [seen.query.get("limit") for seen in server.requests] == ["3", "3", "3"]
    assert {seen.query["labelSelector"] for seen in server.requests} == {"a=b"}
    assert {seen.query["fieldSelector"] for seen in server.requests} == {"metadata.name!=x"}


def test_a_list_that_expires_between_pages_is_begun_again(server: FakeApi, api: Api) -> None:
    for number in range(4):
        server.maps.put(f"m{number}")

    def forgetful(item: dict[str, Any]) -> dict[str, Any]:
        if "m4" not in server.maps.objects:
            server.maps.put("m4")
            server.maps.forget()
        return item

    listing = api.list(MAPS, chunk=2, trim=forgetful)
    assert [item["metadata"]["name"] for item in listing.items] == [f"m{number}" for number in range(5)]
    assert [seen.query.get("continue", "")[:3] for seen in server.requests] == ["", "104", "", "105", "105"]


def test_objects_are_trimmed_page_by_page(server: FakeApi, api: Api) -> None:
    server.maps.put("m", large="x" * 1000)
    listing = api.list(MAPS, trim=lambda item: {"metadata": item["metadata"]})
    assert [sorted(item) for item in listing.items] == [["metadata"]]


def test_tables_and_bare_metadata_can_be_asked_for(server: FakeApi, api: Api) -> None:
    table = {
        "metadata": {"resourceVersion": "5"},
        "columnDefinitions": [{"name": "Name"}],
        "rows": [{"cells": ["m"]}],
    }
    server.says(replying(table))
    listing = api.list(MAPS, accept=TABLE)
    assert (listing.items, listing.columns, listing.version) == ([{"cells": ["m"]}], ({"name": "Name"},), "5")
    api.list(MAPS, accept=METADATA)
    assert [seen.headers["accept"] for seen in server.requests] == [TABLE, METADATA]


@pytest.mark.parametrize(("near", "asked"), [(60.0, None), (0.0, "gzip")], ids=["near", "far"])
def test_answers_of_far_servers_are_compressed(
    server: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch, near: float, asked: str | None
) -> None:
    monkeypatch.setattr(dialling, "NEAR_SECONDS", near)
    body = gzip.compress(json.dumps({"data": "x" * 5000}).encode())
    server.says(replying(body, Content_Encoding="gzip"))
    assert api.get(f"{MAPS}/m") == {"data": "x" * 5000}
    assert server.requests[0].headers.get("accept-encoding") == asked


def test_creating_names_its_manager_and_can_be_a_dry_run(server: FakeApi, api: Api) -> None:
    assert api.create(MAPS, A_MAP, dry_run=True)["metadata"] == {"name": "m"}
    seen = server.requests[0]
    assert (seen.method, seen.query) == ("POST", {"fieldManager": "mpijob", "dryRun": "All"})
    assert json.loads(seen.body) == A_MAP


@pytest.mark.parametrize(
    ("form", "content", "force"),
    [
        ("merge", "application/merge-patch+json", None),
        ("json", "application/json-patch+json", None),
        ("strategic", "application/strategic-merge-patch+json", None),
        ("apply", "application/apply-patch+yaml", "true"),
    ],
)
def test_each_form_of_patch_says_what_it_is(
    server: FakeApi, api: Api, form: Any, content: str, force: str | None
) -> None:
    api.patch(f"{MAPS}/m", {"data": {}}, form=form)
    seen = server.requests[0]
    assert (seen.method, seen.headers["content-type"], seen.query.get("force")) == ("PATCH", content, force)


def test_deleting_carries_grace_propagation_and_identity(server: FakeApi, api: Api) -> None:
    api.delete(f"{MAPS}/m", grace_seconds=0, propagation="Foreground", uid="u-1")
    assert json.loads(server.requests[0].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u-1"},
    }


def test_deleting_what_is_gone_or_replaced_is_no_error(server: FakeApi, api: Api) -> None:
    replaced = "Precondition failed: the UID in the precondition (a) does not match the UID in record (b)"
    server.says(
        refusing(404, "NotFound"), refusing(409, "Conflict", replaced), refusing(409, "Conflict", "other")
    )
    assert api.delete(f"{MAPS}/m") is None
    assert api.delete(f"{MAPS}/m", uid="a") is None
    with pytest.raises(ApiError, match="other"):
        api.delete(f"{MAPS}/m", uid="a")


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
    assert http1.readable(kept, time.monotonic() + 10)
    assert api.create(MAPS, A_MAP)["metadata"]["name"] == "m"
    assert methods(server) == ["GET", "POST"]


def test_repeating_ends(server: FakeApi, api: Api) -> None:
    server.says(*[refusing(503, "ServiceUnavailable", "down")] * 9)
    with pytest.raises(ApiError, match="down"):
        api.get(f"{MAPS}/m")
    assert methods(server) == ["GET"] * 5


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


def test_a_creation_that_gets_no_answer_is_ambiguous(server: FakeApi) -> None:
    ended = threading.Event()
    server.says(doing(lambda _: ended.wait(10), hanging_up))
    with Api(server.access(), timeout=0.2) as api, pytest.raises(ApiError) as caught:
        api.create(MAPS, A_MAP)
    ended.set()
    assert (caught.value.ambiguous, caught.value.reason) == (True, failures.TIMEOUT)
    assert methods(server) == ["POST"]


def test_a_creation_that_was_surely_refused_is_not_ambiguous(server: FakeApi, api: Api) -> None:
    server.says(refusing(500, "InternalError", 'failed calling webhook "v.trainer.kubeflow.org": refused'))
    with pytest.raises(ApiError) as caught:
        api.create(MAPS, A_MAP)
    assert not caught.value.ambiguous


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


def test_a_creation_is_repeated_when_nobody_listened(
    server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port opens while the client tries: refused connections have sent nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.4)
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


def test_a_server_that_is_not_there_is_told_with_its_address(server: FakeApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"https://127.0.0.1:{free.getsockname()[1]}"
    with Api(server.access(server=address)) as api, pytest.raises(ApiError) as caught:
        api.get(MAPS)
    assert caught.value.reason == failures.REFUSED
    assert caught.value.message == f"{address} cannot be reached: Connection refused"
    assert "context 'lab'" in caught.value.hint


@pytest.mark.security
def test_a_server_with_another_authority_gets_no_token(server: FakeApi, tmp_path: Any) -> None:
    other = make_certificates(tmp_path).text("ca.crt")
    with Api(server.access(ca=other, token="secret")) as api, pytest.raises(ApiError) as caught:
        api.get(MAPS)
    assert caught.value.reason == failures.CERTIFICATE
    assert "is not the server that the kubeconfig means" in caught.value.message
    assert server.requests == []


def test_a_server_may_be_trusted_unseen(server: FakeApi) -> None:
    with Api(server.access(ca="", insecure=True)) as api:
        assert api.list(MAPS).items == []


def test_a_name_that_nobody_knows_is_not_asked_for_again(server: FakeApi) -> None:
    with Api(server.access(server="https://no-such-host.invalid")) as api, pytest.raises(ApiError) as caught:
        api.list(MAPS)
    assert caught.value.reason in (failures.UNKNOWN_HOST, failures.UNREACHABLE)
    assert "no-such-host.invalid: the name is unknown" in caught.value.message


@pytest.mark.parametrize(
    "ca", ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_authority_that_is_no_certificate_is_told(server: FakeApi, ca: str) -> None:
    with (
        Api(server.access(ca=ca, cluster="lab")) as api,
        pytest.raises(ApiError, match="authority of cluster 'lab'"),
    ):
        api.list(MAPS)


@pytest.mark.security
def test_the_server_must_have_the_name_that_was_dialled(server: FakeApi) -> None:
    with Api(server.access(tls_server_name="other.test")) as api, pytest.raises(ApiError) as caught:
        api.get(MAPS)
    assert caught.value.reason == failures.CERTIFICATE
    with Api(server.access(tls_server_name="api.test")) as api:
        assert api.list(MAPS).items == []


def test_a_client_certificate_identifies_the_user(server: FakeApi, certificates: Certificates) -> None:
    access = server.access(certificate=certificates.text("alice.crt"), key=certificates.text("alice.key"))
    with Api(access) as api:
        api.list(MAPS)
    assert server.requests[0].peer == "alice"


def test_a_certificate_without_its_key_is_told(server: FakeApi, certificates: Certificates) -> None:
    access = server.access(
        certificate=certificates.text("alice.crt"), key=certificates.text("ca.key"), user="u"
    )
    with Api(access) as api, pytest.raises(ApiError, match="certificate of user 'u'"):
        api.list(MAPS)


def test_a_server_below_a_path_works(certificates: Certificates) -> None:
    server = FakeApi(certificates, root="/k8s/clusters/c-m-1")
    try:
        server.maps.put("m")
        with Api(server.access()) as api:
            assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"
        assert server.requests[0].path == f"/k8s/clusters/c-m-1{MAPS}/m"
    finally:
        server.close()


def test_somebody_can_be_impersonated(server: FakeApi) -> None:
    who = Impersonation("carol", "7", ("team-a", "team-b"), {"reason": ("test",), "a.b/c: d": ("e",)})
    headers: list[str] = []
    server.says(doing(lambda handler: headers.extend(map(str, handler.headers.items())), replying({})))
    with Api(server.access(impersonate=who)) as api:
        api.get(f"{MAPS}/m")
    shown = "".join(headers)
    for part in (
        "('Impersonate-User', 'carol')",
        "'team-a'",
        "'team-b'",
        "('Impersonate-Extra-reason', 'test')",
        "('Impersonate-Extra-a.b%2Fc%3A%20d', 'e')",
    ):
        assert part in shown


@pytest.mark.security
@pytest.mark.parametrize("name", ["..", ".", "", "../../secrets/x"])
def test_a_name_cannot_lead_to_another_address(server: FakeApi, api: Api, name: str) -> None:
    with pytest.raises(InvalidJob, match="no address"):
        api.delete(f"{MAPS}/{name}")
    assert server.requests == []


@pytest.mark.security
def test_a_name_cannot_smuggle_a_query_or_a_header(server: FakeApi, api: Api) -> None:
    assert api.find(f"{MAPS}/m?dryRun=All#\r\nX-Evil: 1") is None
    seen = server.requests[0]
    assert (seen.query, "x-evil" in seen.headers) == ({}, False)


@pytest.mark.security
@pytest.mark.parametrize(
    "changed",
    [{"token": "t\r\nX-Evil: 1"}, {"impersonate": Impersonation(user="jane\nImpersonate-Group: admins")}],
    ids=["token", "user"],
)
def test_what_would_be_two_headers_is_told_and_not_sent(server: FakeApi, changed: dict[str, Any]) -> None:
    with Api(server.access(**changed)) as api, pytest.raises(ApiError, match="more than one line") as caught:
        api.create(MAPS, A_MAP)
    assert (caught.value.reason, caught.value.ambiguous) == (failures.UNSAYABLE, False)
    assert "Evil" not in caught.value.message
    assert server.requests == []


@pytest.mark.parametrize(
    "trouble",
    [
        replying(b"this is not packed", Content_Encoding="gzip"),
        lambda handler: handler.wfile.write(b"220 mail.test ESMTP\r\n\r\n"),
        lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
    ],
    ids=["not packed", "no HTTP", "no chunk"],
)
def test_a_server_that_does_not_speak_http_is_told_as_one_and_asked_once(
    server: FakeApi, api: Api, trouble: Answer
) -> None:
    server.says(trouble)
    with pytest.raises(ApiError, match="does not speak HTTP") as caught:
        api.get(f"{MAPS}/m")
    assert caught.value.reason == failures.NO_API
    assert len(server.requests) == 1
    assert api._transport._kept == []


def test_a_proxy_that_tires_of_a_kept_line_is_asked_again(server: FakeApi, api: Api) -> None:
    server.maps.put("m")
    server.says(refusing(408), refusing(408))
    assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"
    server.says(refusing(408))
    with pytest.raises(ApiError):
        api.create(MAPS, A_MAP)


def test_something_that_is_no_api_is_recognised(server: FakeApi, api: Api) -> None:
    server.says(replying(b"<html>log in</html>"), replying(b"<html>log in</html>", 302, Location="http://x"))
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            api.get(MAPS)
        assert "<html>" not in caught.value.message
    assert len(server.requests) == 2


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
    assert (caught.value.status, caught.value.reason) == (0, failures.CUT)


@pytest.fixture
def silence(server: FakeApi) -> Iterator[Callable[[Answer], None]]:
    """Answer the next request with a beginning, then with nothing until the test is over."""
    over = threading.Event()

    def begin(first: Answer) -> None:
        server.says(doing(first, lambda _: over.wait(20), hanging_up))

    yield begin
    over.set()


def test_a_silent_stream_ends_when_its_time_is_up(server: FakeApi, api: Api, silence: Any) -> None:
    silence(doing(Handler.begin_chunks, lambda handler: handler.chunk(b"one\n")))
    stream = api.lines(f"{MAPS}/m/log", idle_seconds=0.2)
    assert next(stream) == b"one\n"
    assert not stream.wait(0.05)
    with pytest.raises(ApiError) as caught:
        next(stream)
    assert caught.value.reason == failures.IDLE


@pytest.mark.parametrize("head", [True, False], ids=["after its head", "before its head"])
def test_a_waiting_stream_is_closed_from_another_thread(
    api: Api, silence: Any, head: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_ANSWER_SECONDS", 0.2)
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


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_a_body_is_the_same_however_it_was_framed_and_cut(parts: list[bytes], cuts: list[int]) -> None:
    framed = b"".join(b"%x;ext\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nA: b\r\n\r\n"
    body = http1.Body(http1.Head(200, {}, chunked=True))
    read, at, turn = b"", 0, 0
    while not body.over:
        size = cuts[turn % len(cuts)]
        read += body.feed(framed[at : at + size])
        at, turn = at + size, turn + 1
    assert (read, body.surplus) == (b"".join(parts), b"")


def test_many_threads_share_one_api(server: FakeApi, api: Api) -> None:
    for number in range(20):
        server.maps.put(f"m{number}")
    wrong: list[str] = []

    def read(number: int) -> None:
        for _ in range(5):
            if api.get(f"{MAPS}/m{number}")["metadata"]["name"] != f"m{number}":
                wrong.append(f"m{number}")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (wrong, len(server.requests)) == ([], 100)


class Relay:
    """Passes bytes on: a port that opens late, and a proxy."""

    def __init__(
        self, port: int, target: int, *, greet: Callable[[socket.socket], None] | None = None
    ) -> None:
        self.door = socket.create_server(("127.0.0.1", port))
        self.port = self.door.getsockname()[1]
        self.target = target
        self.greet = greet
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.door.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self.door.accept()
            except OSError:
                return
            if self.greet:
                self.greet(caller)
            callee = socket.create_connection(("127.0.0.1", self.target))
            for pair in ((caller, callee), (callee, caller)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_a_proxy_is_asked_for_a_tunnel_and_told_its_password(server: FakeApi) -> None:
    heads: list[bytes] = []

    def greet(line: socket.socket) -> None:
        heads.append(line.recv(4096))
        line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")

    relay = Relay(0, server.port, greet=greet)
    with Api(server.access(proxy=f"http://me:p%40ss@127.0.0.1:{relay.port}")) as api:
        assert api.list(MAPS).items == []
    relay.close()
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==\r\n" in heads[0]


def test_a_socks_proxy_is_passed_through(server: FakeApi) -> None:
    asked: list[bytes] = []

    def greet(line: socket.socket) -> None:
        line.recv(16)
        line.sendall(b"\x05\x00")
        asked.append(line.recv(512))
        line.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")

    relay = Relay(0, server.port, greet=greet)
    with Api(server.access(proxy=f"socks5://127.0.0.1:{relay.port}")) as api:
        assert api.list(MAPS).items == []
    relay.close()
    assert asked == [b"\x05\x01\x00\x03\x09127.0.0.1" + server.port.to_bytes(2, "big")]


@pytest.mark.security
def test_a_proxy_that_refuses_is_told_without_its_password(server: FakeApi) -> None:
    relay = Relay(0, server.port, greet=lambda line: line.sendall(b"HTTP/1.1 407 Who are you\r\n\r\n"))
    with (
        Api(server.access(proxy=f"http://me:hush@127.0.0.1:{relay.port}")) as api,
        pytest.raises(ApiError) as caught,
    ):
        api.list(MAPS)
    relay.close()
    assert f"through the proxy http://127.0.0.1:{relay.port}" in caught.value.message
    assert "407 Who are you" in caught.value.message
    assert "hush" not in str(caught.value)


def names(server: FakeApi) -> list[str]:
    return [request.path.rpartition("/")[2] for request in server.requests]


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "NEAR_SECONDS", 60.0)


@pytest.mark.usefixtures("near")
def test_a_near_server_is_asked_several_things_in_one_go(server: FakeApi, api: Api) -> None:
    server.maps.put("a")
    server.maps.put("b")
    with api.ahead([(f"{MAPS}/a", {}), (f"{MAPS}/gone", {}), (MAPS, {"limit": "2500"})]):
        assert names(server) == ["a", "gone", "configmaps"]
        assert [len(api.raws(MAPS)), api.find(f"{MAPS}/gone")] == [2, None]
        assert api.get(f"{MAPS}/a")["metadata"]["name"] == "a"
        assert len(server.requests) == 3
        assert api.get(f"{MAPS}/a")["metadata"]["name"] == "a"  # an answer is used once
    assert names(server) == ["a", "gone", "configmaps", "a"]
    assert len(api._transport._kept) == 1


@pytest.mark.usefixtures("near")
def test_what_was_asked_ahead_and_not_used_is_forgotten(server: FakeApi, api: Api) -> None:
    server.maps.put("a")
    with api.ahead([(f"{MAPS}/a", {})]):
        pass
    server.maps.put("a", new="yes")
    assert api.get(f"{MAPS}/a")["data"] == {"new": "yes"}


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("trouble", [hanging_up, refusing(503, "ServiceUnavailable", "down")])
def test_what_is_not_answered_ahead_is_asked_again(server: FakeApi, api: Api, trouble: Answer) -> None:
    server.maps.put("a")
    server.says(replying({"first": "yes"}), trouble)
    with api.ahead([(f"{MAPS}/a", {"limit": "1"}), (f"{MAPS}/a", {})]):
        assert api.get(f"{MAPS}/a", limit="1") == {"first": "yes"}
        assert api.get(f"{MAPS}/a")["metadata"]["name"] == "a"


@pytest.mark.usefixtures("near")
def test_what_was_asked_ahead_answers_only_the_same_question(server: FakeApi, api: Api) -> None:
    packed = gzip.compress(b'{"metadata": {}, "items": []}')
    server.says(replying(packed, Content_Encoding="gzip"), replying({"metadata": {}, "rows": [{}]}))
    with api.ahead([(MAPS, {"limit": "500"})]):
        assert len(api.list(MAPS, accept=TABLE).items) == 1
        assert api.list(MAPS).items == []
    assert len(server.requests) == 2


@pytest.mark.usefixtures("near")
def test_a_server_that_goes_away_ahead_is_told_when_it_is_asked(
    server: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.maps.put("a")
    api.get(f"{MAPS}/a")
    api._transport._kept.pop().connection.close()
    dial, tries = dialling.Dialler.dial, iter([True])

    def gone_once(dialler: Any, proof: Any, timeout: float = 10.0) -> Any:
        if next(tries, False):
            raise ApiError("nobody is there", reason=failures.REFUSED)
        return dial(dialler, proof, timeout)

    monkeypatch.setattr(dialling.Dialler, "dial", gone_once)
    with api.ahead([(f"{MAPS}/a", {})]):
        assert api.get(f"{MAPS}/a")["metadata"]["name"] == "a"


def test_a_far_server_is_asked_when_it_is_time(
    server: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "NEAR_SECONDS", 0.0)
    server.maps.put("a")
    with api.ahead([(f"{MAPS}/a", {})]):
        assert server.requests == []
        assert api.get(f"{MAPS}/a")["metadata"]["name"] == "a"
    assert api.lanes() == 16
