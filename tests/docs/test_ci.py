"""The CI recipes: every script of the page runs, with real jobs, as a runner would run it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import pages
from tests.docs.readers import a_reader

PAGE = pages.read("ci")
RECIPES = re.findall(r"^## (.*?)\n.*?^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def lines(value: Any) -> Iterator[str]:
    """Yield the scripts of a recipe in order, whichever system it is for."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("run", "script", "after_script") and isinstance(item, (str, list)):
                yield from [item] if isinstance(item, str) else item
            else:
                yield from lines(item)
    elif isinstance(value, list):
        for item in value:
            yield from lines(item)


def scripts(text: str) -> list[str]:
    return [one for one in lines(yaml.safe_load(text)) if not one.startswith("pip install")]


@pytest.mark.engine
@pytest.mark.parametrize(("title", "text"), RECIPES, ids=[title for title, _ in RECIPES])
def test_the_scripts_of_a_recipe_run(title: str, text: str, tmp_path: Path) -> None:
    reader = a_reader(tmp_path)
    todo = scripts(text)
    assert todo
    for script in todo:
        argv = ["bash", "-c", script] if title.startswith("What") else ["bash", "-ec", script]
        done = subprocess.run(
            argv, cwd=reader.directory, env=dict(reader.environ), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    kept = reader.directory / "hello.log"
    if "hello.log" in text:
        assert "hello from rank 1 of 2" in kept.read_text()


def test_the_codes_of_the_page_are_those_of_the_reference() -> None:
    reference = pages.read("exit-codes")
    known = set(re.findall(r"^\| (\d+) \|", reference, re.MULTILINE))
    used = set("|".join(re.findall(r"^    ([\d|]+)\) ", PAGE, re.MULTILINE)).split("|"))
    assert used
    assert used <= known
