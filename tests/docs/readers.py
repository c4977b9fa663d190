"""A reader of our pages: an empty home, the examples at hand, and our commands on the PATH."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.docs.blocks import Reader

ROOT = Path(__file__).resolve().parents[2]
_KEPT = ("LANG", "COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "PIP_FIND_LINKS", "PIP_CERT")


def a_reader(folder: Path) -> Reader:
    """Return somebody with a fresh home, the examples at hand, and our commands on the PATH."""
    work = folder / "work"
    shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return Reader(work, an_environment(folder))


def an_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user who has just logged in."""
    home = folder / "home"
    home.mkdir()
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return {**environ, "PATH": path, "HOME": str(home)}
