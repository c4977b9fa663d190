"""A server for everybody whom a cluster knows: nobody is believed, and everybody sees what is theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from tests.unit.api_town import HOST, Person, Town, at

from mpijob.api.auth.cluster_token import FORWARDED
from mpijob.api.auth.sessions import CSRF_HEADER
from mpijob.api.openapi import PREFIX
from mpijob.api.request_context import Route
from mpijob.api.routes import ROUTES
from mpijob.client.multiuser.sessions import DENIED_SECONDS, FRESH_SECONDS, REJECTED_SECONDS
from mpijob.errors import BackendError

pytestmark = pytest.mark.security

CLOSED = [route for route in ROUTES if not route.open]
OF_A_JOB = [route for route in CLOSED if "{name}" in route.path]
FLOWING = [route for route in ROUTES if route.flow is not None]
IMPOSTORS: list[dict[str, str]] = [
    {},
    {FORWARDED: ""},
    {FORWARDED: "guessed"},
    {"authorization": "Bearer guessed"},
    {"authorization": "Basic YWxpY2U6YWxpY2U="},
    {"x-forwarded-user": "alice", "x-remote-user": "alice", "impersonate-user": "alice"},
    {"cookie": "mpijob-session=alice; _oauth_proxy=alice"},
    {FORWARDED: "alice-token and more"},
    {FORWARDED: "a" * 20_000},
]


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


def ask(http: TestClient, route: Route, headers: dict[str, str], namespace: str = "a") -> Any:
    path = re.sub(r"\{\w+\}", "a", route.path.replace("{namespace}", namespace))
    if "{name}" in route.path and "{namespace}" not in route.path:
        path += f"?namespace={namespace}"
    if route.path.endswith("/artifact"):
        path += ("&" if "?" in path else "?") + "path=a"
    sent = {"content": b"{}", "headers": {"content-type": "application/json"} | headers}
    return http.request(route.method, PREFIX + path, **sent)  # type: ignore[arg-type]  # the test client's own words


@pytest.fixture(scope="module")
def town() -> Town:
    return Town()


@pytest.fixture(scope="module")
def http(town: Town) -> Iterator[TestClient]:
    room = town.room()
    room.limits.count = lambda user: None  # type: ignore[method-assign]  # the table is longer than a burst
    with at(room) as http:
        yield http


@pytest.mark.thorough
@pytest.mark.req("D-api", "FR-INT-005")
@pytest.mark.parametrize("route", CLOSED, ids=name)
def test_a_verb_refuses_whom_the_cluster_does_not_know(http: TestClient, route: Route) -> None:
    for sent in IMPOSTORS:
        answer = ask(http, route, sent)
        assert (answer.status_code, answer.json()["code"]) == (401, "NOT_ALLOWED"), sent
        assert "sign in" in answer.json()["hint"]


@pytest.mark.thorough
@pytest.mark.parametrize("route", [one for one in CLOSED if one.changes], ids=name)
def test_a_change_needs_the_word_of_the_same_person(http: TestClient, route: Route) -> None:
    alice, bob = Person(http, "alice-token"), Person(http, "bob-token")
    for sent in (
        {CSRF_HEADER: ""},
        {CSRF_HEADER: bob.headers[CSRF_HEADER]},
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
    ):
        assert ask(http, route, alice.headers | sent).status_code == 403, sent


@pytest.mark.thorough
@pytest.mark.req("FR-INT-005", "FR-023")
@pytest.mark.parametrize("route", OF_A_JOB, ids=name)
def test_a_job_of_a_namespace_that_is_not_theirs_is_refused_with_the_missing_right(
    http: TestClient, route: Route
) -> None:
    alice = Person(http, "alice-token")
    answer = ask(http, route, alice.headers, "team-b")
    assert answer.status_code == 403
    assert (
        "User 'alice' lacks 'list' permission for MPIJobs in namespace 'team-b'" in answer.json()["message"]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_a_verb_answers_for_its_own_host_alone(http: TestClient, route: Route) -> None:
    alice = Person(http, "alice-token")
    assert ask(http, route, alice.headers | {"host": "evil.example"}).status_code == 421


# -- what each of them sees -----------------------------------------------------------------------
@pytest.fixture
def place() -> Iterator[tuple[Town, TestClient]]:
    town = Town()
    with at(town.room()) as http:
        yield town, http


@pytest.mark.thorough
@pytest.mark.req("FR-INT-005", "B-story5")
def test_everybody_sees_the_jobs_of_their_own_namespaces(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice, bob, root = (Person(http, f"{one}-token") for one in ("alice", "bob", "root"))
    assert alice.create("one", "team-a").status_code == 201
    assert bob.create("two", "team-b").status_code == 201
    assert (alice.names(), bob.names(), sorted(root.names())) == (["one"], ["two"], ["one", "two"])
    seen = alice.get("/trainjobs").json()
    assert (seen["total"], seen["namespaces"], sum(seen["counts"].values())) == (1, ["team-a"], 1)
    assert alice.get("/overview").json()["namespaces"][0]["name"] == "team-a"
    assert alice.get("/compare?job=team-a/one&job=team-b/two").status_code == 403
    assert alice.get("/accounts?namespace=team-b").status_code == 403
    assert alice.get("/queues?namespace=team-b").status_code == 403
    told = alice.post("/bulk", {"action": "cancel", "jobs": ["team-a/one", "team-b/two"]}).json()["items"]
    assert [one["problem"] is None for one in told] == [True, False]


def test_a_remembered_page_is_for_those_who_see_the_same(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice, bob = Person(http, "alice-token"), Person(http, "bob-token")
    alice.create("one", "team-a")
    tags = (
        alice.get("/trainjobs").headers["etag"] for _ in range(50)
    )  # the job itself may still be changing
    tag = next(one for one in tags if alice.get("/trainjobs", **{"if-none-match": one}).status_code == 304)
    answer = bob.get("/trainjobs", **{"if-none-match": tag})
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_a_person_begins_in_a_namespace_of_their_own(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice, root = Person(http, "alice-token"), Person(http, "root-token")
    told = alice.get("/capabilities").json()
    assert (told["namespace"], told["signs_in"], told["user"]) == ("team-a", "login", "alice")
    assert (told["administrator"], told["keeps_templates"]) == (False, False)
    assert root.get("/capabilities").json()["administrator"] is True
    offered = alice.get("/choices").json()
    assert [one["name"] for one in offered["projects"]] == ["team-a"]
    assert [one["name"] for one in root.get("/choices").json()["projects"]] == ["team-a", "team-b"]


def test_what_belongs_to_one_machine_is_not_offered_on_a_server(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice = Person(http, "alice-token")
    assert http.post(f"{PREFIX}/session", json={"token": "x"}).status_code == 404
    assert alice.post("/session/links").status_code == 404
    kept = alice.post("/templates", {"name": "mine", "yaml": "name: a\ncommand: [a]\n"})
    assert (kept.status_code, kept.json()["code"]) == (501, "UNSUPPORTED")
    assert {one["origin"] for one in alice.get("/templates").json()["items"]} == {"library"}
    assert alice.get("/opinions").status_code == 403


@pytest.mark.req("PMV-010")
def test_templates_of_a_namespace_are_for_those_who_may_see_it(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice, bob = Person(http, "alice-token"), Person(http, "bob-token")
    body = {"name": "ours", "yaml": "name: a\ncommand: [a]\n", "share": True, "namespace": "team-a"}
    assert alice.post("/templates", body).status_code == 201
    assert bob.post("/templates", body).status_code == 403
    assert bob.get("/templates?namespace=team-a").status_code == 403
    assert "ours" in {one["name"] for one in alice.get("/templates?namespace=team-a").json()["items"]}
    assert "ours" not in {one["name"] for one in bob.get("/templates?namespace=team-b").json()["items"]}


def test_a_right_is_asked_for_again_after_half_a_minute(place: tuple[Town, TestClient]) -> None:
    town, http = place
    alice = Person(http, "alice-token")
    alice.create("one", "team-a")
    assert alice.names() == ["one"]
    town.people["alice-token"] = ("alice", frozenset())
    town.now += FRESH_SECONDS + 1
    assert alice.names() == []
    assert alice.get("/trainjobs/team-a/one").status_code == 403
    town.people["alice-token"] = ("alice", frozenset({"team-a"}))
    town.now += 2
    assert (
        alice.get("/trainjobs/team-a/one").status_code == 200
    )  # what is asked for by name is looked at anew
    town.now += DENIED_SECONDS
    assert alice.names() == ["one"]


def test_many_questions_in_a_row_ask_the_cluster_once(place: tuple[Town, TestClient]) -> None:
    town, http = place
    alice = Person(http, "alice-token")
    alice.create("one", "team-a")
    alice.names()
    before = town.asked
    for _ in range(20):
        assert alice.names() == ["one"]
    assert town.asked == before


@pytest.mark.req("AC5")
def test_a_login_that_ended_is_said_with_the_way_back(place: tuple[Town, TestClient]) -> None:
    town, http = place
    alice = Person(http, "alice-token")
    assert alice.names() == []
    del town.people["alice-token"]
    town.now += FRESH_SECONDS + 1
    answer = alice.get("/trainjobs")
    assert (answer.status_code, answer.json()["hint"]) == (401, "sign in again")


def test_a_cluster_that_is_gone_is_said_and_nothing_is_shown_unasked(place: tuple[Town, TestClient]) -> None:
    town, http = place
    alice = Person(http, "alice-token")
    alice.create("one", "team-a")
    assert alice.names() == ["one"]
    town.outage = BackendError("the API server cannot be reached", passing=True)
    assert alice.names() == ["one"]  # allowed a moment ago
    town.now += FRESH_SECONDS + 1
    answer = alice.get("/trainjobs")
    assert (answer.status_code, answer.json()["message"]) == (503, "the API server cannot be reached")
    town.outage = None
    town.now += 2
    assert alice.names() == ["one"]


def test_a_stranger_who_knocks_again_and_again_is_not_asked_about_each_time(
    place: tuple[Town, TestClient],
) -> None:
    town, http = place
    before = town.asked
    for _ in range(20):
        assert http.get(f"{PREFIX}/trainjobs", headers={FORWARDED: "late-token"}).status_code == 401
    assert town.asked == before + 1
    town.people["late-token"] = ("late", frozenset({"team-a"}))
    town.now += REJECTED_SECONDS + 1
    assert http.get(f"{PREFIX}/trainjobs", headers={FORWARDED: "late-token"}).status_code == 200


def test_several_servers_behind_one_address_take_the_same_word() -> None:
    town = Town()
    with at(town.room()) as one, at(town.room()) as other:
        alice = Person(one, "alice-token")
        assert alice.create("here", "team-a").status_code == 201
        alice.http = other
        assert alice.create("there", "team-a").status_code == 201


# -- what flows -----------------------------------------------------------------------------------
def socket(http: TestClient, path: str, person: Person, **changed: str) -> Any:
    word = changed.pop("csrf", person.headers[CSRF_HEADER])
    headers = {"origin": f"https://{HOST}", "host": HOST, FORWARDED: person.token} | changed
    between = "&" if "?" in path else "?"
    return http.websocket_connect(
        f"wss://{HOST}{PREFIX}{path}{between}csrf={word}",
        headers={key: value for key, value in headers.items() if value},
    )


@pytest.mark.thorough
@pytest.mark.req("D-api")
def test_changes_flow_to_those_who_may_see_them(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice, bob = Person(http, "alice-token"), Person(http, "bob-token")
    with socket(http, "/stream", alice) as stream:
        assert stream.receive_json()["event"] == "beat"
        bob.create("two", "team-b")
        alice.create("one", "team-a")
        told = next_of(stream, "change")
        assert [row["name"] for row in told["data"]["upsert"]] == ["one"]
        uid = told["data"]["upsert"][0]["uid"]
        http.delete(f"{PREFIX}/trainjobs/team-b/two", headers=bob.headers)
        http.delete(f"{PREFIX}/trainjobs/team-a/one", headers=alice.headers)
        assert next_of(stream, "change")["data"]["delete"] == [f"team-a/{uid}"]


@pytest.mark.thorough
def test_a_stream_ends_with_the_login_and_begins_anew_with_other_rights(
    place: tuple[Town, TestClient],
) -> None:
    town, http = place
    alice, root = Person(http, "alice-token"), Person(http, "root-token")
    root.create("two", "team-b")
    with socket(http, "/stream", alice) as stream:
        assert stream.receive_json()["event"] == "beat"
        town.people["alice-token"] = ("alice", frozenset({"team-a", "team-b"}))
        town.now += DENIED_SECONDS + 1
        root.create("three", "team-b")
        assert stream.receive_json()["event"] == "reset"
        del town.people["alice-token"]
        town.now += FRESH_SECONDS + 1
        root.create("four", "team-b")
        last = next_of(stream, "bye")
        assert last["data"]["trouble"]["hint"] == "sign in again"
        assert last["data"]["upsert"] == []


def next_of(stream: Any, event: str) -> Any:
    while (told := stream.receive_json())["event"] == "beat":
        pass
    assert told["event"] == event, told
    return told


@pytest.mark.req("D-api")
def test_lines_flow_over_a_socket(place: tuple[Town, TestClient]) -> None:
    _, http = place
    alice = Person(http, "alice-token")
    job = {"name": "talk", "namespace": "team-a", "workers": 2, "command": ["sh", "-c", "echo one; echo two"]}
    assert alice.post("/trainjobs", {"job": job}).status_code == 201
    said: list[str] = []
    with socket(http, "/trainjobs/team-a/talk/logs?follow=true&ranks=0", alice) as stream:
        while len(said) < 2:
            said += [line["text"] for line in stream.receive_json()["data"]["lines"]]
    assert said == ["one", "two"]


@pytest.mark.parametrize("route", FLOWING, ids=name)
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({FORWARDED: ""}, 401),
        ({FORWARDED: "guessed"}, 401),
        ({"origin": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"csrf": ""}, 403),
        ({"csrf": "guessed"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
    ids=str,
)
def test_an_upgrade_is_refused_by_the_same_gate(
    http: TestClient, route: Route, changed: dict[str, str], status: int
) -> None:
    alice = Person(http, "alice-token")
    path = re.sub(r"\{\w+\}", "a", route.path)
    with pytest.raises(WebSocketDenialResponse) as caught, socket(http, path, alice, **changed):
        pass
    assert caught.value.status_code == status


def test_an_upgrade_for_a_job_of_others_is_refused(http: TestClient) -> None:
    alice = Person(http, "alice-token")
    with (
        pytest.raises(WebSocketDenialResponse) as caught,
        socket(http, "/trainjobs/team-b/a/logs", alice),
    ):
        pass
    assert caught.value.status_code == 403
