"""The examples in docstrings run, anywhere: over the memory engine, with an empty home."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import mpijob
from mpijob import AsyncClient, Client, Job
from mpijob.client.observe import compare
from mpijob.client.submit import array, function
from mpijob.model.spec import job as job_module

MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(mpijob.__path__, "mpijob.")
    if not name.endswith("__main__")
    and ">>> " in Path(str(importlib.import_module(name).__file__)).read_text()
)


@pytest.mark.req("FR-SDK-005")
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    result = doctest.testmod(importlib.import_module(name), report=True)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.req("FR-SDK-005")
@pytest.mark.parametrize(
    "told",
    [job_module, Client, AsyncClient, Job, array.expand, compare.compare, function.job],
    ids=lambda told: getattr(told, "__qualname__", "job"),
)
def test_what_users_call_first_has_an_example(told: object) -> None:
    assert ">>> " in (told.__doc__ or "")
