"""Reads the code blocks of a page, and runs them one after another as a reader would.

- `console`: lines that begin with `$ ` are commands; the lines after one are its output, on stdout and
  stderr together. `…` stands for anything in a line, a line of `…` alone for any number of lines.
  A command must succeed, unless the next one is `echo $?`.
- `python`, `yaml` and `bash` with a first line such as `# job.yaml` (a script: after its `#!` line): a file of that
  name.
- `python` without one: run as it stands.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#!.*\n)?# ([\w.-]+\.(?:py|yaml|json|sbatch))\n")
_PROGRESS = re.compile(r"^[a-z][^\n]* …\n", re.MULTILINE)
ASK_STATUS = "echo $?"


@dataclass(frozen=True)
class File:
    """A file that the page asks the reader to write."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command, and what the page says it prints."""

    line: str
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Script:
    """Python that runs as it stands."""

    text: str


Step = File | Command | Script


def steps(page: str) -> Iterator[Step]:
    """Yield what a reader of the page does, in order."""
    for language, text in _BLOCK.findall(page):
        name = _FILE.match(text)
        if language == "console":
            yield from _commands(text)
        elif language in ("python", "yaml", "bash") and name:
            yield File(name[1], text)
        elif language == "python":
            yield Script(text)


def _commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *expected = part.rstrip("\n").split("\n")
        yield Command(line, tuple(expected))


def pattern(expected: tuple[str, ...]) -> re.Pattern[str]:
    """Return what an output must match as a whole."""
    lines = []
    for line in expected:
        if line == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*?".join(re.escape(piece) for piece in line.split("…")) + r"\n")
    return re.compile("".join(lines))


def matches(expected: tuple[str, ...], output: str) -> bool:
    """Return whether an output is what the page says; a page that says nothing expects nothing.

    A command that takes longer than usual says what it does meanwhile: no page tells that.
    """
    text = "\n".join(line.rstrip() for line in output.rstrip("\n").split("\n")) + "\n"
    asked = pattern(expected)
    return not expected or any(asked.fullmatch(one) for one in (text, _PROGRESS.sub("", text)))


@dataclass
class Reader:
    """Somebody who follows a page to the letter in an empty directory."""

    directory: Path
    environ: Mapping[str, str]
    timeout_seconds: float = 120.0
    python: str = sys.executable
    status: int = 0
    wrong: list[str] = field(default_factory=list)

    def follow(self, page: str) -> list[str]:
        """Do everything that a page asks for; return what was not as the page says."""
        return self.do(list(steps(page)))

    def do(self, todo: list[Step]) -> list[str]:
        """Do some steps in order; return what was not as they say."""
        for step, after in zip(todo, [*todo[1:], None], strict=True):
            if isinstance(step, File):
                (self.directory / step.name).write_text(step.text)
            elif isinstance(step, Script):
                self._run([self.python, "-c", step.text], step.text, ())
            else:
                asked = isinstance(after, Command) and after.line == ASK_STATUS
                script = f"(exit {self.status})\n{step.line}"
                self._run(["bash", "-c", script], step.line, step.expected, may_fail=asked)
            if self.wrong:  # what follows would only repeat it
                break
        return self.wrong

    def _run(self, argv: list[str], shown: str, expected: tuple[str, ...], *, may_fail: bool = False) -> None:
        done = subprocess.run(
            argv,
            cwd=self.directory,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=self.timeout_seconds,
        )
        self.status = done.returncode
        if done.returncode and not may_fail:
            self.wrong.append(f"$ {shown}\nended with status {done.returncode}:\n{done.stdout}")
        elif not matches(expected, done.stdout):
            wanted = "\n".join(expected)
            self.wrong.append(f"$ {shown}\nthe page says:\n{wanted}\nthe command says:\n{done.stdout}")
