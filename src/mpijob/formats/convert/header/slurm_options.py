"""The options of sbatch and srun: short and long forms, and which of them take a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """Return whether an option is followed by its value as a word of its own."""
    return name not in _FLAGS and name not in _MAYBE


def pairs(words: Sequence[str]) -> tuple[list[tuple[str, str, str]], int]:
    """Return (name, value, as written) of the options at the beginning, and how many words they are."""
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
    """Yield the words of a directive line; quotes group, a comment ends it."""
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
