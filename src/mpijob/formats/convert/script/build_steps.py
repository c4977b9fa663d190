"""Lines before the launch line that make ready what the ranks run: compiling, unpacking, copying.

A batch system runs them once, and all nodes see the result. A job has a directory of its own, which its ranks share on
one machine and those of one pod on a cluster. So they stay in the job: of the ranks that share a directory the first
does them, and the others wait. Only lines that change nothing but that directory are taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpijob.formats.convert.header.units import listed
from mpijob.formats.convert.script import classify
from mpijob.formats.convert.script.classify import Use
from mpijob.formats.convert.script.launch_line import base
from mpijob.formats.convert.shell.constants import constant
from mpijob.formats.convert.shell.parser import Command, Statement

NOTE = (
    "one rank does it before the program starts, and the others wait for it; on a cluster one of each worker"
)
_BUILDERS = listed(
    "mpicc mpicxx mpic++ mpiCC mpif77 mpif90 mpifort mpiicc mpiicpc mpiicx mpiicpx mpiifort mpiifx gcc g++ cc c++ "
    "clang clang++ gfortran flang icc icpc icx icpx ifort ifx nvcc hipcc ftn CC f77 f90 nvc nvc++ nvfortran ar ranlib "
    "make gmake cmake ninja meson"
)
_COPIES = frozenset({"cp", "ln"})  # what they write is the last word
_FILES = listed("mv rm mkdir rmdir touch chmod gzip gunzip bunzip2 xz unxz sed")
_UNPACKS = frozenset({"tar", "unzip"})
_READERS = frozenset({"tee", "tail", "head", "grep", "cat"})
_SETS = frozenset(
    {Use.TEST, Use.INFORMS, Use.END, Use.FOLDERS, Use.VARIABLES, Use.SETTING, Use.SOURCE, Use.PLACE}
)
_LEFT_OUT = frozenset({Use.TEST, Use.INFORMS, Use.MODULES})
_STRICT = "set -e"
_MARK = 'mark="$start/.$1-${MPIJOB_ATTEMPT:-1}"'
_MARK_OF_RUN = 'mark="$start/.$1-${MPIJOB_ATTEMPT:-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}}"'
_ONCE = """\
start=$PWD
once() ( # of the ranks that share this directory the first does it, and the others wait
  mark="$start/.$1-${MPIJOB_ATTEMPT:-1}"
  if mkdir "$mark" 2> /dev/null; then
    set +e # to tell the others how it ended
    "$1"
    mkdir "$mark/$?"
  fi
  [ -d "$mark" ] || exit 1
  until ended=$(ls "$mark") && [ -n "$ended" ]; do sleep 0.1; done
  exit "$ended"
)"""


def for_slurm(text: str) -> str:
    """Return a rank's script that prepares anew in each run of Slurm: there the directory stays from run to run."""
    return text.replace(_MARK, _MARK_OF_RUN)


def pieces(one: Statement, uses: list[Use]) -> list[tuple[Statement, bool]]:
    """Return a statement in pieces, each with whether it makes files ready; nothing where it does other work, too.

    A `cd` stands alone: it holds for what follows.
    """
    if one.compound or one.heredoc or one.background or classify.starts_ranks(one.text):
        return []
    if _prepares(one.commands, uses):
        return [(one, True)]
    if uses[:1] == [Use.PLACE] and one.commands[0].after == "&&" and _prepares(one.commands[1:], uses[1:]):
        place, _, rest = one.text.partition("&&")
        first = Statement(place.strip(), one.line, one.commands[:1])
        return [(first, False), (Statement(rest.strip(), one.line, one.commands[1:]), True)]
    if not classify.is_simple(one):
        return []
    alone = [Statement(" ".join((*each.words, *each.redirects)), one.line, (each,)) for each in one.commands]
    found = [(each, _prepares(each.commands, [use])) for each, use in zip(alone, uses, strict=True)]
    other = [use for (_, mine), use in zip(found, uses, strict=True) if not mine]
    return found if len(other) < len(found) and Use.WORK not in other else []


def decides(commands: tuple[Command, ...], uses: list[Use]) -> bool:
    """Return whether a condition does nothing but test, inform, end, set and make files ready.

    What it sets would be lost where one rank prepares for all, and what it loads where a site is not known.
    """
    if Use.MODULES in uses:
        return all(use in _LEFT_OUT for use in uses)
    if Use.WORK not in uses:
        return bool(uses) and all(use in _SETS for use in uses)
    quiet = (Use.TEST, Use.INFORMS, Use.END)
    return all(use in quiet or is_own(each, use) for each, use in zip(commands, uses, strict=True))


