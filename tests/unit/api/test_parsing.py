"""Documents that are made to be slow: their sender gets an answer in time, and nobody else notices."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mpijob.api.auth import rate_limit
from mpijob.api.auth.cluster_token import FORWARDED
from mpijob.api.errors import Refused
from mpijob.api.parsing.pool import PROCESS, Parsers
from mpijob.api.request_context import Route
from mpijob.api.routes import ROUTES
from mpijob.api.schemas.draft_schemas import Edit, ToConvert
from mpijob.api.schemas.job_schemas import Draft

pytestmark = [pytest.mark.security, pytest.mark.hostile]
KINDS = ("convert", "edit", "drafts", "everything")

HEAD = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=4\n"
SMALL, LARGE = 40_000, 500_000


# -- documents --------------------------------------------------------------------------------------
def many_directives(size: int) -> str:
    return HEAD + "".join(f"#SBATCH --ntasks-on-{at}=1\n" for at in range(size // 28)) + "srun ./model\n"


def many_programs(size: int) -> str:
    return HEAD + "".join(f"module load m{at}; program{at} /no/{at} $1\n" for at in range(size // 40))


def many_functions(size: int) -> str:
    return HEAD + "".join(f"f{at}() {{\n echo {at}\n}}\nf{at}\n" for at in range(size // 28))


def variables(count: int) -> str:
    return "name: slow\ncommand: [x]\nenv:\n" + "".join(f"  V{at}: x\n" for at in range(count))


Body = tuple[str, dict[str, Any]]
LONG: dict[str, dict[str, Any]] = {
    "unknown fields": {"yaml": "name: slow\n" + "".join(f"f{at}: x\n" for at in range(4500))},
    "as many values as are read": {"yaml": variables(4900)},
    "a million empty values": {"job": {"env": [{}] * 350_000}},
    "a long line": {"job": {"name": "slow"}, "command_line": "a " * 400_000},
}
CONVERT: dict[str, Body] = {
    f"{make.__name__} {size}": ("/drafts/convert", {"text": make(size)})
    for make in (many_directives, many_programs, many_functions)
    for size in (SMALL, LARGE)
}
EDIT: dict[str, Body] = {
    "many changes": ("/drafts/edit", {"yaml": variables(2000), "changes": {f"env.N{at}": "y" for at in range(500)}}),
    "many changes of one line": (
        "/drafts/edit",
        {"yaml": json.dumps({"name": "a", "env": {f"V{at}": "x" for at in range(1700)}}),
         "changes": {f"env.N{at}": "y" for at in range(500)}},
    ),
    "a form that differs everywhere": (
        "/drafts/edit",
        {"yaml": variables(2000), "job": {"name": "slow", "env": {f"V{at}": "y" for at in range(2000)}}},
    ),
}  # fmt: skip
DRAFTS: dict[str, Body] = {
    f"{what} {path}": (path, body)
    for path in ("/drafts", "/trainjobs", "/plan", "/fit", "/drafts/advice")
    for what, body in LONG.items()
}
WORST = {**CONVERT, **EDIT, **DRAFTS}
NORMAL = {"yaml": "name: hello\nnamespace: team-a\nworkers: 2\ncommand: [echo, hello]\nenv: {LR: '0.1'}\n"}


# -- a server and its visitors ----------------------------------------------------------------------
class Answer(NamedTuple):
    status: int
    body: Any
    seconds: float
    headers: dict[str, str]


class Visitor:
    """Somebody with a connection of their own."""

    def __init__(self, base: str, name: str) -> None:
        self._host = base.removeprefix("http://")
        self.headers = {FORWARDED: f"{name}-token", "content-type": "application/json"}
        self.headers["x-mpijob-csrf"] = self.ask("GET", "/session").body["csrf"]

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 120) -> Answer:
        line = http.client.HTTPConnection(self._host, timeout=timeout)
        begun = time.monotonic()
        try:
            line.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), self.headers)
            answer = line.getresponse()
            text = answer.read()
        finally:
            line.close()
        seconds = time.monotonic() - begun
        told = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, json.loads(text or b"null"), seconds, told)


@contextmanager
def served(*names: str) -> Iterator[str]:
    argv = [sys.executable, "-m", "tests.unit.town_server", *names]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with served("ann", "ben", "cleo", "dora", "eve", "fred", *(f"fred-{kind}" for kind in KINDS)) as address:
        yield address


@contextmanager
def hammering(base: str, names: tuple[str, ...], bodies: list[tuple[str, Any]]) -> Iterator[list[Answer]]:
    """Let several people send the worst that they have, over and over."""
    answers: list[Answer] = []
    over = threading.Event()

    def hammer(name: str, first: int) -> None:
        visitor, at = Visitor(base, name), first
        while not over.is_set():
            path, body = bodies[at % len(bodies)]
            try:
                answers.append(visitor.ask("POST", path, body, timeout=60))
            except OSError:
                if not over.is_set():
                    raise
            at += 1

    threads = [
        threading.Thread(target=hammer, args=(name, at * 3), daemon=True) for at, name in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join(90)


def worst(ask: Callable[[], Answer], times: int, status: int) -> float:
    answers = [ask() for _ in range(times)]
    assert {answer.status for answer in answers} == {status}
    return max(answer.seconds for answer in answers)


@pytest.mark.alone
@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_others_are_answered_in_time_while_four_people_send_the_worst(base: str, kind: str) -> None:
    bodies = {"convert": CONVERT, "edit": EDIT, "drafts": DRAFTS, "everything": WORST}[kind]
    innocent = Visitor(base, f"fred-{kind}")  # requests are counted for each user
    made = innocent.ask("POST", "/trainjobs", NORMAL)
    assert made.status in (201, 409)
    with ExitStack() as ends:
        answers = ends.enter_context(hammering(base, ("ann", "ben", "cleo", "dora"), [*bodies.values()]))
        for _ in range(10):
            assert worst(lambda: innocent.ask("GET", "/trainjobs"), 5, 200) < 1
            assert worst(lambda: innocent.ask("GET", "/trainjobs/team-a/hello"), 5, 200) < 1
            assert worst(lambda: innocent.ask("POST", "/drafts", NORMAL), 2, 200) < 2
            assert worst(lambda: innocent.ask("POST", "/drafts/edit", NORMAL), 2, 200) < 2
            assert (
                worst(lambda: innocent.ask("POST", "/drafts/convert", {"text": HEAD + "srun ./x\n"}), 2, 200)
                < 2
            )
    assert answers, "they were at work"


@pytest.mark.alone
@pytest.mark.thorough
def test_whoever_sends_the_worst_has_an_answer_in_time_too(base: str) -> None:
    visitor = Visitor(base, "eve")
    answers = {kind: visitor.ask("POST", path, body) for kind, (path, body) in WORST.items()}
    assert max(answer.seconds for answer in answers.values()) < rate_limit.PARSE_SECONDS + 3
    assert {answer.status for answer in answers.values()} <= {200, 201, 400, 409, 413, 422}
    slow = [answer.body["code"] for answer in answers.values() if answer.status == 422]
    assert set(slow) <= {"TOO_SLOW"}


_DOCUMENT_PATHS = ("/drafts", "/trainjobs", "/plan", "/fit", "/drafts/edit", "/templates", "/drafts/advice")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "size"),
    [
        *((path, rate_limit.DOCUMENT_BYTES) for path in _DOCUMENT_PATHS),
        ("/drafts/convert", rate_limit.SCRIPT_BYTES),
        ("/opinions", rate_limit.BODY_BYTES),
        ("/bulk", rate_limit.BODY_BYTES),
    ],
)
def test_a_body_that_is_too_large_is_refused_with_a_code(base: str, path: str, size: int) -> None:
    answer = Visitor(base, "eve").ask("POST", path, {"yaml": "a" * size})
    assert (answer.status, answer.body["code"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    "route", [one for one in ROUTES if one.body in (Draft, Edit, ToConvert)], ids=lambda one: one.path
)
def test_every_document_is_read_in_another_process(route: Route) -> None:
    assert route.document
    assert route.most_bytes > rate_limit.BODY_BYTES


# -- who reads next ---------------------------------------------------------------------------------
SLOW = json.dumps({"text": HEAD + "#SBATCH" + " --ntasc=1" * 45_000 + "\nsrun ./x\n"}).encode()
QUICK = json.dumps(NORMAL).encode()


def refusals(results: list[Any]) -> list[tuple[int, str, int]]:
    return [(one.status, one.problem.code, one.retry_after) for one in results if isinstance(one, Refused)]


@pytest.mark.thorough
def test_one_user_has_one_document_read_at_a_time_and_not_too_many_wait() -> None:
    async def story() -> list[Any]:
        parsers = Parsers()
        asked = [parsers.encoded("eve", "reading", QUICK, 100) for _ in range(rate_limit.PARSES_OF_USER + 3)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert (parsers._running, parsers._waiting, parsers._users, [*parsers._turns]) == (0, 0, {}, [])
        return results

    results = asyncio.run(story())
    assert refusals(results) == [(429, "BUSY", rate_limit.RETRY_SECONDS)] * 3
    assert all(json.loads(one)["job"]["name"] == "hello" for one in results if isinstance(one, bytes))


def test_not_too_many_documents_wait_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "PARSES_WAITING", 2)
    monkeypatch.setattr(rate_limit, "PARSES_AT_ONCE", 1)

    async def story() -> list[Any]:
        parsers = Parsers()
        asked = [parsers.encoded(f"user-{at}", "reading", QUICK, 100) for at in range(5)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert refusals(asyncio.run(story())) == [(503, "BUSY", rate_limit.RETRY_SECONDS)] * 2


@pytest.mark.alone
@pytest.mark.thorough
def test_only_few_slow_documents_go_on_and_each_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "PARSE_SECONDS", 6.0)  # four times as long as it takes to call one slow

    async def story() -> tuple[list[Any], float]:
        parsers, begun = Parsers(), time.monotonic()
        slow = [asyncio.create_task(parsers.encoded(f"user-{at}", "convert", SLOW, 100)) for at in range(6)]
        quick = await parsers.encoded("fred", "reading", QUICK, 100)
        assert json.loads(quick)["job"]["name"] == "hello"
        took = time.monotonic() - begun
        results = await asyncio.gather(*slow, return_exceptions=True)
        assert (parsers._running, parsers._waiting, parsers._slow, parsers._users) == (0, 0, 0, {})
        return results, took

    results, took = asyncio.run(story())
    statuses = sorted(status for status, _, _ in refusals(results))
    assert statuses == [422] * rate_limit.PARSES_SLOW + [503] * (6 - rate_limit.PARSES_SLOW)
    assert took < rate_limit.PARSE_SECONDS


def test_whoever_gives_up_leaves_no_process_behind() -> None:
    async def story() -> None:
        parsers = Parsers()
        await parsers.start()
        task = asyncio.create_task(parsers.encoded("eve", "convert", SLOW, 100))
        await _until(lambda: len(_children()) == 1)
        task.cancel()
        await asyncio.wait([task])
        await _until(lambda: not _children())
        assert (parsers._running, parsers._users) == (0, {})

    asyncio.run(story())


@pytest.mark.thorough
def test_the_process_that_reads_is_started_again_when_it_was_killed() -> None:
    async def story() -> bytes:
        parsers = Parsers()
        await parsers.start()
        assert PROCESS._process is not None
        PROCESS._process.kill()
        PROCESS._process.wait()
        return await parsers.encoded("eve", "reading", QUICK, 100)

    assert json.loads(asyncio.run(story()))["job"]["name"] == "hello"


@pytest.mark.thorough
def test_a_process_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "PARSE_SECONDS", 0.5)
    monkeypatch.setattr(rate_limit, "PARSE_SOON_SECONDS", 0.5)

    async def story() -> tuple[list[Any], bytes]:
        parsers = Parsers()
        await parsers.start()
        assert PROCESS._process is not None
        os.kill(PROCESS._process.pid, signal.SIGSTOP)
        asked = [parsers.encoded("eve", "reading", QUICK, 100)]
        results = [*await asyncio.gather(*asked, return_exceptions=True)]
        monkeypatch.undo()
        assert (parsers._running, parsers._slow, parsers._users) == (0, 0, {})
        return results, await parsers.encoded("fred", "reading", QUICK, 100)

    results, other = asyncio.run(story())
    assert refusals(results) == [(503, "BUSY", rate_limit.RETRY_SECONDS)]
    assert json.loads(other)["job"]["name"] == "hello"


def test_one_user_sends_only_so_many_documents_at_once() -> None:
    parsers = Parsers()
    with ExitStack() as ends:
        for _ in range(rate_limit.PARSES_OF_USER):
            ends.enter_context(parsers.upload("eve"))
        with pytest.raises(Refused) as caught:
            ends.enter_context(parsers.upload("eve"))
        assert (caught.value.status, caught.value.problem.code) == (429, "BUSY")
        ends.enter_context(parsers.upload("fred"))
    assert not parsers._uploads


@pytest.mark.thorough
def test_a_document_that_takes_too_much_memory_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of one document has little memory: a list of lists costs far more than its text."""
    many = b'{"job": {"env": [' + b"[]," * 2_900_000 + b"[]]}}"

    async def story() -> tuple[list[Any], bytes]:
        parsers = Parsers()
        asked = parsers.encoded("eve", "reading", many, 100)
        return [*await asyncio.gather(asked, return_exceptions=True)], await parsers.encoded(
            "fred", "reading", QUICK, 100
        )

    results, other = asyncio.run(story())
    assert refusals(results) == [(422, "TOO_SLOW", 0)]
    assert json.loads(other)["job"]["name"] == "hello"


def test_what_is_wrong_is_told_as_it_is_without_another_process() -> None:
    async def story() -> list[Any]:
        asked = Parsers().encoded("eve", "job", json.dumps({"yaml": "name: a\nworkers: x\n"}).encode(), 100)
        return [*await asyncio.gather(asked, return_exceptions=True)]

    (refusal,) = asyncio.run(story())
    assert isinstance(refusal, Refused)
    assert (refusal.status, refusal.problem.code) == (400, "INVALID_JOB")
    assert {(one.field, one.line) for one in refusal.problem.findings} >= {("workers", 2)}


def _children() -> list[str]:
    assert PROCESS._process is not None
    pid = PROCESS._process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0.01)
