"""The schema and the explanations: every field described, every example valid, wrong fields answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from mpijob.errors import NotFound
from mpijob.formats.jobfile import jobfile_reader, json_schema
from mpijob.model import MPIJob
from mpijob.model.spec.field_docs import FIELDS
from mpijob.model.spec.type_check import job_type


def structures(kind: inspect.StructType) -> Iterator[inspect.StructType]:
    yield kind
    for field in kind.fields:
        if inner := json_schema._inner(field.type):
            yield from structures(inner)


def paths(kind: inspect.StructType, before: str = "") -> Iterator[str]:
    for field in kind.fields:
        yield before + field.name
        if inner := json_schema._inner(field.type):
            yield from paths(inner, f"{before}{field.name}.")


ALL = sorted(
    {f"{kind.cls.__name__}.{field.name}" for kind in structures(job_type()) for field in kind.fields}
)
PATHS = list(paths(job_type()))
LISTS = ("groups", "notify", "programs", "secrets", "volumes")


@pytest.mark.req("C-explain")
def test_every_field_has_a_description_and_no_description_lacks_its_field() -> None:
    assert sorted(FIELDS) == ALL


@pytest.mark.parametrize("key", ALL)
def test_every_description_is_a_sentence_with_an_example(key: str) -> None:
    about = FIELDS[key]
    assert about.text.endswith(".")
    assert about.text[0].isupper()
    assert about.example


@pytest.mark.parametrize("path", PATHS)
def test_every_example_can_be_written_into_a_job_file(path: str) -> None:
    assert jobfile_reader.read(nested(path, json_schema.explain(path).example)).name


def nested(path: str, line: str) -> str:
    """Return a job file that holds one line at a path, with the fields that its parts require."""
    required = {
        "concurrency": "limit: 2",
        "custom": "command: [a]",
        "elastic": "max_workers: 9",
        "groups": "name: cpu\nworkers: 1",
        "model": "name: m",
        "notify": "to: chat",
        "programs": "ranks: 1\ncommand: [a]",
        "secrets": "env: A\nsource: a/b",
        "volumes": "mount: /a",
    }
    name = path.rpartition(".")[2]
    text = line
    for part in reversed(path.split(".")[:-1]):
        others = [one for one in required.get(part, "").split("\n") if one and one.split(":")[0] != name]
        lines = [*others, *text.split("\n")] if name != part else text.split("\n")
        name = part
        first, rest = ("- ", "  ") if part in LISTS else ("  ", "  ")
        text = f"{part}:\n" + "\n".join((first if at == 0 else rest) + one for at, one in enumerate(lines))
    return text if path == "name" else f"name: x\n{text}"


def test_the_schema_describes_every_field_and_refuses_unknown_ones() -> None:
    made = json_schema.json_schema()
    structs = {name: part for name, part in made["$defs"].items() if "properties" in part}
    assert {f"{name}.{field}" for name, part in structs.items() for field in part["properties"]} == set(ALL)
    assert all(part["additionalProperties"] is False for part in structs.values())
    assert all(field["description"] for part in structs.values() for field in part["properties"].values())
    assert made["$defs"]["MPIJob"]["required"] == ["name"]
    assert made["$defs"]["MPIJob"]["properties"]["workers"]["default"] == 4
    assert made["$defs"]["MPIJob"]["properties"]["launcher"]["default"] == {"cpu": "100m", "memory": "256Mi"}


@pytest.mark.thorough
def test_the_schema_can_be_written_as_json_and_made_twice_alike() -> None:
    assert msgspec.json.decode(msgspec.json.encode(json_schema.json_schema())) == json_schema.json_schema()


@pytest.mark.req("C-explain")
def test_a_field_is_explained_with_type_default_and_words() -> None:
    workers = json_schema.explain("workers")
    assert (workers.type, workers.default, workers.required) == ("a whole number", "4", False)
    kind = json_schema.explain("volumes[0].kind")
    assert (kind.path, kind.default) == ("volumes.kind", "path")
    assert "claim" in kind.words
    assert json_schema.explain("launcher").default == "cpu: 100m, memory: 256Mi"
    assert json_schema.explain("launch.custom").fields == ("command", "host_line", "tag", "rank_variable")
    assert json_schema.explain("name").required
    assert json_schema.explain("signal.name").words[0] == "HUP"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("worker", "did you mean 'workers'?"),
        ("resources.cpus", "did you mean 'resources.cpu'?"),
        ("launch.custom.tg", "did you mean 'launch.custom.tag'?"),
        ("env.A", "ask for env itself"),
        ("", "name, namespace"),
        ("zzzzzz", "name, namespace"),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest_one(path: str, said: str) -> None:
    with pytest.raises(NotFound) as caught:
        json_schema.explain(path)
    assert said in caught.value.hint


def test_the_defaults_that_are_told_are_the_models() -> None:
    job = MPIJob(name="x")
    told: dict[str, Any] = {
        name: json_schema.explain(name).default for name in ("slots", "namespace", "grace_seconds")
    }
    assert told == {
        "slots": str(job.slots),
        "namespace": job.namespace,
        "grace_seconds": f"{job.grace_seconds:g}",
    }
