"""Finds a page of the documentation by its name: which folder holds it is for readers, not for tests."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
KINDS = ("tutorials", "how-to", "reference", "explanation")


def guides(checkout: Path = ROOT) -> list[Path]:
    """Return every page but troubleshooting pages and decisions; an older checkout has them right in docs/."""
    docs = checkout / "docs"
    return sorted([*docs.glob("*.md"), *(page for kind in KINDS for page in (docs / kind).rglob("*.md"))])


def find(name: str, checkout: Path = ROOT) -> Path:
    """Return the file of the page with this name; there must be one."""
    (found,) = (page for page in guides(checkout) if page.stem == name)
    return found


def read(name: str, checkout: Path = ROOT) -> str:
    """Return the text of a page."""
    return find(name, checkout).read_text(encoding="utf-8")
