"""Weights & Biases from distributed ranks: its real client writes offline runs, which are artifacts of the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.readers import ROOT, an_environment

pytestmark = pytest.mark.engine
WANDB = ROOT / ".make" / "wandb"
MPIJOB = str(Path(sys.executable).parent / "mpijob")
KEY = "0123456789abcdef0123456789abcdef01234567"

# The file of an offline run is a log of protobuf records in blocks of 32 KiB, as LevelDB keeps one.
READER = """
import json, sys
from wandb.proto.wandb_internal_pb2 import Record
data = open(sys.argv[1], "rb").read()
at, part, runs, rows = 7, b"", [], []
assert data[:4] == b":W&B", data[:7]
while at + 7 <= len(data):
    left = 32768 - at % 32768
    if left < 7:
        at += left
        continue
    size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
    part += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # whole, or the last piece
        record, part = Record.FromString(part), b""
        if record.HasField("run"):
            runs.append(record.run)
        if record.HasField("history"):
            items = record.history.item
            rows.append({one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in items})
config = {one.key: json.loads(one.value_json) for one in runs[0].config.update}
names = [runs[0].display_name, runs[0].run_group, runs[0].project]
print(json.dumps({"names": names, "config": config, "rows": rows}))
"""


def trained(folder: Path, *flags: str) -> list[dict[str, Any]]:
    """Return the runs of the example among its artifacts; it is run as the guide does, its key is a secret."""
    assert (WANDB / "wandb").exists(), "wandb is not installed; `make test` does it"
    environ = an_environment(folder) | {"WANDB_API_KEY": KEY}
    job = ("run", "-f", str(ROOT / "examples" / "wandb" / "job.yaml"), "--env", f"PYTHONPATH={WANDB}")
    said = of_mpijob(folder, environ, *job, "--secret", "WANDB_API_KEY=env:WANDB_API_KEY", *flags)
    assert "ranks=2" in said
    of_mpijob(folder, environ, "artifacts", "fetch", "tracked", "--to", "fetched")
    found = [read(path) for path in (folder / "fetched").rglob("*.wandb")]
    return sorted(found, key=lambda run: str(run["names"]))


def of_mpijob(folder: Path, environ: dict[str, str], *argv: str) -> str:
    done = subprocess.run(
        (MPIJOB, *argv), cwd=folder, env=environ, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(path: Path) -> dict[str, Any]:
    """Return an offline run, read with the client's own records."""
    environ = os.environ | {"PYTHONPATH": str(WANDB)}
    argv = (sys.executable, "-c", READER, str(path))
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_the_key_is_nowhere(folder: Path) -> None:
    holders = [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert holders == []


@pytest.mark.req("C-wandb")
def test_every_rank_keeps_an_offline_run_in_the_group_of_its_job(tmp_path: Path) -> None:
    runs = trained(tmp_path)
    assert [run["names"] for run in runs] == [
        ["tracked-rank-0", "tracked", "one-line"],
        ["tracked-rank-1", "tracked", "one-line"],
    ]
    assert [(run["config"]["rank"], run["config"]["ranks"]) for run in runs] == [(0, 2), (1, 2)]
    for run in runs:
        assert [row["_step"] for row in run["rows"]] == [*range(30)]
        assert run["rows"][-1]["loss"] < run["rows"][0]["loss"] / 20
    slopes = [[row["slope"] for row in run["rows"]] for run in runs]
    assert slopes[0] == slopes[1]
    losses = [[row["loss"] for row in run["rows"]] for run in runs]
    assert losses[0] != losses[1]
    check_the_key_is_nowhere(tmp_path)


@pytest.mark.req("C-wandb")
def test_a_run_of_rank_0_alone_bears_the_name_of_the_job(tmp_path: Path) -> None:
    (run,) = trained(tmp_path, "--env", "RANKS=first")
    assert run["names"] == ["tracked", "tracked", "one-line"]
    assert len(run["rows"]) == 30
