"""Callbacks: signed, once for each change to a receiver that keeps ids, again after a pause, never into the inside."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.history_support import a_state
from tests.unit.receiving import receiving

from mpijob.client.integrations import webhooks
from mpijob.client.integrations.webhooks import FIRST_SECONDS, MOST_TRIES, Outbox
from mpijob.errors import Finding, InvalidJob
from mpijob.model import Phase
from mpijob.settings import CallbackSetting


@contextmanager
def receiver(*statuses: int) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Yield the address of a receiver that answers so, one after the other and the last for ever, and what it got."""
    taken: list[tuple[dict[str, str], bytes]] = []
    left = list(statuses) or [200]

    def answer(path: str, headers: dict[str, str], content: bytes) -> int:
        taken.append((headers, content))
        return left.pop(0) if len(left) > 1 else left[0]

    with receiving(answer) as address:
        yield f"{address}/hook?x=1", taken


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_100.0

    def __call__(self) -> float:
        return self.now


def an_outbox(tmp_path: Path, url: str, clock: Clock, **more: Any) -> Outbox:
    (tmp_path / "key").write_text("the key\n")
    setting = CallbackSetting(url=url, secret_file=str(tmp_path / "key"), allow_private=True, **more)
    return Outbox(str(tmp_path / "callbacks.db"), [setting], clock)


def ended(phase: Phase = Phase.FAILED, **more: Any) -> Any:
    return a_state(
        phase=phase, finished=1_700_000_090.0, findings=(Finding("OOM_KILLED", "out of memory"),), **more
    )


@pytest.mark.thorough
@pytest.mark.req("PMV-006")
def test_a_change_is_told_once_signed_and_with_its_link(tmp_path: Path) -> None:
    clock = Clock()
    with receiver() as (url, taken):
        outbox = an_outbox(tmp_path, url, clock, page="https://page.example.com")
        outbox.offer(a_state(phase=Phase.RUNNING))
        outbox.offer(ended())
        outbox.offer(ended())
        assert outbox.work() == 1
        assert outbox.work() == 0
        ((headers, content),) = taken
    told = json.loads(content)
    assert (told["phase"], told["cause"], told["name"]) == ("Failed", "OOM_KILLED", "bert")
    assert told["link"] == "https://page.example.com/jobs/team/bert"
    assert headers[webhooks.DELIVERY] == told["id"]
    header = headers[webhooks.SIGNATURE]
    assert webhooks.verified(b"the key", header, content, clock.now)
    assert not webhooks.verified(b"another", header, content, clock.now)
    assert not webhooks.verified(b"the key", header, content + b"x", clock.now)
    assert not webhooks.verified(b"the key", header, content, clock.now + 301)
    assert not webhooks.verified(b"the key", "nonsense", content, clock.now)


@pytest.mark.thorough
@pytest.mark.req("PMV-006")
def test_what_is_not_taken_is_told_again_after_a_growing_pause_with_the_same_id(tmp_path: Path) -> None:
    clock = Clock()
    with receiver(500, 302, 200) as (url, taken):
        outbox = an_outbox(tmp_path, url, clock)
        outbox.offer(ended())
        assert outbox.work() == 0
        assert outbox.work() == 0  # not due yet
        clock.now += FIRST_SECONDS + 0.1
        outbox.close()
        outbox = an_outbox(tmp_path, url, clock)  # killed and started again
        assert outbox.work() == 0  # a redirect is not followed
        clock.now += 2 * FIRST_SECONDS + 0.1
        assert outbox.work() == 1
        assert len({headers[webhooks.DELIVERY] for headers, _ in taken}) == 1
        assert len(taken) == 3


@pytest.mark.thorough
def test_an_address_that_never_answers_is_given_up(tmp_path: Path) -> None:
    clock = Clock()
    with receiver(503) as (url, taken):
        outbox = an_outbox(tmp_path, url, clock)
        outbox.offer(ended())
        for _ in range(MOST_TRIES + 5):
            outbox.work()
            clock.now += 3601
        assert len(taken) == MOST_TRIES


