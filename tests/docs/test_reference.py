"""The reference pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from tests.unit.api_support import served
from tools import form, reference, reference_page, reference_settings

from mpijob import errors, settings
from mpijob.cli.arguments.flags import FLAGS, SWITCHES
from mpijob.cli.command_table import ENTRIES
from mpijob.client import AsyncClient, Client, Job
from mpijob.formats.jobfile.json_schema import explain
from mpijob.model.spec.field_docs import FIELDS

PAGES = reference.pages()


@pytest.mark.req("FR-SDK-005", "C-explain", "FR-032")
@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_reference_page_is_in_step_with_the_code(name: str) -> None:
    page = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert page == PAGES[name], f"to write it anew: {reference.COMMAND}"


@pytest.mark.req("FR-032", "FR-UX-003")
@pytest.mark.parametrize("entry", form.entries(), ids=lambda one: one.path)
def test_every_field_of_the_form_is_in_the_pages_reference_with_its_meaning(entry: form.Entry) -> None:
    section = PAGES["page.md"].partition(f"### {entry.where}\n")[2].partition("\n### ")[0]
    (row,) = [line for line in section.splitlines() if f"`{entry.path}`" in line]
    assert entry.place.label in row
    assert explain(entry.path).description in row.replace("\\|", "|")


@pytest.mark.req("FR-032")
def test_every_screen_and_key_of_the_page_is_in_its_reference() -> None:
    assert set(reference_page.screens()) == set(reference_page.NAMES)
    text = PAGES["page.md"]
    assert all(f"`{path}` | {said} |" in text for path, said in reference_page.screens().values())
    in_list, in_log = (reference_page.shortcuts(name) for name in ("LIST_SHORTCUTS", "LOG_SHORTCUTS"))
    assert len(in_list) >= 6
    assert in_log
    assert all(f"| {key} | {what} |" in text for key, what in (*in_list, *in_log))
    assert {"overview", "logs", "metrics", "workers", "configuration"} <= set(reference_page.tabs())


@pytest.mark.req("FR-032", "FR-UX-003")
def test_the_page_is_given_the_words_and_sentences_of_the_reference() -> None:
    with served() as browser:
        browser.sign_in()
        words, fields = browser.get("/guide").json()["glossary"], browser.get("/fields").json()["items"]
    assert len(words) > 5
    assert all(f"| {word} | {meaning} |" in PAGES["glossary.md"] for word, meaning in words.items())
    assert all(fields[one.path]["text"] == explain(one.path).description for one in form.entries())


@pytest.mark.req("C-explain")
@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_field_is_in_the_job_file_reference_with_its_meaning(field: str) -> None:
    name = field.partition(".")[2]
    rows = [line for line in PAGES["jobfile.md"].splitlines() if line.startswith(f"| `{name}` |")]
    assert any(FIELDS[field].text in row and FIELDS[field].example in row for row in rows)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_every_command_is_in_the_command_line_reference(name: str) -> None:
    assert re.search(rf"^### `mpijob {name}\b.*`\n\n{re.escape(ENTRIES[name].help)}", PAGES["cli.md"], re.M)


def test_every_flag_of_a_job_is_in_the_reference_once() -> None:
    for flag in (*FLAGS, *SWITCHES):
        assert (
            len(re.findall(rf"^\| `{flag[0]}[ `]", PAGES["cli.md"].partition("## Flags of a job")[2], re.M))
            == 1
        )


@pytest.mark.req("FR-SDK-005")
@pytest.mark.parametrize("kind", [Client, AsyncClient, Job])
def test_every_verb_of_a_class_is_in_its_section(kind: type) -> None:
    section = PAGES["sdk.md"].partition(f"## `{kind.__name__}`\n")[2].partition("\n## ")[0]
    inner = {"ref", "scope", "localized", "apart"} if kind is not Job else set()
    verbs = {name for name in dir(kind) if not name.startswith("_")} - inner
    assert verbs == set(re.findall(r"^- `(?:await )?(\w+)", section, re.M))


@pytest.mark.req("FR-SDK-005")
def test_the_sdk_reference_shows_the_examples_and_the_errors() -> None:
    assert ">>> job = client.run(" in PAGES["sdk.md"]
    ours = [kind for kind in errors.MpiJobError.__subclasses__() if kind.__module__ == errors.__name__]
    for kind in ours:
        assert f"| `{kind.__name__}` |" in PAGES["sdk.md"]


def test_the_pages_can_be_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    reference.main()
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == PAGES


@pytest.mark.parametrize("kind", reference_settings.described())
def test_every_setting_is_in_the_reference_with_its_meaning(kind: type[msgspec.Struct]) -> None:
    assert reference_settings.described()[kind] == set(kind.__struct_fields__)
    assert all(f"| `{name}` |" in PAGES["settings.md"] for name in kind.__struct_fields__)


def test_a_variable_that_sets_a_setting_is_in_the_reference() -> None:
    for name in settings.VARIABLES:
        assert f"`MPIJOB_{name.upper()}`" in PAGES["settings.md"]
