"""Times, sizes and lists of numbers or hosts in the forms of batch systems, as our values."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,12})(?:\.\d+)?\s*([kmgtp]?)(i?b?|w)", re.IGNORECASE)
_HOSTS = re.compile(r"([^\[\],]+)(?:\[([^\]]*)\])?([^\[\],]*)")
_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}
# The maximum size of an array.
MOST_TASKS = 1000
_MOST_HOSTS = 1000


def seconds(text: str) -> float | None:
    """Return a time limit in seconds: `90` (minutes), `1:30`, `2:00:00`, `1-12`, `1-12:30:00`; None if it is none."""
    days, dash, rest = text.partition("-")
    parts = (rest if dash else text).split(":")
    if not all(
        part.isascii() and part.isdigit() and len(part) < 10 for part in (*parts, *([days] if dash else []))
    ):
        return None
    numbers = [int(part) for part in parts]
    if len(numbers) > 3:
        return None
    if dash:
        hours, minutes, rest_seconds = (*numbers, 0, 0)[:3]
        return 86400.0 * int(days) + 3600.0 * hours + 60.0 * minutes + rest_seconds
    if len(numbers) == 1:
        return 60.0 * numbers[0]
    return sum(number * 60.0**power for power, number in enumerate(reversed(numbers)))


def clock(total: float) -> str:
    """Return seconds in Slurm's form: `2:00:00`, `1-00:00:00`."""
    whole = int(-(-total // 1))
    days, rest = divmod(whole, 86400)
    hours, minutes, last = rest // 3600, rest % 3600 // 60, rest % 60
    text = f"{hours:02d}:{minutes:02d}:{last:02d}"
    return f"{days}-{text}" if days else text


def memory(text: str, unit: str = "m") -> str | None:
    """Return a size in our form (`16G` → `16Gi`; without a unit it is in `unit`), None if it is malformed."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[3].lower() == "w":
        return None
    letter = match[2].lower() or ("" if match[3] else unit)
    return f"{match[1]}{_UNITS.get(letter, '')}"


def times(amount: str, count: int) -> str:
    """Return a multiple of an amount such as `4Gi`."""
    digits = re.match(r"\d+", amount)
    assert digits is not None
    return f"{int(digits[0]) * count}{amount[digits.end() :]}"


def tasks(text: str) -> tuple[str, ...] | None:
    """Return the numbers of an array, `0-15:4,20`, as text; None if it is malformed or too long."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
        if match is None or (match[3] is not None and int(match[3]) == 0):
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        span = range(first, last + 1, int(match[3] or 1))
        if len(found) + len(span) > MOST_TASKS:
            return None
        found += span
    return tuple(str(number) for number in found) or None


def hosts(text: str) -> tuple[str, ...] | None:
    """Return the hosts of a list such as `node[01-03,7],gpu1`, None if it is malformed."""
    if text.count("[") != text.count("]") or not re.fullmatch(r"[-\w.,\[\]]+", text):
        return None
    found: list[str] = []
    for match in _HOSTS.finditer(text):
        for number in _numbers(match[2]):
            found.append(f"{match[1]}{number}{match[3]}")
            if len(found) > _MOST_HOSTS:
                return None
    return tuple(found)


def _numbers(text: str | None) -> list[str]:
    if text is None:
        return [""]
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            found.append(first)
        elif first.isdigit() and last.isdigit() and int(last) - int(first) <= _MOST_HOSTS:
            found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found


def whole(text: str) -> int | None:
    """Return a plain integer, None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def listed(text: str) -> frozenset[str]:
    return frozenset(text.split())
