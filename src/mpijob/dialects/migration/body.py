"""The lines of a batch script below its head: what each is for, and the jobs that they make.

Slurm runs these lines once, on the first node, and `srun` starts the ranks. Here the ranks are the job. So what
prepares the surroundings goes into each rank's own script, what prepares files into the same (`preparing`), each
launch line is a job, and other work that stands before, between or behind launch lines is a job of one rank; all of
them run in the script's order.
"""

from __future__ import annotations

import posixpath

import msgspec

from mpijob.dialects.migration import bodylines, launchline, preparing
from mpijob.dialects.migration.bodylines import Use
from mpijob.dialects.migration.request import KEPT, LOGS, Request
from mpijob.dialects.migration.shelltext import constant, filled, mentioned
from mpijob.dialects.migration.shellwords import Command, Statement, inside, statements
from mpijob.dialects.migration.steps import Step
from mpijob.dialects.migration.variables import unknown

EACH = "each rank does it before the program, not the launcher once"


class Body:
    """Reads statements one after the other; `setting` grows, steps are made from work."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.notes = request.notes
        self.env: dict[str, str] = {}
        self.setting: list[str] = []
        self.steps: list[Step] = []
        self.files = request.files
        self.prepared = preparing.Prepared()
        self.launches = False
        self.last = self.behind = False  # this is the last launch line; it has come
        self.place = (
            "."  # where the script stands, below the directory in which it begins; "" where nobody knows
        )

    def read(self, text: str) -> None:
        """Read all statements of a script."""
        every = statements(text)
        self.launches = any(bodylines.use(each) is Use.LAUNCH for one in every for each in one.commands)
        last = max((at for at, one in enumerate(every) if bodylines.starts_ranks(one.text)), default=0)
        for at, statement in enumerate(every):
            self.notes.line = statement.line
            self.last, self.behind = at == last, at > last
            self._statement(statement)
        self.notes.line = 0

    def _statement(self, one: Statement) -> None:
        starts = bodylines.starts_ranks(one.text)
        uses = [bodylines.use(command) for command in one.commands]
        if one.heredoc and self._file(one):
            return
        if one.compound and bodylines.is_conda_block(one.text):
            self._modules(one.text.split("\n")[0])
        elif not one.heredoc and (self._keeps(one) or self._decides(one)):
            return
        elif one.compound or one.heredoc:
            self._blocked(one) if starts and Use.LAUNCH not in uses and one.compound else self._work(one)
        elif Use.LAUNCH in uses:
            self._launch_list(one, uses)
        elif self._before_launch() and self._prepares(one, uses):
            return
        elif bodylines.is_simple(one) and Use.WORK not in uses:
            for command, use in zip(one.commands, uses, strict=True):
                self._command(command, use)
        elif all(use is Use.INFORMS for use in uses):
            self._informs(one.text)
        elif all(use in (Use.INFORMS, Use.MODULES, Use.END) for use in uses):
            self._modules(one.text)
        else:
            self._work(one)

    def _before_launch(self) -> bool:
        """Return whether a launch line follows, and none has come."""
        return self.launches and not any(step.launches for step in self.steps)

    def _keeps(self, one: Statement) -> bool:
        """Leave out what only brings results to another place when the ranks have ended; return whether it is that."""
        if not self.behind or not self.steps or not self.steps[-1].launches:
            return False
        commands = inside(one)
        found = preparing.keeps(commands, [bodylines.use(command) for command in commands])
        if found:
            self.notes.dropped("script", one.text, KEPT, preparing.fetched(commands))
        return found

    def _decides(self, one: Statement) -> bool:
        """Take over a condition that only tests, informs, ends, sets or prepares; return whether it is that."""
        if not self._before_launch():
            return False
        commands = inside(one)
        uses = [bodylines.use(command) for command in commands]
        simple = not one.compound and Use.TEST not in uses and "{" not in one.text.split()
        if (
            simple
            or one.background
            or not preparing.decides(commands, uses)
            or _beyond(one.text, self.request)
        ):
            return False
        if Use.MODULES in uses:
            self._modules(one.text)
        elif Use.WORK in uses:
            self.prepared.add(one, self.setting, commands)
            self.notes.changed("script", one.text, "code.files", preparing.NOTE)
        else:
            self.setting.append(one.text)
            self.place = "" if Use.PLACE in uses else self.place
            self.notes.changed("script", one.text, "code.files", EACH)
        return True

    def _prepares(self, one: Statement, uses: list[Use]) -> bool:
        """Take over what makes files ready for the launch line; return whether it is that."""
        pieces = preparing.pieces(one, uses)
        if not pieces or _beyond(one.text, self.request):
            return False
        for piece, mine in pieces:
            if mine:
                self.prepared.add(piece, self.setting, piece.commands)
                self.notes.changed("script", piece.text, "code.files", preparing.NOTE)
            else:
                self._command(piece.commands[0], bodylines.use(piece.commands[0]))
        return True

    def _file(self, one: Statement) -> bool:
        """Take over a here-document that writes a file with a text that no shell changes."""
        found = written_file(one)
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
        note = "ranks are started inside a loop or a condition, which a job cannot say"
        todo = "write one job for each run, or mpijob array where only values differ"
        self.notes.dropped("script", first, note, todo, blocks=True)

    def _launch_list(self, one: Statement, uses: list[Use]) -> None:
        """Take over launch lines joined by && and the like, or followed by a tee."""
        before = ""
        for at, (command, use) in enumerate(zip(one.commands, uses, strict=True)):
            self.behind = self.last and Use.LAUNCH in uses[:at] and Use.LAUNCH not in uses[at:]
            if before in ("|", "|&"):
                line = "| " + " ".join((*command.words, *command.redirects))
                self.notes.changed(
                    "script", line, "", LOGS, f"nothing, or mpijob logs NAME --no-prefix {line}"
                )
            elif before == "||":
                self.notes.exact(
                    "script", "|| " + " ".join(command.words), "", "a job that fails ends with a status"
                )
            elif use is Use.LAUNCH and command.after in ("|", "|&") and not _is_tee(one, command):
                self._blocked(one)
                return
            elif use is Use.WORK:
                piece = Statement(" ".join((*command.words, *command.redirects)), one.line, (command,))
                if not self._keeps(piece) and not (self._before_launch() and self._prepares(piece, [use])):
                    self._work(piece)
            else:
                self._command(command, use)
            before = command.after
        if one.background:
            self.steps[-1:] = [msgspec.structs.replace(step, aside=True) for step in self.steps[-1:]]
            note = "steps that run side by side are jobs of their own: create all of them, then wait"
            self.notes.changed("script", "&", "", note)

    def _command(self, command: Command, use: Use) -> None:
        text = " ".join((*command.words, *command.redirects))
        if _beyond(text, self.request) and use not in (Use.INFORMS, Use.LAUNCH, Use.MODULES):
            self._needs_batch(text)
            return
        match use:
            case Use.LAUNCH:
                self._launch(command)
            case Use.VARIABLES:
                self._variables(command)
            case Use.MODULES:
                self._modules(text)
            case Use.INFORMS:
                self._informs(text)
            case Use.END:
                self.notes.exact("script", text, "", "a job ends when its ranks have ended")
            case Use.PLACE:
                self._place(command, text)
            case _:
                self.setting.append(text)
                self.notes.changed("script", text, "code.files", EACH)

    def _modules(self, text: str) -> None:
        todo = "put it into the image; on this machine load it first, and name in env what is not on PATH"
        self.notes.dropped("script", text, "modules and environments of a site are not known elsewhere", todo)
        self.setting.append("\n".join(f"# {line}" for line in text.split("\n")) + "  (left out)")

    def _informs(self, text: str) -> None:
        self.notes.dropped(
            "script", text, "it only informs", "nothing: mpijob describe and mpijob events tell more"
        )

    def _needs_batch(self, text: str) -> None:
        todo = (
            "write the value into env, or use MPIJOB_RANK, MPIJOB_WORLD and MPIJOB_LOCAL_RANK in the program"
        )
        self.notes.dropped("script", text, f"it asks {self.request.system} for something", todo, blocks=True)
        self.setting.append(f"# {text}  (left out)")

    def _place(self, command: Command, text: str) -> None:
        target = command.words[1] if len(command.words) > 1 else ""
        if mentioned(target) & {"SLURM_SUBMIT_DIR", "PBS_O_WORKDIR"} and "/" not in target.strip('"'):
            self.place = "."
            self.notes.exact(
                "script", text, "code.path", "the script's folder goes along, and ranks begin there"
            )
            return
        self.setting.append(text)
        self.place = _below(self.place, constant(target) or "") if command.words[0] == "cd" else ""
        if self.place:
            self.notes.exact(
                "script", text, "code.files", "each rank goes there: it is in the folder that goes along"
            )
            return
        todo = "the directory must exist on every worker: mount a volume, or leave the line out"
        self.notes.changed("script", text, "code.files", "each rank goes there, not the launcher alone", todo)

    def _variables(self, command: Command) -> None:
        words = tuple(filled(word, self.request.known | self.env) for word in command.words)
        found = bodylines.assignments(words)
        if not found:
            self.notes.exact("script", " ".join(words), "", "every variable of the job reaches every rank")
        elif all(value is not None for _, value in found):
            for name, value in found:
                self.env[name] = value or ""
                self.notes.exact("script", f"{name}={value}", f"env.{name}")
        else:
            self.setting.append(" ".join(words))
            note = "it is worked out on each rank, not once"
            self.notes.changed("script", " ".join(words), "code.files", note)

    def _launch(self, command: Command) -> None:
        rest = bodylines.unwrapped(command.words)
        before = command.words[: len(command.words) - len(rest)]
        env = dict(self.env)
        for name, value in bodylines.assignments(before):
            if value is None:
                self.notes.dropped(
                    "script",
                    name,
                    "its value is known only when the script runs",
                    f"write env: {{{name}: …}}",
                )
            else:
                env[name] = value
                self.notes.exact("script", f"{name}={value}", f"env.{name}")
        for word in before:
            if launchline.base(word) == "time":
                self.notes.exact("script", word, "", "mpijob describe tells how long a job took")
        for redirect in command.redirects:
            self._redirect(redirect)
        self.steps.append(
            Step(
                line=self.notes.line,
                words=rest,
                setting=tuple(self.setting),
                env=env,
                files=dict(self.files),
                prepared=dict(self.prepared.functions),
            )
        )

    def _redirect(self, redirect: str) -> None:
        file = redirect.lstrip("0123456789&<>| ")
        if redirect.startswith("<"):
            note = "no file is read there: the launch line is the job's own"
            self.notes.dropped("script", redirect, note, f"write launch: {{stdin: {file}}}")
        else:
            todo = (
                f"nothing, or mpijob logs NAME --no-prefix > {file}" if file and ">&" not in redirect else ""
            )
            self.notes.changed("script", redirect, "", LOGS, todo)

    def _work(self, one: Statement) -> None:
        if _beyond(one.text, self.request):
            self._needs_batch(one.text.split("\n")[0])
            return
        if self.steps and not self.steps[-1].launches and self.steps[-1].setting == tuple(self.setting):
            self.steps[-1].text += "\n" + one.text
            self.steps[-1].parts.append((self.notes.line, one.text))
        else:
            step = Step(
                line=self.notes.line, text=one.text, parts=[(self.notes.line, one.text)],
                setting=tuple(self.setting), env=dict(self.env), files=dict(self.files),
                prepared=dict(self.prepared.functions),
            )  # fmt: skip
            self.steps.append(step)


def _below(place: str, target: str) -> str:
    """Return where a `cd` leads to, as long as it stays below the directory in which the script begins; else ""."""
    if not place or not target or target.startswith(("/", "-")):
        return ""
    found = posixpath.normpath(f"{place}/{target}")
    return "" if found.startswith("..") else found


def written_file(one: Statement) -> tuple[str, str] | None:
    """Return the file that `cat > FILE <<'END'` writes, where a shell would change nothing of it."""
    lines = one.text.split("\n")
    if len(one.commands) != 1 or len(lines) < 2 or one.commands[0].words != ("cat",):
        return None
    into = [word for word in one.commands[0].redirects if word.startswith(">")]
    here = [
        word for word in one.commands[0].redirects if word.startswith("<<") and not word.startswith("<<-")
    ]
    if len(into) != 1 or len(here) != 1 or len(one.commands[0].redirects) != 2 or into[0].startswith(">>"):
        return None
    name, text = constant(into[0][1:].strip()), "\n".join(lines[1:-1]) + "\n"
    literal = "'" in here[0] or '"' in here[0] or not any(letter in text for letter in "$`\\")
    if not name or name.startswith(("/", "&")) or ".." in name or not literal:
        return None
    return name, "" if len(lines) == 2 else text


def _is_tee(one: Statement, command: Command) -> bool:
    behind = one.commands[one.commands.index(command) + 1 :]
    return all(
        other.words and launchline.base(other.words[0]) in ("tee", "cat", "ts", "grep") for other in behind
    )


def _beyond(text: str, request: Request) -> bool:
    """Return whether a text needs the batch system: its commands, or variables that have no like here."""
    return bool(bodylines.BATCH_WORDS.search(text)) or bool(unknown((text,), request))
