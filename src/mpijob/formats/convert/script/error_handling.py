"""What a script does when ranks have failed, when they have ended, or when the end is near.

A job whose ranks fail has failed, and `retry` runs it again: so what only tells or ends is not needed, and what asks
the batch system to begin again becomes a matter of the program's status.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mpijob.formats.convert.header import dependencies
from mpijob.formats.convert.header.dependencies import Submitted
from mpijob.formats.convert.header.request import Request
from mpijob.formats.convert.report import Notes
from mpijob.formats.convert.script import classify
from mpijob.formats.convert.script.classify import Use
from mpijob.formats.convert.script.launch_line import base
from mpijob.formats.convert.shell.parser import Command, Statement, inside

FAILED = "a job whose ranks fail has failed, whatever follows: mpijob wait NAME ends so, and mpijob why NAME explains"
_QUIET = (Use.INFORMS, Use.END, Use.TEST)
_STATUS = re.compile(r"\$\?|\$!|\$\{PIPESTATUS\[?")
_NAMED = re.compile(r"\$\{?([A-Za-z_]\w*)")
_AGAIN = re.compile(
    r"\bscontrol\s+requeue\b|\b(?:sbatch|qsub)\b[^\n;]*(?:\$0|\$\{0\}|\$BASH_SOURCE)|\bqrerun\b"
)
_FUNCTION = re.compile(r"(?:function\s+)?([A-Za-z_][-\w]*)\s*(?:\(\s*\))?\s*\{")
_WORD = re.compile(r"[\w.-]+")
_WANTS = re.compile(r"-ne\s+0|!=\s*0|-gt\s+0|-eq\s+[1-9]|==?\s*[1-9]")
_SUBMITS = re.compile(r"(?<![\w./-])(?:sbatch|qsub)\s(?:\\\n|[^\n;&|)])*")
_DECIDES = re.compile(r"(?:^|[\s;])(?:if|else|elif|for|while|until|select|case|function)\s")
_JOINS = ("|", "|&", "&&", "||")
_TIDIES = frozenset({"rm", "rmdir", "echo", "kill", "wait", "exit", "-"})


def fails_over(group: str, text: str, notes: Notes) -> None:
    """Tell what becomes of what a script does when a launch line fails."""
    commands = inside(Statement(group, 0))
    if commands and all(classify.use(each) in _QUIET for each in commands):
        notes.dropped("script", text, FAILED, "nothing")
        return
    note = "it runs when the ranks fail, and no job here begins when another has failed"
    notes.dropped("script", text, note, _todo(group, commands), blocks=True)


def _todo(group: str, commands: Sequence[Command]) -> str:
    """Return how a user does what a script does after a failure, as a line for a shell where it can be one."""
    if classify.starts_ranks(group):
        return "make a job of it, too, and call it yourself: mpijob run -f FILE || mpijob run -f OTHER"
    if not commands or _DECIDES.search(group) or "<<" in group:
        return "call it yourself when this has ended with a status other than 0: mpijob run -f FILE"
    return f"call it yourself: mpijob run -f FILE || ( {_joined(commands)} )"


def _joined(commands: Sequence[Command]) -> str:
    """Return commands as one line, joined as they were."""
    found = ""
    for at, command in enumerate(commands):
        last = at == len(commands) - 1
        found += " ".join((*command.words, *command.redirects))
        found += "" if last else f" {command.after} " if command.after in _JOINS else "; "
    return found


def looks_at_status(one: Statement, statuses: set[str]) -> bool:
    """Return whether a statement asks with which status the launch line before it ended."""
    asked = [" ".join(each.words) for each in inside(one) if classify.use(each) is Use.TEST]
    return any(_STATUS.search(test) or not statuses.isdisjoint(_NAMED.findall(test)) for test in asked)


def tells_status(one: Statement, notes: Notes) -> bool:
    """Leave a test of the status out where it only tells or ends; block where it works after a failure."""
    commands = inside(one)
    if all(classify.use(each) in _QUIET for each in commands):
        notes.dropped("script", one.text, FAILED, "nothing")
        return True
    tests = [" ".join(each.words) for each in commands if classify.use(each) is Use.TEST]
    if any(_WANTS.search(test) for test in tests) and not _AGAIN.search(one.text):
        branches = _DECIDES.search(one.text.removeprefix("if ")) or "<<" in one.text
        fails_over(one.text if branches else _joined(commands[1:]), one.text, notes)
        return True
    return False


def keeps_status(command: Command) -> list[str]:
    """Return the variables that a command sets to a status or a number of a process, where it does no more."""
    found = [classify.ASSIGNMENT.match(word) for word in command.words]
    names = [match[1] for match in found if match and _STATUS.match(match[3].strip('"'))]
    return names if len(names) == len(found) else []


def function_name(one: Statement) -> str:
    """Return the name of the function that a statement is the text of; "" for any other."""
    match = _FUNCTION.match(one.text) if one.compound and not one.text.startswith("{") else None
    return match[1] if match else ""


def called_functions(every: Sequence[Statement]) -> frozenset[str]:
    """Return the functions of a script that a line calls; neither a trap nor a function's own text counts."""
    names = {function_name(one) for one in every} - {""}
    called: set[str] = set()
    for one in every if names else ():
        if not one.text.startswith("trap "):
            called |= names.intersection(_WORD.findall(one.text)) - {function_name(one)}
    return frozenset(called)


