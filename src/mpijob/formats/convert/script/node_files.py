"""Lines that only look at a batch system's list of nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpijob.formats.convert.script.launch_line import base
from mpijob.formats.convert.shell.parser import Statement
from mpijob.formats.convert.shell.paths import ScriptPaths

_LIST = re.compile(r"\$\{?(PBS_NODEFILE|SLURM_JOB_NODELIST|SLURM_NODELIST)\b")
_FILTERS = frozenset(
    {"cat", "sort", "uniq", "wc", "head", "tail", "tr", "paste", "nl", "column", "awk", "cut", "tee"}
)
_CHANGES = re.compile(r"[$`\"]")
_INTO = re.compile(r"[0-9]?>>?\s*(.*)", re.DOTALL)


def only_shows(one: Statement, every: Sequence[Statement], places: ScriptPaths) -> bool:
    """Return whether a statement shows the list of nodes, or writes it into a file that no other line names."""
    if one.compound or one.heredoc or one.background or not _LIST.search(one.text):
        return False
    if not all(
        each.words and base(each.words[0]) in _FILTERS and each.after in ("", "|") for each in one.commands
    ):
        return False
    into = [match[1] for each in one.commands for word in each.redirects if (match := _INTO.fullmatch(word))]
    into += [word for each in one.commands if base(each.words[0]) == "tee" for word in each.words[1:]]
    files = [places.path(word) for word in into if word != "/dev/null" and not word.startswith("&")]
    if not files:
        return True
    others = [text for other in every if other is not one for text in _texts(other.text, places)]
    return not any(file in text for file in files for text in others)


def _texts(text: str, places: ScriptPaths) -> tuple[str, ...]:
    """Return a line as it is written and as it is understood, where that is another text."""
    return (text, places.path(text)) if _CHANGES.search(text) else (text,)
