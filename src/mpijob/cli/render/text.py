"""Format values for a terminal: times, durations, columns; and escape control characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from mpijob.observation.logs.escape import visible as made_visible

# Compiled at its first use: commands must start quickly.
_BEYOND_ASCII = "[^\n -~]"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+"
_PART = r"([0-9]+(?:\.[0-9]+)?)([smhdw])"


def visible(text: str | bytes) -> str:
    r"""Return the text with every character that a terminal might obey written as `\x1b` or `\u202e`.

    Newlines and tabs stay; bytes that are not UTF-8 are written as `\xNN`.
    """
    if isinstance(text, str):
        if text.isascii() and text.isprintable():
            return text
        text = text.encode("utf-8", "backslashreplace")
    if b"\n" not in text:
        return made_visible(text)
    return "\n".join(made_visible(line) for line in text.split(b"\n"))


def json_safe(content: str) -> str:
    """Return JSON text that means the same, in ASCII: what a terminal might obey is a JSON escape."""
    return re.sub(_BEYOND_ASCII, _json_escaped, content)


def _json_escaped(match: re.Match[str]) -> str:
    pair = match[0].encode("utf-16-be")
    return "".join(f"\\u{pair[i]:02x}{pair[i + 1]:02x}" for i in range(0, len(pair), 2))


def one_line(text: str) -> str:
    """Return the text fit for one cell or one line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def duration(seconds: float | None) -> str:
    """Return a duration as people read it: `4.2s`, `1m04s`, `2h05m`, `3d04h`."""
    if seconds is None:
        return "-"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def age(moment: float | None, now: float) -> str:
    """Return how old something is in its largest unit: `5s`, `3m`, `2h`, `4d`."""
    if not moment:
        return "-"
    seconds = max(0, int(now - moment))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (seconds >= size and unit == "m"):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def ago(moment: float | None, now: float) -> str:
    """Return when something was, seen from now: `5m ago`."""
    return "never" if not moment else f"{age(moment, now)} ago"


def seconds_of(text: str) -> float | None:
    """Return the seconds in `90`, `90s`, `1h30m`; None if the text is no duration."""
    if text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    if not re.fullmatch(_DURATION, text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))


def width(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) != 0 for letter in text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, columns two spaces apart, nothing trailing."""
    lines = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    sizes = [max(width(line[column]) for line in lines) for column in range(len(header))]
    return [
        "  ".join(_padded(cell, size) for cell, size in zip(line, sizes, strict=True)).rstrip()
        for line in lines
    ]


def pairs(items: Iterable[tuple[str, str]]) -> list[str]:
    """Return `Name:  value` lines with the values under each other; empty values are left out."""
    shown = [(name, one_line(value)) for name, value in items if value]
    size = max((len(name) for name, _ in shown), default=0) + 1
    return [f"{name + ':':<{size}}  {value}" for name, value in shown]


def _padded(cell: str, size: int) -> str:
    return cell + " " * (size - width(cell))


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in `0-3,7`; raise ValueError with the reason if the text is not that."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{text!r} is not a list of numbers: write it as 0-3,7")
        found.update(_span(int(first), int(last) if dash else int(first), text))
    return tuple(sorted(found))


def _span(first: int, last: int, text: str) -> range:
    if last < first or last - first > 100_000:
        raise ValueError(f"{text!r} is not a list of numbers: {first}-{last} is not a range")
    return range(first, last + 1)
