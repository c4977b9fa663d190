"""The training example: the same weights at any number of ranks, an honest scaling line, no hang."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "training"
MPIEXEC = Path(sys.executable).parent / "mpiexec"
SMALL = ("--epochs", "3", "--samples", "2048", "--batch", "256", "--probe", "2")


def run(ranks: int, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the example with the virtual environment's own mpiexec."""
    argv = [str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "mpi4py", "train.py", *flags]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(argv, cwd=EXAMPLE, env=environ, capture_output=True, text=True, timeout=120)


@functools.cache
def said(ranks: int) -> str:
    done = run(ranks, *SMALL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def number(name: str, output: str) -> float:
    found = re.findall(rf"^RESULT .*\b{name}=(-?[0-9.]+)", output, re.MULTILINE)
    assert len(found) == 1, output
    return float(found[0])


@pytest.mark.parametrize("ranks", [2, 4])
def test_weights_agree_with_one_rank_to_nine_digits(ranks: int) -> None:
    assert number("checksum", said(ranks)) == pytest.approx(number("checksum", said(1)), rel=1e-9)
    assert number("accuracy", said(ranks)) == number("accuracy", said(1))


def test_the_loss_falls_from_epoch_to_epoch() -> None:
    losses = [float(loss) for loss in re.findall(r"^epoch=\d+ loss=([0-9.]+)", said(2), re.MULTILINE)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)


def test_the_network_learns_what_guessing_cannot() -> None:
    done = run(2, "--epochs", "8", "--samples", "8192", "--batch", "512", "--probe", "1")
    assert number("accuracy", done.stdout) > 0.4, done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_ranks_share_all_samples_between_them(ranks: int) -> None:
    parts = re.findall(rf"^rank (\d+) of {ranks}: (\d+) of 2048 samples", said(ranks), re.MULTILINE)
    assert sorted(int(rank) for rank, _ in parts) == list(range(ranks))
    assert sum(int(rows) for _, rows in parts) == 2048


def test_a_batch_that_does_not_divide_evenly_is_still_seen_whole() -> None:
    flags = ("--epochs", "2", "--samples", "510", "--batch", "255", "--probe", "1")
    assert number("checksum", run(4, *flags).stdout) == pytest.approx(
        number("checksum", run(1, *flags).stdout), rel=1e-9
    )


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_scaling_line_counts_the_cores_that_the_ranks_may_use(ranks: int) -> None:
    cores = len(os.sched_getaffinity(0))
    noun = "rank" if ranks == 1 else "ranks"
    found = re.search(
        rf"^scaling: {ranks} {noun} ([0-9.]+)x of 1 rank \(efficiency (\d+)% of the {cores} cores here\)$",
        said(ranks),
        re.MULTILINE,
    )
    assert found, said(ranks)
    assert int(found[2]) == pytest.approx(100 * float(found[1]) / min(ranks, cores), abs=1)


def test_a_rank_that_raises_ends_the_whole_job() -> None:
    done = run(2, "--epochs", "1", "--samples", "100", "--batch", "200")
    assert done.returncode != 0
    assert "--samples 100 must hold at least one batch of --batch 200" in done.stderr
