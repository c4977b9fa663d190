"""The names that users import, and that importing them costs next to nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import mpijob
import mpijob.client

DOCS = Path(__file__).parents[3] / "docs"
DOTTED = re.compile(r"\bmpijob\.(?:api|backends|client|formats|kfp|model|serving)(?:\.\w+)+")


def test_the_front_door_is_what_we_promise() -> None:
    assert mpijob.__all__ == [
        "AsyncClient",
        "Client",
        "Job",
        "JobFailed",
        "JobState",
        "MPIJob",
        "MpiJobError",
        "Phase",
        "Resources",
        "diagnose",
        "inspect_image",
        "report",
    ]


@pytest.mark.parametrize("name", mpijob.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(mpijob, name).__name__ == name


@pytest.mark.parametrize("room", [mpijob, mpijob.client])
def test_an_unknown_name_is_an_attribute_error(room: object) -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        room.nothing_here  # type: ignore[attr-defined]  # noqa: B018 this is what is tested


def test_making_a_job_loads_neither_client_nor_loop_nor_yaml() -> None:
    code = (
        "import sys; from mpijob import MPIJob; MPIJob(name='a');"
        "print([m for m in ('asyncio', 'yaml', 'mpijob.client', 'sqlite3', 'click') if m in sys.modules])"
    )
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unmeasured
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["alongside.load_job", "calling.verified", "converting.convert"])
def test_a_place_that_0_1_documented_can_still_be_imported(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert callable(getattr(import_module(f"mpijob.client.{module}"), attribute))


def test_every_dotted_name_in_the_documentation_can_be_imported() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"]  # those tell history
    names = {name for page in pages for name in DOTTED.findall(page.read_text())}
    assert len(names) > 3
    assert {name for name in names if not found(name)} == set()


def found(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    if find_spec(module) is None:
        return False
    return hasattr(import_module(module), attribute) or find_spec(name) is not None
