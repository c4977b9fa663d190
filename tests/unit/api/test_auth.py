"""Who comes in: every verb of the table refuses strangers, forgers and other sites."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import WebSocketDenialResponse
from tests.unit.api_support import COOKIE, HOST, Browser, served

from mpijob.api.auth.rate_limit import ACTS, ACTS_AT_ONCE, BURST, DOCUMENT_BYTES, STREAMS, Limits
from mpijob.api.auth.sessions import CSRF_HEADER, CookieAuth
from mpijob.api.errors import Refused
from mpijob.api.openapi import PREFIX
from mpijob.api.request_context import Route
from mpijob.api.routes import ROUTES

pytestmark = pytest.mark.security

CLOSED = [route for route in ROUTES if not route.open]
CHANGING = [route for route in CLOSED if route.changes]
OPEN = {("GET", "/health"), ("POST", "/session")}


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


def ask(browser: Browser, route: Route, **more: Any) -> Any:
    path = re.sub(r"\{\w+\}", "a", route.path)
    body = {"content": b"{}", "headers": {"content-type": "application/json"} | more.pop("headers", {})}
    return browser.http.request(route.method, PREFIX + path, **body, **more)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with served() as one:
        yield one


@pytest.fixture
def stranger(browser: Browser) -> Browser:
    browser.http.cookies.clear()
    browser.http.headers.pop(CSRF_HEADER, None)
    return browser


@pytest.fixture
def user(stranger: Browser) -> Browser:
    return stranger.sign_in()


def test_only_the_sign_in_and_a_sign_of_life_are_open() -> None:
    assert {(route.method, route.path) for route in ROUTES if route.open} == OPEN


@pytest.mark.thorough
@pytest.mark.req("FR-INT-005")
@pytest.mark.parametrize("route", CLOSED, ids=name)
def test_a_verb_refuses_who_is_not_signed_in(stranger: Browser, route: Route) -> None:
    answer = ask(stranger, route)
    assert (answer.status_code, answer.json()["code"]) == (401, "NOT_ALLOWED")
    assert answer.json()["hint"]


@pytest.mark.thorough
@pytest.mark.parametrize("route", CLOSED, ids=name)
def test_a_verb_refuses_the_wrong_identity(stranger: Browser, route: Route) -> None:
    with served() as other:  # signed in, but at another server
        other.sign_in()
        foreign = other.http.cookies[COOKIE]
        csrf = other.http.headers[CSRF_HEADER]
    answer = ask(stranger, route, headers={"cookie": f"{COOKIE}={foreign}", CSRF_HEADER: csrf})
    assert answer.status_code == 401


@pytest.mark.thorough
@pytest.mark.parametrize("route", CHANGING, ids=name)
@pytest.mark.parametrize(
    "sent",
    [
        {CSRF_HEADER: ""},
        {CSRF_HEADER: "guessed"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_a_change_that_our_page_did_not_send_is_refused(
    user: Browser, route: Route, sent: dict[str, str]
) -> None:
    assert ask(user, route, headers=sent).status_code == 403


@pytest.mark.thorough
@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_a_verb_answers_for_its_own_host_alone(user: Browser, route: Route) -> None:
    assert ask(user, route, headers={"host": "evil.example:8765"}).status_code == 421


@pytest.mark.thorough
@pytest.mark.parametrize("route", [route for route in ROUTES if route.flow is not None], ids=name)
@pytest.mark.parametrize(
    ("sent", "word", "status"),
    [
        ({"cookie": "none=1"}, "right", 401),
        ({"cookie": f"{COOKIE}=guessed"}, "right", 401),
        ({"origin": "http://evil.example"}, "right", 403),
        ({"origin": "null"}, "right", 403),
        ({}, "", 403),
        ({}, "guessed", 403),
    ],
    ids=str,
)
def test_an_upgrade_is_refused_by_the_same_gate(
    user: Browser, route: Route, sent: dict[str, str], word: str, status: int
) -> None:
    right = user.http.headers[CSRF_HEADER]
    session = f"{COOKIE}={user.http.cookies[COOKIE]}"
    user.http.cookies.clear()
    headers = {"origin": f"http://{HOST}", "host": HOST, "cookie": session} | sent
    path = re.sub(r"\{\w+\}", "a", route.path)
    url = f"ws://{HOST}{PREFIX}{path}?csrf={right if word == 'right' else word}"
    with (
        pytest.raises(WebSocketDenialResponse) as caught,
        user.http.websocket_connect(url, headers=headers),
    ):
        pass
    assert caught.value.status_code == status


def test_a_sign_in_from_another_site_is_refused(stranger: Browser) -> None:
    body = {"token": stranger.room.gate.invite()}
    assert stranger.post("/session", body, headers={"origin": "http://evil.example"}).status_code == 403
    assert stranger.post("/session", body).status_code == 200


def test_a_token_lets_one_browser_in_once(stranger: Browser) -> None:
    token = stranger.room.gate.invite()
    first = stranger.post("/session", {"token": token})
    assert first.json()["user"] == "maria"
    flags = first.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    assert stranger.post("/session", {"token": token}).status_code == 401
    assert stranger.post("/session", {"token": "ü" * 40}).status_code == 401


def test_a_token_and_a_session_end_with_time() -> None:
    now = [0.0]
    gate = CookieAuth("maria", ["a"], cookie=COOKIE, now=lambda: now[0])
    token = gate.invite()
    now[0] = 13 * 3600.0
    with pytest.raises(Refused, match="already used"):
        gate.enter(token)


def test_who_signs_out_is_out(user: Browser) -> None:
    kept = user.http.cookies[COOKIE]
    assert user.delete("/session").status_code == 204
    assert user.get("/session", headers={"cookie": f"{COOKIE}={kept}"}).status_code == 401


def test_another_browser_gets_its_own_sign_in(user: Browser) -> None:
    token = user.post("/session/links").json()["token"]
    user.http.cookies.clear()
    assert user.post("/session", {"token": token}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/jobs/default/a", f"{PREFIX}/trainjobs", f"{PREFIX}/nothing", "/assets/no.js"]
)
def test_every_answer_keeps_the_page_to_itself(user: Browser, path: str) -> None:
    headers = user.http.get(path).headers
    assert "unsafe" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/../answers.py", "/%2e%2e/answers.py", "/assets/../../app.py", "//etc/passwd"]
)
def test_no_file_beside_the_page_can_be_asked_for(user: Browser, path: str) -> None:
    assert "from __future__" not in user.http.get(path).text
    assert "root:" not in user.http.get(path).text


def test_an_unknown_address_of_the_api_is_no_page(user: Browser) -> None:
    answer = user.get("/proxy?url=http://169.254.169.254/")
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


def test_a_body_that_is_too_large_is_refused(user: Browser) -> None:
    assert user.post("/drafts", {"yaml": "a" * DOCUMENT_BYTES}).status_code == 413


def test_a_body_of_another_kind_is_refused(user: Browser) -> None:
    answer = user.http.post(f"{PREFIX}/drafts", content=b"yaml=a", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


@pytest.mark.thorough
@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b"\xff", b'{"yaml": 1}', b'{"more": 1}', b"null"])
def test_a_body_that_is_none_of_ours_is_refused_with_a_sentence(user: Browser, content: bytes) -> None:
    sent = {"content": content, "headers": {"content-type": "application/json"}}
    answer = user.http.post(f"{PREFIX}/drafts", **sent)  # type: ignore[arg-type]  # the test client's own words
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_JOB")


def test_requests_without_end_are_slowed_and_streams_counted() -> None:
    now = [0.0]
    limits = Limits(now=lambda: now[0])
    for _ in range(int(BURST)):
        limits.count("maria")
    with pytest.raises(Refused, match="requests per second"):
        limits.count("maria")
    limits.count("alex")
    now[0] = 1.0
    limits.count("maria")
    held = [limits.stream("maria") for _ in range(STREAMS)]
    for one in held:
        one.__enter__()
    with pytest.raises(Refused, match="open streams"), limits.stream("maria"):
        pass
    held[0].__exit__(None, None, None)
    with limits.stream("maria"), limits.stream("alex"):
        assert True


def test_acts_that_wait_take_turns_for_each_user_and_one_too_many_is_refused() -> None:
    async def story() -> None:
        limits, released = Limits(), asyncio.Event()
        running: list[str] = []

        async def act(user: str) -> None:
            async with limits.act(user):
                running.append(user)
                await released.wait()

        acts = [asyncio.create_task(act("maria")) for _ in range(ACTS)]
        acts += [asyncio.create_task(act("bob"))]
        await asyncio.sleep(0)
        assert (running.count("maria"), running.count("bob")) == (ACTS_AT_ONCE, 1)
        with pytest.raises(Refused, match=f"{ACTS} of your operations are pending") as caught:
            await act("maria")
        assert caught.value.status == 429
        released.set()
        await asyncio.gather(*acts)
        assert running.count("maria") == ACTS
        assert limits._acts == {}

    asyncio.run(story())


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["cancel", "suspend", "delete"])
def test_every_act_that_waits_for_a_job_takes_a_turn(
    user: Browser, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpijob.api.auth.rate_limit.ACTS", 0)
    user.create(f"no-{verb}", labels={"memory.mpijob/outcome": "hangs"})
    path = f"/trainjobs/default/no-{verb}"
    answer = user.delete(path) if verb == "delete" else user.post(f"{path}/{verb}")
    assert answer.status_code == 429
    (done,) = user.post("/bulk", {"action": verb, "jobs": [f"default/no-{verb}"]}).json()["items"]
    assert "operations are pending" in done["problem"]["message"]
