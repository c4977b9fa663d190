"""Work in a scratch directory: made, filled, left and removed by the script, with the results copied back.

Each attempt of a job has a directory of its own that is kept, and begins with what the script's folder had. So the
scratch directory is not needed: its lines are left out together, and the work is done where the job begins. Where the
script does more with it, nothing is left out but its removal, and the report blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpijob.formats.convert.header.request import Request
from mpijob.formats.convert.script import classify
from mpijob.formats.convert.script.classify import Use
from mpijob.formats.convert.script.scratch_lines import Reader, Unproved, named, removes
from mpijob.formats.convert.shell.parser import Statement, inside
from mpijob.formats.convert.shell.paths import HOME, ScriptPaths

_OF_ONE_JOB = re.compile(
    r"\$(SLURM_JOB_?ID|SLURM_ARRAY_JOB_ID|SLURM_TMPDIR|PBS_JOBID|TMPDIR|RANDOM|\$)|mktemp"
)
_GIVEN = ("$SLURM_TMPDIR", "$TMPDIR", "$(mktemp", "`mktemp")
_NOTHING = "nothing: mpijob artifacts list NAME shows what the job left in its directory"
_TODO = (
    "take the lines for that directory out (mkdir, cd, cp, rm), and name files as they lie in the script's folder: the "
    "job begins in a copy of it, and mpijob artifacts fetch NAME --to DIRECTORY brings what it leaves; or mount a "
    "volume there, and leave the results on it"
)
_REMOVES = "it would remove what the ranks leave, and nothing else keeps that"


def without(every: Sequence[Statement], request: Request) -> list[Statement]:
    """Return the statements of a script without those that are for a scratch directory, and tell each."""
    directory = _directory(every)
    if not directory:
        return list(every)
    try:
        pieces = Reader(directory, request).read(every)
    except Unproved as wrong:
        return _refused(every, directory, str(wrong), request)
    for statement, reason in pieces:
        if reason:
            request.notes.at(statement.line).dropped("script", statement.text, reason, _NOTHING)
    return [statement for statement, reason in pieces if not reason]


def _directory(every: Sequence[Statement]) -> str:
    """Return the directory that the script makes for one run and in which it starts ranks; "" without one."""
    places, found, removed = ScriptPaths(), "", False
    made: set[str] = set()
    for command in (each for one in every for each in inside(one)):
        place = places.place
        if command.words[0] == "mkdir":
            made |= {places.full(word) for word in named(command)}
        if classify.use(command) is Use.LAUNCH and not place.startswith(HOME):
            around = [one for one in made if place == one or place.startswith(f"{one}/")]
            own = place.startswith(_GIVEN) or any(one.startswith(f"{place}/") for one in made)
            found = found or next(iter(sorted(around)), place if own else "")
        removed = removed or (bool(found) and removes(command, places, found))
        places.note(command)
    return found if removed or _OF_ONE_JOB.search(found) else ""


def _refused(every: Sequence[Statement], directory: str, why: str, request: Request) -> list[Statement]:
    """Return the statements without those that remove the directory, and block."""
    kept: list[Statement] = []
    places, line = ScriptPaths(), 0
    for one in every:
        commands = inside(one)
        if any(removes(each, places, directory) for each in commands):
            request.notes.at(one.line).dropped("script", one.text, _REMOVES, "see the entry that blocks")
        else:
            kept.append(one)
        for each in commands:
            places.note(each)
            line = line or (one.line if places.place == directory else 0)
    note = (
        f"the ranks work in {directory}, so what they leave is not in the job's directory and not kept: {why}"
    )
    request.notes.at(line).dropped("script", directory, note, _TODO, blocks=True)
    return kept