def _prepares(commands: tuple[Command, ...], uses: list[Use]) -> bool:
    own = [is_own(command, use) for command, use in zip(commands, uses, strict=True)]
    working = any(mine and use is Use.WORK for mine, use in zip(own, uses, strict=True))
    return working and all(
        mine or use in (Use.INFORMS, Use.END) or program(command) in _READERS
        for mine, command, use in zip(own, commands, uses, strict=True)
    )


def _builds(commands: tuple[Command, ...]) -> bool:
    """Return whether nothing can run when a statement fails."""
    return any(program(command) in _BUILDERS for command in commands)


def _ends(commands: tuple[Command, ...]) -> bool:
    """Return whether a statement says itself what happens when it fails: `|| exit 1`."""
    return any(classify.use(command) is Use.END for command in commands)


def program(command: Command) -> str:
    """Return the name of the program that a command runs."""
    words = classify.unwrapped(command.words)
    return base(words[0]) if words else ""


def is_own(command: Command, use: Use) -> bool:
    """Return whether a command changes files of the job's directory alone."""
    if use not in (Use.WORK, Use.FOLDERS) or not all(
        _is_here(one.lstrip("0123456789&<>| ")) for one in _into(command)
    ):
        return False
    name, words = program(command), classify.unwrapped(command.words)[1:]
    if name in _BUILDERS:
        return True
    if name in _COPIES:
        return bool(words) and _is_here(words[-1])
    if name in _UNPACKS:
        return not any(_elsewhere(before, word) for before, word in zip(("", *words), words, strict=False))
    return name in _FILES and all(_is_here(word) for word in words)


def _into(command: Command) -> list[str]:
    return [one for one in command.redirects if ">" in one and not one.rstrip("0123456789").endswith(">&")]


def _is_here(word: str) -> bool:
    """Return whether a word names something below the directory in which a job begins."""
    plain = constant(word.replace("*", "x").replace("?", "x"))
    return plain is not None and not plain.startswith("/") and ".." not in plain.split("/")


def _elsewhere(before: str, word: str) -> bool:
    """Return whether a word of tar or unzip names another place to unpack to, or makes an archive."""
    if before in ("-C", "--directory", "-d"):
        return not _is_here(word)
    return word.startswith("--directory=") or (not before and "c" in word.lstrip("-").partition("=")[0])


class Prepared:
    """Gathers such lines into functions of a rank's script; lines that follow each other are one."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[str, ...]] = {}

    def add(self, one: Statement, setting: list[str], commands: tuple[Command, ...], strict: bool) -> None:
        """Add a statement with the commands in it, and its call to what each rank does.

        `strict` is whether a line that fails ends the script, as behind `set -e`.
        """
        name = f"prepare_{len(self.functions)}"
        if not self.functions or not setting or setting[-1] != _call(name, strict):
            name = f"prepare_{len(self.functions) + 1}"
            setting.append(_call(name, strict))
        before = self.functions.get(name, (_STRICT,) if strict else ())
        self.functions[name] = (*before, _strict(one, commands) if strict else _lenient(one, commands))


def _lenient(one: Statement, commands: tuple[Command, ...]) -> str:
    """Return a line that ends the script only where nothing can run when it fails."""
    if _ends(commands) and not one.compound:
        return one.text
    return f"{one.text} || {'exit' if _builds(commands) else ':'}"


def _strict(one: Statement, commands: tuple[Command, ...]) -> str:
    """Return a line that ends the script when it fails; not where more stood behind an && of it."""
    return f"{one.text} || :" if not one.compound and commands[-1].after == "&&" else one.text


def _call(name: str, strict: bool) -> str:
    """Return the line that calls a function; behind `||` a shell would forget `set -e` in all that it runs."""
    return f"once {name}" if strict else f"once {name} || exit"


def written(functions: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the functions as lines of a script."""
    return [_ONCE, *(_written(name, lines) for name, lines in functions.items())] if functions else []


def _written(name: str, lines: tuple[str, ...]) -> str:
    inner = [*lines, ":"] if lines[0] == _STRICT else lines  # what fails and does not end it is no failure
    return "\n".join([f"{name}() (", *(f"  {line}" for line in inner), ")"])
