"""Every code that a user can see has its page, and the page says what the code says."""

import re
from pathlib import Path

import pytest

from mpijob import errors
from mpijob.diagnosis import pages
from mpijob.diagnosis.rules import RULES, UNKNOWN

DOCS = Path(__file__).parents[2] / "docs" / "troubleshooting"
ALL_RULES = (*RULES, UNKNOWN)


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
def test_the_page_of_a_rule_is_in_step_with_the_rule(rule: pages.Rule) -> None:
    wanted = pages.page(rule)
    assert (DOCS / rule.page).read_text() == wanted, (
        "run: python -m mpijob.diagnosis.pages docs/troubleshooting"
    )


def test_the_index_names_every_page_and_nothing_else() -> None:
    linked = set(re.findall(r"\(([\w-]+\.md)\)", (DOCS / "README.md").read_text()))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}
