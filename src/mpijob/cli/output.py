"""The only module that prints: results to stdout, everything else to stderr.

Text of others (log lines, names, descriptions) never reaches a terminal as control characters. Colour is used
on terminals only. `render/text` makes widths and words.
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
    """Output formats."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


# Formats that every command supports.
USUAL = tuple(format for format in Format if format is not Format.CSV)


class Output:
    """The output of a command, in the selected format."""

    def __init__(self, format: Format = Format.TABLE) -> None:
        self.format = format

    @property
    def structured(self) -> bool:
        """Whether the output is for a program: JSON or YAML."""
        return self.format in (Format.JSON, Format.YAML)

    def line(self, line: str) -> None:
        _write(sys.stdout, text.visible(line))

    def lines(self, lines: Iterable[str]) -> None:
        self._rows([text.visible(line) for line in lines])

    def ready(self, lines: list[str]) -> None:
        """Print lines that are escaped already, perhaps with colours of our own."""
        self._rows(lines)

    def phases(self, lines: Iterable[str], phases: Iterable[Phase]) -> None:
        """Print one line for each phase, which is coloured on a terminal."""
        told = zip(lines, phases, strict=True)
        self._rows([painted(text.visible(line), phase, sys.stdout) for line, phase in told])

    def _rows(self, rows: list[str]) -> None:
        if rows:
            # Together: one system call for each line would be slow for logs.
            _write(sys.stdout, "\n".join(rows))

    def value(self, value: Any) -> None:
        """Print a value as JSON or YAML."""
        _write(sys.stdout, as_yaml(value) if self.format is Format.YAML else as_json(value, indent=2))

    def csv(self, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
        """Print rows as CSV; cells that a spreadsheet would run as formulas are made plain text."""
        import csv
        import io

        made = io.StringIO()
        writer = csv.writer(made, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_plain_cell(cell) for cell in row] for row in rows)
        _write(sys.stdout, text.visible(made.getvalue().rstrip("\n")))

    def json_line(self, value: Any) -> None:
        _write(sys.stdout, as_json(value))

    def text(self, content: str) -> None:
        """Print a document of several lines."""
        _write(sys.stdout, text.visible(content.rstrip("\n")))

    def raw(self, content: bytes) -> None:
        """Print bytes unchanged."""
        sys.stdout.flush()
        sys.stdout.buffer.write(content + b"\n")
        sys.stdout.buffer.flush()

    def binary(self) -> IO[bytes]:
        """Return the stream for a binary result."""
        sys.stdout.flush()
        return sys.stdout.buffer

    def note(self, sentence: str) -> None:
        """Print something that is not the result."""
        sys.stdout.flush()
        _write(sys.stderr, text.visible(sentence))

    def phase_note(self, sentence: str, phase: Phase) -> None:
        """Print the phase of a job."""
        sys.stdout.flush()
        _write(sys.stderr, painted(text.visible(sentence), phase, sys.stderr))

    def findings(self, findings: Iterable[Finding]) -> None:
        """Print findings: cause, evidence, fixes."""
        for line in finding_lines(findings):
            self.note(line)

    def error(self, error: MpiJobError) -> None:
        """Print an error and its hint, as JSON if selected."""
        if self.format is Format.JSON:
            _write(sys.stderr, as_json(_error_value(error)))
            return
        self.note(f"error: {error.message}")
        if error.hint:
            self.note(f"hint: {error.hint}")

    def problem(self, code: str, message: str, hint: str = "") -> None:
        """Print an error of the command line itself."""
        if self.format is Format.JSON:
            _write(sys.stderr, as_json({"code": code, "message": message, "hint": hint, "findings": []}))
            return
        self.note(f"error: {message}")
        if hint:
            self.note(f"hint: {hint}")

    @contextmanager
    def progress(self, sentence: str, after_seconds: float = 1.0) -> Iterator[None]:
        """Print a note if the context takes longer than `after_seconds`."""
        from threading import Timer

        timer = Timer(after_seconds, self.note, [sentence])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def live(self) -> bool:
        """Return whether stdout is a terminal that can redraw a screen."""
        return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def silence(self) -> None:
        """Discard the rest of stdout, whose reader has closed the pipe."""
        # Replacing the descriptor also covers the flush at exit, which would raise BrokenPipeError again.
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, sys.stdout.fileno())
        finally:
            os.close(null)


def _plain_cell(cell: Any) -> Any:
    # Spreadsheets run cells that begin with these characters (CSV injection).
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def coloured(stream: Any) -> bool:
    """Return whether a stream is a terminal with colour (see https://no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return not plain and bool(stream.isatty())


def painted(line: str, phase: Phase, stream: Any) -> str:
    """Colour the phase in a line, if the stream is a terminal with colour."""
    colour = _COLOURS.get(phase)
    if colour is None or not coloured(stream):
        return line
    return line.replace(phase.value, f"\x1b[{colour}m{phase.value}\x1b[0m", 1)


def as_json(value: Any, indent: int = 0) -> str:
    """Return JSON in which every control character is escaped."""
    data = msgspec.json.encode(value)
    content = (msgspec.json.format(data, indent=indent) if indent else data).decode()
    return text.json_safe(content)


def as_yaml(value: Any) -> str:
    """Return YAML in which every control character is escaped."""
    # Imported here because YAML is rarely selected.
    import yaml

    tree = msgspec.to_builtins(value, str_keys=True)
    content: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    if text.visible(content) != content:
        content = yaml.safe_dump(tree, sort_keys=False, allow_unicode=False, width=100)
    return content.rstrip("\n")


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Return the lines of findings: cause, evidence, fixes."""
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.severity.value}: {text.visible(str(finding))} [{finding.code}]")
        lines += [f"  seen: {text.one_line(seen)}" for seen in finding.evidence]
        lines += [f"  fix:  {text.one_line(fix.text)}" for fix in finding.fixes]
        if finding.hint and not finding.fixes:
            lines.append(f"  fix:  {text.one_line(finding.hint)}")
    return lines


def _error_value(error: MpiJobError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "findings": [msgspec.to_builtins(finding) for finding in error.findings],
    }


def _write(stream: Any, line: str) -> None:
    print(line, file=stream, flush=True)