@pytest.mark.thorough
@pytest.mark.security
def test_what_waits_for_an_address_that_is_taken_away_goes_to_no_other(tmp_path: Path) -> None:
    clock = Clock()
    with receiver(503) as (ours, _), receiver() as (theirs, taken):
        one, other = (CallbackSetting(url=url, allow_private=True) for url in (ours, theirs))
        outbox = Outbox(str(tmp_path / "callbacks.db"), [one], clock)
        outbox.offer(ended())
        outbox.work()
        old = (
            b"{}",
            0,
            clock.now,
            0,
            clock.now,
        )  # an older version wrote where the address stood in the settings
        outbox._db.execute("INSERT INTO deliveries VALUES ('old',0,?,?,?,?,?)", old)
        outbox.close()
        clock.now += 60
        outbox = Outbox(str(tmp_path / "callbacks.db"), [other], clock)
        assert (outbox.work(), taken) == (0, [])
        clock.now += 3601
        assert outbox._db.execute("SELECT DISTINCT status FROM deliveries").fetchall() == [(2,)]


@pytest.mark.thorough
def test_an_address_stays_the_same_wherever_it_stands_in_the_settings(tmp_path: Path) -> None:
    clock = Clock()
    with receiver(503, 200) as (ours, taken), receiver() as (theirs, _):
        one, other = (CallbackSetting(url=url, allow_private=True) for url in (ours, theirs))
        outbox = Outbox(str(tmp_path / "callbacks.db"), [one], clock)
        outbox.offer(ended())
        outbox.work()
        outbox.close()
        clock.now += 60
        outbox = Outbox(str(tmp_path / "callbacks.db"), [other, one], clock)
        assert (outbox.work(), len(taken)) == (1, 2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "url", ["https://a..b/", "https://x:99999/", f"https://{'a' * 70}.example/", "https://[x/"]
)
def test_an_address_that_cannot_be_one_is_told_and_stops_no_other(tmp_path: Path, url: str) -> None:
    clock = Clock()
    with receiver() as (right, taken):
        both = [CallbackSetting(url=one, allow_private=True) for one in (url, right)]
        outbox = Outbox(str(tmp_path / "callbacks.db"), both, clock)
        outbox.offer(ended())
        assert (outbox.work(), len(taken)) == (1, 1)


@pytest.mark.thorough
def test_what_looks_like_a_secret_does_not_leave(tmp_path: Path) -> None:
    with receiver() as (url, taken):
        outbox = an_outbox(tmp_path, url, Clock())
        outbox.offer(ended(message="refused: password=hunter2hunter2"))
        outbox.work()
    assert b"hunter2hunter2" not in taken[0][1]


@pytest.mark.thorough
@pytest.mark.parametrize("shape", ["slack", "mail"])
def test_the_shapes_that_others_take(tmp_path: Path, shape: str) -> None:
    with receiver() as (url, taken):
        outbox = an_outbox(tmp_path, url, Clock(), shape=shape)
        outbox.offer(ended())
        outbox.work()
    told = json.loads(taken[0][1])
    assert "team/bert Failed: out of memory" in (told.get("text") or told["subject"])


@pytest.mark.thorough
def test_only_what_is_asked_for_is_told(tmp_path: Path) -> None:
    clock = Clock()
    with receiver() as (url, taken):
        outbox = an_outbox(tmp_path, url, clock, phases=("Running",), namespaces=("team",))
        outbox.offer(ended())
        outbox.offer(a_state(phase=Phase.RUNNING))
        clock.now += 7200
        outbox.offer(ended())
        outbox.work()
        assert len(taken) == 1


@pytest.mark.security
@pytest.mark.req("PMV-006")
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
     "::1", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "255.255.255.255"],
)  # fmt: skip
def test_no_callback_goes_to_the_inside(address: str) -> None:
    assert not webhooks.is_public(address)


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.req("PMV-006")
def test_addresses_that_lead_inside_are_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in ("http://example.com/", "ftp://example.com/", "https://", "https://user:pw@example.com/", "file:///etc/passwd",
                "https://127.0.0.1/", "https://[::1]/", "https://localhost/"):  # fmt: skip
        with pytest.raises(InvalidJob):
            webhooks.post(url, b"{}", {})
    both = [(socket.AF_INET, 1, 6, "", ("93.184.216.34", 443)), (socket.AF_INET, 1, 6, "", ("10.0.0.7", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(InvalidJob, match="not a public address"):
        webhooks.resolved("two-faced.example.com", 443)
    assert webhooks.is_public("93.184.216.34")
    assert webhooks.is_public("2606:2800:220:1:248:1893:25c8:1946")
