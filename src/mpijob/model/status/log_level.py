"""The severity of a log line, by the forms of common loggers.

Known are Python's logging and warnings, glog's family (TensorFlow, PyTorch, Horovod, klog), NCCL, DeepSpeed, JSON
lines, logfmt, compilers' `error:`, Python's tracebacks, and last messages of MPI and libc. Other lines have no level;
`observation/logs/pipeline` decides whether they continue the line before.
"""

from __future__ import annotations

import re

from mpijob.model.status.level import Level

# Every line of every job is examined: only its beginning, by patterns that need linear time.
_EXAMINED_BYTES = 240
# Words at a line's beginning that are examined: time, position, logger, level.
_MOST_WORDS = 14
# Words between a time stamp and the level: host, logger, thread.
_NAMES_BEFORE = 3

_WORDS = {
    "TRACE": Level.TRACE, "VERBOSE": Level.TRACE, "FINE": Level.DEBUG,
    "DEBUG": Level.DEBUG, "DBG": Level.DEBUG,
    "INFO": Level.INFO, "INFORMATION": Level.INFO, "NOTICE": Level.INFO, "NOTE": Level.INFO,
    "WARN": Level.WARNING, "WARNING": Level.WARNING,
    "ERROR": Level.ERROR, "ERR": Level.ERROR, "SEVERE": Level.ERROR, "EXCEPTION": Level.ERROR,
    "FATAL": Level.FATAL, "CRITICAL": Level.FATAL, "CRIT": Level.FATAL, "PANIC": Level.FATAL,
    "ALERT": Level.FATAL, "EMERG": Level.FATAL,
}  # fmt: skip
_LETTERS = {
    "T": Level.TRACE,
    "V": Level.TRACE,
    "D": Level.DEBUG,
    "I": Level.INFO,
    "W": Level.WARNING,
    "E": Level.ERROR,
    "F": Level.FATAL,
    "C": Level.FATAL,
}

_TORCH = re.compile(rb"\[rank\d{1,6}\]: ?")
_LETTERED = re.compile(
    # Glog, klog, abseil, PyTorch.
    rb"\[?(?:([TVDIWEFC])(?:\d{4}|\d{8}) \d\d:\d\d:\d\d"
    # [W socket.cpp:558].
    rb"|([VDIWEFC]) [\w./+-]{1,80}:\d+\]"
    # TensorFlow, Horovod.
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. ?\d{1,9}: ([TVDIWEFC]) )"
)
_NCCL = re.compile(rb"(?:\[\d+\] |\d )(?:[\w./-]{1,60}:\d+ )?NCCL (TRACE|INFO|WARN|ERROR)\b")
_NAMED = re.compile(
    rb"""["']?\b(?:level|levelname|log_?level|log\.level|severity|lvl)["']?\s?[=:]\s?["']?([A-Za-z]{3,11}|\d\d)\b""",
    re.IGNORECASE,
)
_COMPILER = re.compile(
    rb"(?:[\w./+-]{1,80}:(?:\d+:){0,2} ?)?(?:(fatal) error|(error|warning|note|info|debug))(?:\[[\w-]*\])?: ",
    re.IGNORECASE,
)
_WARNED = re.compile(rb"\S{1,160}:\d+: \w*Warning: ")
_RAISED = re.compile(rb"(?:[A-Za-z_]\w*\.){0,6}[A-Z]\w*(?:Error|Exception|Interrupt)(?::|\s*$)")
_MESSAGES = (
    (b"Traceback (most recent call last)", Level.ERROR),
    (b"*** An error occurred in", Level.ERROR),
    (b"*** Process received signal ***", Level.FATAL),
    (b"Fatal ", Level.FATAL),
    (b"Abort(", Level.FATAL),
    (b"Segmentation fault", Level.FATAL),
    (b"terminate called ", Level.FATAL),
    (b"Bus error", Level.FATAL),
    (b"Killed", Level.FATAL),
)
_BETWEEN = re.compile(r"[\s\[\](){}|<>:;,=\"'-]+")


def find(text: bytes) -> Level | None:
    """Return the level that a line names, or None."""
    head = text[:_EXAMINED_BYTES].lstrip()
    if rank := _TORCH.match(head):
        head = head[rank.end() :]
    return _by_letter(head) or _by_field(head) or _by_message(head) or _by_word(head)


def _by_letter(head: bytes) -> Level | None:
    if found := _LETTERED.match(head):
        return _LETTERS[(found[1] or found[2] or found[3]).decode()]
    if b"NCCL " in head and (match := _NCCL.search(head)):
        return _WORDS[match[1].decode()]
    return None


def _by_field(head: bytes) -> Level | None:
    # JSON lines and logfmt. Numbers are pino's and bunyan's (10 to 60), which Python's (10 to 50) resemble.
    if not (head.startswith(b"{") or b"=" in head) or not (found := _NAMED.search(head)):
        return None
    word = found[1].decode().upper()
    if not word.isdigit():
        return _WORDS.get(word)
    steps = {1: Level.TRACE, 2: Level.DEBUG, 3: Level.INFO, 4: Level.WARNING, 5: Level.ERROR, 6: Level.FATAL}
    return steps.get(int(word) // 10)


def _by_message(head: bytes) -> Level | None:
    if found := _COMPILER.match(head):
        return Level.FATAL if found[1] else _WORDS[found[2].decode().upper()]
    if _WARNED.match(head):
        return Level.WARNING
    for words, level in _MESSAGES:
        if head.startswith(words):
            return level
    return Level.ERROR if _RAISED.match(head) else None


def _by_word(head: bytes) -> Level | None:
    # A level in capitals at the beginning, or after a timestamp or a bracket and a few names: prose has such words,
    # too.
    words = _BETWEEN.split(head.decode("latin-1"), maxsplit=_MOST_WORDS)[:_MOST_WORDS]
    words = words[1:] if words and not words[0] else words
    headed = head[:1] in b"[(<|" and bool(head)
    names = 0
    for at, word in enumerate(words):
        if word.isupper() and word in _WORDS and (at == 0 or headed):
            return _WORDS[word]
        if any(character.isdigit() for character in word):
            headed = True
            continue
        names += 1
        if not headed or names > _NAMES_BEFORE:
            return None
    return None
