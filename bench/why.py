"""How often `why` is right, on logs that its rules were not written from: `make bench-why`.

The logs are real failures with their truth by construction (`tools.provoke`), and some in our own words for what
cannot be provoked here; half of them were only measured. What an answer is worth, `bench.why_judge` says.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tools.provoke.case import Log, logs

from bench import explaining, why_sets
from bench.timing import PASS, command, interleaved, median
from bench.why_judge import CERTAIN as CERTAIN
from bench.why_judge import holds
from bench.why_judge import judge as judge
from mpijob.diagnosis import Evidence, explain
from mpijob.diagnosis.logs import standalone_log
from mpijob.errors import Finding

NOISE_BYTES = 10 << 20
RANKS = 100
MENDED_BY = {  # causes that a change of the job can mend, and the fields of that change
    "BAD_BINDING": {"launch"},
    "BUS_ERROR": {"volumes"},
    "COMPONENT_MISSING": {"launch", "env"},
    "CUDA_OOM": {"command"},
    "DEADLINE_EXCEEDED": {"deadline_seconds"},
    "FABRIC_FAILED": {"env", "launch"},
    "GPU_SHARED": {"slots"},
    "MEMORY_ERROR": {"resources", "command"},
    "MISSING_LIBRARY": {"env"},
    "MPI_MISMATCH": {"mpi"},
    "MPI_UNREACHABLE": {"launch"},
    "NOT_ENOUGH_SLOTS": {"ranks", "slots", "workers"},
    "NO_GPU": {"resources", "slots"},
    "OOM_KILLED": {"resources"},
    "PORT_IN_USE": {"env"},
    "PROCESS_LIMIT": {"env"},
    "ROOT_REFUSED": {"env"},
    "SHM_FULL": {"volumes"},
    "TOO_MANY_FILES": {"command"},
    "WRONG_WORLD": {"mpi"},
}
_GREP = re.compile(rb"(?i)error|fatal|abort|killed")


def grep(log: Log) -> bool:
    """Return whether the last line that grep would find holds what the truth names."""
    lines = [line for line in log.text.splitlines() if _GREP.search(line)]
    last = lines[-1].decode(errors="replace") if lines else ""
    return bool(log.truth.words) and all(holds(last, words) for words in log.truth.words)


def with_noise(log: Log, size: int) -> Evidence:
    """Return what a log tells in the middle of what many healthy ranks say before, between and after it."""
    chance = random.Random(log.name)
    lines = log.text.split(b"\n")
    noise = [_healthy(chance) for _ in range(400)]
    block = b"".join(chance.choice(noise) for _ in range(2000))
    before = block * (size // (2 * len(block)) + 1)
    mixed = b"".join(
        line + b"\n" + (chance.choice(noise) if _between(line, chance) else b"") for line in lines
    )
    return standalone_log.read({"log": iter((before, mixed))})


def _between(line: bytes, chance: random.Random) -> bool:
    """Whether another rank may have spoken here: not within a paragraph, which is written at once."""
    return not line.strip() and chance.random() < 0.5


def _healthy(chance: random.Random) -> bytes:
    rank, step = chance.randrange(RANKS), chance.randrange(10_000)
    kinds = (
        b"[%d] step %d loss %d.%04d\n" % (rank, step, step % 7, step),
        b"INFO rank %d: 0 errors in batch %d\n" % (rank, step),
        b"WARNING [%d] sample %d has no label, the default is used\n" % (rank, step),
        b"%d: residual error 1.%de-%d\n" % (rank, step, step % 9),
    )
    return chance.choice(kinds)


def main() -> None:
    """Print the figures of the logs that were only measured; `--rules`, `--opened` of the others, `-v` every miss.

    `--set=t8-` takes the logs of one set alone, `--every` those of all halves, as when a set was not read yet. Sets
    whose author had not seen the rules are told apart at the end, too.
    """
    which = next((part for part in ("rules", "opened", "every") if f"--{part}" in sys.argv), "measure")
    of_set = next((word.removeprefix("--set=") for word in sys.argv if word.startswith("--set=")), "")
    halves = ("rules", "opened", "measure") if which == "every" else (which,)
    kept = [log for part in halves for log in logs(part) if log.name.startswith(of_set)]
    failures, healthy = [log for log in kept if log.truth.codes], [log for log in kept if not log.truth.codes]
    answers = [(log, explain(log.evidence(facts=False))) for log in failures]
    known = [(log, explain(log.evidence(facts=True))) for log in failures if log.has_facts]
    written = sum(log.truth.written for log in failures)
    print(f"{of_set}{which} half: {len(failures)} failures ({written} in our words), "
          f"{len(healthy)} healthy logs")  # fmt: skip
    _table("log alone", answers)
    _table("log alone, provoked", [one for one in answers if not one[0].truth.written])
    _table("with the engine's facts", known)
    noisy = [(log, explain(with_noise(log, NOISE_BYTES))) for log in failures if "--quick" not in sys.argv]
    _table(f"in {NOISE_BYTES >> 20} MiB of {RANKS} healthy ranks", noisy)
    certain = [(log, found) for log, found in (*answers, *known) if found and found[0].confidence >= CERTAIN]
    print(f"certain: {len(certain)}, wrong among them: {sum(judge(*one) == 'wrong' for one in certain)}")
    found = [log.name for log in healthy if judge(log, explain(log.evidence(facts=False))) != "right"]
    print(f"false causes on healthy logs: {len(found)} of {len(healthy)} {' '.join(found)}")
    missed = sum(grep(log) and judge(log, found) not in ("right", "line") for log, found in answers)
    print(
        f"grep's last error line: {sum(map(grep, failures))} of {len(failures)}, grep right and we not: {missed}"
    )
    _fixes(known)
    _time(failures)
    if "--quick" not in sys.argv:
        _gigabyte()
    if "-v" in sys.argv:
        _misses(answers)
    if not of_set:
        why_sets.tell()


def _table(title: str, answers: list[tuple[Log, tuple[Finding, ...]]]) -> None:
    counts = Counter(judge(*one) for one in answers)
    total = max(1, len(answers))
    words = (
        f"{kind} {counts[kind]} ({100 * counts[kind] / total:.0f} %)"
        for kind in ("right", "line", "partly", "silent", "wrong")
    )
    if answers:
        print(f"{title}: {', '.join(words)}")


def mends(finding: Finding) -> bool:
    """Return whether the first fix is the change of the job that mends such a failure."""
    return bool(finding.fixes) and not set(finding.fixes[0].patch).isdisjoint(MENDED_BY[finding.code])


def _fixes(answers: Iterable[tuple[Log, tuple[Finding, ...]]]) -> None:
    told = [found[0] for log, found in answers if judge(log, found) == "right" and found[0].code in MENDED_BY]
    print(f"first fix mends: {sum(map(mends, told))} of {len(told)} that a change of the job can mend")


def _time(failures: list[Log]) -> None:
    begin = time.perf_counter()
    for log in failures:
        explain(log.evidence(facts=False))
    each = (time.perf_counter() - begin) / max(1, len(failures))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        path.write_bytes(failures[0].text)
        argv = (sys.executable, "-m", "mpijob", "why", "--log", str(path))
        found = interleaved(7, {"look": lambda: command(argv).wall, "pass": lambda: command(PASS).wall})
    look, empty = median(found["look"]), median(found["pass"])
    print(
        f"one look: {1000 * each:.0f} ms in the process, {look:.2f} s as a command (python -c pass: {empty:.2f} s)"
    )


def _gigabyte() -> None:
    with tempfile.TemporaryDirectory(prefix="mpijob-bench-") as folder:
        large = explaining.written(Path(folder) / "logs", explaining.FULL_BYTES)
        ours, grep_argv = explaining.why_command(large), explaining.grep_command(large)
        both = {"ours": lambda: command(ours).wall,
                "grep": lambda: command(grep_argv, explaining.C_LOCALE).wall}  # fmt: skip
        found = interleaved(3, both)
    look, other = median(found["ours"]), median(found["grep"])
    print(f"1 GB of {explaining.RANKS} ranks: {look:.1f} s, grep {other:.1f} s: {look / other:.1f} times")


def _misses(answers: Iterable[tuple[Log, tuple[Finding, ...]]]) -> None:
    for log, found in answers:
        verdict = judge(log, found)
        if verdict != "right":
            said = f"{found[0].code}: {found[0].message}" if found else "nothing"
            print(f"  {verdict:7} {log.name}: {'|'.join(log.truth.codes)} told as {said[:200]}")


if __name__ == "__main__":
    main()
