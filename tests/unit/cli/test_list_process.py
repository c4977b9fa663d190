"""The command as a process of its own: how a list ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.thorough
def test_a_list_whose_reader_is_gone_ends_quietly(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "mpijob", "list", "-o", "json"]
    env = {**os.environ, "HOME": str(tmp_path), "MPIJOB_ENGINE": "memory"}
    with os.fdopen(write, "wb") as gone:
        result = subprocess.run(argv, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert (result.returncode, result.stderr) == (0, "")
