"""Sets whose author had not seen the rules, each told apart: what `why` said first, and what it says now.

`python -m bench.why_sets --freeze eleventh` writes the first measurement down, once. Of the half that is only measured
it keeps verdicts alone, so that nobody writes rules after its answers.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
from tools.provoke.case import Log, logs

from bench.why_judge import CERTAIN, judge
from mpijob.diagnosis import explain
from mpijob.diagnosis.logs import standalone_log
from mpijob.errors import Finding

SETS = {"eleventh": "t11-", "twelfth": "t12-"}
FOLDER = Path(__file__).with_name("why_sets")
HALVES = ("rules", "measure", "opened")
KINDS = ("right", "line", "partly", "silent", "wrong")


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was said of one log: of a failure, alone and with the engine's facts; of a healthy one, without and with its
    exit status. `certain` counts the answers of high confidence, `sure_and_wrong` those of them that are not true.
    """

    half: str
    healthy: bool
    alone: str
    facts: str = ""
    certain: int = 0
    sure_and_wrong: int = 0
    said: str = ""
    read_as: str = ""  # what a reader gives for the answer of the log alone, where that differs


class Measurement(msgspec.Struct, frozen=True):
    """All answers to a set, on one day and at one commit; of `fixed` first fixes that were applied, `mended` worked."""

    day: str
    commit: str
    look_ms: float
    mended: int
    fixed: int
    answers: dict[str, Answer]


class _Said(NamedTuple):
    verdict: str
    first: Finding | None


def of_set(prefix: str) -> dict[str, Answer]:
    """Return what is said now of all logs of a set."""
    return {log.name: _answer(log) for half in HALVES for log in logs(half) if log.name.startswith(prefix)}


def _answer(log: Log) -> Answer:
    both = [_said(log, explain(log.evidence(facts=False)))]
    if not log.truth.codes:
        both.append(_said(log, explain(standalone_log.read({"log": iter((log.text,))}, exit_code=0))))
    elif log.engine:
        both.append(_said(log, explain(log.evidence(facts=True))))
    alone = both[0]
    sure = [one for one in both if one.first is not None and one.first.confidence >= CERTAIN]
    told = "" if alone.first is None else f"{alone.first.code}: {alone.first.message}"
    return Answer(
        half=log.half,
        healthy=not log.truth.codes,
        alone=alone.verdict,
        facts=both[1].verdict if len(both) > 1 else "",
        certain=len(sure),
        sure_and_wrong=sum(one.verdict == "wrong" for one in sure),
        said=told if log.half == "rules" else "",
    )


def _said(log: Log, findings: tuple[Finding, ...]) -> _Said:
    return _Said(judge(log, findings), findings[0] if findings else None)


def first(name: str) -> Measurement | None:
    """Return the first measurement of a set, if it was kept."""
    path = FOLDER / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Measurement) if path.exists() else None


def tell() -> None:
    """Print each set apart: now, and when it was measured first."""
    for name, prefix in SETS.items():
        now, before = of_set(prefix), first(name)
        count = Counter(answer.healthy for answer in now.values())
        print(
            f"{name} set, whose author had not seen the rules: {count[False]} failures, {count[True]} healthy logs"
        )
        for title, answers in (("first", before.answers if before else {}), ("now", now)):
            for half in HALVES:
                if of_half := [one for one in answers.values() if one.half == half]:
                    _table(f"  {title}, {half} half", of_half)
        if before is not None:
            print(f"  first measured on {before.day} at {before.commit}: one look {before.look_ms:.0f} ms, "
                  f"first fixes that worked {before.mended} of {before.fixed}")  # fmt: skip


def _table(title: str, answers: list[Answer]) -> None:
    failures = [one for one in answers if not one.healthy]
    healthy = [one for one in answers if one.healthy]
    print(f"{title}, log alone: {_counts(one.alone for one in failures)}")
    print(f"{title}, with the engine's facts: {_counts(one.facts for one in failures if one.facts)}")
    if any(one.read_as for one in failures):
        print(f"{title}, log alone as read: {_counts(one.read_as or one.alone for one in failures)}")
    print(f"{title}, certain {sum(one.certain for one in failures)}, wrong among them "
          f"{sum(one.sure_and_wrong for one in failures)}; false causes on {len(healthy)} healthy logs: "
          f"{sum(one.alone == 'wrong' for one in healthy)}, with --exit-code 0 "
          f"{sum(one.facts == 'wrong' for one in healthy)}")  # fmt: skip


def _counts(verdicts: Iterable[str]) -> str:
    counts = Counter(verdicts)
    total = max(1, counts.total())
    return ", ".join(f"{kind} {counts[kind]} ({100 * counts[kind] / total:.0f} %)" for kind in KINDS)


def main() -> None:
    """Print the sets; with `--freeze NAME COMMIT MENDED/FIXED` keep a first measurement, only once."""
    if sys.argv[1:2] != ["--freeze"]:
        tell()
        return
    name, commit, fixes = sys.argv[2:5]
    path = FOLDER / f"{name}.json"
    if path.exists():
        sys.exit(f"{path} exists: a set is measured first only once")
    mended, fixed = map(int, re.findall(r"\d+", fixes))
    begin = time.perf_counter()
    answers = of_set(SETS[name])
    look = (time.perf_counter() - begin) / (2 * len(answers))
    path.parent.mkdir(exist_ok=True)
    kept = Measurement(time.strftime("%Y-%m-%d"), commit, round(1000 * look, 1), mended, fixed, answers)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept)) + b"\n")


if __name__ == "__main__":
    main()
