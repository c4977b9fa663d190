"""Logs that are followed through trouble: taken up again where they stopped, and refused out loud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import CUT, ApiError
from mpijob.backends.kubernetes.logs import log_follower, pod_logs
from mpijob.errors import BackendError
from mpijob.model import Family, LogLine, LogQuery, Role

VOICE = pod_logs.PodLogSource("cv", "pod", "node", Role.LAUNCHER, None, 1, Family.OPENMPI, True)
Piece = bytes | ApiError


class Broken(Iterator[bytes]):
    """A stream that gives its pieces and breaks where an error is among them."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = iter(pieces)

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        if isinstance(piece, ApiError):
            raise piece
        return piece

    def close(self) -> None:
        """Nothing is open."""


class Troubled(Store):
    """Answers each time that the log is asked for as its script says."""

    def __init__(self, *answers: Sequence[Piece] | ApiError) -> None:
        super().__init__()
        self.since: list[str] = []
        self._script = iter(answers)

    def lines(self, path: str, **query: Any) -> Any:
        self.since.append(query.get("sinceTime", ""))
        answer = next(self._script)
        if isinstance(answer, ApiError):
            raise answer
        return Broken(answer)

    def pod_runs(self, runs: bool) -> None:
        state = {"running": {}} if runs else {"terminated": {"exitCode": 0}}
        status = {"containerStatuses": [{"name": "node", "state": state}]}
        spec = {"containers": [{"name": "node"}]}
        self.objects[resources.POD.path("cv", "pod")] = {"spec": spec, "status": status}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr("mpijob.backends.outage_tolerance._RETRY_SECONDS", 0.01)


def line(number: int) -> bytes:
    return f"2026-11-15T00:00:{number:02}.000000000Z [1,0]<stdout>: {number}\n".encode()


def followed(api: Store, looks: Sequence[bool | BackendError] = (False, True)) -> list[LogLine]:
    """Return what is heard until the job is over; `looks` say whether it is, or that nobody answered."""
    told = iter([*looks, *[True] * 1000])

    def look() -> tuple[Sequence[pod_logs.PodLogSource], bool]:
        over = next(told)
        if isinstance(over, BackendError):
            raise over
        return (VOICE,), over

    follower = log_follower.LogFollower(api, LogQuery(follow=True))
    try:
        return [*follower.lines(look)]
    finally:
        follower.close()


def numbers(lines: Sequence[LogLine]) -> list[int]:
    return [int(one.text) for one in lines]


@pytest.mark.parametrize("trouble", [ApiError("cut", reason=CUT), ApiError("not now", status=503)])
def test_a_log_is_taken_up_again_where_it_broke(trouble: ApiError) -> None:
    api = Troubled([line(1), line(2), trouble], trouble, [line(2), line(3)])
    assert numbers(followed(api)) == [1, 2, 3]
    assert [bool(one) for one in api.since] == [False, True, True]


def test_a_log_that_ends_before_its_container_is_taken_up_again() -> None:
    api = Troubled([], [line(1)], [line(1), line(2)])  # what was said before is read first
    runs = iter([True, False])
    api.before = lambda method, path: api.pod_runs(next(runs))
    assert numbers(followed(api)) == [1, 2]


def test_a_log_that_may_not_be_read_is_refused_and_not_taken_for_silence() -> None:
    with pytest.raises(ApiError, match="forbidden"):
        followed(Troubled(ApiError("forbidden", status=403)))


def test_nobody_who_answers_does_not_end_the_lines() -> None:
    silent = BackendError("nobody answers", passing=True)
    assert numbers(followed(Troubled([line(1)], [line(1)]), [False, silent, True])) == [1]
