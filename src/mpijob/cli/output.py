"""The only place that prints: results on stdout, everything else on stderr.

What others wrote (log lines, names, descriptions) never reaches a terminal as control bytes; colour
is used only on a terminal that wants it. Widths and words are made in `text`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import IO, Any

import msgspec

from mpijob.cli.render import text
from mpijob.errors import Finding, MpiJobError
from mpijob.model import Phase

_COLOURS = {
    Phase.SUCCEEDED: "32",
    Phase.FAILED: "31",
    Phase.CANCELLED: "33",
    Phase.RUNNING: "36",
    Phase.SUSPENDED: "35",
}


class Format(StrEnum):
    """The ways in which a result can be shown."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


USUAL = tuple(format for format in Format if format is not Format.CSV)  # what every command answers in


class Output:
    """Where a command's answers go, in the format that was asked for."""

    def __init__(self, format: Format = Format.TABLE) -> None:
        self.format = format

    @property
    def structured(self) -> bool:
        """Whether the answer is for a program: JSON or YAML."""
        return self.format in (Format.JSON, Format.YAML)

    def line(self, line: str) -> None:
        """Print one line of the result."""
        _write(sys.stdout, text.visible(line))

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines of the result."""
        self._rows([text.visible(line) for line in lines])

    def ready(self, lines: list[str]) -> None:
        """Print lines whose foreign parts were made visible already; colour of our own may be in them."""
        self._rows(lines)

    def phases(self, lines: Iterable[str], phases: Iterable[Phase]) -> None:
        """Print one line for each phase, with the phase's word in its colour on a terminal."""
        told = zip(lines, phases, strict=True)
        self._rows([painted(text.visible(line), phase, sys.stdout) for line, phase in told])

    def _rows(self, rows: list[str]) -> None:
        if rows:
            _write(sys.stdout, "\n".join(rows))  # at once: each line by itself would be a system call

    def value(self, value: Any) -> None:
        """Print a value as JSON or YAML, whichever was asked for."""
        _write(sys.stdout, as_yaml(value) if self.format is Format.YAML else as_json(value, indent=2))

    def csv(self, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
        """Print rows as a CSV file; what a spreadsheet would take for a formula is made plain text."""
        import csv
        import io

        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_plain_cell(cell) for cell in row] for row in rows)
        _write(sys.stdout, text.visible(made.getvalue().rstrip("\n")))

    def json_line(self, value: Any) -> None:
        """Print a value as one line of JSON."""
        _write(sys.stdout, as_json(value))

    def text(self, content: str) -> None:
        """Print a document that ends its own lines."""
        _write(sys.stdout, text.visible(content.rstrip("\n")))

    def raw(self, content: bytes) -> None:
        """Print bytes exactly as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(content + b"\n")
        sys.stdout.buffer.flush()

    def binary(self) -> IO[bytes]:
        """Return where bytes go that are the result."""
        sys.stdout.flush()
        return sys.stdout.buffer

    def note(self, sentence: str) -> None:
        """Say something that is not the result."""
        sys.stdout.flush()
        _write(sys.stderr, text.visible(sentence))

    def phase_note(self, sentence: str, phase: Phase) -> None:
        """Say where a job stands."""
        sys.stdout.flush()
        _write(sys.stderr, painted(text.visible(sentence), phase, sys.stderr))

    def findings(self, findings: Iterable[Finding]) -> None:
        """Say what was found about a job: cause, evidence, fixes."""
        for line in finding_lines(findings):
            self.note(line)

    def error(self, error: MpiJobError) -> None:
        """Say what went wrong and what would mend it, as JSON where JSON was asked for."""
        if self.format is Format.JSON:
            _write(sys.stderr, as_json(_told(error)))
            return
        self.note(f"error: {error.message}")
        if error.hint:
            self.note(f"hint: {error.hint}")

    def problem(self, code: str, message: str, hint: str = "") -> None:
        """Say that the command itself could not go on."""
        if self.format is Format.JSON:
            _write(sys.stderr, as_json({"code": code, "message": message, "hint": hint, "findings": []}))
            return
        self.note(f"error: {message}")
        if hint:
            self.note(f"hint: {hint}")

    @contextmanager
    def progress(self, sentence: str, after_seconds: float = 1.0) -> Iterator[None]:
        """Say what is being done if it takes longer than a second."""
        from threading import Timer

        timer = Timer(after_seconds, self.note, [sentence])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def live(self) -> bool:
        """Return whether stdout is a terminal on which a screen may move."""
        return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def silence(self) -> None:
        """Send the rest of stdout nowhere: whoever read it has gone."""
        hole = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(hole, sys.stdout.fileno())
        finally:
            os.close(hole)


def _plain_cell(cell: Any) -> Any:
    """Return a cell that no spreadsheet runs."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def coloured(stream: Any) -> bool:
    """Return whether a stream is a terminal that wants colour."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return not plain and bool(stream.isatty())


def painted(line: str, phase: Phase, stream: Any) -> str:
    """Return the line with the phase's word in its colour, if the stream is a terminal that wants colour."""
    colour = _COLOURS.get(phase)
    if colour is None or not coloured(stream):
        return line
    return line.replace(phase.value, f"\x1b[{colour}m{phase.value}\x1b[0m", 1)


def as_json(value: Any, indent: int = 0) -> str:
    """Return a value as JSON text that no terminal obeys: every hostile character is a JSON escape."""
    data = msgspec.json.encode(value)
    content = (msgspec.json.format(data, indent=indent) if indent else data).decode()
    return text.json_safe(content)


def as_yaml(value: Any) -> str:
    """Return a value as YAML text that no terminal obeys."""
    import yaml  # read only when asked for: start-up is a feature

    tree = msgspec.to_builtins(value, str_keys=True)
    content: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    if text.visible(content) != content:
        content = yaml.safe_dump(tree, sort_keys=False, allow_unicode=False, width=100)
    return content.rstrip("\n")


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Return the lines that tell findings: cause, evidence, fixes."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.severity.value}: {text.visible(str(finding))} [{finding.code}]")
        lines += [f"  seen: {text.one_line(seen)}" for seen in finding.evidence]
        lines += [f"  fix:  {text.one_line(fix.text)}" for fix in finding.fixes]
        if finding.hint and not finding.fixes:
            lines.append(f"  fix:  {text.one_line(finding.hint)}")
    return lines


def _told(error: MpiJobError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "findings": [msgspec.to_builtins(finding) for finding in error.findings],
    }


def _write(stream: Any, line: str) -> None:
    print(line, file=stream, flush=True)
