"""Amounts as people read them."""

from __future__ import annotations

import pytest

from mpijob.model.spec.quantity import as_count, parse


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
    "text", ["", "-1", "1e3Gi", "4 Gi", "1e", "1ee3", "0x10", "1,5", "Gi", "1Kim", "1e100"]
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount"):
        parse(text)
