"""Explaining a gigabyte of logs of 100 ranks, against one grep of the same files for what the rules look for.

`mpijob why --log DIRECTORY` reads everything once, tries rules where their literals occur, and names the rank
that failed first; grep only counts lines. grep gets the rules' literals, its fastest case: with the rules'
whole patterns it is slower. Both are whole processes over files in the page cache.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.line import Line, Unmeasured, at_most, compared
from bench.places import Options
from bench.timing import command, interleaved, median, output
from mpijob.diagnosis.rule import Sign
from mpijob.diagnosis.rules import RULES

RANKS, CULPRIT = 100, 17
FULL_BYTES, QUICK_BYTES, SLOW_BYTES = 10 << 20, 1 << 20, 100 << 10
MORE_RULES = 100
_WITHOUT = "import sys; sys.modules['re2'] = None; from mpijob.cli.main import main; main()"
_STACK = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\nValueError: no batch\n'


def measure(options: Options) -> Iterator[Line]:
    """Yield how long a diagnosis takes, with a hundred rules more, and without re2."""
    size = QUICK_BYTES if options.quick else FULL_BYTES
    with tempfile.TemporaryDirectory(prefix="mpijob-bench-") as folder:
        logs = written(Path(folder) / "logs", size)
        more = _more_rules(Path(folder) / "rules.yaml")
        _prove(logs)
        found = interleaved(
            options.rounds(5),
            {
                "ours": lambda: command(why_command(logs)).wall,
                "grep": lambda: command(grep_command(logs), C_LOCALE).wall,
                "more": lambda: command(why_command(logs), {**os.environ, "MPIJOB_RULES": str(more)}).wall,
            },
        )
        ours, grep, with_more = (median(found[name]) for name in ("ours", "grep", "more"))
        amount = f"{size * RANKS / 1e6:.0f} MB of {RANKS} ranks, {_literals_count()} literals"
        yield compared("why: logs against grep", "s", ours, grep, at_most(2), at_most(4), amount)
        yield compared(
            "why: 100 rules more", "s", with_more, ours, at_most(1.1), at_most(1.3), "they do not occur"
        )
        yield _without_re2(Path(folder), options)


def _without_re2(folder: Path, options: Options) -> Line:
    logs = written(folder / "few", SLOW_BYTES)
    found = interleaved(
        options.rounds(3),
        {
            "ours": lambda: command((sys.executable, "-c", _WITHOUT, *why_command(logs)[3:])).wall,
            "grep": lambda: command(grep_command(logs), C_LOCALE).wall,
        },
    )
    amount = f"{SLOW_BYTES * RANKS / 1e6:.0f} MB, mpijob without its extra `regex`"
    return compared("why: without re2", "s", median(found["ours"]), median(found["grep"]), note=amount)


def written(folder: Path, size: int) -> Path:
    """Return a folder with the log of every rank; one of them fails in the end."""
    folder.mkdir()
    lines = "".join(_line(step) for step in range(2000))
    for rank in range(RANKS):
        text = (lines * (size // len(lines) + 1))[:size]
        end = _line(99_999 if rank == CULPRIT else 100_000)
        (folder / f"rank-{rank}.log").write_text(f"{text}\n{end}{_STACK if rank == CULPRIT else ''}")
    return folder


def _line(step: int) -> str:
    clock = f"{step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},{step % 997:03d}"
    time = f"2026-01-{1 + step // 86400:02d} {clock}"
    if step % 40 == 7:
        return f"w:{step}:81 [0] NCCL INFO Channel {step % 16:02d}/0 : 0[0] -> 1[0] via P2P/CUMEM\n"
    if step % 40 == 13:
        return f"{time} WARNING loader: sample {step * 7919} has no label, the default is used\n"
    return f"{time} INFO trainer: epoch {step // 500} step {step} loss {1 / (1 + step):.6f} norm {step % 17 / 3:.4f}\n"


def why_command(logs: Path) -> tuple[str, ...]:
    """Return the command that explains a folder of logs."""
    return (sys.executable, "-m", "mpijob", "why", "--log", str(logs), "--exit-code", "1", "-o", "json")


def grep_command(logs: Path) -> tuple[str, ...]:
    """Return the grep that counts the lines with what the rules look for."""
    pattern = "|".join(sorted({re.sub(r"([][(){}.*+?^$|\\])", r"\\\1", sign.literal) for sign in _signs()}))
    counted = 'grep -caE -e "$0" "$1"/* | awk -F: \'{n += $2} END {print n}\''
    return ("sh", "-c", counted, pattern, str(logs))


C_LOCALE = {**os.environ, "LC_ALL": "C"}


def _signs() -> list[Sign]:
    return [sign for rule in RULES for sign in rule.signs]


def _literals_count() -> int:
    return len({sign.literal for sign in _signs()})


def _more_rules(path: Path) -> Path:
    rules = [
        {
            "id": f"BENCH_{number}",
            "title": f"Trouble number {number}",
            "literal": f"trouble number {number} of the bench",
            "pattern": rf"trouble number {number} of the bench: (?P<detail>\S+)",
            "cause": "{detail}",
            "examples": [f"trouble number {number} of the bench: x"],
        }
        for number in range(MORE_RULES)
    ]
    path.write_text(json.dumps({"rules": rules}))
    return path


def _prove(logs: Path) -> None:
    """The right rank is named, else there is nothing to measure; and both see the same lines."""
    told = json.loads(output(why_command(logs)))
    first = told["findings"][0]
    if (first["code"], first.get("rank")) != ("PYTHON_EXCEPTION", CULPRIT):
        raise Unmeasured(f"the diagnosis names {first['code']} of rank {first.get('rank')}")
    if int(output(grep_command(logs), C_LOCALE)) < 1:
        raise Unmeasured("grep finds nothing")
