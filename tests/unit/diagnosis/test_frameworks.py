"""Real failures of torch, NCCL and CUDA on a real GPU, byte for byte but for paths, each told rightly and first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mpijob

FOLDER = Path(__file__).parents[2] / "fixtures" / "frameworks"
EXPECTED: dict[str, tuple[str, int | None]] = {
    "bad_ordinal": ("NO_GPU", 1),
    "cuda_assert": ("CUDA_ERROR", 0),
    "cuda_oom": ("CUDA_OOM", 0),
    "dataloader_killed": ("LOADER_KILLED", None),
    "gloo_peer_dies": ("RANK_EXIT", 1),
    "nccl_duplicate_gpu": ("GPU_SHARED", 1),
    "nccl_timeout": ("NCCL_TIMEOUT", None),
    "no_gpu": ("NO_GPU", 0),
    "port_in_use": ("PORT_IN_USE", None),
    "rendezvous_timeout": ("RENDEZVOUS", None),
    "torch_exception": ("PYTHON_EXCEPTION", 1),
}


def test_every_fixture_has_its_expectation() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.thorough
@pytest.mark.req("C-translate", "B-story1-fail")
@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_what_really_happened_is_told_first_with_its_rank(case: str) -> None:
    head, _, text = (FOLDER / f"{case}.txt").read_bytes().partition(b"===== output =====\n")
    code = re.search(rb"# exit_code: (\d+)", head)
    assert code is not None
    told = mpijob.diagnose(text, exit_code=int(code[1]))
    assert told.first is not None
    assert (told.first.code, told.first.rank) == EXPECTED[case]
    assert told.fixes
