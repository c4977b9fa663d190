"""The report pipe of an attempt: lines from workers, ranks' wrappers and the start agent to the supervisor."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

# Ranks can write anything into the pipe, so other lines are dropped; the handlers rely on the numbers.
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
        # O_RDWR: with a writer of our own, the pipe does not end between two writers.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = bytearray()

    def read(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the reports in the pipe, each as its verb and the words after it."""
        try:
            self._rest += os.read(self.fd, 65536)
        # The pipe was read by `Supervisor._rank_gone` after the event loop saw it readable.
        except BlockingIOError:
            return
        while b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            if _FORM.fullmatch(line):
                verb, *words = line.decode().split(" ")
                yield verb, words
