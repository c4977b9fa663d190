"""The output of a script, divided into the launcher's log and the logs of its steps' ranks (docs/decisions/0056).

Where a script does not redirect a step's output, the MPI launcher tags each line with its rank (`step.sh`). All lines
come through one pipe, because the script may filter them (`mpirun … | grep`), so they are in the script's order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mpijob.backends.local.logs.log_writer import LogFile
from mpijob.formats.launch.rank_output import Output
from mpijob.model import Plan

# A harmless warning of PRRTE about our agent.
_NOISE = re.compile(rb"\[[^\]\s]+\] plm:(?:ssh|rsh): Warning: setpgid\(")
# A longer line is written in pieces, so that memory is bounded.
_MAX_LINE_BYTES = 64 << 10


class StepOutput:
    """A `LogTarget` for the two streams of a script; `current` returns the number of the running step."""

    def __init__(
        self, log: LogFile, of_rank: Callable[[Path], LogFile], folder: Path, plan: Plan,
        current: Callable[[], int | None],
    ) -> None:  # fmt: skip
        self._log, self._new_log, self._folder, self._current = log, of_rank, folder, current
        self._output = Output(plan.family, gap=not plan.family_version.startswith(("2.", "3.", "4.")))
        self._rest = {"stdout": b"", "stderr": b""}
        self._files: dict[tuple[int, int], LogFile] = {}

    def feed(self, stream: str, data: bytes) -> None:
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            lines, rest = [*lines, rest], b""
        for line in lines:
            self._store(stream, line + b"\n")
        self._rest[stream] = rest

    def finish(self, stream: str) -> None:
        rest, self._rest[stream] = self._rest[stream], b""
        if rest:
            self._store(stream, rest)
        for log in (self._log, *self._files.values()):
            log.finish(stream)

    def close(self) -> None:
        """Write what is left, and close the files."""
        for stream in self._rest:
            self.finish(stream)
        for log in (self._log, *self._files.values()):
            log.close()

    def _store(self, stream: str, line: bytes) -> None:
        self._output.step = self._current() or 0
        for piece in self._output.pieces(line):
            if piece.rank is not None and piece.step is not None:
                rank_stream = piece.stream if piece.stream == "stderr" else stream
                self._rank_log(piece.step, piece.rank).feed(rank_stream, piece.text)
            elif not _NOISE.match(piece.text):
                self._log.feed(stream, piece.text)

    def _rank_log(self, step: int, rank: int) -> LogFile:
        key = step, rank
        if key not in self._files:
            self._files[key] = self._new_log(self._folder / f"rank-{rank}.step-{step}.log")
        return self._files[key]
