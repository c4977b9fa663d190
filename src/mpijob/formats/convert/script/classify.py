"""What the lines of a batch script are for: variables, places, modules, words to the reader, or work."""

from __future__ import annotations

import re
from enum import StrEnum

from mpijob.formats.convert.header.units import listed
from mpijob.formats.convert.script.launch_line import LAUNCHERS, base
from mpijob.formats.convert.shell.constants import constant
from mpijob.formats.convert.shell.parser import Command, Statement, statements

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
BATCH_WORDS = re.compile(
    r"(?<![\w./-])(scontrol|sbatch|scancel|squeue|salloc|sattach|sbcast|sinfo|qsub|qdel|qstat|pbsdsh|pbs_\w+)(?![\w.-])"
)
_LAUNCH = re.compile(r"(?<![\w.-])(" + "|".join(re.escape(one) for one in sorted(LAUNCHERS)) + r")(?![\w.-])")
_MODULES = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba", "deactivate", "pyenv", "eb"})
_SHELL_HOOK = re.compile(r"\b(conda|mamba|micromamba|modulecmd|lmod|spack|pyenv|pixi|direnv)\b")
_INFORMS = listed(
    "echo printf date hostname pwd env printenv squeue sinfo sacct seff sstat nvidia-smi lscpu free uname whoami id "
    "uptime lsb_release df module_list numactl nproc ldd which type sleep scontrol qstat set_name true : "
)
_SETTINGS = frozenset(
    {"set", "shopt", "ulimit", "umask", "trap", "unset", "alias", "declare", "local", "readonly"}
)
_TESTS = frozenset({"test", "[", "[["})
WRAPPERS = listed(
    "time exec nohup env command stdbuf timeout nice ionice chrt numactl taskset strace ltrace perf valgrind gdb "
    "setsid unbuffer script xvfb-run singularity apptainer docker podman flock sudo nsys ncu vtune ddt map forge "
    "scan tau_exec catchsegv prlimit likwid-pin likwid-perfctr hwloc-bind"
)
_TEXT_TOOLS = listed(
    "grep egrep fgrep zgrep sed awk gawk ps pgrep pkill killall kill cp mv rm ln ls find tail head cat chmod touch "
    "tar sort cut diff wc tee file python python3 perl bash sh"
)
_TO_STREAM = re.compile(r"[0-9]?>&\s*[0-9]|[0-9&]?>>?\s*/dev/null")
_END = frozenset({"wait", "exit", "return", "logout"})


_PLAIN_TOOLS = (
    _TEXT_TOOLS | _INFORMS | _SETTINGS | _TESTS | _MODULES | {"export", "source", ".", "cd"}
) - WRAPPERS
_FARTHEST = 20


class Use(StrEnum):
    """What a simple command is for."""

    VARIABLES = "variables"
    MODULES = "modules"
    SOURCE = "source"
    PLACE = "place"
    SETTING = "setting"
    FOLDERS = "folders"
    INFORMS = "informs"
    TEST = "test"
    END = "end"
    LAUNCH = "launch"
    WORK = "work"


def starts_ranks(text: str) -> bool:
    """Return whether a text has a word that starts ranks, anywhere."""
    return _LAUNCH.search(text) is not None


def use(command: Command) -> Use:
    """Return what a simple command is for."""
    words = unwrapped(command.words)
    if not words:
        return Use.VARIABLES
    name = base(words[0])
    if name in LAUNCHERS:
        return Use.LAUNCH
    if name == "export" or (name == "declare" and "-x" in words):
        return Use.VARIABLES
    if name in ("source", "."):
        return Use.MODULES if _activates(words) else Use.SOURCE
    if name in _MODULES or (name == "eval" and _SHELL_HOOK.search(" ".join(words))):
        return Use.MODULES
    if name in ("cd", "pushd", "popd"):
        return Use.PLACE
    if (name == "mkdir" and any(word in ("-p", "-pv", "--parents") for word in words)) or name == "touch":
        return Use.FOLDERS
    if name == "cat" and "PBS_NODEFILE" in command.words[-1] and not command.redirects:
        return Use.INFORMS
    if name == ":" and any("${" in word for word in words):
        return Use.SETTING
    return _rest(name, command)


def use_of(text: str) -> Use | None:
    """Return that the last command of a text starts ranks, or what else it is for; None without one."""
    found = [each for one in statements(text) for each in one.commands]
    uses = [use(each) for each in found]
    return Use.LAUNCH if Use.LAUNCH in uses else (uses[-1] if uses else None)


def _rest(name: str, command: Command) -> Use:
    if name in _SETTINGS:
        return Use.SETTING
    if name in _END:
        return Use.END
    if name in _TESTS or (name in ("command", "hash") and _asks(command)):
        return Use.TEST
    if name in _INFORMS and all(_TO_STREAM.fullmatch(one) for one in command.redirects):
        return Use.INFORMS
    return Use.WORK


def _asks(command: Command) -> bool:
    """Return whether a command only asks for a program: `command -v gcc`."""
    return command.words[0] == "hash" or command.words[1:2] in (("-v",), ("-V",))


def _activates(words: tuple[str, ...]) -> bool:
    target = words[1] if len(words) > 1 else ""
    return bool(re.search(r"(activate|conda\.sh|/modules|lmod|setvars\.sh|spack)", target))


def is_conda_block(text: str) -> bool:
    """Return whether a compound command is the one that `conda init` writes into a shell's start file."""
    return "__conda_setup" in text and not starts_ranks(text)


def unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without the variables and the wrappers before it, where a launcher stands behind."""
    at = 0
    while at < len(words) and ASSIGNMENT.match(words[at]):
        at += 1
    rest = words[at:]
    if rest and base(rest[0]) not in _PLAIN_TOOLS and rest[:2] not in (("command", "-v"), ("command", "-V")):
        for index, word in enumerate(rest[:_FARTHEST]):
            if word in LAUNCHERS and (index + 1 < len(rest) or base(rest[0]) in WRAPPERS):
                return rest[index:]
            if base(word) in LAUNCHERS and (index == 0 or base(rest[0]) in WRAPPERS):
                return rest[index:]
    return rest


def assignments(words: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return the variables that a command sets, with their values where every shell would give the same."""
    found: list[tuple[str, str | None]] = []
    for word in words:
        match = ASSIGNMENT.match(word)
        if match:
            value = None if match[2] else constant(match[3])
            found.append((match[1], value))
    return found


def is_simple(statement: Statement) -> bool:
    """Return whether a statement is one command, or several that follow each other with &&."""
    return not statement.compound and all(one.after in ("", "&&") for one in statement.commands)


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


def is_tee(one: Statement, command: Command) -> bool:
    """Return whether what stands behind a launch line only shows or keeps its output."""
    behind = one.commands[one.commands.index(command) + 1 :]
    return all(other.words and base(other.words[0]) in ("tee", "cat", "ts", "grep") for other in behind)
