"""The start agent, played against the barest worker: what it asks for is answered, however fast the answer comes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpijob.backends.local.storage.paths import SCRIPTS

from .support import PATIENCE


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    """Return the directory of a worker's pipes, as an attempt makes them."""
    directory = tmp_path / "workers" / "job-worker-0"
    directory.mkdir(parents=True)
    for name in ("ask", "answer.0"):
        os.mkfifo(directory / name)
    return directory


@pytest.mark.parametrize("asked_before", [False, True], ids=["first request", "later request"])
@pytest.mark.parametrize("code", [0, 3])
def test_an_answer_that_comes_at_once_is_not_lost(worker: Path, code: int, *, asked_before: bool) -> None:
    """A daemon may end before the agent is given a core again; the worker never waits for whoever is not there."""
    if asked_before:
        (worker / "request.0").touch()
    environ = {"PATH": os.environ["PATH"], "MPIJOB_PIPES": str(worker.parents[1])}
    for _ in range(20):
        ask = os.open(worker / "ask", os.O_RDWR)
        words = ["/bin/sh", f"{SCRIPTS}/agent.sh", "-x", worker.name, "daemon", "--port", "1"]
        with subprocess.Popen(words, env=environ) as agent:
            verb, request = os.read(ask, 100).decode().split()
            assert (verb, (worker / f"request.{request}").read_text()) == ("start", "daemon --port 1")
            try:
                answer = os.open(worker / f"answer.{request}", os.O_WRONLY | os.O_NONBLOCK)
                os.write(answer, b"%d\n" % code)
                os.close(answer)
                assert agent.wait(PATIENCE) == code
            finally:
                agent.kill()
        os.close(ask)
        if not asked_before:
            (worker / "request.0").unlink()
