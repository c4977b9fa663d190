"""Work in a scratch directory: made, filled, left and removed by the script, with the results copied back.

Each attempt of a job has a directory of its own that is kept, and begins with what the script's folder had. So the
scratch directory is not needed: its lines are left out together, and the work is done where the job begins. Where the
script does more with it, nothing is left out but its removal, and the report blocks.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from mpijob.formats.convert.header.request import Request
from mpijob.formats.convert.script import classify
from mpijob.formats.convert.script.classify import Use
from mpijob.formats.convert.shell.constants import constant, mentioned
from mpijob.formats.convert.shell.parser import Command, Statement, inside, statements
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


WHY = "each attempt of a job has a directory of its own, which is kept: the work is done there"
_ALONG = (
    "the script's folder goes along, so it is in the job's directory already, with what else the folder has"
)
_UNUSED = "that directory is not used, so there is nothing to remove"
_QUIET = (Use.INFORMS, Use.END, Use.TEST)
_COPIES = frozenset({"cp", "mv", "ln", "rsync"})
_BRACES = re.compile(r"(.*?)(?<!\$)\{([^{}]*,[^{}]*)\}(.*)", re.DOTALL)
_REDIRECT = re.compile(r"([0-9&]*[<>|&]+\s*)(.*)", re.DOTALL)
_PLAIN = re.compile(r"[-\w./:,@%+=*?$]+")


class Unproved(Exception):
    """A line whose meaning would change, and why."""


def named(command: Command) -> list[str]:
    """Return the words of a command that are no options, with braces written out."""
    found: list[str] = []
    for word in command.words[1:]:
        match = _BRACES.fullmatch(word)
        if match and word[:1] not in "-'\"":
            found += [f"{match[1]}{part}{match[3]}" for part in match[2].split(",")]
        elif not word.startswith("-"):
            found.append(word)
    return found


def removes(command: Command, places: ScriptPaths, directory: str) -> bool:
    """Return whether a command removes a directory: by its own name, all in it, or one around it."""
    if command.words[0] == "trap":
        body = (
            statements(constant(command.words[1]) or command.words[1].strip("'\""))
            if command.words[1:]
            else []
        )
        return any(removes(each, places, directory) for one in body for each in inside(one))
    if command.words[0] not in ("rm", "rmdir"):
        return False
    paths = [places.full(word).removesuffix("/*") for word in named(command)]
    return any(path == directory or directory.startswith(f"{path}/") for path in paths)


class Reader:
    """Reads statement after statement; `behind` tells that no launch line follows."""

    def __init__(self, directory: str, request: Request) -> None:
        self.directory = directory
        self.request = request
        self.places = ScriptPaths()
        self.names: set[str] = set()
        self.before = ""
        self.last = self.behind = self.away = False

    def read(self, every: Sequence[Statement]) -> list[tuple[Statement, str]]:
        """Return the statements that stay, as they are to be read now, and those that do not, with the reason."""
        last = max((at for at, one in enumerate(every) if classify.starts_ranks(one.text)), default=0)
        pieces: list[tuple[Statement, str]] = []
        for at, one in enumerate(every):
            self.last, self.behind = at == last, at > last
            pieces += self._statement(one)
            self.before += f"{one.text}\n"
        return pieces

    def _statement(self, one: Statement) -> list[tuple[Statement, str]]:
        commands = inside(one)
        found: list[tuple[Command, Use, str]] = []
        for command in commands:
            use = classify.use(command)
            found.append((command, use, self._reason(command, use)))
            self.places.note(command)
            self.behind = self.behind or (self.last and use is Use.LAUNCH)
        reasons = [reason for _, _, reason in found if reason]
        if reasons and all(reason or use in _QUIET for _, use, reason in found):
            return [(one, reasons[0])]
        if not reasons and not self._names(one):
            return [(one, "")]
        if not classify.is_simple(one) or one.heredoc or one.background:
            if not reasons and not self._mentions(one.text):
                return [(one, "")]
            raise Unproved(f"more is done with it: {one.text.partition(chr(10))[0]}")
        return [self._piece(one, *each) for each in found]

    def _piece(self, one: Statement, found: Command, use: Use, reason: str) -> tuple[Statement, str]:
        command = Command(found.words, found.redirects)
        if not reason and use is not Use.INFORMS:
            command = self._rewritten(command, use)
        origin = " ".join((*found.words, *found.redirects))
        text = " ".join((*command.words, *command.redirects))
        if not reason and use is not Use.INFORMS and self._mentions(text):
            raise Unproved(f"it is named in: {text}")
        return Statement(text, one.line, (command,), origin=origin), reason

    def _names(self, one: Statement) -> bool:
        """Return whether a statement that stays has to be looked at: it names the directory, or the script's own."""
        quiet = all(classify.use(each) is Use.INFORMS for each in one.commands) and one.commands
        if self.away and not quiet:
            raise Unproved(f"the script goes elsewhere before: {one.text}")
        return not quiet and (self._mentions(one.text) or (self.behind and bool(_copied(one))))

    def _mentions(self, text: str) -> bool:
        plain = text.replace("{", "").replace("}", "").replace('"', "")
        return bool(mentioned(text) & self.names) or self.directory in plain

    def _reason(self, command: Command, use: Use) -> str:
        """Return why a command is not needed; "" for one that stays."""
        if use is Use.VARIABLES:
            return self._variables(command)
        if use is Use.PLACE:
            return self._place(command)
        if removes(command, self.places, self.directory):
            return _UNUSED
        paths = [self.places.full(word) for word in named(command)]
        if command.words[0] == "mkdir" and paths and all(path == self.directory for path in paths):
            return WHY
        return self._copy(command) if command.words[0] in _COPIES and len(paths) > 1 else ""

    def _variables(self, command: Command) -> str:
        reason = ""
        for word in command.words:
            match = classify.ASSIGNMENT.match(word)
            path = self.places.path(match[3]) if match else ""
            if match and (path == self.directory or path.startswith(f"{self.directory}/")):
                self.names.add(match[1])
                reason = WHY
        if reason and command.words[0] in ("export", "declare"):
            raise Unproved(f"the program may read it from {', '.join(sorted(self.names))}")
        return reason

    def _place(self, command: Command) -> str:
        target = self.places.target(command)
        back = command.words in (("cd", "-"), ("popd",)) and target == HOME
        if target == self.directory or back:
            return WHY
        if target != HOME and not self.behind:
            raise Unproved(f"{' '.join(command.words)} goes to another directory")
        self.away = target != HOME
        return WHY if self.away else ""

    def _copy(self, command: Command) -> str:
        """Return why a copy is not needed: what is copied is there already, under the same name."""
        *sources, target = [self._here(word) for word in named(command)]
        same = target == "." and all(source is not None and "/" not in source for source in sources)
        if not same and not (len(sources) == 1 and sources[0] == target is not None):
            return ""
        if self.behind:
            return ""  # it brings results back: told as what it is
        for source in sources:
            self._see(source or ".")
        return _ALONG

    def _see(self, name: str) -> None:
        """Refuse a file that the script's folder does not have and no line before it makes."""
        beside = self.request.beside
        if name != "." and beside and not fnmatch.filter(beside, name) and name not in self.before:
            raise Unproved(f"{name} is copied there and is not in the script's folder")

    def _here(self, word: str) -> str | None:
        """Return the way to what a word names, with the scratch directory and the script's own taken as one."""
        whole = self.places.full(word)
        for place in (self.directory, HOME):
            if whole == place or whole.startswith(f"{place}/"):
                return whole.removeprefix(place).lstrip("/") or "."
        return None

    def _rewritten(self, command: Command, use: Use) -> Command:
        """Return a command with its paths seen from the job's directory; a launch line is never changed."""
        if use is Use.LAUNCH:
            return command
        words = (command.words[0], *(self._word(word) for word in command.words[1:]))
        return Command(words, tuple(self._redirect(one) for one in command.redirects))

    def _word(self, word: str) -> str:
        here = None if word.startswith("-") or "$" not in word else self._here(word)
        return here if here is not None and _PLAIN.fullmatch(here) else word

    def _redirect(self, redirect: str) -> str:
        match = _REDIRECT.fullmatch(redirect)
        return f"{match[1]}{self._word(match[2])}" if match else redirect


def _copied(one: Statement) -> list[Command]:
    return [each for each in one.commands if each.words and each.words[0] in _COPIES]
