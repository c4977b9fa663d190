"""The wizard's form reaches every field of the model: its table is held against the model's own JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.cli.test_flags import leaves
from tools import form
from tools.form_places import PLACES

from mpijob.client.submit.drafts import FIELDS
from mpijob.formats.jobfile import json_schema
from mpijob.model import MPIJob

WRITTEN = {one.path: one for one in form.entries()}
TEXTS = ("text", "word", "long", "project", "command", "cpu", "memory")
SUITS = {
    "string": TEXTS,
    "integer": ("number", "workers", "gpus"),
    "number": ("number",),
    "boolean": ("switch",),
    "array": ("list", "yaml", "volumes", "secrets", "command"),
    "object": ("pairs", "yaml"),
}


def fields(
    part: dict[str, Any], known: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field of a job file's JSON Schema that has no further fields of its own."""
    for name, described in part["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        inner = next((known[key] for key in parts(described) if "properties" in known[key]), None)
        if inner is None:
            yield here, described
        else:
            yield from fields(inner, known, here)


def parts(described: dict[str, Any]) -> list[str]:
    """The parts that a field holds, alone or optional; those in a list are not fields of the form."""
    every = [described, *described.get("anyOf", ()), *described.get("allOf", ())]
    return [one["$ref"].rpartition("/")[2] for one in every if "$ref" in one]


def of_the_model() -> dict[str, dict[str, Any]]:
    told = json_schema.json_schema()
    return dict(fields(told["$defs"]["MPIJob"], told["$defs"]))


MODEL = of_the_model()


def test_the_schema_and_the_model_have_the_same_fields() -> None:
    assert sorted(MODEL) == sorted(leaves(MPIJob))


@pytest.mark.req("AC10-parity")
@pytest.mark.parametrize("path", MODEL)
def test_each_field_of_the_model_has_an_input_that_suits_it(path: str) -> None:
    entry, described = WRITTEN[path], MODEL[path]
    kinds = {one.get("type") for one in (described, *described.get("anyOf", ()))} - {None, "null"}
    if not kinds:  # one of a few words
        assert entry.kind == "choice"
        assert entry.initial in entry.options
    assert entry.kind == "choice" or any(entry.kind in SUITS[kind] for kind in kinds)
    assert entry.place.label
    assert entry.place.step == "options" or not entry.place.group


@pytest.mark.req("AC10-parity")
def test_the_form_has_no_field_that_the_model_lacks() -> None:
    assert sorted(WRITTEN) == sorted(PLACES) == sorted(MODEL)
    labels = [one.place.label for one in WRITTEN.values()]
    assert len(labels) == len(set(labels))


@pytest.mark.req("SC-012", "FR-UX-003")
def test_the_help_of_each_field_is_what_explain_and_the_reference_tell() -> None:
    for path in WRITTEN:
        assert FIELDS[path].text == json_schema.explain(path).description


@pytest.mark.req("AC10-parity")
def test_the_page_is_made_with_the_form_of_today() -> None:
    assert form.FILE.read_text(encoding="utf-8") == form.text(), f"run: {form.COMMAND}"
