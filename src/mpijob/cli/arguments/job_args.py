"""Build one MPIJob from NAME or SCRIPT, -f FILE, flags and the words after `--`.

An invalid value has the same message wherever it comes from. The table of flags is in `flags`, merging them
in `overlay`, and merging them with a file in `file_and_flags`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from mpijob import codec
from mpijob.cli.arguments import flag_values
from mpijob.cli.arguments.flags import JobCommand, Merge
from mpijob.cli.arguments.overlay import Change, Tree, changes_of, overlay
from mpijob.cli.arguments.script_args import Script, find
from mpijob.cli.context import App
from mpijob.errors import Finding, InvalidJob
from mpijob.model import MPIJob
from mpijob.model.spec.type_check import problems

_AFTER = "mpijob.words_after"
# A file in the job's directory.
_STDIN_FILE = "stdin.txt"


class TakesCommand(JobCommand):
    """A command that takes another command after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside the words after `--`, unparsed."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_AFTER] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def words_after() -> tuple[str, ...]:
    """Return the command after `--`."""
    words: tuple[str, ...] = click.get_current_context().meta.get(_AFTER, ())
    return words


def given_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add NAME and -f to a command."""
    function = click.argument("words", nargs=-1, metavar="[NAME | SCRIPT]")(function)
    text = "Job file, YAML or JSON; - reads stdin."
    return click.option("-f", "--file", "files", multiple=True, metavar="FILE", help=text)(function)


class JobArguments(NamedTuple):
    """The arguments about one job."""

    file: str | None
    text: str
    changes: tuple[Change, ...]
    script: Script | None = None

    @classmethod
    def of(
        cls,
        app: App,
        given: Mapping[str, Any],
        command: tuple[str, ...] = (),
        *,
        nameless: bool = False,
        array: bool = False,
    ) -> JobArguments:
        """Read the arguments of one job; `command` replaces the words after `--`.

        With `nameless` the program gives the name if there is none. Only with `array` may a script have array
        values.
        """
        files = given.get("files", ())
        if len(files) > 1:
            names = " ".join(f"-f {file}" for file in files)
            raise click.UsageError(f"this command accepts one job file only: {names}")
        changes = changes_of(_with_installation(app, given))
        if app.namespace is not None:
            changes.append(Change("namespace", app.namespace))
        file = files[0] if files else None
        words = given.get("words", ())
        if file is None and not command and (script := find(words, words_after())) is not None:
            _refuse_unmet(script, changes, array=array)
            for note in script.notes(changes):
                app.out.note(f"{script.file}: {note}")
            changes += [Change("args", list(words_after()))] if words_after() else []
            return cls(None, "", tuple(changes), script)
        name = _name(words, file)
        if not name and nameless and file is None and (argv := command or words_after()):
            name = _named_after(argv)
        if name:
            changes.append(Change("name", name))
        changes += command_changes(given, command)
        return cls(file, read_file(file) if file else "", tuple(changes))

    @classmethod
    def each(cls, app: App, given: Mapping[str, Any], *, nameless: bool = False) -> tuple[JobArguments, ...]:
        """Read the arguments of any number of jobs: one for each file, or one without a file."""
        if not given["files"]:
            asked = cls.of(app, given, nameless=nameless)
            if asked.script is not None:
                return (asked,)
            return (asked._replace(changes=(*asked.changes, *_redirected(given))),)
        if len(given["files"]) == 1:
            return (cls.of(app, given, nameless=nameless),)
        return tuple(cls.of(app, {**given, "files": (file,)}, nameless=nameless) for file in given["files"])

    def job(self) -> MPIJob:
        """Return the job of file and flags."""
        if self.file is None:
            return from_tree(self.script.job_tree(self.changes) if self.script else overlay({}, self.changes))
        from mpijob.cli.arguments import file_and_flags

        job = file_and_flags.job(self.text, self.file, self.changes)
        if self.file == "-" or any(change.path.startswith("code") for change in self.changes):
            return job
        from mpijob.client.submit.templates import beside

        return beside(job, self.file)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Map errors of checks inside the context to lines of the file."""
        try:
            yield
        except InvalidJob as error:
            if self.file is None or not error.findings:
                raise
            from mpijob.cli.arguments import file_and_flags

            raise file_and_flags.located(error, self.text, self.file, self.changes) from error


