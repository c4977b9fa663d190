"""What a launch line reads from and writes to: its input becomes the job's, its output is the job's log.

A file that a later line of the script reads has to be made from that log first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mpijob.formats.convert.header.request import LOGS, Request
from mpijob.formats.convert.report import Notes
from mpijob.formats.convert.script.launch_line import base
from mpijob.formats.convert.shell.constants import constant, filled
from mpijob.formats.convert.shell.parser import Command
from mpijob.formats.convert.shell.paths import HOME, ScriptPaths

_PARTS = re.compile(r"([0-9&]*)([<>|&]+)\s*(.*)", re.DOTALL)
_READERS = frozenset({"grep", "egrep", "fgrep", "tail", "head", "cat", "awk", "wc", "sort"})


class Output:
    """Takes over the redirections of launch lines; `logs` are the files that the log of a job is instead."""

    def __init__(self, request: Request, places: ScriptPaths, values: Mapping[str, str]) -> None:
        self.request = request
        self.values = values
        self.places = places
        self.logs = {f"{HOME}/slurm-$SLURM_JOB_ID.out": "mpijob logs NAME"}
        self.awaited: list[str] = []  # such files that what is set up for the next job reads

    def take(self, command: Command, job: str, notes: Notes) -> str:
        """Tell what becomes of each redirection of a job's launch line; return the file that rank 0 reads, or ""."""
        stdin = ""
        both = any(">&" in one or one.startswith("&>") for one in command.redirects)
        for redirect in command.redirects:
            match = _PARTS.fullmatch(redirect)
            if match and match[2] == "<":
                stdin = self._input(redirect, match[3], command, notes) or stdin
            elif match and "<" not in match[2]:
                self._output(redirect, match, f"mpijob logs {job} --no-prefix{_only(match[1], both)}", notes)
            else:
                note = "no text is read there: the launch line is the job's own"
                notes.dropped(
                    "script", redirect, note, "write the text into a file: launch.stdin", blocks=True
                )
        return stdin

    def _input(self, redirect: str, file: str, command: Command, notes: Notes) -> str:
        if file == "/dev/null":
            notes.exact("script", redirect, "", "no rank reads input unless launch.stdin names a file")
            return ""
        name = constant(filled(file, self.request.known))
        if name is None or name.startswith("/") or name.partition("/")[0] not in self.request.beside:
            note = "rank 0 can read a file of the folder that goes along, and this is none that is there"
            notes.dropped("script", redirect, note, f"write launch: {{stdin: {name or 'FILE'}}} when it is")
            return ""
        note = "rank 0 reads it, from the files that go along"
        every = base(command.words[0]) == "srun"
        todo = "if other ranks read it too, let the program open the file" if every else ""
        notes.changed(
            "script", redirect, "launch.stdin", note + ("; srun gave it to every rank" if every else ""), todo
        )
        return name

    def _output(self, redirect: str, match: re.Match[str], line: str, notes: Notes) -> None:
        operator, file = match[2], match[3]
        if (operator.endswith("&") and file.isdigit()) or file in ("", "-"):
            notes.changed("script", redirect, "", LOGS.replace("NAME", line.split()[2]))
        elif file == "/dev/null":
            notes.changed(
                "script",
                redirect,
                "",
                LOGS.replace("NAME", line.split()[2]),
                "nothing: it is kept, and shown only when you ask",
            )
        else:
            notes.changed(
                "script",
                redirect,
                "",
                LOGS.replace("NAME", line.split()[2]),
                f"nothing, or {self.keep(file, line)}",
            )

    def keep(self, file: str, line: str) -> str:
        """Remember that a file is a job's log; return the command that writes it."""
        self.logs[self.places.full(file)] = line
        return f"{line} > {self.shown_name(file)}"

    def shown_name(self, file: str) -> str:
        """Return the name of a file as the user's shell knows it."""
        return self.places.shown(self.places.full(file), self.values) or "FILE"

    def read_by(self, words: Iterable[str]) -> list[str]:
        """Return the files that are a job's log and that words name."""
        names = [word.lstrip("0123456789&<>| ").rpartition("=")[2] for word in words]
        return [name for name in names if name and self.places.full(name) in self.logs]

    def look(self, text: str) -> None:
        """Remember which of these files a line reads that sets something up: `E=$(grep energy out.txt)`."""
        self.awaited += self.read_by(re.split(r"[\s()`\"']+", text))

    def shown(self, command: Command) -> str:
        """Return the command that shows of the log what a command showed of the file; "" where it does more."""
        files = [word for word in command.words[1:] if self.read_by((word,))]
        if base(command.words[0]) not in _READERS or command.redirects or len(files) != 1:
            return ""
        words = " ".join(word for word in command.words if word != files[0])
        return f"{self.logs[self.places.full(files[0])]} | {words}"


def _only(stream: str, both: bool) -> str:
    """Return the option for the stream that a launch line writes into a file, unless that is both."""
    return "" if both else f" --stream {'stderr' if stream == '2' else 'stdout'}"
