"""The attempt's report pipe: what workers, ranks' shims and the start agent tell the supervisor.

A rank can write anything into the pipe, so only lines of a known form count; what they mean is the
supervisor's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_FORM = re.compile(
    rb"(?:alive|ready|unsafe) \d{1,6}|(?:daemon|done|bye|left|guest) \d{1,6} -?\d{1,9}"
    rb"|hello \d{1,6} \d{0,6}(?: \d{1,9}){3} [\w,.:-]*"
    rb"|step \d{1,6} (?:begin \d{1,6}|end \d{1,3}|cancel)"
    rb"|inside \d{1,6} \d{1,6} \d{0,6}(?: \d{0,9}){3} [\w,.:-]*|outside(?: \d{1,6}){3}"
    rb"|unreached [\w.-]{1,253} (?:missing|refused)"
)


class Reports:
    """The reading end of the pipe."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = bytearray()

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each report that has come, as its verb and its words."""
        try:
            self._rest += os.read(self.fd, 65536)
        except BlockingIOError:
            return  # read already, for a rank that had gone
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            if _FORM.fullmatch(line):
                verb, *words = line.decode().split(" ")
                yield verb, words
