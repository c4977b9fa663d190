"""The support bundle of a real job that failed: everything is there, and what it printed of its secrets is not."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.model import Secret

from .support import PATIENCE, a_job

pytestmark = [pytest.mark.engine, pytest.mark.security]

CANARY = "canary-5d21e0"
SCRIPT = """
echo "$API_TOKEN and $WANDB"
env >&2
if [ "$MPIJOB_RANK" = 1 ]; then echo "fatal: $WANDB" >&2; exit 3; fi
sleep 60
"""


def test_no_file_of_a_failed_jobs_bundle_holds_what_it_printed_of_its_secrets(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_SOURCE", f"{CANARY}-source")
    secrets = (Secret(env="WANDB", source="env:THE_SOURCE"),)
    job = client.submit(a_job("leaky", SCRIPT, env={"API_TOKEN": f"{CANARY}-env"}, secrets=secrets))
    assert job.wait(PATIENCE).phase is Phase.FAILED
    made = job.bundle(tmp_path / "b.tar.gz")
    with tarfile.open(made.path) as packed:
        files = {one.name.partition("/")[2]: packed.extractfile(one) for one in packed.getmembers()}
        texts = {name: file.read() for name, file in files.items() if file is not None}
    assert {name for name, text in texts.items() if CANARY.encode() in text} == set()
    assert b"fatal: ***" in texts["logs/rank-1.log"]
    assert b"mpiexec" in texts["plan.json"]
    assert b'"rank":1' in texts["census.json"].replace(b" ", b"")
    assert b"exit" in texts["findings.json"]
