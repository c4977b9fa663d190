"""Rules about `launch.custom`, the user's description of an unsupported MPI library.

`launching` has the rules for supported families.
"""

from __future__ import annotations

import re
import string

from mpijob.checks.rule import Findings, Limits, error, unfit, unfit_line, warning
from mpijob.model import CustomLaunch, Family, MPIJob
from mpijob.model.spec.enums import choice_hint, shown

_COMMAND = ("hostfile", "ranks", "agent")
_HOST_LINE = ("worker", "slots")
_LONGEST_TAG = 500


def custom(job: MPIJob, limits: Limits) -> Findings:
    """launch.custom is set if and only if mpi is custom."""
    if job.mpi is Family.CUSTOM and job.launch.custom is None:
        yield error("launch.custom", "mpi: custom needs launch.custom", _EXAMPLE)
    elif job.launch.custom is not None and job.mpi is not Family.CUSTOM:
        message = f"launch.custom is only used with mpi: custom, but the job says mpi: {job.mpi}"
        yield error("launch.custom", message, "use mpi: custom, or remove launch.custom", {"mpi": "custom"})
    elif job.launch.custom is not None:
        yield from _command(job.launch.custom)
        yield from _host_line(job.launch.custom.host_line)
        yield from _tag(job.launch.custom.tag)
        yield from _rank_variable(job.launch.custom.rank_variable)


_EXAMPLE = 'for example: command: [mympirun, -n, "{ranks}", -hostfile, "{hostfile}"]'


def _command(launch: CustomLaunch) -> Findings:
    if not launch.command or not launch.command[0].strip():
        yield error("launch.custom.command", "the custom launch has no command", _EXAMPLE)
    for index, word in enumerate(launch.command):
        if reason := unfit(word):
            yield error(f"launch.custom.command[{index}]", f"the argument {reason}", "remove it")
        yield from _placeholders(f"launch.custom.command[{index}]", word, _COMMAND)
    if launch.command and not any("{hostfile}" in word for word in launch.command):
        message = "the command does not contain {hostfile}: the workers may not be found"
        yield warning("launch.custom.command", message, _EXAMPLE)


def _host_line(line: str) -> Findings:
    field = "launch.custom.host_line"
    if reason := unfit_line(line):
        yield error(field, f"the line {reason}", "write one line")
    elif "{worker}" not in line:
        yield error(
            field, f"{shown(line)} does not contain {{worker}}", "for example: {worker} slots={slots}"
        )
    yield from _placeholders(field, line, _HOST_LINE)


def _placeholders(field: str, text: str, known: tuple[str, ...]) -> Findings:
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        yield error(field, f"{shown(text)} has an unmatched brace", "write {{ and }} for literal braces")
        return
    for _, name, form, conversion in parts:
        if name is not None and (name not in known or form or conversion):
            allowed = [f"{{{word}}}" for word in known]
            yield error(
                field,
                f"{shown('{' + name + '}')} is not a placeholder",
                choice_hint("{" + name + "}", allowed),
            )


def _tag(tag: str) -> Findings:
    field = "launch.custom.tag"
    if len(tag) > _LONGEST_TAG:
        yield error(
            field, f"the pattern has {len(tag)} characters; at most {_LONGEST_TAG} are allowed", _TAG_HINT
        )
        return
    try:
        pattern = re.compile(tag)
    except (re.error, OverflowError, RecursionError) as reason:
        yield error(field, f"{shown(tag)} is not a regular expression: {reason}", _TAG_HINT)
        return
    if tag and "rank" not in pattern.groupindex:
        yield error(field, f"{shown(tag)} has no group named rank", _TAG_HINT)


_TAG_HINT = r"for example: ^\[(?P<rank>[0-9]+)\] "


def _rank_variable(name: str) -> Findings:
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        yield error(
            "launch.custom.rank_variable",
            f"{shown(name)} cannot be the name of a variable",
            "for example: MY_RANK",
        )
