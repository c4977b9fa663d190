"""Every field wrong in every way: findings come out, never another exception."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples

from mpijob import checks
from mpijob.errors import Severity
from mpijob.model import (
    Code,
    Concurrency,
    CustomLaunch,
    Elastic,
    GitSource,
    Launch,
    Model,
    MPIJob,
    Network,
    Placement,
    Program,
    Resources,
    Retention,
    Retry,
    Secret,
    Signal,
    Volume,
    WorkerGroup,
)

PARTS: dict[str, type[msgspec.Struct]] = {
    "launch": Launch,
    "code": Code,
    "concurrency": Concurrency,
    "resources": Resources,
    "launcher": Resources,
    "placement": Placement,
    "network": Network,
    "elastic": Elastic,
    "retry": Retry,
    "signal": Signal,
    "retention": Retention,
    "model": Model,
}
LISTED: dict[str, type[msgspec.Struct]] = {
    "groups": WorkerGroup,
    "programs": Program,
    "secrets": Secret,
    "volumes": Volume,
}

loop: dict[str, Any] = {}
loop["again"] = loop

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**4000),
    st.just(-(10**4000)),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["", "-", "\0", "\ud800", "../..", "a" * 300, "{", "(", "(?P<rank>", ":", "-np", "é", "\n"]
    ),
    st.binary(max_size=4),
    st.just(object()),
    st.just(loop),
    st.just(datetime.datetime(2024, 1, 1)),
    st.just(uuid.UUID(int=0)),
    st.just(decimal.Decimal("1.5")),
    st.just({1: 2}),
    st.just({None: []}),
    st.just({"a": {"b": set()}}),
    st.just([[]]),
    st.just((None, 3)),
    st.lists(st.text(max_size=4), max_size=3),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)


def fields_of(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]


@st.composite
def wrong_parts(draw: st.DrawFn, kind: type[msgspec.Struct]) -> msgspec.Struct:
    chosen = draw(st.sets(st.sampled_from(fields_of(kind)), max_size=3))
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{name: draw(odd) for name in chosen | set(required)})


@st.composite
def wrong_jobs(draw: st.DrawFn) -> MPIJob:
    values: dict[str, Any] = {"name": "bert", "command": ("a",)}
    for name in draw(st.sets(st.sampled_from(fields_of(MPIJob)), min_size=1, max_size=4)):
        values[name] = draw(_value(name))
    return MPIJob(**values)


def is_not_coerced(value: Any) -> bool:
    """A mapping in the place of a part is turned into that part by MPIJob itself."""
    return not isinstance(value, dict)


def _value(name: str) -> st.SearchStrategy[Any]:
    if name == "launch":
        inner = wrong_parts(CustomLaunch).map(lambda custom: Launch(custom=custom))  # type: ignore[arg-type] # on purpose
        return st.one_of(odd.filter(is_not_coerced), wrong_parts(Launch), inner)
    if name == "code":
        code = wrong_parts(GitSource).map(lambda git: Code(git=git))  # type: ignore[arg-type] # on purpose
        return st.one_of(odd.filter(is_not_coerced), wrong_parts(Code), code)
    if name in PARTS:
        return odd.filter(is_not_coerced) | wrong_parts(PARTS[name])
    if name in LISTED:
        return odd | st.lists(wrong_parts(LISTED[name]), max_size=2).map(tuple)
    return odd


@pytest.mark.thorough
@pytest.mark.req("FR-SDK-002", "FR-030")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(wrong_jobs())
@example(MPIJob(name="a", priority=10**4000, workers=10**4000, slots=10**4000, ranks=10**4000))
@example(MPIJob(name="a", command=("a",), env=loop))
def test_any_value_in_any_field_gives_findings_and_never_another_exception(job: MPIJob) -> None:
    for finding in checks.run(job):
        assert finding.code in checks.codes()
        assert finding.message
        assert len(str(finding)) < 2000
        str(finding).encode("utf-8", "strict")


def test_numbers_that_python_itself_will_not_print_are_told_all_the_same() -> None:
    huge = 10**5000
    resources = Resources(cpu=huge, memory=huge, gpu=huge, others={"a": huge})
    job = MPIJob(name="a", priority=huge, workers=huge, slots=huge, ranks=huge, resources=resources)
    told = {finding.field: finding.message for finding in checks.run(job)}
    assert "a number of 16610 bits" in told["workers"]
    assert {"priority", "slots", "resources.cpu", "resources.gpu", "resources.others.a"} <= told.keys()


@pytest.mark.parametrize("name", fields_of(MPIJob))
def test_a_foreign_object_in_any_field_is_an_error_at_that_field(name: str) -> None:
    fields: dict[str, Any] = {"name": "bert", "command": ("a",), name: object()}
    job = MPIJob(**fields)
    errors = [one for one in checks.run(job) if one.severity is Severity.ERROR]
    assert [one.field for one in errors if one.code == "WRONG_TYPE"] == [name]


@pytest.mark.parametrize(
    ("part", "name"), [(part, field) for part, kind in PARTS.items() for field in fields_of(kind)]
)
def test_a_foreign_object_in_any_part_is_an_error_at_its_path(part: str, name: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "elastic": {"max_workers": 9},
        "concurrency": {"limit": 1},
        "model": {"name": "bert"},
    }
    fields: dict[str, Any] = {part: PARTS[part](**needed.get(part, {}) | {name: object()})}
    job = MPIJob(name="bert", command=("a",), **fields)
    assert [one.field for one in checks.run(job) if one.code == "WRONG_TYPE"] == [f"{part}.{name}"]
