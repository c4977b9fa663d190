"""Amounts as people read them."""

from __future__ import annotations

import pytest

from mpijob.model.quantity import as_count


@pytest.mark.parametrize(
    ("number", "words"), [(2.0, "2"), (0.5, "0.5"), (1 / 3, "0.333333"), (2.22e-16, "0"), (-1e-17, "0")]
)
def test_a_count_has_no_idle_digits_and_no_dust(number: float, words: str) -> None:
    assert as_count(number) == words
