"""What stands before the launcher on its line: variables, `timeout`, `time`, `nice` and the like.

None of it is lost in silence: it becomes a field of the job, or it is told with what to do; what nobody knows blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mpijob.formats.convert.report import Notes
from mpijob.formats.convert.script import classify
from mpijob.formats.convert.script.launch_line import base
from mpijob.model import Signal
from mpijob.model.spec.enums import SIGNALS

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SAME = {
    "time": "mpijob describe tells how long a job took, and mpijob top what it uses",
    "exec": "the job's own launch line takes its place",
    "nohup": "a job goes on when you log out, always",
    "command": "the job's own launch line takes its place",
    "env": "the variables behind it are the job's",
}
_ASIDE = "it was for the launcher; here ranks are started in another way"
_IN_COMMAND = "nothing, or write {} before the program in command: then each rank has it"
_LEFT_OUT = frozenset({"nice", "ionice", "stdbuf", "chrt"})
_BINDS = frozenset({"numactl", "taskset"})
_TO_BIND = (
    "set launch.bind_to: core, numa …, or write {} before the program in command: then each rank has it"
)
_KNOWN = _LEFT_OUT | _BINDS | _SAME.keys() | {"timeout"}
DEADLINE = (
    "the job's own deadline, with what is done before the program: at its end the job has failed (DeadlineExceeded), "
    "where the script went on with status 124"
)


def taken(before: tuple[str, ...], notes: Notes) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the variables and the fields that words before a launcher stand for, and tell each of the others."""
    env: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, value in classify.assignments(before):
        if value is None:
            note = "its value is known only when the script runs"
            notes.dropped("script", name, note, f"write env: {{{name}: …}}")
        else:
            env[name] = value
            notes.exact("script", f"{name}={value}", f"env.{name}")
    for words in _segments(before):
        _segment(words, notes, fields)
    return env, fields


def _segments(before: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield each program before the launcher with its words; variables are no words of it."""
    found: list[str] = []
    for word in before:
        if classify.ASSIGNMENT.match(word):
            continue
        if found and base(word) in classify.WRAPPERS and base(found[0]) in _KNOWN:
            yield found
            found = []
        found.append(word)
    if found:
        yield found


def _segment(words: list[str], notes: Notes, fields: dict[str, Any]) -> None:
    name, text = base(words[0]), " ".join(words)
    if name == "timeout":
        _timeout(words, notes, fields)
    elif name == "env" and any(word in ("-u", "--unset") or word.startswith("--unset=") for word in words):
        notes.dropped("script", text, "it takes variables away", "leave them out of env", blocks=True)
    elif name in _SAME:
        notes.exact("script", text, "", _SAME[name])
    elif name in _LEFT_OUT:
        notes.dropped("script", text, _ASIDE, _IN_COMMAND.format(text))
    elif name in _BINDS:
        notes.dropped("script", text, _ASIDE, _TO_BIND.format(text))
    else:
        todo = f"write {text} before the program in command if each rank is to have it, or take it out"
        notes.dropped(
            "script", text, f"what {name} does with a launch line is not known here", todo, blocks=True
        )


def _timeout(words: list[str], notes: Notes, fields: dict[str, Any]) -> None:
    """Make the time that a launch line may take the job's deadline."""
    options, length = _timeout_options(words[1:])
    match = _DURATION.fullmatch(length)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    text = " ".join(words)
    if not seconds:
        notes.dropped("script", text, "this is not a plain time", "set deadline_seconds", blocks=True)
        return
    fields["deadline_seconds"] = seconds
    notes.changed("script", text, f"deadline_seconds: {seconds:g}", DEADLINE)
    wanted = options.get("s", "").upper().removeprefix("SIG")
    if wanted in SIGNALS:
        fields["signal"] = Signal(name=wanted)
        notes.changed(
            "script", f"-s {wanted}", f"signal.name: {wanted}", "every rank gets it, not the launcher alone"
        )
    elif wanted:
        notes.dropped("script", f"-s {wanted}", "no rank can be given this signal here", "set signal.name")
    if options.get("k"):
        todo = "nothing, or set grace_seconds: how long ranks may take to end"
        notes.dropped("script", f"-k {options['k']}", "ranks have grace_seconds before they are killed", todo)


def _timeout_options(words: list[str]) -> tuple[dict[str, str], str]:
    """Return the options of timeout by their letters, and the time."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].lstrip("-").partition("=")
        letter = name[:1]
        takes = letter in ("s", "k")
        if takes and not equals:
            glued = "" if words[at].startswith("--") else name[1:]
            value = glued or (words[at + 1] if at + 1 < len(words) else "")
            at += 0 if glued else 1
        options[letter] = value
        at += 1
    return options, words[at] if at < len(words) else ""
