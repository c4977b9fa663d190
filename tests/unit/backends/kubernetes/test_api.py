"""Requests and answers over real TLS on loopback: objects, pages, patches, hostile names."""

from __future__ import annotations

import gzip
import json
import threading
from typing import Any

import pytest
from tests.unit.kube_support import (
    A_MAP,
    MAPS,
    Answer,
    FakeApi,
    Handler,
    doing,
    refusing,
    replying,
    shortened,
)

from mpijob.backends.kubernetes.auth.access import Impersonation
from mpijob.backends.kubernetes.client import api_errors, connection, http
from mpijob.backends.kubernetes.client.api import METADATA, TABLE, Api, ApiError
from mpijob.errors import InvalidJob

short_pauses = pytest.fixture(autouse=True)(shortened(http))


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.parametrize(("near", "asked"), [(60.0, "identity"), (0.0, "gzip")], ids=["near", "far"])
def test_answers_of_far_servers_are_compressed(
    server: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch, near: float, asked: str
) -> None:
    monkeypatch.setattr(connection, "NEAR_SECONDS", near)
    body = gzip.compress(json.dumps({"data": "x" * 5000}).encode())
    server.says(replying(body, Content_Encoding="gzip"))
    assert api.get(f"{MAPS}/m") == {"data": "x" * 5000}
    assert server.requests[0].headers.get("accept-encoding") == asked


def test_creating_names_its_manager_and_can_be_a_dry_run(server: FakeApi, api: Api) -> None:
    assert api.create(MAPS, A_MAP, dry_run=True)["metadata"] == {"name": "m"}
    seen = server.requests[0]
    assert (seen.method, seen.query) == ("POST", {"fieldManager": "mpijob", "dryRun": "All"})
    assert json.loads(seen.body) == A_MAP


@pytest.mark.thorough
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
    with pytest.raises(InvalidJob, match="not a valid Kubernetes API path"):
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
    with Api(server.access(**changed)) as api, pytest.raises(ApiError, match="line break") as caught:
        api.create(MAPS, A_MAP)
    assert (caught.value.reason, caught.value.ambiguous) == (api_errors.UNSAYABLE, False)
    assert "Evil" not in caught.value.message
    assert server.requests == []


@pytest.mark.thorough
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
    with pytest.raises(ApiError, match="does not respond like a Kubernetes API server") as caught:
        api.get(f"{MAPS}/m")
    assert caught.value.reason == api_errors.NO_API
    assert len(server.requests) == 1
    assert api._transport._kept == []


def test_something_that_is_no_api_is_recognised(server: FakeApi, api: Api) -> None:
    server.says(replying(b"<html>log in</html>"), replying(b"<html>log in</html>", 302, Location="http://x"))
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            api.get(MAPS)
        assert "<html>" not in caught.value.message
    assert len(server.requests) == 2


@pytest.mark.thorough
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


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "NEAR_SECONDS", 60.0)


@pytest.mark.usefixtures("near")
def test_a_near_server_is_asked_one_thing_after_the_other(server: FakeApi, api: Api) -> None:
    assert api.lanes(near=1) == 1
    assert len(api._transport._kept) == 1


def test_a_far_server_is_asked_side_by_side(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "NEAR_SECONDS", 0.0)
    assert api.lanes() == 16


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("size", [0, 8100, 16300, 65400, 90_000])
def test_an_answer_that_nobody_asked_for_is_given_to_nobody(server: FakeApi, api: Api, size: int) -> None:
    server.maps.put("m")
    evil = json.dumps({"metadata": {"name": "evil"}}).encode()
    smuggled = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(evil), evil)

    def two_answers(handler: Handler) -> None:
        body = json.dumps({"data": "x" * size}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        handler.wfile.write(head + body + smuggled * 2000)

    server.says(two_answers)
    assert api.get(f"{MAPS}/first") == {"data": "x" * size}
    for _ in range(3):
        assert api.get(f"{MAPS}/m")["metadata"]["name"] == "m"


@pytest.mark.security
@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_has_a_limit(
    server: FakeApi, api: Api, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(http, "_MAX_BYTES", 5000)
    body = json.dumps({"data": "x" * 9000}).encode()
    server.says(replying(gzip.compress(body), Content_Encoding="gzip") if packed else replying(body))
    with pytest.raises(ApiError, match=r"larger than 5000 bytes|too large") as caught:
        api.get(f"{MAPS}/m")
    assert caught.value.reason == api_errors.NO_API
    assert len(server.requests) == 1


def test_headers_that_are_repeated_are_one_list(server: FakeApi, api: Api) -> None:
    server.says(replying({}, Warning="a", warning="b"))
    assert api._transport.send(http.Request("GET", MAPS)).headers["warning"] == "a, b"