def begins_again(text: str) -> bool:
    """Return whether a text asks the batch system to run the job again."""
    return _AGAIN.search(text) is not None


def tell_next(text: str, request: Request, notes: Notes) -> bool:
    """Tell how a job begins behind another where a line submits its script; return whether it does that."""
    match = _SUBMITS.search(text)
    if match is None:
        return False
    asked = dependencies.submitted(match[0])
    name = shlex.quote(asked.script) if asked.script else "SCRIPT"
    todo = f"convert that script, too (mpijob convert {name} > NEXT.yaml), leave this line out, and "
    note = f"it has {request.system} run another script; here that is a job which {_waits(asked)}"
    notes.dropped("script", text.partition("\n")[0], note, todo + _begins(asked), blocks=True)
    return True


def _waits(asked: Submitted) -> str:
    """Return what a job does that a script submits, and that `after` waits for success alone where it asks for more."""
    if dependencies.for_success(asked.dependency):
        return f"waits for {'this one' if asked.first == 'NAME' else asked.first} to succeed"
    return "somebody has to begin: jobs wait by themselves for success alone"


def _begins(asked: Submitted) -> str:
    """Return how the job of a script that is submitted begins: it waits by itself, or is called when it is time."""
    run, first = "mpijob run -f NEXT.yaml", asked.first
    own = f"let its job wait: {run} --after {first}, or the same name under after in NEXT.yaml"
    found = [own] if dependencies.for_success(asked.dependency) else []
    found += [
        f"call it yourself: {each.line}" for each in dependencies.otherwise(asked.dependency, first, run)
    ]
    return dependencies.explained("; ".join(found))


def tell_again(text: str, request: Request, notes: Notes) -> None:
    """Tell how a job is run again after its checkpoint."""
    signal = request.fields.get("signal")
    retry = request.fields.get("retry")
    when = f" after {signal.name}" if signal else ""
    again = (
        f"retry: {{limit: {retry.limit}}} in the job file then runs it again; write as high a limit as it may take"
        if retry
        else "write retry: {limit: 10} into the job file, which then runs it again"
    )
    note = f"it has {request.system} run the job again; here retry does, after a status other than 0"
    todo = (
        f"let the program leave with a status other than 0, for example 75, when it has written its checkpoint{when}: "
        f"{again}. It begins by reading the checkpoint, from a volume: each attempt has a directory of its own "
        "(docs/checkpoints.md, examples/checkpoint)"
    )
    notes.dropped("script", text.partition("\n")[0], note, todo, blocks=True)


def tell_trap(command: Command, body: str, notes: Notes) -> None:
    """Tell that a trap of the script's shell is not there when ranks run; `body` is what it would do."""
    text = " ".join(command.words)
    note = "ranks take the shell's place, so no trap of it is left; each gets the signal itself"
    todo = "let the program do it, or do it yourself when the job has ended"
    tidy = all(base(each.words[0]) in _TIDIES for each in inside(Statement(body, 0)))
    notes.dropped("script", text, note, "nothing: what is left over goes with the job" if tidy else todo)
