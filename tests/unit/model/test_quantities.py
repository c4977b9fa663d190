"""Amounts as people read them."""

from __future__ import annotations

import pytest

from mpijob.diagnosis.evidence import Memory
from mpijob.model import Amounts, Phase, Resources, WorkerState
from mpijob.model.spec.quantity import NONE, as_count, parse


@pytest.mark.parametrize(
    ("number", "words"), [(2.0, "2"), (0.5, "0.5"), (1 / 3, "0.333333"), (2.22e-16, "0"), (-1e-17, "0")]
)
def test_a_count_has_no_idle_digits_and_no_dust(number: float, words: str) -> None:
    assert as_count(number) == words


@pytest.mark.security
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2), ("1.5", 1.5), (".5", 0.5), ("5.", 5), ("500m", 0.5), ("4Gi", 4 * 1024**3), ("512M", 512e6),
        ("2k", 2e3), ("2e3", 2e3), ("2E3", 2e3), ("3E+2", 300), ("1e-3", 0.001), ("+1", 1), ("1E", 1e18),
        ("1Ei", 1024**6), ("100n", 1e-7), ("7u", 7e-6), ("4.00000000000000", 4), ("1e99", 1e24), ("9" * 30 + "E", 1e24),
    ],
)  # fmt: skip
def test_whatever_an_api_server_takes_is_understood(text: str, number: float) -> None:
    assert parse(text) == pytest.approx(number)


@pytest.mark.parametrize(
    "text", ["", "none", "-1", "1e3Gi", "4 Gi", "1e", "1ee3", "0x10", "1,5", "Gi", "1Kim", "1e100"]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        parse(text)


def test_a_part_that_asks_for_none_reserves_nothing_and_may_use_more_than_any_machine_has() -> None:
    part = Resources(cpu=NONE, memory=NONE, gpu=2)
    assert part.asked == Amounts(0.0, 0, 2)
    assert part.cores >= 1e6
    assert part.memory_bytes >= 1 << 60
    assert Resources(cpu=2, memory=NONE).asked == Amounts(2.0, 0, 0)


def test_a_worker_without_a_limit_has_none_in_its_state() -> None:
    limit = Resources(memory=NONE).memory_bytes
    assert WorkerState(0, "w", Phase.RUNNING, memory_limit_bytes=limit).memory_limit_bytes is None
    assert WorkerState(0, "w", Phase.RUNNING, memory_limit_bytes=1 << 30).memory_limit_bytes == 1 << 30
    assert Memory(0, peak_bytes=limit, limit_bytes=limit) == Memory(0)
