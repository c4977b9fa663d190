"""Which lines a query wants."""

import builtins
from typing import Any

import pytest

from mpijob.errors import InvalidJob
from mpijob.model import LogLine, LogQuery, Role
from mpijob.observation.logs import filters, pipeline
from mpijob.observation.logs.filters import compile_search, guarded_search

LINES = [
    LogLine(time=1_000_000_000, text=b"mpiexec starts", role=Role.LAUNCHER),
    LogLine(time=2_000_000_000, text=b"worker up", role=Role.WORKER, worker=1),
    LogLine(time=3_000_000_000, text=b"loss 0.5", role=Role.RANK, worker=0, rank=0),
    LogLine(time=4_000_000_000, text=b"loss \xff 0.4", role=Role.RANK, worker=1, rank=2, attempt=2),
]


def chosen(**query: Any) -> list[int]:
    return [LINES.index(line) for line in pipeline.select(LINES, LogQuery(**query))]


@pytest.mark.req("FR-OBS-002", "FR-CLI-003")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"roles": (Role.LAUNCHER, Role.WORKER)}, [0, 1]),
        ({"workers": (1,)}, [1, 3]),
        ({"ranks": (0,)}, [2]),
        ({"since": 2.0, "until": 3.0}, [1, 2]),
        ({"regex": "loss.*0\\.[45]"}, [2, 3]),
        ({"tail": 2}, [2, 3]),
        ({"tail": 0}, []),
        ({"tail": 1, "regex": "loss 0"}, [2]),
        ({"attempt": 2}, [3]),
        ({"workers": (1,), "ranks": (0,)}, []),
    ],
)
def test_a_query_chooses_by_role_worker_rank_time_pattern_and_tail(
    query: dict[str, Any], expected: list[int]
) -> None:
    assert chosen(**query) == expected


def test_a_pattern_that_is_none_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidJob, match="not a regular expression"):
        compile_search("loss(")
    with pytest.raises(InvalidJob, match="not a regular expression"):
        guarded_search("loss(")


@pytest.mark.security
def test_a_hostile_pattern_takes_linear_time_with_re2() -> None:
    assert compile_search("(a|aa)+$")(b"a" * 50_000 + b"b") is False


@pytest.mark.security
@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+$", "((a*)b?)*c", r"(x)\1", "a*a*a*a*a*b", "(?:a{1,9})+b"]
)
def test_without_re2_a_pattern_that_could_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidJob, match="very long"):
        guarded_search(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("loss.*0", b"loss is 0"),
        (r"\(a+\)+", b"(aa)"),
        ("[(a+)]+", b"+"),
        ("(epoch|step) [0-9]+", b"step 12"),
        ("(abc)+", b"abcabc"),
    ],
)
def test_without_re2_ordinary_patterns_work(pattern: str, text: bytes) -> None:
    search = guarded_search(pattern)
    assert search(text)
    assert not search(b"nothing")


def test_without_re2_the_guard_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "re2":
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    search = compile_search("needle")
    assert search(b"needle")
    assert not search(b"x" * filters.GUARDED_BYTES + b"needle")


def test_a_pattern_as_long_as_a_book_is_refused() -> None:
    with pytest.raises(InvalidJob, match="1001 characters"):
        compile_search("x" * 1001)
