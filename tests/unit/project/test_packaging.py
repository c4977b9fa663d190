"""What goes out: the same bytes from the same source, packages pinned by hash, nothing left out."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tools import dist, installs

ROOT = Path(__file__).resolve().parents[3]
LOCK = (ROOT / "deploy" / "images" / "requirements" / "services.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVICES = ("kubernetes", "regex", "ui", "cluster", "metrics", "postgres")


def built(folder: Path, **environ: str) -> dict[str, Path]:
    """Return wheel and source distribution, built from a copy of what git would give."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)  # the copy is of now: times differ from build to build
    argv = [sys.executable, "-m", "hatchling", "build", "-d", "out"]
    subprocess.run(argv, cwd=folder, env={**os.environ, **environ}, capture_output=True, check=True)
    return {path.suffix: path for path in (folder / "out").iterdir()}


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, Path]]:
    here, there = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("another-place")
    epoch = {"SOURCE_DATE_EPOCH": "1767225600"}
    first = built(here, TZ="UTC", **epoch)
    os.utime(there)
    return first, built(there, TZ="Asia/Tokyo", LANG="C", PYTHONHASHSEED="7", **epoch)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [".whl", ".gz"])
def test_wheel_and_source_distribution_are_the_same_bytes_each_time(
    twice: tuple[dict[str, Path], dict[str, Path]], kind: str
) -> None:
    one, other = (hashlib.sha256(made[kind].read_bytes()).hexdigest() for made in twice)
    assert one == other


@pytest.mark.thorough
def test_the_wheel_is_for_every_machine_and_holds_the_package_only(
    twice: tuple[dict[str, Path], dict[str, Path]],
) -> None:
    wheel = twice[0][".whl"]
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert {name.split("/")[0] for name in names} == {"mpijob", f"mpijob-{PROJECT['version']}.dist-info"}
    assert "mpijob/client/submit/library/hello.yaml" in names


@pytest.mark.thorough
def test_the_source_distribution_has_what_the_tests_and_the_docs_need(
    twice: tuple[dict[str, Path], dict[str, Path]],
) -> None:
    with tarfile.open(twice[0][".gz"]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"Makefile", "mkdocs.yml", "docs/README.md", "examples/hello/job.yaml", "LICENSE"} <= names


def pinned() -> set[str]:
    return set(re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE))


def test_every_package_of_the_services_is_pinned_by_hash() -> None:
    asked = [
        *PROJECT["dependencies"],
        *(one for extra in SERVICES for one in PROJECT["optional-dependencies"][extra]),
    ]
    names = {re.split(r"[\[>=<]", one)[0].lower() for one in asked}
    assert names <= pinned()
    for block in re.split(r"\n(?=[\w.-]+==)", LOCK.strip()):
        assert "--hash=sha256:" in block


def test_the_pinned_versions_are_ones_that_the_project_allows() -> None:
    versions = dict(re.findall(r"^([\w.-]+)==([\d.]+)", LOCK, re.MULTILINE))
    for asked in PROJECT["dependencies"]:
        name, least = re.split(r"[>=<]+", asked)
        have = tuple(map(int, versions[name.lower()].split(".")))
        assert have >= tuple(map(int, least.split(".")))


def test_the_pinned_file_names_no_index_and_no_machine() -> None:
    assert not re.search(r"://|--index|--find-links|--trusted", LOCK)


@pytest.mark.security
def test_the_services_image_installs_what_is_pinned_and_nothing_else() -> None:
    recipe = (ROOT / "deploy" / "images" / "Containerfile").read_text(encoding="utf-8")
    assert "--require-hashes -r services.txt" in recipe
    assert "--no-deps --no-build-isolation" in recipe
    assert "--only-binary :all:" in recipe


def test_a_package_that_is_missing_in_the_bill_of_materials_is_named(tmp_path: Path) -> None:
    parts = [{"name": name} for name in pinned() - {"uvicorn"}]
    (tmp_path / "sbom.json").write_text(json.dumps({"components": [*parts, {"name": "mpijob"}]}))
    assert dist.unlisted(tmp_path / "sbom.json") == ["uvicorn"]


def test_a_package_is_the_same_however_its_name_is_spelled() -> None:
    assert {dist.plain(name) for name in ("typing_extensions", "Typing.Extensions", "typing-extensions")} == {
        "typing-extensions"
    }


def test_the_path_of_an_installation_has_a_shell_but_no_compiler_and_no_node(tmp_path: Path) -> None:
    path = installs.plain_path(tmp_path / "path")
    assert shutil.which("sh", path=path)
    for name in ("gcc", "cc", "g++", "x86_64-linux-gnu-gcc-12", "node", "npm", "make", "ld"):
        assert shutil.which(name, path=path) is None
