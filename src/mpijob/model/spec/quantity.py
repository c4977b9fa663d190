"""Kubernetes' quantities: `500m`, `2`, `1.5`, `4Gi`, `512M`, and also `2e3`, `+1`, `100n`.

A spec keeps the text as it was written.
"""

from __future__ import annotations

import math
import re

# Everything that the API server accepts is parsed: an amount that could not be read would pass every limit.
_FACTORS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
} | {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
_NUMBER = r"(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})"
_QUANTITY = rf"\+?(?:({_NUMBER}[eE][+-]?[0-9]{{1,2}})|({_NUMBER})([numkMGTPE]|[KMGTPE]i)?)"
# Kubernetes limits larger values to its maximum, too.
MOST = 1e24
# Instead of an amount: no request and no limit.
NONE = "none"
# More than any machine has, but a value that cgroups accept as a quota.
UNLIMITED_CORES = 1e6
UNLIMITED_BYTES = 1 << 62

Amount = str | int | float


def parse(amount: Amount) -> float:
    """Return the value of an amount; raise ValueError with the reason if it is malformed."""
    if isinstance(amount, (int, float)) and not isinstance(amount, bool):
        if not 0 <= amount < MOST:
            raise ValueError(f"{amount} is not an amount: it must be zero or more")
        return float(amount)
    match = re.fullmatch(_QUANTITY, amount) if isinstance(amount, str) else None
    if match is None:
        raise ValueError(f"{amount!r} is not an amount: write a number such as 2, 500m or 4Gi")
    power, number, unit = match.groups()
    return min(float(power) if power else float(number) * _FACTORS[unit or ""], MOST)


def as_bytes(size: float) -> str:
    """Format a size in bytes: `16 GiB`, `1.5 GiB`, `512 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


def doubled(size: float) -> str:
    """Return twice a memory size as a round amount for a spec."""
    # The real need of a job that was killed at its limit is unknown.
    mib = size * 2 / (1 << 20)
    return f"{math.ceil(mib / 1024)}Gi" if mib >= 2048 else f"{math.ceil(mib / 64) * 64}Mi"


def ranks_on(ranks: int, workers: int) -> str:
    """Format numbers of ranks and workers: `1 rank on 1 worker`."""
    return f"{ranks} rank{'s' * (ranks != 1)} on {workers} worker{'s' * (workers != 1)}"


def as_count(number: float) -> str:
    """Format a number of cores or devices without trailing zeros: `2`, `0.5`."""
    # Rounding removes the float error of sums, and `+ 0.0` a negative zero.
    return f"{round(number, 6) + 0.0:.6g}"
