"""Pages point at things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def missing(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    return [target for target in targets if "://" not in target and not (page.parent / target).exists()]


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[here](page.md#part) [web](https://example.org/x) [gone](no/such.md)")
    assert missing(page) == ["no/such.md"]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert missing(page) == []


def test_every_decision_is_named_in_the_architecture() -> None:
    told = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    decisions = [page.name for page in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(decisions) >= 12
    assert [name for name in decisions if name not in told] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name == "decisions"], ids=lambda page: page.stem
)
def test_a_decision_has_its_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("**Context.**", "ecision", "**Invariants.**", "**Rejected.**"):
        assert part in text
