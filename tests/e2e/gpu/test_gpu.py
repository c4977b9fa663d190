"""Real GPUs: who sees which, who waits for whom, how busy they are, and what is said when they run out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.integration.support import a_job, eventually, said, succeeded

from mpijob import Client, Job, MPIJob, Phase, Resources
from mpijob.errors import MpiJobError

TORCH = 120.0  # seconds that PyTorch may take to load on a machine that has just started
SEEN = """\
import torch
names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
total = torch.ones(1000, device="cuda").sum().item()
print("sees", torch.cuda.device_count(), names[0], total)
"""
BUSY = """\
import torch
kept = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
one = torch.randn(8192, 8192, device="cuda")
while True:
    for _ in range(20):
        one @ one
    torch.cuda.synchronize()
    print("round", flush=True)
"""
TOO_MUCH = """\
import torch
kept = []
while True:
    kept.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
"""
GPU = Resources(cpu="1", memory="4Gi", gpu=1)


def program(tmp_path: Path, text: str) -> tuple[str, str]:
    file = tmp_path / "program.py"
    file.write_text(text, encoding="utf-8")
    return os.environ.get("MPIJOB_GPU_PYTHON", sys.executable), str(file)


def on_gpu(name: str, command: tuple[str, ...]) -> MPIJob:
    return a_job(name, workers=1, command=command, resources=GPU)


@pytest.mark.req("R6", "FR-003")
def test_a_rank_sees_the_gpu_that_the_census_says_and_no_other(client: Client, tmp_path: Path) -> None:
    job = client.submit(on_gpu("sees", program(tmp_path, SEEN)))
    job.wait_for_completion(TORCH)
    (line,) = said(job)[0]
    assert line.startswith("sees 1 ")
    assert line.endswith(" 1000.0")
    assert [rank.gpus for rank in job.state().ranks] == [("0",)]


def test_a_job_that_asks_for_none_finds_no_gpu(client: Client, tmp_path: Path) -> None:
    text = "import torch\nprint(torch.cuda.is_available())"
    plain = Resources(cpu="1", memory="4Gi")
    job = succeeded(client, a_job("none", workers=1, command=program(tmp_path, text), resources=plain))
    assert said(job) == {0: ["False"]}


@pytest.mark.req("A-edge-gpu")
def test_too_many_gpus_are_refused_before_anything_starts(client: Client, gpus: int) -> None:
    with pytest.raises(MpiJobError) as told:
        client.submit(a_job("many", workers=gpus + 1, resources=GPU))
    assert "GPU" in str(told.value)
    assert str(gpus + 1) in str(told.value)
    assert list(client.jobs()) == []


@pytest.mark.req("R6", "FR-022", "FR-OBS-001")
def test_the_use_of_a_gpu_is_told_and_the_next_job_waits_for_it(
    client: Client, tmp_path: Path, gpus: int
) -> None:
    command = program(tmp_path, BUSY)
    first = [client.submit(on_gpu(f"busy-{index}", command)) for index in range(gpus)]
    for job in first:
        eventually(lambda job=job: said(job), "PyTorch has begun", TORCH)  # type: ignore[misc]  # bound now
    waiting = client.submit(on_gpu("next", ("true",)))
    assert waiting.state().phase is Phase.QUEUED
    assert "GPU" in waiting.state().waiting_for

    def busy(job: Job) -> bool:
        return any(one.gpus > 0.5 and one.gpu_memory_bytes > 2 << 30 for one in job.metrics())

    for job in first:
        eventually(lambda job=job: busy(job), "its GPU is told as busy, with its memory", 60)  # type: ignore[misc]  # bound now
        job.cancel(grace_period=0)
    assert waiting.wait_for_completion(60).phase is Phase.SUCCEEDED


@pytest.mark.req("B-story1-fail", "C-top10", "FR-013")
def test_a_gpu_whose_memory_ran_out_is_named_with_the_worker(client: Client, tmp_path: Path) -> None:
    job = client.submit(on_gpu("greedy", program(tmp_path, TOO_MUCH)))
    eventually(lambda: job.state().phase is Phase.FAILED, "the job has failed", TORCH)
    first, *_ = job.why()
    assert (first.code, first.message) == ("CUDA_OOM", "Worker 0 failed: CUDA out of memory")
