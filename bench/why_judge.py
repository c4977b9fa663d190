"""What an answer of `why` is worth, against the truth of a log. It is

- right: a cause that is true, with the values that the log holds;
- line: it says that the cause is not recognised, or only how a rank ended, and leads with the line that names it;
- partly: a true cause without the values;
- silent: neither, and nothing false;
- wrong: a cause that is not true.
"""

from __future__ import annotations

import re

from tools.provoke.case import Log

from mpijob.diagnosis.rule import Trust
from mpijob.diagnosis.rules import RULES
from mpijob.errors import Finding

CERTAIN = 0.9
_NAMES_NO_CAUSE = {rule.id for rule in RULES if rule.only_how or rule.trust is Trust.GENERIC} | {
    "UNKNOWN",
    "MPI_INIT_FAILED",
}
_OWN_WORDS = {"PROGRAM_ERROR", "LAUNCHER_ERROR"}


def judge(log: Log, findings: tuple[Finding, ...]) -> str:
    """Return what an answer is worth."""
    first = findings[0] if findings else None
    if not log.truth.codes:
        return "right" if first is None or first.code == "UNKNOWN" else "wrong"
    said = "" if first is None else "\n".join((first.message, *first.evidence))
    named = all(holds(said, words) for words in log.truth.words)
    if first is not None and first.code in log.truth.codes:
        return "right" if named else "partly"
    if first is None or first.code in _NAMES_NO_CAUSE | _OWN_WORDS:
        return (
            "line"
            if named and log.truth.words
            else "wrong"
            if first and first.code in _OWN_WORDS
            else "silent"
        )
    return "wrong"


def holds(text: str, words: str) -> bool:
    """Return whether a text holds one of several alternatives."""
    loose = re.sub(r"\s+", " ", text).lower()
    return any(one.lower() in loose for one in words.split("|"))
