"""The page's style sheets: a class that two rules define takes the later one, wherever the first was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "frontend" / "src"
SHEETS = sorted(SOURCES.rglob("*.module.css"))
_MEDIA = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def defined(css: str) -> list[str]:
    """Return the class of each rule that is for one class alone, outside of media queries."""
    plain = _COMMENT.sub("", _MEDIA.sub("", css))
    selectors = re.findall(r"([^{}]+)\{[^{}]*\}", plain)
    return [name[1] for one in selectors if (name := re.fullmatch(r"\s*\.([\w-]+)\s*", one))]


def test_classes_of_a_sheet_are_found() -> None:
    assert defined(".a { b: c } .a, .b { d: e } .a > .c { f: g } .c { h: i } @media (x) { .a { j: k } }") == [
        "a",
        "c",
    ]


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: path.stem)
def test_a_style_sheet_defines_each_class_once(path: Path) -> None:
    names = defined(path.read_text(encoding="utf-8"))
    assert names
    assert [name for name in set(names) if names.count(name) > 1] == []
