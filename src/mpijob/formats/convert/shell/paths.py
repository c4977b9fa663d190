"""Where the words of a script lead to, as far as its own assignments tell: variables are followed, nothing is run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from mpijob.formats.convert.script import classify
from mpijob.formats.convert.shell.constants import filled
from mpijob.formats.convert.shell.parser import Command

HOME = "<home>"  # the directory in which a script begins, and a job as well
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_HERE = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_LONGEST = 1000
_SHELLS_OWN = re.compile(r"\$(HOME|USER|LOGNAME)\b")
_PLAIN_NAME = re.compile(
    r"\$(SLURM_(JOB_?ID|JOB_NAME|ARRAY_JOB_ID|ARRAY_TASK_ID)|PBS_(JOBID|JOBNAME|ARRAY_INDEX)|USER|LOGNAME)\b"
)
_ELSEWHERE = ("/", "$", "~", "`", "-")


class ScriptPaths:
    """What the variables of a script stand for, as paths, and where the script stands."""

    def __init__(self) -> None:
        self.values = {"SLURM_SUBMIT_DIR": HOME, "PBS_O_WORKDIR": HOME}
        self.place = self.left = HOME

    def note(self, command: Command) -> None:
        """Remember what a command sets, and where it goes."""
        for word in command.words:
            if match := classify.ASSIGNMENT.match(word):
                self.values[match[1]] = self.path(match[3])
        if classify.use(command) is classify.Use.PLACE:
            self.left, self.place = self.place, self.target(command)

    def target(self, command: Command) -> str:
        """Return where a command goes: cd and pushd to a directory, `cd -` and popd to the one that was left."""
        if command.words in (("cd", "-"), ("popd",)):
            return self.left
        return self.full(command.words[1]) if len(command.words) == 2 else "~"

    def path(self, word: str) -> str:
        """Return what a word stands for; what nobody knows stays as it is written."""
        text = _VARIABLE.sub(self._value, _HERE.sub("$PWD", word.replace('"', "")))
        return (text.rstrip("/") or text[:1]) if len(text) <= _LONGEST else word

    def _value(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return self.place if name == "PWD" else self.values.get(name, f"${name}")

    def full(self, word: str) -> str:
        """Return the whole way to what a word names, beginning with HOME where that is below it."""
        path = self.path(word)
        if path.startswith(_ELSEWHERE) and not _PLAIN_NAME.match(path):
            return path
        whole = posixpath.normpath(path if path.startswith(HOME) else posixpath.join(self.place, path))
        return whole if whole.startswith((HOME, *_ELSEWHERE)) else "/.."

    def below(self, word: str) -> str | None:
        """Return the way to what a word names from where the script begins; None where that is elsewhere."""
        whole = self.full(word)
        if whole != HOME and not whole.startswith(f"{HOME}/"):
            return None
        return whole.removeprefix(HOME).lstrip("/") or "."

    def shown(self, path: str, values: Mapping[str, str]) -> str:
        """Return a whole way as the user's own shell knows it, from the script's folder; "" where it does not."""
        below = path == HOME or path.startswith(f"{HOME}/")
        text = filled((path.removeprefix(HOME).lstrip("/") or ".") if below else path, values)
        return "" if "$" in _SHELLS_OWN.sub("", text) or "`" in text else text
