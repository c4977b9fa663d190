"""The options of sbatch and srun: short and long forms, and which of them take a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpijob.formats.convert.header.request import LOGS
from mpijob.formats.convert.header.units import listed

SHORT = {
    "A": "account", "a": "array", "b": "begin", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint",
    "d": "dependency", "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input",
    "I": "immediate", "J": "job-name", "k": "no-kill", "K": "kill-on-bad-exit", "l": "label", "L": "licenses",
    "m": "distribution", "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "O": "overcommit",
    "p": "partition", "q": "qos", "Q": "quiet", "r": "relative", "s": "oversubscribe", "S": "core-spec",
    "t": "time", "u": "unbuffered", "v": "verbose", "w": "nodelist", "W": "wait", "x": "exclude", "X": "disable-status",
}  # fmt: skip
_FLAGS = listed(
    "hold no-kill label overcommit quiet oversubscribe unbuffered verbose requeue no-requeue contiguous parsable "
    "use-min-nodes test-only pty multi-prog overlap spread-job reboot exact propagate ignore-pbs disable-status "
    "no-allocate whole"
)
_MAYBE = listed("exclusive kill-on-bad-exit immediate wait nice get-user-env propagate hint")


def takes_value(name: str) -> bool:
    """Return whether an option's value is the next word."""
    return name not in _FLAGS and name not in _MAYBE


def pairs(words: Sequence[str]) -> tuple[list[tuple[str, str, str]], int]:
    """Return (name, value, original words) of the options at the beginning, and the number of their words."""
    found: list[tuple[str, str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        name, value, count = _one(words, at)
        found.append((name, value, " ".join(words[at : at + count])))
        at += count
    if at < len(words) and words[at] == "--":
        at += 1
    return found, at


def _one(words: Sequence[str], at: int) -> tuple[str, str, int]:
    word = words[at]
    following = words[at + 1] if at + 1 < len(words) else ""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if equals or not takes_value(name) or at + 1 >= len(words):
            return name, value, 1
        return name, following, 2
    name = SHORT.get(word[1], word[1])
    if len(word) > 2:
        return name, word[2:].removeprefix("="), 1
    if not takes_value(name) or at + 1 >= len(words):
        return name, "", 1
    return name, following, 2


def directives(line: str) -> Iterator[str]:
    """Yield the words of a directive line; quotes group words, a comment ends it."""
    word, quote, started = "", "", False
    for letter in line + " ":
        if quote:
            quote, word = ("", word) if letter == quote else (quote, word + letter)
        elif letter in "'\"":
            quote, started = letter, True
        elif letter.isspace():
            if started or word:
                yield word
            word, started = "", False
        elif letter == "#" and not word:
            return
        else:
            word += letter
    if quote and word:
        yield word


SAME = {
    "no-requeue": "a job is retried only if retry.limit is set",
    "kill-on-bad-exit": "a failed rank always ends the whole job",
    "label": "mpijob logs always shows which rank wrote a line",
    "unbuffered": "output of ranks is always unbuffered",
    "verbose": "mpijob describe and mpijob events show what happens",
    "quiet": "it affects only what srun itself prints",
    "parsable": "mpijob create -o name prints only the name",
    "wait-all-nodes": "ranks always start after all workers are ready",
    "open-mode": "each attempt has its own logs",
    "get-user-env": "it affects only how the script's shell starts",
    "threads-per-core": "cores are counted as the machine reports them",
}
PLACE = "set placement.node_selector to a label of the nodes you mean"
GONE = {
    "output": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "error": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "qos": ("qualities of service are Slurm's", "set priority: low, normal, high or urgent, or a queue"),
    "constraint": ("features are Slurm's", PLACE),
    "nodelist": ("names of Slurm's nodes mean nothing elsewhere", PLACE),
    "nodefile": ("names of Slurm's nodes mean nothing elsewhere", PLACE),
    "reservation": ("reservations apply only to Slurm", "request a queue with dedicated resources, and set queue"),
    "begin": ("jobs start when capacity is free", "submit the job at that time"),
    "deadline": ("jobs start when capacity is free", "cancel the job at that time: mpijob cancel NAME"),
    "hold": ("jobs start when capacity is free", "run mpijob suspend NAME after creating the job"),
    "licenses": ("licenses are not counted", "limit the number of jobs with a quota"),
    "chdir": ("a job starts in its own directory, with a copy of the uploaded files", "set code.path"),
    "tmp": ("local disk is not counted", "mount a volume: kind: scratch, size: …"),
    "nice": ("Slurm priorities are not valid elsewhere", "set priority"),
    "priority": ("Slurm priorities are not valid elsewhere", "set priority"),
    "contiguous": ("nodes have no topology order", "set placement.topology: packed-rack"),
    "clusters": ("the cluster is chosen when submitting", "mpijob create --context NAME"),
    "ntasks-per-socket": ("sockets cannot be requested", "set slots and launch.map_by: socket"),
    "ntasks-per-core": ("cores are requested per rank", "set cores_per_rank"),
    "gpu-bind": ("each rank sees the GPUs of its worker", "select one in the program by MPIJOB_LOCAL_RANK"),
    "gpus-per-socket": ("sockets cannot be requested", "set resources.gpu"),
    "mem-bind": ("memory is bound together with the cores", "set launch.bind_to: numa"),
    "distribution": ("each step places its ranks", "write it on the srun line: --distribution=cyclic"),
    "cpu-bind": ("the launcher binds ranks", "nothing, or mpirun --bind-to core in the script"),
    "cpu_bind": ("the launcher binds ranks", "nothing, or mpirun --bind-to core in the script"),
    "overcommit": ("a step has at most one rank per slot unless it sets -O", "write it on the srun line: -O"),
    "input": ("a script has no standard input", "write < FILE after the command that reads it"),
    "hint": ("hints apply only to Slurm", "set launch.bind_to and cores_per_rank"),
    "mincpus": ("nodes cannot be selected by size", "set resources.cpu"),
    "container-mounts": ("mounts are volumes in mpijob", "add volumes: kind: path, claim or nfs"),
    "no-kill": ("a job that loses a worker fails", "set requeue_on_lost_worker: true"),
    "wait": ("a failed rank ends the job immediately", "nothing"),
    "mpi": ("mpijob chooses how ranks are started", "set mpi: openmpi, mpich or intel if the program needs one"),
    "propagate": ("limits of your shell are not applied", "call ulimit in the script"),
    "bb": ("burst buffers are not supported", "mount a volume: kind: scratch"),
}  # fmt: skip
