"""Lines behind the last launch line that only bring results to another place: left out, and told as a fetch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from mpijob.formats.convert.script.build_steps import program
from mpijob.formats.convert.script.classify import Use
from mpijob.formats.convert.script.scratch_dir import named
from mpijob.formats.convert.shell.constants import filled
from mpijob.formats.convert.shell.parser import Command, Statement
from mpijob.formats.convert.shell.paths import HOME, ScriptPaths

_MOVERS = frozenset({"cp", "mv", "rsync", "scp"})
_PACKERS = frozenset({"tar", "zip"})
_KEEPERS = _MOVERS | _PACKERS | {"gzip", "bzip2", "xz"}
_QUIET = (Use.WORK, Use.FOLDERS, Use.INFORMS, Use.TEST, Use.END)
_LOOP = re.compile(r"for\s+(\w+)\s+in\s+([^;\n]+)")
CHOICE = "DIRECTORY (a folder of your choice)"


def follow_loop(one: Statement, places: ScriptPaths) -> None:
    """Remember what the variable of a loop over files stands for: all of them."""
    if match := _LOOP.match(one.text):
        words = match[2].split()
        known = all(places.below(word) is not None for word in words)
        places.values[match[1]] = words[0] if known and len(words) == 1 else "*" if known else f"${match[1]}"


def keeps(commands: tuple[Command, ...], uses: list[Use], places: ScriptPaths) -> bool:
    """Return whether commands behind the last launch line only keep, pack or tidy files of the job's directory."""
    working = [command for command, use in zip(commands, uses, strict=True) if use is Use.WORK]
    return (
        bool(working)
        and all(use in _QUIET for use in uses)
        and all(_keeps(one, places) or _tidies(one, places) for one in working)
    )


def _keeps(command: Command, places: ScriptPaths) -> bool:
    """Return whether what a command keeps lies in the job's directory: only that is kept with a job."""
    return program(command) in _KEEPERS and all(places.below(word) is not None for word in _sources(command))


def is_idle(command: Command, places: ScriptPaths) -> bool:
    """Return whether a command copies files to where they are: what brought them back from a scratch directory."""
    words = named(command)
    if program(command) not in ("cp", "mv", "rsync") or len(words) < 2 or places.below(words[-1]) is None:
        return False
    target = places.full(words[-1])
    return all(target in (posixpath.dirname(places.full(word)), places.full(word)) for word in words[:-1])


def _sources(command: Command) -> list[str]:
    words, name = named(command), program(command)
    if name in _MOVERS:
        return words[:-1]
    return words[2:] if name in _PACKERS else words


def _tidies(command: Command, places: ScriptPaths) -> bool:
    """Return whether a command only removes what lies in the job's directory."""
    removed = named(command) if program(command) in ("rm", "rmdir") else []
    return bool(removed) and all(places.below(word) is not None for word in removed)


def fetched(
    commands: tuple[Command, ...],
    job: str,
    places: ScriptPaths,
    logs: Mapping[str, str],
    values: Mapping[str, str],
) -> str:
    """Return how results are fetched in place of such commands; `logs` are files that the job's log is instead."""
    moved = [command for command in commands if program(command) in _KEEPERS]
    if not moved:
        return "nothing: what is left over goes with the job"
    told = [_fetch(command, places, logs, values) for command in moved]
    lines = "; ".join(dict.fromkeys(one for each in told for one in each))
    return f"when it has ended: {lines}".replace(" NAME", f" {job}")


def _fetch(
    command: Command, places: ScriptPaths, logs: Mapping[str, str], values: Mapping[str, str]
) -> list[str]:
    words = named(command)
    if program(command) not in ("cp", "mv", "rsync") or len(words) < 2 or ":" in words[-1]:
        return [f"mpijob artifacts fetch NAME --to {CHOICE}, then call the line there"]
    target, renamed = _target(command, places, values)
    found: list[str] = []
    files = [word for word in words[:-1] if places.full(word) not in logs]
    for word in words[:-1]:
        if line := logs.get(places.full(word), ""):
            name = renamed or filled(posixpath.basename(places.full(word)), values)
            found.append(f"{line} > {_joined(target, name)}")
    rest = [filled(places.below(word) or "", values) for word in files]
    if rest:
        named_files = (
            "" if any(letter in file for file in rest for letter in "*?[$") else " ".join(rest) + " "
        )
        to = "" if target == "." else f" --to {target}"
        where = ", in the script's folder" if target == "." else ""
        line = f"mpijob artifacts fetch NAME {named_files}".rstrip() + to + where
        found.append(line + (f"; the script calls it {renamed} there" if renamed else "") + _kept_way(rest))
    return found


def _kept_way(files: list[str]) -> str:
    deeper = [file for file in files if "/" in file]
    return f" (it keeps its place below: {deeper[0]})" if deeper else ""


def _target(command: Command, places: ScriptPaths, values: Mapping[str, str]) -> tuple[str, str]:
    """Return the folder to which a command brings files, as the user's shell knows it, and a name that it gives."""
    words = named(command)
    whole, written = places.full(words[-1]), words[-1].strip('"')
    last = posixpath.basename(whole)
    one_file = len(words) == 2 and not written.endswith("/") and "." in last and whole != HOME
    folder, renamed = (posixpath.dirname(whole), last) if one_file else (whole, "")
    renamed = "" if renamed == posixpath.basename(words[0]) else filled(renamed, values)
    return places.shown(folder, values) or CHOICE, renamed


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else f"{'DIRECTORY' if folder == CHOICE else folder}/{name}"
