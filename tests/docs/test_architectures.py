"""The reference architectures: each size is told, and its job is one that is well formed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests import pages
from tests.docs.readers import ROOT

from mpijob import checks
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model.spec.job import MPIJob

PAGE = pages.read("architectures")
JOBS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CRDS = sorted((ROOT / "deploy" / "base" / "crds").glob("mpijob*.yaml"))


def a_job(text: str) -> MPIJob:
    return jobfile_reader.read(f"name: train\ncommand: [python, train.py]\n{text}")


@pytest.mark.req("FR-034")
def test_there_are_architectures_for_2_8_and_16_nodes_and_for_hpc_beside_a_cluster() -> None:
    assert [a_job(text).workers for text in JOBS] == [2, 8, 16]
    assert re.findall(r"^## (\w+)", PAGE, re.MULTILINE) == ["Two", "Eight", "Sixteen", "Beside"]


@pytest.mark.req("FR-034")
@pytest.mark.parametrize("text", JOBS)
def test_the_job_of_an_architecture_is_well_formed(text: str) -> None:
    assert checks.run(a_job(text)) == ()


def undescribed(schema: object, path: str = "") -> list[str]:
    """Return the fields of a resource definition that say nothing about themselves."""
    found: list[str] = []
    if isinstance(schema, dict):
        for name, one in schema.get("properties", {}).items():
            plain = path == "" and name in ("apiVersion", "kind", "metadata")
            found += [] if plain or one.get("description") else [f"{path}.{name}"]
            found += undescribed(one, f"{path}.{name}")
        found += undescribed(schema.get("items"), f"{path}[]")
        found += undescribed(schema.get("additionalProperties"), f"{path}{{}}")
    return found


@pytest.mark.req("C-explain")
@pytest.mark.parametrize("file", CRDS, ids=lambda file: file.stem)
def test_every_field_of_our_resource_definitions_describes_itself(file: Path) -> None:
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))
    for version in definition["spec"]["versions"]:
        assert undescribed(version["schema"]["openAPIV3Schema"]) == []
