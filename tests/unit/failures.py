"""Real failures, read from tests/fixtures/failures: what was said, byte for byte, and the exit code."""

import re
from pathlib import Path
from typing import Any

from mpijob.diagnosis import Evidence
from mpijob.model import Exit, Family, LogLine, MPIJob, Role

FOLDER = Path(__file__).parents[1] / "fixtures" / "failures"
CASES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.txt"))


def a_job(**changes: Any) -> MPIJob:
    spec: dict[str, Any] = {"name": "job", "workers": 2, "slots": 2, "command": ("python", "train.py")}
    return MPIJob(**(spec | changes))


def said(text: bytes | str, *, rank: int | None = None, worker: int | None = None, time: float = 1.0,
         stream: str = "stderr") -> tuple[LogLine, ...]:  # fmt: skip
    """The lines of one text, a millisecond apart, from a rank or else the launcher."""
    raw = text.encode() if isinstance(text, str) else text
    role = Role.LAUNCHER if rank is None else Role.RANK
    return tuple(
        LogLine(int(time * 1e9) + n * 1_000_000, line, role, stream, worker, rank)
        for n, line in enumerate(raw.split(b"\n"))
    )


def evidence(case: str, **known: Any) -> Evidence:
    """What a fixture tells, and what an engine would know besides."""
    head, _, rest = (FOLDER / f"{case}.txt").read_bytes().partition(b"===== stdout =====\n")
    out, _, err = rest.partition(b"===== stderr =====\n")
    code = re.search(rb"# exit_code: (-?\d+)", head)
    assert code is not None
    logs = said(out, stream="stdout") + said(err, time=2.0)
    facts: dict[str, Any] = {"spec": a_job(), "family": Family(case.split("/")[0]), "logs": logs}
    facts["launcher"] = Exit(code=int(code[1]), time=9.0)
    return Evidence(**(facts | known))
