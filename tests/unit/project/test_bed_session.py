"""A command on the test bed that is asked to end from outside may mend first what it did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MENDING = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
try:
    print("begun", flush=True)
    signal.pause()
finally:
    print("mended", flush=True)
"""
DYING = "print('begun', flush=True); import signal; signal.pause()"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "last", "status"), [(MENDING, "mended\n", 7), (DYING, "", 128 + signal.SIGTERM)]
)
def test_an_end_that_is_asked_of_the_bed_is_asked_of_the_command(
    tmp_path: Path, script: str, last: str, status: int
) -> None:
    argv = [sys.executable, "-m", "testbed", "run", "--", sys.executable, "-c", script]
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "another-cluster"), "MPIJOB_TEST_CLUSTER": ""}
    with subprocess.Popen(argv, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as bed:
        assert bed.stdout is not None
        assert bed.stdout.readline() == "begun\n"
        bed.send_signal(signal.SIGTERM)
        assert bed.stdout.read() == last
    assert bed.returncode == status
