"""Amounts as people and Kubernetes write them: `500m`, `2`, `1.5`, `4Gi`, `512M`, and also `2e3`, `+1`, `100n`.

Whatever an API server takes is understood: what could not be read could not be judged, and would be let in.
A spec keeps the text that its author wrote; whoever calculates asks for the number.
"""

from __future__ import annotations

import math
import re

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
# Kubernetes, too, counts what is larger as the largest.
MOST = 1e24
# In place of an amount: nothing is requested, and nothing limited.
NONE = "none"
# More than any machine has, and still a quota that a cgroup takes.
UNLIMITED_CORES = 1e6
UNLIMITED_BYTES = 1 << 62

Amount = str | int | float


def parse(amount: Amount) -> float:
    """Return the number that an amount stands for; raise ValueError with the reason if there is none."""
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
    """Return a size in bytes as people read it: `16 GiB`, `1.5 GiB`, `512 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


def doubled(size: float) -> str:
    """Return twice a memory size as a round amount for a spec.

    What a job needs that was stopped at its limit is not known: it may be any amount more.
    """
    mib = size * 2 / (1 << 20)
    return f"{math.ceil(mib / 1024)}Gi" if mib >= 2048 else f"{math.ceil(mib / 64) * 64}Mi"


def ranks_on(ranks: int, workers: int) -> str:
    """Return how many ranks are on how many workers, as people say it: `1 rank on 1 worker`."""
    return f"{ranks} rank{'s' * (ranks != 1)} on {workers} worker{'s' * (workers != 1)}"


def as_count(number: float) -> str:
    """Return a count of cores or devices without idle digits: `2`, `0.5`."""
    # What is left of sums that cancel out is nothing.
    return f"{round(number, 6) + 0.0:.6g}"