def _refuse_unmet(script: Script, changes: list[Change], *, array: bool) -> None:
    """Refuse a header that one job cannot satisfy: an array, and a dependency without a job name."""
    if script.values and not array:
        count = len(next(iter(script.values.values())))
        raise click.UsageError(
            f"{script.file} asks for an array of {count} tasks: mpijob array {script.file}"
        )
    if script.waits and not any(change.path == "after" for change in changes):
        raise click.UsageError(f"{script.file} depends on another job by ID: use --after NAME instead")


def from_tree(tree: Tree) -> MPIJob:
    """Return the job of a command line without a file."""
    if wrong := problems(tree):
        from mpijob.client.submit.validate import contradictions

        findings = tuple(Finding(one.code, one.message, one.hint, one.field) for one in wrong)
        # With values of any type: only the other fields are checked.
        sketch = MPIJob(**{"name": "job", **tree})
        raise InvalidJob.of((*findings, *contradictions(findings, sketch)), "the command line")
    return codec.convert(tree, MPIJob)


def _with_installation(app: App, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Split `--mpi FAMILY@PREFIX`: the flag is the family, and the prefix a setting of this command."""
    family, at, prefix = (given.get("flag_mpi") or "").partition("@")
    if not at:
        return given
    if not os.path.isdir(os.path.join(prefix, "bin")):
        raise click.BadParameter(
            f"{prefix!r} is not an MPI installation: it has no bin directory", param_hint="--mpi"
        )
    app.mpi_directories[family] = os.path.abspath(prefix)
    return {**given, "flag_mpi": family}


def _name(words: tuple[str, ...], file: str | None) -> str:
    if file is None and words and words[0].lower().endswith((".yaml", ".yml", ".json")):
        raise click.UsageError(f"specify a job file with -f: -f {words[0]}")
    if len(words) > 1:
        raise click.UsageError(f"the command goes after --: {words[0]} -- {' '.join(words[1:])}")
    return words[0] if words else ""


def _named_after(argv: tuple[str, ...]) -> str:
    """Return a name for a job without one: that of its program, or of the script of an interpreter."""
    from pathlib import PurePath

    from mpijob.formats.convert.header.request import name_of

    scripts = (word for word in argv if PurePath(word).suffix in (".py", ".sh", ".jl", ".R", ".pl"))
    return name_of(PurePath(next(scripts, argv[0])).stem)


def command_changes(given: Mapping[str, Any], command: tuple[str, ...] = ()) -> list[Change]:
    """Return the changes for a command; arguments of the old command are removed."""
    argv = command or words_after()
    if not argv:
        return []
    changes = [Change("command", list(argv))]
    return changes if given.get("flag_arg") else [*changes, Change("args", [])]


def _redirected(given: Mapping[str, Any]) -> list[Change]:
    """Return the changes that pass the standard input of this command (`< FILE`) to rank 0."""
    # A terminal, /dev/null and a silent pipe are no input. Input that cannot be passed on is refused, because
    # a program would otherwise miss it silently.
    if given.get("flag_stdin") or not words_after():
        return []
    try:
        status = os.fstat(0)
    except OSError:
        return []
    if stat.S_ISREG(status.st_mode):
        data = os.pread(0, flag_values.MOST_BYTES + 1, os.lseek(0, 0, os.SEEK_CUR))
        if not data:
            return []
        if len(data) <= flag_values.MOST_BYTES and b"\0" not in data:
            with contextlib.suppress(UnicodeDecodeError):
                files = {_STDIN_FILE: data.decode()}
                return [Change("code.files", files, Merge.KEYS), Change("launch.stdin", _STDIN_FILE)]
    elif not (stat.S_ISFIFO(status.st_mode) and _waiting()):
        return []
    raise click.UsageError("a job does not read this command's standard input: use --stdin FILE")


def _waiting() -> int:
    """Return how many bytes wait in the pipe on stdin."""
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(0, termios.FIONREAD, count)
    return count[0]


def read_file(path: str) -> str:
    """Return the text of a file, or of stdin for `-`."""
    try:
        if path == "-":
            return flag_values.whole(sys.stdin.buffer, "stdin").decode("utf-8")
        with open(path, "rb") as file:
            return flag_values.whole(file, path).decode("utf-8")
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{path}: not UTF-8 text, byte {error.start} is 0x{error.object[error.start]:02x}"
        ) from error
