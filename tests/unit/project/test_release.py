"""A release says one version everywhere, and the changelog and the release notes tell of it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from tests import pages

import mpijob

ROOT = Path(__file__).resolve().parents[3]


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def test_one_version_is_told_everywhere() -> None:
    page = json.loads((ROOT / "frontend" / "package.json").read_text())
    api = json.loads((ROOT / "frontend" / "openapi.json").read_text())
    told = {
        "package": project(ROOT)["version"],
        "the other name": project(ROOT / "compat" / "openshift_ai_sdk")["version"],
        "page": page["version"],
        "API": api["info"]["version"],
    }
    assert told == dict.fromkeys(told, mpijob.__version__)


def test_changelog_and_release_notes_tell_of_this_version() -> None:
    sections = re.findall(
        r"^## \[(.*?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert sections[0] == ("Unreleased", "")
    assert sections[1][0] == mpijob.__version__
    assert sections[1][1], "a release has a day"
    assert f"## {mpijob.__version__}" in pages.read("releases")
