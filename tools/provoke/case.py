"""What a provoked failure is, its truth by construction, and how it is kept as a fixture.

A case is written before its log is seen: which causes are right (`codes`), which words of the log a right answer
must hold (`words`, alternatives divided by `|`), and what an engine would know (`facts`). Half of all logs, chosen
by a hash of their names, are for writing rules; the other half is only for measuring. When its misses have been
read, new cases are written for the next measurement.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mpijob.diagnosis import Evidence, Memory
from mpijob.diagnosis.logs import standalone_log
from mpijob.model import Exit, Family, LogLine, MPIJob, Resources, Role

FOLDER = Path(__file__).parent / "cases"
LOGS = Path(__file__).parents[2] / "tests" / "fixtures" / "why"
FRESH = (
    "seventh.yaml",
    "eighth.yaml",
    "ninth.yaml",
    "tenth.yaml",
)  # the cases whose measured halves nobody has read yet
_RAN = (
    "t6-",
    "t7-",
    "t8-",
    "t9-",
    "t10-",
    "t11-",
    "t12-",
)  # from these cases on, facts are those of an engine that ran them
_READ = frozenset(("t8-healthy-core", "t8-healthy-no-gpu"))  # of these, the logs have been read since
_BEGIN = "===== log =====\n"


class Truth(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is true of a log, whoever explains it; no codes at all mean a run that succeeded."""

    what: str
    codes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    exit_code: int | None = None
    software: str = ""
    written: bool = False
    mends: tuple[str, ...] = ()  # fields of the job, a change of one of which would let it succeed


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One failure to be provoked: a program or a script, on each of some stacks; or a log in our own words."""

    name: str
    what: str
    codes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    facts_on: dict[str, dict[str, Any]] = {}  # by stack, where it ends otherwise there
    stacks: tuple[str, ...] = ()
    ranks: int = 4
    py: str = ""
    c: str = ""
    cpp: str = ""
    f90: str = ""
    files: dict[str, str] = {}
    run: str = ""
    seconds: int = 60
    gpu: bool = False
    log: str = ""
    exit_code: int | None = None
    software: str = ""
    mends: tuple[str, ...] = ()
    job: dict[str, Any] | None = None  # also run as a job, with these fields of its own


class Log(msgspec.Struct, frozen=True):
    """A kept log with its truth."""

    name: str
    half: str
    truth: Truth
    text: bytes
    engine: bytes = b""

    @property
    def has_facts(self) -> bool:
        """Whether it is known what an engine knew: it ran it, or the facts of an older case were written down."""
        return bool(self.engine) or not (self.truth.written or self.name.startswith(_RAN))

    def evidence(self, *, facts: bool) -> Evidence:
        """Return what the log tells alone, or what the engine knew; of older cases, the log with what it would know."""
        if facts and self.engine:
            return msgspec.json.decode(self.engine, type=Evidence)
        seen = standalone_log.read({"log": iter((self.text,))})
        if not facts:
            return seen
        return msgspec.structs.replace(seen, bare=False, spec=_JOB, **_known(self.truth))


_JOB = MPIJob(
    name="job",
    workers=2,
    slots=2,
    command=("python", "train.py", "--batch-size", "128"),
    resources=Resources(memory="8Gi"),
)


def cases() -> list[Case]:
    """Return all cases of all files."""
    return [
        msgspec.convert(entry, Case)
        for path in sorted(FOLDER.rglob("*.yaml"))
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))
    ]


def half(name: str) -> str:
    """Return which part the logs of a case belong to, on all stacks.

    `rules` may be read while rules are written; `measure` is only measured; `opened` was, until its misses were read.
    """
    if name.startswith(
        "t12-"
    ):  # this whole set only measured: no rule was written from it before its misses were read
        return "opened"
    if not hashlib.sha256(name.encode()).digest()[0] & 1:
        return "rules"
    return "measure" if name in _fresh() else "opened"


@cache
def _fresh() -> frozenset[str]:
    paths = (path for name in FRESH for path in FOLDER.glob(name))
    files = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths)
    return frozenset(entry["name"] for entries in files for entry in entries) - _READ


def keep(case: str, name: str, truth: Truth, text: bytes, seen: Evidence | None = None) -> Path:
    """Keep a log of a case with its truth, and what the engine knew beside it."""
    path = LOGS / half(case) / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(truth)) + b"\n" + _BEGIN.encode() + text)
    beside = path.with_suffix(".json")
    beside.unlink(missing_ok=True)
    if seen is not None:
        beside.write_bytes(msgspec.json.encode(seen) + b"\n")
    return path


def logs(which: str) -> list[Log]:
    """Return the kept logs of one half."""
    return [_read(path, which) for path in sorted((LOGS / which).glob("*.txt"))]


def _read(path: Path, which: str) -> Log:
    head, _, text = path.read_bytes().partition(_BEGIN.encode())
    beside = path.with_suffix(".json")
    engine = beside.read_bytes() if beside.exists() else b""
    return Log(path.stem, which, msgspec.json.decode(head, type=Truth), text, engine)


def _known(truth: Truth) -> dict[str, Any]:
    """Return the engine's facts as evidence: which rank ended first, how, what its wrapper said, the reason, memory."""
    told, code = truth.facts, truth.exit_code
    known: dict[str, Any] = {"launcher": None if code is None else Exit(code=code, time=9.0)}
    if "rank" in told:
        worker = told["rank"] // _JOB.slots if told["rank"] < _JOB.world else None
        known["ranks"] = (
            Exit(
                code=told.get("code"), signal=told.get("signal"), index=told["rank"], worker=worker, time=5.0
            ),
        )
    if told.get("signal") == 9:
        full = bool(told.get("oom"))
        known["memory"] = (Memory(worker or 0, 8 << 30, 8 << 30, oom_kills=1) if full else
                           Memory(worker or 0, 1 << 30, 8 << 30, enough=True),)  # fmt: skip
    if "said" in told:
        line = told["said"].encode()
        known["logs"] = (LogLine(5 * 10**9, line, Role.RANK, "stderr", worker, told["rank"]),)
    if "family" in told:
        known["family"] = Family(told["family"])
    return known | {name: told[name] for name in ("reason", "message") if name in told}
