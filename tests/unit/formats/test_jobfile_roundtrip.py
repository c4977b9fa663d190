"""What is written reads back as the same job, whatever its fields hold; noise never breaks the reader."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.properties import examples

from mpijob.errors import InvalidJob
from mpijob.formats.jobfile import jobfile_reader, jobfile_writer, yaml_tree
from mpijob.model import (
    Code,
    CustomLaunch,
    Elastic,
    Family,
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
    Topology,
    Volume,
    VolumeKind,
    WorkerGroup,
)
from mpijob.model.spec.job import Concurrency, Notify

TRICKY = [
    "",
    "yes",
    "on",
    "null",
    "~",
    "1",
    "1.0",
    "1e3",
    "0x1F",
    "0o7",
    "007",
    "true",
    "- a",
    "a: b",
    "#x",
    "*a",
]
TRICKY += [
    "&a",
    "!t",
    "a\nb",
    "a\n",
    "\n",
    " a ",
    "a\tb",
    "\x85",
    "\u2028",
    "é",
    "😀",
    "'",
    '"',
    "\\",
    "{}",
    "[",
    "|",
]
TRICKY += [
    "\ufeff",
    "<<",
    "=",
    "1_000",
    ".5",
    "+1",
    "-0",
    "12:30",
    "2024-01-01",
    "\x7f",
    "\x1b[0m",
    "\r",
    "a\r\nb",
]

texts = st.sampled_from(TRICKY) | st.text(max_size=12)
words = st.lists(texts, max_size=3).map(tuple)
mappings = st.dictionaries(texts, texts, max_size=3)
whole = st.integers(-(10**12), 10**12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
amounts = texts | whole | numbers
plain = st.recursive(
    st.none() | st.booleans() | whole | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)
plain_mappings = st.dictionaries(texts, plain, max_size=3)

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": whole,
    "float": numbers,
    "bool": st.booleans(),
    "int | None": st.none() | whole,
    "float | None": st.none() | numbers,
    "str | int": texts | whole,
    "Amount": amounts,
    "Mapping[str, str]": mappings,
    "Mapping[str, Amount]": st.dictionaries(texts, amounts, max_size=3),
    "Mapping[str, Any]": plain_mappings,
    "tuple[str, ...]": words,
    "tuple[Mapping[str, Any], ...]": st.lists(plain_mappings, max_size=2).map(tuple),
    "Family": st.sampled_from(Family),
    "VolumeKind": st.sampled_from(VolumeKind),
    "Topology": st.sampled_from(Topology),
}


def part(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return parts of a job with any subset of their fields set; every field is covered by its type."""
    fields = {name: KINDS[text] for name, text in kind.__annotations__.items()}
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    return st.fixed_dictionaries(
        {name: fields[name] for name in fields if name in required},
        optional={name: fields[name] for name in fields if name not in required},
    ).map(lambda values: kind(**values))


KINDS["CustomLaunch | None"] = st.none() | part(CustomLaunch)
KINDS["Concurrency | None"] = st.none() | part(Concurrency)
KINDS["Elastic | None"] = st.none() | part(Elastic)
KINDS["Model | None"] = st.none() | part(Model)
KINDS["GitSource"] = part(GitSource)
for _kind in (Resources, Launch, Code, Placement, Network, Retry, Signal, Retention):
    KINDS[_kind.__name__] = part(_kind)
KINDS["Resources | None"] = st.none() | KINDS["Resources"]
KINDS["Placement | None"] = st.none() | KINDS["Placement"]
for _item in (Notify, Program, Secret, Volume, WorkerGroup):
    KINDS[f"tuple[{_item.__name__}, ...]"] = st.lists(part(_item), max_size=2).map(tuple)


@pytest.mark.thorough
@pytest.mark.req("FR-007", "B-export")
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(part(MPIJob), st.sampled_from(["yaml", "json"]))
def test_what_is_written_reads_back_as_the_same_job(job: MPIJob, format: Literal["yaml", "json"]) -> None:
    assert jobfile_reader.read(jobfile_reader.write(job, format=format)) == job


@pytest.mark.thorough
@pytest.mark.parametrize("text", TRICKY)
def test_tricky_texts_survive_in_every_kind_of_place(text: str) -> None:
    job = MPIJob(
        name=text,
        description=text,
        command=(text, text),
        env={text: text},
        priority=text,
        resources=Resources(cpu=text, others={text: text}),
        placement=Placement(affinity={text: [text, {text: text}]}),
    )
    assert jobfile_reader.read(jobfile_reader.write(job)) == job
    assert jobfile_reader.read(jobfile_reader.write(job, format="json")) == job


def test_the_reader_without_the_c_library_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        jobfile_writer.write(MPIJob(name="x", command=("a",), env={"A": "b"}), "yaml"),
        "name: &a x",
        "a: [",
        "x:\n\ty",
    ]
    with_library = [outcome(text) for text in texts]
    monkeypatch.setattr(yaml_tree, "_LOADER", yaml.SafeLoader)
    assert [outcome(text) for text in texts] == with_library


def outcome(text: str | bytes) -> MPIJob | list[str]:
    try:
        return jobfile_reader.read(text)
    except InvalidJob as error:
        return [finding.code for finding in error.findings]


scraps = st.sampled_from(
    ["name", ": ", "\n", "- ", "  ", "{", "}", "[", "]", "&a ", "*a", "!t ", "'", '"', "|\n", "#"]
)


@pytest.mark.thorough
@pytest.mark.security
@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.binary(max_size=40)
    | st.text(max_size=40)
    | st.lists(scraps | st.text(max_size=3), max_size=20).map("".join)
)
def test_noise_is_a_job_or_an_invalid_job_and_nothing_else(noise: str | bytes) -> None:
    assert outcome(noise), "a job, or the codes of what is wrong"


@pytest.mark.thorough
@pytest.mark.security
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from([field.name for field in msgspec.structs.fields(MPIJob)]), plain, max_size=6
    )
)
def test_any_value_in_any_field_of_a_file_is_read_or_told(values: dict[str, Any]) -> None:
    assert outcome(yaml.dump(values, Dumper=jobfile_writer.Dumper)), "a job, or the codes of what is wrong"
