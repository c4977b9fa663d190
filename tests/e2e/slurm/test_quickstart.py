"""The page about engines, executed word for word on the login node of a real Slurm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests import pages
from tests.docs.blocks import Reader

PAGE = pages.read("engines")


@pytest.mark.alone  # its job of plain sbatch is in every list of this user
def test_the_page_about_engines_works_word_for_word_on_slurm(home: Path) -> None:
    """The home is the directory that login node and nodes share."""
    work = home / "work"
    work.mkdir()
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    wrong = Reader(work, {"PATH": path, "HOME": str(home), "USER": "alice", "LANG": "C.UTF-8"}).follow(PAGE)
    assert wrong == [], "\n".join(wrong)
