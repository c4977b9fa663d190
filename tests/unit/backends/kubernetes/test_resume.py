"""The logs of pods taken up again where a stream broke: nothing twice, nothing silently lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.backends.kubernetes.test_submit import SERVED, a_plan
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError
from mpijob.backends.kubernetes.logs import log_follower, secret_values
from mpijob.backends.kubernetes.logs.pod_logs import PodLogSource, Position
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.submit import create_objects, retry
from mpijob.errors import NotFound
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model import Family, JobRef, LogLine, LogQuery, Mark, Role, Secret

VOICE = PodLogSource("cv", "pod", "node", Role.LAUNCHER, None, 1, Family.OPENMPI, True)


def stamped(second: int, text: str) -> bytes:
    return f"2026-11-15T00:00:{second:02}.000000000Z {text}\n".encode()


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text.decode() for line in lines if Mark.GAP not in line.marks]


@pytest.mark.thorough
@pytest.mark.req("FR-009")
@given(
    st.lists(st.integers(0, 5), max_size=12).map(sorted), st.lists(st.integers(0, 12), max_size=4).map(sorted)
)
def test_a_stream_that_broke_is_taken_up_by_time_and_count(seconds: list[int], breaks: list[int]) -> None:
    log = [stamped(second, str(number)) for number, second in enumerate(seconds)]
    position, heard = Position(VOICE, {}), list[LogLine]()
    for at in [*breaks, len(log)]:
        since = position.last[:19]  # the API knows whole seconds only
        heard += position.lines(iter([raw for raw in log[:at] if raw[:19] >= since]))
    assert texts(heard) == [str(number) for number in range(len(log))]
    assert not any(Mark.GAP in line.marks for line in heard)


@pytest.mark.req("FR-009")
def test_where_the_log_was_rotated_meanwhile_a_line_says_so() -> None:
    position = Position(VOICE, {})
    heard = [*position.lines(iter([stamped(1, "a"), stamped(2, "b")]))]
    heard += position.lines(iter([stamped(9, "z")]))
    assert [line.text.decode()[:40] for line in heard] == [
        "a",
        "b",
        "mpijob: the log stream of pod pod broke ",
        "z",
    ]
    assert heard[2].marks == (Mark.GAP,)
    assert "its output of 7 s may be missing here" in heard[2].text.decode()


@pytest.mark.req("FR-009")
def test_what_a_kubelet_says_in_a_log_that_it_has_no_more_is_nobodys_line() -> None:
    sentence = b"unable to retrieve container logs for containerd://c510ddf35c25"
    position = Position(VOICE, {})
    heard = [*position.lines(iter([stamped(1, "a"), sentence + b"\n", stamped(2, "b"), sentence]))]
    assert [line.text.decode() for line in heard] == ["a", "b"]


class Stream:
    """Lines of a log; breaks behind as many as it is told."""

    def __init__(self, lines: list[bytes], breaks: int | None) -> None:
        self._lines, self._breaks = lines, breaks

    def __iter__(self) -> Iterator[bytes]:
        for number, raw in enumerate(self._lines):
            if number == self._breaks:
                raise ApiError("the line broke")
            yield raw

    def close(self) -> None:
        pass


class Kubelet:
    """An API server whose log streams break; it gives what is not before the second asked for."""

    def __init__(self, log: list[bytes], breaks: list[int]) -> None:
        self._log, self._breaks = log, breaks
        self.asked: list[str] = []

    def now(self) -> float:
        return time.time()

    def find(self, path: str) -> None:
        """Its pod has ended."""

    def lines(self, path: str, sinceTime: str = "", **query: str) -> Stream:
        self.asked.append(sinceTime)
        wanted = [raw for raw in self._log if raw[:19].decode() >= sinceTime[:19]]
        return Stream(wanted, self._breaks.pop(0) if self._breaks else None)


def test_following_goes_on_behind_a_broken_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_POLL_SECONDS", 0.01)
    log = [stamped(second // 2, f"[1,0]<stdout>: {second}") for second in range(20)]
    kubelet = Kubelet(log, [3, 4, 5])
    looks = iter([False, False])
    follower = log_follower.LogFollower(kubelet, LogQuery(follow=True))  # type: ignore[arg-type]  # a stand-in
    heard = [*follower.lines(lambda: ([VOICE], next(looks, True)))]
    follower.close()
    assert texts(heard) == [str(second) for second in range(20)]
    assert len(kubelet.asked) == 4


def test_following_begins_with_the_tail() -> None:
    log = [stamped(second, f"[1,0]<stdout>: {second}") for second in range(20)]
    follower = log_follower.LogFollower(Kubelet(log, []), LogQuery(follow=True, tail=2))  # type: ignore[arg-type]
    assert texts([*follower.lines(lambda: ([VOICE], True))]) == ["18", "19"]
    follower.close()


@pytest.mark.req("D-sanitize")
def test_the_values_of_a_jobs_secrets_are_read_where_they_may_be() -> None:
    api = Store()
    for name, data in (
        (f"bert{well_known.SECRETS_SUFFIX}", {"TOKEN": "c2VjcmV0LW9uZQ=="}),
        ("shared", {"key": "c2VjcmV0LXR3bw=="}),
    ):
        api.objects[resources.SECRET.path("cv", name)] = {"metadata": {"name": name}, "data": data}
    secrets = [Secret(env="TOKEN", source="env:TOKEN"), Secret(env="KEY", source="shared/key"),
               Secret(env="GONE", source="gone/key")]  # fmt: skip
    assert set(secret_values.read(api, "cv", "bert", secrets)) == {"secret-one", "secret-two"}


@pytest.mark.req("D-sanitize")
@pytest.mark.parametrize("attempt", [1, 2])
def test_the_secrets_of_a_second_job_of_a_name_are_its_own(
    monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    secrets, api = (Secret(env="TOKEN", source="env:TOKEN"),), Store()
    for value, before in (("secret-old", frozenset[str]()), ("secret-new", frozenset({"bert"}))):
        monkeypatch.setenv("TOKEN", value)
        plan = a_plan(before, secrets=secrets)
        create_objects.submit(api, plan).owned()
    ref = JobRef("cv", "bert", plan.uid)
    if attempt > 1:
        found = job_objects.find(api, ref, lambda: SERVED)
        retry.start(api, found, job_objects.runtime(api, found.job))
    find = lambda ref: job_objects.find(api, ref, lambda: SERVED)  # noqa: E731
    known = secret_values.known(api, ref, secrets, find, own_machine=True)
    assert known == ("secret-new",)


@pytest.mark.req("D-sanitize")
def test_of_a_job_that_is_gone_secrets_are_known_by_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(ref: JobRef) -> Any:
        raise NotFound(f"no job '{ref.name}'")

    monkeypatch.setenv("HERE", "secret-here")
    api = Store()
    api.objects[resources.SECRET.path("cv", "shared")] = {
        "metadata": {"name": "shared"},
        "data": {"key": "c2VjcmV0LXR3bw=="},
    }
    secrets = (Secret(env="TOKEN", source="env:HERE"), Secret(env="OLD", source="env:NOT_HERE"),
               Secret(env="KEY", source="shared/key"))  # fmt: skip
    known = secret_values.known(api, JobRef("cv", "bert"), secrets, find, own_machine=True)
    assert set(known) == {"secret-two", "secret-here"}
