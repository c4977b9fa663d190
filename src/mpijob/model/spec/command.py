"""Commands with a launcher of their own: mpirun, mpiexec, horovodrun, deepspeed.

Such a command must not be wrapped in a second mpirun. Commands are only parsed, never expanded or run.
`command_options` has the options of the launchers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from mpijob.model.spec import command_options as options

if TYPE_CHECKING:
    from mpijob.model.spec.job import MPIJob

_KINDS = {
    "mpirun": "mpirun",
    "mpirun.openmpi": "openmpi",
    "mpiexec.openmpi": "openmpi",
    "orterun": "openmpi",
    "prterun": "openmpi",
    "mpiexec": "mpirun",
    "mpirun.mpich": "hydra",
    "mpiexec.mpich": "hydra",
    "mpiexec.hydra": "hydra",
    "horovodrun": "horovodrun",
    "deepspeed": "deepspeed",
}
# Launchers of batch systems.
BATCH_LAUNCHERS = frozenset({"srun", "aprun", "jsrun", "ibrun", "prun"})
# Lists of the job's workers that engines provide.
JOB_HOSTS = (
    "/etc/mpi/hostfile",
    "$MPIJOB_HOSTS_FILE",
    "${MPIJOB_HOSTS_FILE}",
)
# The kind of a script: its steps start the ranks.
SCRIPT = "script"
_FAMILIES = {"openmpi": ("openmpi",), "hydra": ("mpich", "intel")}
_WRAPPERS: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "time": frozenset({"-f", "--format", "-o", "--output"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "--class", "-n", "--classdata"}),
    "stdbuf": frozenset({"-i", "-o", "-e", "--input", "--output", "--error"}),
    "exec": frozenset({"-a"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "timeout": frozenset({"-k", "--kill-after", "-s", "--signal"}),
    "taskset": frozenset(),
    "chrt": frozenset({"-T", "-P", "-D"}),
    "numactl": frozenset({"-C", "-N", "-m", "-p", "-i", "-w"}),
    "prlimit": frozenset(),
    "strace": frozenset({"-e", "-o", "-s", "-P", "-E", "-u", "-a", "-O", "-S", "-X"}),
    "valgrind": frozenset(),
    "catchsegv": frozenset(),
    "unbuffer": frozenset(),
    "command": frozenset(),
}
# Operands before the command: a duration, a CPU mask, a priority.
_OPERANDS = {"timeout": 1, "taskset": 1, "chrt": 1}
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SHELL_END = re.compile(r"[;&|()<>\n]+")
_COMMENT = re.compile(r"""^([^'"\n]*?)(?<![^\s;])#.*$""", re.M)
_RESERVED = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{"})
_DEEPEST = 8


class OwnLauncher(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a command that starts its own ranks says about them.

    `kind` is `mpirun` (any family), `openmpi`, `hydra`, `horovodrun`, `deepspeed` or `script`. `ranks` is None if the
    command does not set it; `per_worker` is set if it sets the ranks of each worker. `hosts` is its list of hosts.
    """

    kind: str
    program: str
    ranks: int | None = None
    per_worker: int | None = None
    ranks_option: str = ""
    hosts_option: str = ""
    hosts: str = ""

    @property
    def own_hosts(self) -> bool:
        """Whether the command has a list of hosts that the job has not provided."""
        return bool(self.hosts_option) and self.hosts not in JOB_HOSTS

    @property
    def families(self) -> tuple[str, ...]:
        """The MPI families of this launcher; empty if it may be any."""
        return _FAMILIES.get(self.kind, ())


def own_launcher(argv: tuple[str, ...]) -> OwnLauncher | None:
    """Return what the command's own launcher says, None without one."""
    words = _unwrapped(tuple(argv), _DEEPEST)
    kind = _KINDS.get(_base(words[0])) if words else None
    if kind is None:
        return None
    return _described(kind, words[0], options.read(words[1:], _grammar(kind)))


def launcher_of(job: MPIJob) -> OwnLauncher | None:
    """Return the launcher that starts a job's ranks, None if we start them."""
    if job.script:
        return OwnLauncher(SCRIPT, job.script)
    found = own_launcher(job.argv) if not job.programs else None
    # The command of an elastic job always starts its own ranks.
    if found is None and job.elastic is not None and job.argv:
        return OwnLauncher("elastic", job.argv[0])
    return found


def elastic_ranks(argv: tuple[str, ...]) -> tuple[int | None, int | None]:
    """Return the least and the greatest number of ranks in horovodrun's options, None if unset."""
    words = _unwrapped(tuple(argv), _DEEPEST)
    if not words or _KINDS.get(_base(words[0])) != "horovodrun":
        return None, None
    return options.bounds(words[1:])


def _grammar(kind: str) -> options.Grammar:
    return {"horovodrun": options.HOROVODRUN, "deepspeed": options.DEEPSPEED}.get(kind, options.MPIRUN)


def _described(kind: str, program: str, stated: options.Options) -> OwnLauncher:
    ranks, per_worker = stated.ranks, None
    if kind == "deepspeed" and stated.per_worker is not None:
        ranks = stated.per_worker * stated.workers if stated.workers is not None else None
        per_worker = stated.per_worker if ranks is None else None
    return OwnLauncher(
        kind, program, ranks, per_worker, stated.ranks_option, stated.hosts_option, stated.hosts
    )


def is_launcher(word: str) -> bool:
    return _base(word) in _KINDS


def unwrapped(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without its wrappers: env, timeout, taskset …"""
    words = _without_assignments(argv)
    for _ in range(_DEEPEST):
        if not words or _base(words[0]) not in _WRAPPERS:
            return words
        words = _without_assignments(_without_options(words[1:], _base(words[0])))
    return ()


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _unwrapped(words: tuple[str, ...], depth: int) -> tuple[str, ...]:
    words = unwrapped(words)
    if words and _base(words[0]) in SHELLS:
        first = next(shell_commands(shell_text(words[1:])), ())
        return _unwrapped(first, depth - 1) if depth else ()
    return words


def _without_assignments(words: tuple[str, ...]) -> tuple[str, ...]:
    start = 0
    while start < len(words) and _ASSIGNMENT.match(words[start]):
        start += 1
    return words[start:]


def _without_options(words: tuple[str, ...], wrapper: str) -> tuple[str, ...]:
    start = 0
    while start < len(words) and words[start].startswith("-"):
        if words[start] == "--":
            start += 1
            break
        start += 2 if words[start] in _WRAPPERS[wrapper] else 1
    return words[start + _OPERANDS.get(wrapper, 0) :]


def shell_text(words: tuple[str, ...]) -> str:
    """Return the text after a shell's `-c`, also in combined options (`-lc`)."""
    start = 0
    while start < len(words) and words[start].startswith("-"):
        word = words[start]
        if not word.startswith("--") and "c" in word[1:]:
            return words[start + 1] if start + 1 < len(words) else ""
        start += 2 if word in ("-o", "-O", "--rcfile", "--init-file") else 1
    return ""


def shell_commands(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each simple command of a shell text; quotes are parsed, nothing is expanded."""
    text = _COMMENT.sub(r"\1", text.replace("\\\n", " ")).strip()
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace_split, lexer.whitespace, lexer.commenters = True, " \t\r", ""
    found: list[str] = []
    comment = False
    try:
        for word in lexer:
            if _SHELL_END.fullmatch(word):
                comment = comment and "\n" not in word
                if found and not comment:
                    yield tuple(found)
                    found = []
            elif not comment and word.startswith("#"):
                comment = True
            elif not comment and (found or word not in _RESERVED):
                found.append(word)
    except ValueError:
        # An unclosed quote.
        return
    if found:
        yield tuple(found)
