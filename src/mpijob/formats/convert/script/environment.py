"""What the lines of a script set up for those that work: variables, places, modules; and what is told of each."""

from __future__ import annotations

from collections import ChainMap

import msgspec

from mpijob.formats.convert.header.request import OWN_NUMBER, Request, given_by
from mpijob.formats.convert.report import FieldOutcome
from mpijob.formats.convert.script import classify, error_handling
from mpijob.formats.convert.script.errexit import Strictness
from mpijob.formats.convert.script.redirects import Output
from mpijob.formats.convert.script.variables import unknown
from mpijob.formats.convert.shell.constants import constant, filled, mentioned
from mpijob.formats.convert.shell.parser import Command, Statement
from mpijob.formats.convert.shell.paths import ScriptPaths

EACH = "each rank does it before the program, not the launcher once"
_STATUS = "with what a launch line ends is the job's own status, and mpijob wait NAME waits for it"
_PERHAPS = (
    "whether a line that fails ends the script is known only when this line has run; in the job each does"
)
_LENIENT = "if a later line may fail, write || : behind it, or set +e before it where it always runs; convert it again"
_UNUSED = "no line that follows does work, so it is left out"


class ScriptEnvironment:
    """Grows line by line: `setting` is what each rank does first, `env` what it finds; `loose` what no job has yet."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.notes = request.notes
        self.env: dict[str, str] = {}
        self.setting: list[str] = []
        self.strict = False  # a line that fails ends the script
        self.strictness = Strictness({})
        self.places = ScriptPaths()
        own = {} if request.values else dict.fromkeys(OWN_NUMBER, request.name)
        self.values = {**own, **request.known}
        self.output = Output(request, self.places, self.values)
        self.statuses: set[str] = set()
        self.loose: list[int] = []

    def beyond(self, text: str) -> bool:
        """Return whether a text needs the batch system: its commands, or variables that have no like here."""
        return bool(classify.BATCH_WORDS.search(text)) or bool(unknown((text,), self.request))

    def set_up(self, text: str, note: str = EACH, todo: str = "") -> None:
        """Have each rank do something before the program."""
        self.setting.append(text)
        self.output.look(text)
        self._tell_loosely(text, note, todo)
        self.heed(text, kept=True)

    def heed(self, text: str, *, kept: bool) -> None:
        """Go on or end behind a line that fails as a text leaves it to the lines that follow.

        `kept` is whether these have the text before them. Where nobody knows, they end.
        """
        found = self.strictness.behind(self.strict, text)
        if found == {self.strict}:
            return
        self.strict = True in found
        if len(found) > 1:
            self._tell_loosely("set -e", _PERHAPS, _LENIENT)
        if len(found) > 1 or not kept:
            self.setting.append("set -e" if self.strict else "set +e")

    def _tell_loosely(self, text: str, note: str, todo: str) -> None:
        self.notes.changed("script", text, "code.files", note, todo)
        self.loose.append(len(self.notes.entries) - 1)

    def tell_loose(self) -> None:
        """Set right what was told of lines that no job has: nothing behind them works."""
        for at in self.loose:
            old = self.notes.entries[at]
            self.notes.entries[at] = msgspec.structs.replace(
                old, fate=FieldOutcome.DROPPED, ours="", note=_UNUSED, todo="nothing"
            )

    def modules(self, text: str) -> None:
        """Leave out what belongs to a site."""
        todo = "put it into the image; on this machine load it first, and name in env what is not on PATH"
        self.notes.dropped("script", text, "modules and environments of a site are not known elsewhere", todo)
        self.setting.append("\n".join(f"# {line}" for line in text.split("\n")) + "  (left out)")

    def informs(self, text: str) -> None:
        """Leave out what only tells."""
        todo = "nothing: mpijob describe and mpijob events tell more"
        self.notes.dropped("script", text, "it only informs", todo)

    def needs_batch(self, text: str) -> None:
        """Block on what asks the batch system."""
        first = text.partition("\n")[0]
        if error_handling.begins_again(text):
            error_handling.tell_again(text, self.request, self.notes)
        elif not error_handling.tell_next(text, self.request, self.notes):
            todo = "write the value into env, or use MPIJOB_RANK, MPIJOB_WORLD and MPIJOB_LOCAL_RANK in the program"
            self.notes.dropped(
                "script", first, f"it asks {self.request.system} for something", todo, blocks=True
            )
        self.setting.append(f"# {first}  (left out)")

    def trap(self, command: Command, functions: dict[str, str]) -> None:
        """Take over a trap that only ignores a signal; tell what becomes of any other."""
        text, does = " ".join(command.words), command.words[1] if len(command.words) > 1 else ""
        body = functions.get(
            does, (constant(does) if constant(does) is not None else does.strip("\"'")) or ""
        )
        if does in ("''", '""'):
            self.set_up(text)
        elif does in functions and self.beyond(body):
            self.notes.dropped(
                "script", text, f"{does} was left out, so nothing calls it", "see the line of that function"
            )
        elif error_handling.begins_again(body):
            error_handling.tell_again(text, self.request, self.notes)
        elif self.beyond(body):
            self.needs_batch(text)
        else:
            error_handling.tell_trap(command, body, self.notes)

    def function(self, name: str, one: Statement, called: bool) -> None:
        """Let each rank have a function that a line calls; leave out any other."""
        if self.beyond(one.text):
            self.needs_batch(one.text)
        elif called:
            self.set_up(one.text, "each rank has it")
        else:
            self.notes.dropped("script", one.text, f"no line but a trap calls {name}", "nothing")

    def place_at(self, command: Command, text: str) -> None:
        """Go where a script goes; it is called before `places` goes there."""
        target = command.words[1] if len(command.words) == 2 else ""
        below = self.places.below(target) if command.words[0] == "cd" and target else None
        if mentioned(target) & {"SLURM_SUBMIT_DIR", "PBS_O_WORKDIR"} and below == ".":
            if self.places.below(".") != ".":
                self.setting.append(text)
            note = "the script's folder goes along, and ranks begin there"
            self.notes.exact("script", text, "code.path", note)
        elif below is not None and not mentioned(target):
            self.setting.append(text)
            note = "each rank goes there: it is in the folder that goes along"
            self.notes.exact("script", text, "code.files", note)
        else:
            todo = "the directory must exist on every worker: mount a volume, or leave the line out"
            self.set_up(text, "each rank goes there, not the launcher alone", todo)

    def variables(self, command: Command, launched: bool) -> None:
        """Take variables over: values become env, others are worked out by each rank."""
        known = ChainMap(self.env, self.request.known)
        words = tuple(filled(word, known) for word in command.words)
        found = classify.assignments(words)
        kept = error_handling.keeps_status(command) if launched else []
        if kept:
            self.statuses |= set(kept)
            self.env |= dict.fromkeys(kept, "0")  # what follows begins only when it has succeeded
            self.notes.dropped("script", " ".join(words), _STATUS, "nothing")
        elif not found:
            self._exported(words)
        elif all(value is not None for _, value in found):
            for name, value in found:
                self.env[name] = value or ""
                self.notes.exact("script", f"{name}={value}", f"env.{name}")
                self.loose.append(len(self.notes.entries) - 1)
        else:
            self.set_up(" ".join(words), "it is worked out on each rank, not once")

    def _exported(self, words: tuple[str, ...]) -> None:
        """Tell of variables that are exported by name alone; those that nobody has set are the user's shell's."""
        text = "\n".join(self.setting)
        for name in words[1:]:
            if not name.startswith("-") and name not in self.env and f"{name}=" not in text:
                note = "the script exports it and does not set it: its value is in the shell from which it is submitted"
                self.notes.dropped("script", f"{words[0]} {name}", note, given_by(name))
                return
        self.notes.exact("script", " ".join(words), "", "every variable of the job reaches every rank")
