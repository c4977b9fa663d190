"""What a line shows on a terminal: no colours, and of progress bars that overwrite each other only the last one."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
_BAR = re.compile(rb"\d ?%|\d/\d+|\d ?(?:it|s|B|MB|GB|kB|steps?)/(?:s|it|step)\b|\beta\b", re.IGNORECASE)


def plain(line: bytes) -> bytes:
    """Return a line without terminal sequences and without the states of a progress bar that others replaced."""
    if b"\x1b" in line:
        line = _ESCAPE.sub(b"", line)
    if b"\r" not in line:
        return line
    *replaced, last = line.rstrip(b"\r").split(b"\r")
    kept = [part for part in replaced if part.strip() and not _BAR.search(part)]
    return b"\r".join((*kept, last))
