"""Form and text are one document: a form changes its fields in the text and leaves all else as it stands."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mpijob.client.submit import drafts
from mpijob.errors import InvalidJob
from mpijob.formats.jobfile import yaml_edit
from mpijob.formats.jobfile.yaml_edit import GONE

TEXT = """\
# my job
name: bert   # the name
workers: 4
# variables
env:
  LR: "0.1"  # rate
  # another
  X: 1
labels: {team: cv, tier: "1"}
future: {a: 1}  # a field of tomorrow
command: |
  python train.py
# the end
"""


@pytest.mark.req("FR-016", "FR-INT-008")
def test_what_the_form_does_not_touch_stays_letter_by_letter() -> None:
    job = msgspec.to_builtins(drafts.parse(TEXT).job)
    job.update(workers=8, name="b2", env={"LR": "0.2", "X": "1", "NEW": "yes"})
    assert drafts.rewrite(TEXT, job).splitlines() == [
        "# my job",
        "name: b2   # the name",
        "workers: 8",
        "# variables",
        "env:",
        '  LR: "0.2"  # rate',
        "  # another",
        "  X: 1",
        "  NEW: 'yes'",
        'labels: {team: cv, tier: "1"}',
        "future: {a: 1}  # a field of tomorrow",
        "command: |",
        "  python train.py",
        "# the end",
    ]


def test_a_form_that_changes_nothing_changes_nothing() -> None:
    assert drafts.rewrite(TEXT, msgspec.to_builtins(drafts.parse(TEXT).job)) == TEXT


def test_fields_are_changed_taken_out_and_added_by_path() -> None:
    made = drafts.change(
        TEXT, {"workers": None, "labels.tier": "2", "resources.gpu": 1, "env.a.b": "c", "command": ["a", "b"]}
    )
    read = yaml.safe_load(made)
    assert "workers" not in read
    assert read["labels"] == {"team": "cv", "tier": "2"}
    assert read["resources"] == {"gpu": 1}
    assert read["env"] == {"LR": "0.1", "X": 1, "a.b": "c"}
    assert read["command"] == ["a", "b"]
    assert made.startswith("# my job\n")
    assert made.endswith("# the end\n")


def test_the_last_field_of_a_part_takes_the_part_with_it() -> None:
    assert drafts.change("env:\n  A: 1\nname: x\n", {"env.A": None}) == "name: x\n"


def test_a_form_begins_with_an_empty_text() -> None:
    made = drafts.rewrite(
        "", {"name": "x", "workers": 4, "command": ["true"], "resources": {"gpu": 0, "cpu": 2}}
    )
    assert made == 'name: x\ncommand: ["true"]\nresources:\n  cpu: 2\n'


def test_what_is_wrong_is_told_and_the_rest_is_read() -> None:
    seen = drafts.parse("name: x\nworkers: many\nfuture: 1\ncommand: [a]\n")
    assert seen.job is not None
    assert (seen.job.name, seen.job.workers, seen.job.command) == ("x", 4, ("a",))
    assert seen.unknown == ("future",)
    assert {(one.field, one.line) for one in seen.findings} >= {("workers", 2), ("future", 3)}
    assert drafts.parse("name: [a").job is None
    contradiction = drafts.parse("name: x\nworkers: 0\ncommand: [a]\n")
    assert [one.line for one in contradiction.findings if one.field == "workers"] == [2]


@pytest.mark.security
@pytest.mark.parametrize(
    "text",
    ["a: &x [1]\nb: *x\n", "name: a\nname: b\n", "a: !!python/none 1\n", "name: a\n---\nname: b\n", "a: [\n"],
)
def test_a_text_that_could_be_changed_wrongly_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob):
        yaml_edit.edit(text, {("name",): "c"})


@pytest.mark.security
@pytest.mark.parametrize(
    ("text", "count"), [("name: a\n", yaml_edit.MOST_CHANGES + 1), ("a: " + "b" * yaml_edit.MOST_LETTERS, 1)]
)
def test_more_than_a_form_ever_changes_is_refused(text: str, count: int) -> None:
    with pytest.raises(InvalidJob, match="too many at once"):
        yaml_edit.edit(text, {("env", f"V{number}"): "1" for number in range(count)})


WORDS = st.text("abcXYZ019-._:#'\"{}[], \n\tü", max_size=12)
VALUES = st.recursive(
    WORDS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["name", "workers", "env", "labels", "command", "new", "future"])


@pytest.mark.thorough
@given(path=st.lists(NAMES, min_size=1, max_size=3), value=VALUES.filter(lambda one: one is not None))
def test_any_change_is_made_exactly_or_refused(path: list[str], value: object) -> None:
    before = yaml.load(TEXT, Loader=yaml.BaseLoader)
    try:
        after = yaml.load(yaml_edit.edit(TEXT, {tuple(path): value}), Loader=yaml.BaseLoader)
    except InvalidJob:
        return
    others = {key: item for key, item in after.items() if key != path[0]}
    assert others == {key: item for key, item in before.items() if key != path[0]}
    gone = yaml.load(yaml_edit.edit(TEXT, {(path[0],): GONE}), Loader=yaml.BaseLoader)
    assert gone == {key: item for key, item in before.items() if key != path[0]}
