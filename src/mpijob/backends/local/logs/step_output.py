"""The output of a script: what its steps' ranks print goes to their own logs, the rest is the launcher's.

A step whose output the script does not take elsewhere has its launcher put a tag before each line (`step.sh`); here
the tags become the log that a line is stored in. One reader writes all of them, so their order is that of the script.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mpijob.backends.local.logs.log_writer import LogFile
from mpijob.formats.launch.rank_output import Output
from mpijob.model import Plan

_NOISE = re.compile(rb"\[[^\]\s]+\] plm:(?:ssh|rsh): Warning: setpgid\(")  # PRRTE and our agent, and no fault
_MAX_LINE_BYTES = 64 << 10  # of a line without an end, before it is stored as it is


class StepOutput:
    """Takes the place of the launcher's log for the two streams of a script."""

    def __init__(
        self, log: LogFile, of_rank: Callable[[Path], LogFile], folder: Path, plan: Plan,
        current: Callable[[], int | None],
    ) -> None:  # fmt: skip
        self._log, self._new_log, self._folder, self._current = log, of_rank, folder, current
        self._output = Output(plan.family, gap=not plan.family_version.startswith(("2.", "3.", "4.")))
        self._rest = {"stdout": b"", "stderr": b""}
        self._files: dict[tuple[int, int], LogFile] = {}

    def feed(self, stream: str, data: bytes) -> None:
        """Store what the script and its steps said."""
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            self._store(stream, line + b"\n")
        self._rest[stream] = rest

    def finish(self, stream: str) -> None:
        """Store the rest of a stream that has ended."""
        rest, self._rest[stream] = self._rest[stream], b""
        if rest:
            self._store(stream, rest)
        for log in (self._log, *self._files.values()):
            log.finish(stream)

    def close(self) -> None:
        """Store what is left and close the files."""
        for stream in self._rest:
            self.finish(stream)
        for log in (self._log, *self._files.values()):
            log.close()

    def _store(self, stream: str, line: bytes) -> None:
        self._output.step = self._current() or 0
        for said in self._output.pieces(line):
            if said.rank is not None and said.step is not None:
                told = said.stream if said.stream == "stderr" else stream
                self._rank_log(said.step, said.rank).feed(told, said.text)
            elif not _NOISE.match(said.text):
                self._log.feed(stream, said.text)

    def _rank_log(self, step: int, rank: int) -> LogFile:
        key = step, rank
        if key not in self._files:
            self._files[key] = self._new_log(self._folder / f"rank-{rank}.step-{step}.log")
        return self._files[key]
