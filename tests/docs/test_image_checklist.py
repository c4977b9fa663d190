"""The page "MPIJob Image Checklist": every command of it, with images made on the spot and a real registry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import images, pages
from tests.docs.blocks import Command, steps
from tests.docs.codes import all_codes
from tests.docs.readers import ROOT, a_reader
from tests.images import SYSTEM, Thing, image, mpich, openmpi
from tests.integration.registry import server

from mpijob import settings
from mpijob.backends.registry import image_exists

PAGE = pages.read("image-checklist")


@pytest.mark.req("UC4-doc", "C-docs")
def test_the_commands_of_the_checklist_work(tmp_path: Path) -> None:
    reader = a_reader(tmp_path)
    good = images.good()
    good.archive(reader.directory / "mpi.tar")
    image({**SYSTEM, **openmpi()}, {"usr/sbin/.wh.sshd": Thing()}).archive(reader.directory / "nosshd.tar")
    image({**SYSTEM, **mpich()}).archive(reader.directory / "mpich.tar")
    with server.running(tmp_path / "registry") as registry:
        registry.push(good, "team/mpi")
        wrong = reader.follow(PAGE.replace("registry.example.com", registry.address))
    assert wrong == [], "\n".join(wrong)
    assert sum(isinstance(step, Command) for step in steps(PAGE)) >= 9


@pytest.mark.req("UC4-doc")
def test_the_checklist_names_every_code_of_the_inspector_and_its_settings_are_settings(
    tmp_path: Path,
) -> None:
    known = {
        one for one in all_codes() if (ROOT / "src/mpijob/checks/images.py").read_text().count(f'"{one}"')
    }
    assert {one for one in known if one.startswith("IMAGE_")} <= set(re.findall(r"\[(IMAGE_\w+)\]", PAGE))
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "settings.toml").write_text(text)
    found = settings.load({"MPIJOB_SETTINGS": str(tmp_path / "settings.toml")})
    assert found.image_check == image_exists.WARN
    assert image_exists.reference_to_check("private.example.com/a:1", found) is None
