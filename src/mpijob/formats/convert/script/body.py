"""The lines of a batch script below its head: what each is for, and the jobs that they make.

Slurm runs these lines once, on the first node, and `srun` starts the ranks. Here the ranks are the job. So what
prepares the surroundings goes into each rank's own script, what prepares files into the same (`build_steps`), each
launch line is a job, and other work that stands before, between or behind launch lines is a job of one rank; all of
them run in the script's order. Lines for a scratch directory are gone before (`scratch_dir`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from mpijob.errors import InvalidJob
from mpijob.formats.convert.header.request import KEPT, LOGS, Request
from mpijob.formats.convert.script import (
    build_steps,
    classify,
    errexit,
    error_handling,
    launch_line,
    launch_prefix,
    result_copies,
    scratch_dir,
)
from mpijob.formats.convert.script.classify import Use
from mpijob.formats.convert.script.environment import ScriptEnvironment
from mpijob.formats.convert.script.launch_line import base
from mpijob.formats.convert.script.steps import Step, numbered
from mpijob.formats.convert.shell.constants import filled
from mpijob.formats.convert.shell.parser import Command, Statement, inside, split_group, statements
from mpijob.formats.convert.shell.paths import ScriptPaths

_MOST_STEPS = 200  # each has all variables and lines before it in its job file
_LONGEST_PIPE = (
    2_000  # letters of what a launch line's output went through; told once for each command behind it
)


class Body(ScriptEnvironment):
    """Reads statements one after the other; `setting` grows, steps are made from work."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.every: list[Statement] = []
        self.steps: list[Step] = []
        self.files = request.files
        self.prepared = build_steps.Prepared()
        self.functions: dict[str, str] = {}
        self.called: frozenset[str] = frozenset()
        self.launches = self.went = False
        self.worked: tuple[list[str], dict[str, str]] = [], {}  # what the last work had before it
        self.last = self.behind = False  # this is the last launch line; it has come

    def read(self, text: str) -> None:
        """Read all statements of a script."""
        self.every = every = scratch_dir.without(statements(text), self.request)
        self.launches = any(classify.use(each) is Use.LAUNCH for one in every for each in one.commands)
        self.functions = {name: one.text for one in every if (name := error_handling.function_name(one))}
        self.called = error_handling.called_functions(every)
        self.strictness = errexit.Strictness(self.functions)
        self._first_line(text)
        last = max((at for at, one in enumerate(every) if classify.starts_ranks(one.text)), default=0)
        for at, statement in enumerate(every):
            self.notes.line = statement.line
            self.last, self.behind = at == last, at > last
            self._grouped(statement)
        self.notes.line = 0
        if self.steps:
            self.tell_loose()

    def _first_line(self, text: str) -> None:
        """Set what the first line of a script sets for its shell: `#!/bin/bash -e`."""
        options = errexit.of_first_line(text)
        if options:
            self.notes.line = 1
            self.set_up(options)

    @property
    def _launched(self) -> bool:
        """Whether the last piece of work was a launch line."""
        return bool(self.steps) and self.steps[-1].launches

    def _grouped(self, one: Statement) -> None:
        """Read a statement; of a launch line with a group behind it, the line and then the group."""
        found = split_group(one) if classify.starts_ranks(one.text) and not one.heredoc else None
        if found is None or classify.use_of(found[0]) is not Use.LAUNCH:
            self._followed(one)
            return
        line, operator, group = found
        for each in statements(line):
            self._followed(msgspec.structs.replace(each, line=one.line))
        if operator == "||":
            error_handling.fails_over(group, one.text.removeprefix(line).strip(), self.notes)
            return
        self.behind = self.last
        for each in statements(group):
            self._followed(msgspec.structs.replace(each, line=one.line))

    def _followed(self, one: Statement) -> None:
        """Read a statement, then go where it goes, unless it went there command by command."""
        self.went = False
        self._statement(one)
        for command in inside(one):
            goes = classify.use(command) is Use.PLACE
            if not (goes and self.went):
                self.places.note(command)
            if one.compound and goes:
                self.places.place = "$PWD"  # perhaps: nobody knows

    def _statement(self, one: Statement) -> None:
        starts = classify.starts_ranks(one.text)
        uses = [classify.use(command) for command in one.commands]
        name = error_handling.function_name(one)
        if one.heredoc and self._file(one):
            return
        if one.compound and classify.is_conda_block(one.text):
            self.modules(one.text.split("\n")[0])
        elif name and not starts and self.launches:
            self.function(name, one, name in self.called)
        elif not one.heredoc and (
            self._status(one) or self._keeps(one) or self._reads_log(one) or self._decides(one)
        ):
            return
        elif starts and (one.heredoc or (one.compound and Use.LAUNCH not in uses)):
            self._blocked(one)
        elif one.compound or one.heredoc:
            self._work(one)
        elif Use.LAUNCH in uses:
            self._launch_list(one, uses)
        elif only_shows(one, self.every, self.places):
            self.informs(one.text)
        elif self._before_launch() and self._prepares(one, uses):
            return
        else:
            self._plain(one, uses)

    def _plain(self, one: Statement, uses: list[Use]) -> None:
        """Take over a statement that is no launch line and makes nothing ready."""
        if classify.is_simple(one) and Use.WORK not in uses:
            for command, use in zip(one.commands, uses, strict=True):
                self._command(command, use)
        elif all(use is Use.INFORMS for use in uses):
            self.informs(one.text)
        elif all(use in (Use.INFORMS, Use.MODULES, Use.END) for use in uses):
            self.modules(one.text)
        else:
            self._work(one)

    def _before_launch(self) -> bool:
        """Return whether a launch line follows, and none has come."""
        return self.launches and not any(step.launches for step in self.steps)

    def _status(self, one: Statement) -> bool:
        """Leave out what only asks how the launch line before it ended; return whether it is that."""
        asks = self._launched and error_handling.looks_at_status(one, self.statuses)
        return asks and error_handling.tells_status(one, self.notes)

    def _keeps(self, one: Statement) -> bool:
        """Leave out what only brings results to another place when the ranks have ended; return whether it is that."""
        commands = inside(one)
        result_copies.follow_loop(one, self.places)
        idle = bool(one.origin and commands and self.steps) and all(
            result_copies.is_idle(each, self.places) for each in commands
        )
        if not idle and not (self.behind and self._launched):
            return False
        found = idle or result_copies.keeps(commands, [classify.use(each) for each in commands], self.places)
        if found:
            job = numbered(len(self.steps) - 1)
            todo = result_copies.fetched(commands, job, self.places, self.output.logs, self.values)
            self.notes.dropped("script", one.origin or one.text, KEPT.replace("NAME", job), todo)
        return found

    def _reads_log(self, one: Statement) -> bool:
        """Leave out what only shows a part of a launch line's output, which is in the job's log."""
        shown = [self.output.shown(command) for command in inside(one)]
        if not shown or not all(shown) or one.compound or not self._launched:
            return False
        self.notes.dropped("script", one.text, LOGS, f"nothing, or {'; '.join(shown)}")
        return True

    def _tell_log(self, commands: tuple[Command, ...], step: int) -> None:
        """Block where a job reads what the script wrote from the output of a job before it."""
        words = [word for command in commands for word in (*command.words[1:], *command.redirects)]
        for file in dict.fromkeys(self.output.read_by(words)):
            line = self.output.keep(file, self.output.logs[self.places.full(file)])
            job = line.split()[2]
            name = self.output.shown_name(file)
            note = f"{name} is read here: it is the output of {job}, which is its log and no file"
            todo = (
                f"run them one by one, in the script's folder, where the file goes along: mpijob run -f {job}.yaml; "
                f"{line}; mpijob run -f {numbered(step)}.yaml (each job file by its own path)"
            )
            self.notes.dropped("script", file, note, todo, blocks=True)

    def _decides(self, one: Statement) -> bool:
        """Take over a condition that only tests, informs, ends, sets or prepares; return whether it is that."""
        if not self._before_launch():
            return False
        commands = inside(one)
        uses = [classify.use(command) for command in commands]
        simple = not one.compound and Use.TEST not in uses and "{" not in one.text.split()
        if simple or one.background or not build_steps.decides(commands, uses) or self.beyond(one.text):
            return False
        if Use.MODULES in uses:
            self.modules(one.text)
        elif Use.WORK in uses:
            self.prepared.add(one, self.setting, commands, self.strict)
            self.notes.changed("script", one.text, "code.files", build_steps.NOTE)
        else:
            self.set_up(one.text)
        return True

    def _prepares(self, one: Statement, uses: list[Use]) -> bool:
        """Take over what makes files ready for the launch line; return whether it is that."""
        pieces = build_steps.pieces(one, uses)
        if not pieces or self.beyond(one.text):
            return False
        for piece, mine in pieces:
            if mine:
                self.prepared.add(piece, self.setting, piece.commands, self.strict)
                self.notes.changed("script", piece.text, "code.files", build_steps.NOTE)
            else:
                self._command(piece.commands[0], classify.use(piece.commands[0]))
        return True

    def _file(self, one: Statement) -> bool:
        """Take over a here-document that writes a file with a text that no shell changes."""
        found = classify.written_file(one)
        if found is None:
            return False
        name, text = found
        self.files[name] = text
        folder = f"mkdir -p {name.rpartition('/')[0]}"
        self.setting = [line for line in self.setting if line != folder]
        self.notes.exact("script", one.text.split("\n")[0], "code.files")
        return True

    def _blocked(self, one: Statement) -> None:
        first = one.text.split("\n")[0]
        if one.heredoc:
            note = "the ranks read a text of the script, which a job cannot say"
            todo = "write the text into a file of the folder, and launch: {stdin: FILE} into the job"
        else:
            note = "ranks are started inside a loop or a condition, which a job cannot say"
            todo = "write one job for each run, or mpijob array where only values differ"
        self.notes.dropped("script", first, note, todo, blocks=True)

    def _launch_list(self, one: Statement, uses: list[Use]) -> None:
        """Take over launch lines joined by && and the like, or followed by a tee."""
        before, piped = "", ""
        last = max(at for at, use in enumerate(uses) if use is Use.LAUNCH)
        for at, (command, use) in enumerate(zip(one.commands, uses, strict=True)):
            self.behind = self.last and at > last
            text = " ".join((*command.words, *command.redirects))
            if before in ("|", "|&"):
                piped = self._piped(command, f"{piped}| {text}")
            elif before == "||" and use is Use.END:
                self.notes.exact("script", f"|| {text}", "", "a job that fails ends with a status")
            elif before == "||":
                error_handling.fails_over(text, f"|| {text}", self.notes)
            elif use is Use.LAUNCH and command.after in ("|", "|&") and not classify.is_tee(one, command):
                self._blocked(one)
                return
            elif use is Use.WORK:
                piece = Statement(text, one.line, (command,))
                if not self._keeps(piece) and not (self._before_launch() and self._prepares(piece, [use])):
                    self._work(piece)
            else:
                self._command(command, use)
            before = command.after
        if one.background:
            self.steps[-1:] = [msgspec.structs.replace(step, aside=True) for step in self.steps[-1:]]
            note = "steps that run side by side are jobs of their own: create all of them, then wait"
            self.notes.changed("script", "&", "", note)

    def _piped(self, command: Command, text: str) -> str:
        """Tell how the job's log goes through what a launch line's output went through; return all of that."""
        job = numbered(len(self.steps) - 1)
        line = f"mpijob logs {job} --no-prefix"
        before = text.rpartition("| ")[0]
        if launch_line.base(command.words[0]) == "tee":
            for word in command.words[1:]:
                self.output.keep(word, f"{line} {before}".rstrip())
        todo = f"nothing, or {line} {filled(text, self.values)}"
        self.notes.changed("script", text, "", LOGS.replace("NAME", job), todo)
        return f"{text} " if len(text) < _LONGEST_PIPE else f"{text[:_LONGEST_PIPE]} … "

    def _command(self, command: Command, use: Use) -> None:
        text = " ".join((*command.words, *command.redirects))
        if use is Use.SETTING and command.words[0] == "trap" and self.launches:
            self.trap(command, self.functions)
            return
        if self.beyond(text) and use not in (Use.INFORMS, Use.LAUNCH, Use.MODULES):
            self.needs_batch(text)
            return
        match use:
            case Use.LAUNCH:
                self._launch(command)
            case Use.VARIABLES:
                self.variables(command, self._launched)
            case Use.MODULES:
                self.modules(text)
            case Use.INFORMS:
                self.informs(text)
            case Use.END:
                self.notes.exact("script", text, "", "a job ends when its ranks have ended")
            case Use.PLACE:
                self.place_at(command, text)
                self.places.note(command)
                self.went = True
            case _:
                self.set_up(text)

    def _launch(self, command: Command) -> None:
        rest = classify.unwrapped(command.words)
        self._tell_log((Command(rest),), len(self.steps))
        before = command.words[: len(command.words) - len(rest)]
        env, fields = launch_prefix.taken(before, self.notes)
        words = Command(rest, command.redirects)
        step = Step(
            line=self.notes.line,
            words=rest,
            fields=fields,
            stdin=self.output.take(words, numbered(len(self.steps)), self.notes),
        )
        self._add(step, env)

    def _add(self, step: Step, env: dict[str, str] | None = None) -> None:
        """Add a step with all that stands before it."""
        if len(self.steps) == _MOST_STEPS:
            raise InvalidJob(
                f"the script has more than {_MOST_STEPS} launch lines, each of which would be a job (line {step.line})",
                hint="split the script, or write one job and mpijob array where only values differ",
            )
        self._tell_log((Command(("", *self.output.awaited)),), len(self.steps))
        self.output.awaited.clear()
        step.setting, step.env = tuple(self.setting), {**self.env, **(env or {})}
        step.files, step.prepared = dict(self.files), dict(self.prepared.functions)
        self.steps.append(step)
        self.loose.clear()

    def _hides_launch(self, one: Statement) -> bool:
        """Block where a variable or a shell of its own starts ranks; return whether it does."""
        for command in inside(one):
            first = command.words[0]
            text = self.places.path(first) if first.startswith(('"$', "$")) else ""
            if launch_line.base(first) in ("bash", "sh", "eval"):
                text = " ".join(command.words[1:])
            if classify.starts_ranks(text):
                note = f"ranks are started by what {first} stands for or runs, which is not read"
                todo = "write the launch line itself into the script, with srun or mpirun as its first word"
                self.notes.dropped("script", one.text, note, todo, blocks=True)
                return True
        return False

    def _work(self, one: Statement) -> None:
        if self.beyond(one.text):
            self.needs_batch(one.text)
            return
        if self._hides_launch(one):
            return
        if self.steps and not self._launched and self.worked == (self.setting, self.env):
            self._tell_log(inside(one), len(self.steps) - 1)
            self.steps[-1].text += "\n" + one.text
            self.steps[-1].parts.append((self.notes.line, one.text))
        else:
            self._tell_log(inside(one), len(self.steps))
            self._add(Step(line=self.notes.line, text=one.text, parts=[(self.notes.line, one.text)]))
        if not one.background:
            self.heed(one.text, kept=False)
        self.worked = [*self.setting], {**self.env}


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
