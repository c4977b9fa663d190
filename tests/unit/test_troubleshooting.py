"""Every code that a user can see has its page, and the page says what the code says."""

import re
from pathlib import Path

import pytest

from mpijob import errors
from mpijob.diagnosis import pages
from mpijob.diagnosis.rule import Rule
from mpijob.diagnosis.rules import RULES, UNKNOWN

DOCS = Path(__file__).parents[2] / "docs" / "troubleshooting"
ALL_RULES = (*RULES, UNKNOWN)
ANEW = "PYTHONPATH=. python -c 'from tests.unit.test_troubleshooting import write; write()'"


def write() -> None:
    for rule in ALL_RULES:
        (DOCS / rule.page).write_text(pages.page(rule))
    (DOCS / "README.md").write_text(pages.index(titles_of_errors()))


def error_codes() -> set[str]:
    found, todo = set(), [errors.MpiJobError]
    while todo:
        kind = todo.pop()
        found.add(kind.code)
        todo += kind.__subclasses__()
    return found


@pytest.mark.req("FR-033", "FR-UX-005", "AC9")
@pytest.mark.parametrize("code", sorted(error_codes() | {rule.id for rule in ALL_RULES}))
def test_every_code_has_a_troubleshooting_page(code: str) -> None:
    page = (DOCS / f"{code.lower()}.md").read_text()
    assert page.startswith(f"# {code}: ")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["What you see", "Why", "What to do"]


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_the_page_of_a_rule_is_in_step_with_the_rule(rule: Rule) -> None:
    assert (DOCS / rule.page).read_text() == pages.page(rule), f"to write it anew: {ANEW}"


def titles_of_errors() -> dict[str, str]:
    firsts = {code: (DOCS / f"{code.lower()}.md").read_text().partition("\n")[0] for code in error_codes()}
    return {code: first.removeprefix(f"# {code}: ") for code, first in firsts.items()}


def test_the_index_names_every_page_and_nothing_else() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert index == pages.index(titles_of_errors()), f"to write it anew: {ANEW}"
