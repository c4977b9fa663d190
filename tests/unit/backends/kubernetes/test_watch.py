"""A watch outlives what ends its stream, and tells everything once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kube_support import MAPS, FakeApi, refusing, shortened

from mpijob.backends.kubernetes.client import watch as watching
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.watch import Change, watch

short_pauses = pytest.fixture(autouse=True)(shortened(watching))


class Listening:
    """Reads a watch in a thread and keeps what it told."""

    def __init__(self, changes: watching.Watch) -> None:
        self.changes = changes
        self.told: list[tuple[str, str]] = []
        self.objects: list[Change] = []
        self.error: ApiError | None = None
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for change in self.changes:
                with self._moved:
                    self.objects.append(change)
                    self.told.append((change.kind, change.object.get("metadata", {}).get("name", "")))
                    self._moved.notify_all()
        except ApiError as error:
            self.error = error

    def expect_told(self, *told: tuple[str, str]) -> None:
        """Wait until exactly this has been told since the last time."""
        with self._moved:
            self._moved.wait_for(lambda: len(self.told) >= len(told), timeout=10)
            assert self.told[: len(told)] == list(told)
            self.told = self.told[len(told) :]

    def expect_end(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def listen(api: Api) -> Iterator[Callable[..., Listening]]:
    made: list[Listening] = []

    def start(**options: Any) -> Listening:
        made.append(Listening(watch(api, MAPS, **options)))
        return made[-1]

    yield start
    for each in made:
        each.changes.close()
        each.expect_end()


SYNCED = ("BOOKMARK", "")


@pytest.mark.req("B-watch")
def test_what_is_there_is_told_then_each_change(server: FakeApi, listen: Callable[..., Listening]) -> None:
    server.maps.put("a")
    heard = listen(labels="x=y")
    heard.expect_told(("ADDED", "a"), SYNCED)
    server.maps.wait_for_watches()
    server.maps.put("b")
    server.maps.put("a", changed="yes")
    server.maps.remove("b")
    heard.expect_told(("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"))
    watched = server.requests[-1].query
    assert (watched["allowWatchBookmarks"], watched["labelSelector"]) == ("true", "x=y")
    assert 300 <= int(watched["timeoutSeconds"]) < 360


def test_a_cut_stream_is_taken_up_where_it_stopped(server: FakeApi, listen: Callable[..., Listening]) -> None:
    heard = listen()
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.maps.put("a")
    heard.expect_told(("ADDED", "a"))
    server.maps.cut()
    server.maps.put("b")
    heard.expect_told(("ADDED", "b"))
    assert sum("watch" not in seen.query for seen in server.requests) == 1


def test_bookmarks_move_the_version_on(server: FakeApi, listen: Callable[..., Listening]) -> None:
    heard = listen()
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.maps.version += 50  # other objects changed meanwhile
    server.maps.bookmark()
    server.maps.forget()  # everything older
    server.maps.cut()
    server.maps.put("a")
    heard.expect_told(("ADDED", "a"))


@pytest.mark.thorough
def test_a_forgotten_version_is_listed_again_and_the_difference_told(
    server: FakeApi, listen: Callable[..., Listening]
) -> None:
    for name in ("same", "changed", "gone", "replaced"):
        server.maps.put(name)
    heard = listen()
    heard.expect_told(
        ("ADDED", "same"), ("ADDED", "changed"), ("ADDED", "gone"), ("ADDED", "replaced"), SYNCED
    )
    server.maps.wait_for_watches()
    server.maps.frozen = True
    server.maps.put("changed", now="yes")
    server.maps.remove("gone")
    server.maps.remove("replaced")
    server.maps.put("replaced")
    server.maps.put("new")
    server.maps.forget()
    server.maps.cut()
    heard.expect_told(("RESET", ""), ("DELETED", "gone"), ("DELETED", "replaced"))
    heard.expect_told(("MODIFIED", "changed"), ("ADDED", "replaced"), ("ADDED", "new"), SYNCED)
    server.maps.wait_for_watches()
    server.maps.put("later")
    heard.expect_told(("ADDED", "later"))


def test_an_expired_version_in_the_middle_of_a_stream_does_not_end_it(
    server: FakeApi, listen: Callable[..., Listening]
) -> None:
    server.maps.put("a")
    heard = listen()
    heard.expect_told(("ADDED", "a"), SYNCED)
    server.maps.wait_for_watches()
    server.maps.error(410, "Expired")
    heard.expect_told(("RESET", ""), SYNCED)


def test_a_refusal_of_410_at_the_beginning_of_a_stream_is_the_same(
    server: FakeApi, listen: Callable[..., Listening]
) -> None:
    heard = listen()
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.says(refusing(410, "Expired", "too old"))
    server.maps.cut()
    heard.expect_told(("RESET", ""), SYNCED)


@pytest.mark.thorough
def test_a_stream_that_is_dead_without_being_closed_is_noticed(
    server: FakeApi, listen: Callable[..., Listening]
) -> None:
    heard = listen(idle_seconds=0.3)
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.maps.frozen = True  # the line stays open and says nothing any more
    server.maps.put("a")
    with server.maps.changed:
        assert server.maps.changed.wait_for(lambda: server.maps.watching >= 2, timeout=10)
    server.maps.frozen = False
    with server.maps.changed:
        server.maps.changed.notify_all()
    heard.expect_told(("ADDED", "a"))


@pytest.mark.thorough
def test_trouble_that_passes_is_reported_and_outlived(
    server: FakeApi, listen: Callable[..., Listening]
) -> None:
    told: list[int | None] = []
    heard = listen(trouble=lambda error: told.append(error and error.status))
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.says(refusing(503), refusing(500), refusing(429))
    server.maps.cut()
    server.maps.put("a")
    heard.expect_told(("ADDED", "a"))
    assert [status for status in told if status != 0] == [503, 500, 429, None]


def test_a_failure_told_in_the_stream_is_outlived(server: FakeApi, listen: Callable[..., Listening]) -> None:
    heard = listen()
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.maps.error(500, "InternalError")
    server.maps.put("a")
    heard.expect_told(("ADDED", "a"))


@pytest.mark.thorough
@pytest.mark.parametrize("status", [403, 404, 401])
def test_what_does_not_pass_is_raised(server: FakeApi, listen: Callable[..., Listening], status: int) -> None:
    heard = listen()
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    server.says(refusing(status, "No", "no"))
    server.maps.cut()
    heard.expect_end()
    assert heard.error is not None
    assert heard.error.status == status


def test_a_collection_that_may_not_be_listed_is_an_error_at_once(server: FakeApi, api: Api) -> None:
    server.says(refusing(403, "Forbidden", "no"))
    with pytest.raises(ApiError) as caught:
        next(watch(api, MAPS))
    assert (caught.value.status, len(server.requests)) == (403, 1)


def test_a_token_that_expires_in_mid_watch_is_replaced(server: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    server.tokens = {"old"}
    with Api(server.access(token_file=str(tmp_path / "token"))) as api, watch(api, MAPS) as changes:
        heard = Listening(changes)
        heard.expect_told(SYNCED)
        server.maps.wait_for_watches()
        (tmp_path / "token").write_text("new")
        server.tokens = {"new"}
        server.maps.cut()
        server.maps.put("a")
        heard.expect_told(("ADDED", "a"))
    heard.expect_end()
    assert server.requests[-1].token == "new"


def test_a_plugin_that_fails_in_mid_watch_ends_it_with_its_words(server: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    with Api(server.access(token_file=str(tmp_path / "token"))) as api, watch(api, MAPS) as changes:
        heard = Listening(changes)
        heard.expect_told(SYNCED)
        server.maps.wait_for_watches()
        (tmp_path / "token").unlink()
        server.tokens = {"new"}
        server.maps.cut()
        heard.expect_end()
    assert heard.error is not None
    assert "cannot read the token" in heard.error.message


def test_closing_from_another_thread_ends_it_promptly(
    server: FakeApi, listen: Callable[..., Listening]
) -> None:
    heard = listen()
    heard.expect_told(SYNCED)
    server.maps.wait_for_watches()
    began = time.monotonic()
    heard.changes.close()
    heard.expect_end()
    assert time.monotonic() - began < 2
    assert heard.error is None


def test_objects_are_trimmed_before_they_are_told(server: FakeApi, listen: Callable[..., Listening]) -> None:
    server.maps.put("a", large="x")
    heard = listen(trim=lambda item: {"metadata": item["metadata"]})
    heard.expect_told(("ADDED", "a"), SYNCED)
    server.maps.wait_for_watches()
    server.maps.put("b", large="x")
    heard.expect_told(("ADDED", "b"))
    assert [sorted(change.object) for change in heard.objects] == [["metadata"]] * 3
