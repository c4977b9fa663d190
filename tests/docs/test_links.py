"""Pages point at things that exist."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path

import pytest
from tests import pages

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "docs", ROOT / "examples", ROOT / "deploy")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ON_GITHUB, _ON_THE_SITE = r"\s", r"[-\s]+"  # what becomes a hyphen in the name of a heading
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def missing(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere, a heading that is not there included."""
    wrong = []
    for target, heading in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        there = page.parent / target if target else page
        if "://" in target:
            continue
        rules = (_ON_GITHUB, *([_ON_THE_SITE] if page.is_relative_to(ROOT / "docs") else ()))
        if not there.exists() or (heading and any(heading not in headings(there, rule) for rule in rules)):
            wrong.append(f"{target}#{heading}".removesuffix("#"))
    return wrong


@functools.cache
def headings(page: Path, gap: str) -> frozenset[str]:
    """Return the names by which a page's headings are linked to: on GitHub, or on the site."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in _HEADING.findall(text))
    return frozenset(re.sub(gap, "-", one) for one in plain)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A part\n[here](page.md#a-part) [web](https://example.org/x) [gone](no/such.md) [no](#b)"
    )
    assert missing(page) == ["no/such.md", "#b"]
    page = tmp_path / "other.md"
    page.write_text("# This & that\n[so](#this--that) [not so](#this-that)")
    assert missing(page) == ["#this-that"]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert missing(page) == []


def test_every_decision_is_named_in_the_architecture() -> None:
    told = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    decisions = [page.name for page in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(decisions) >= 12
    assert [name for name in decisions if name not in told] == []


def test_every_dependency_has_its_paragraph() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}
    wanted = [*project["project"]["dependencies"], *(one for group in groups.values() for one in group)]
    names = {re.split(r"[^\w.-]", one)[0].lower() for one in wanted if not one.startswith("types-")}
    told = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "decisions").glob("*.md")
    ).lower()
    assert sorted(name for name in names if name not in told) == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name == "decisions"], ids=lambda page: page.stem
)
def test_a_decision_has_its_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for part in ("**Context.**", "ecision", "**Invariants.**", "**Rejected.**"):
        assert part in text


@pytest.mark.security
def test_every_promise_of_the_page_on_security_names_a_test_that_there_is() -> None:
    text = pages.read("security")
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    promises = [line for line in rows if line.count("|") == 5]
    assert len(promises) > 20
    for row in promises[: promises.index(next(one for one in promises if "faulty object store" in one)) + 1]:
        named = re.findall(r"`(tests\w*/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"
