"""A log without a job: read in one pass, told with the line, whatever is in it."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.failures import CASES, FOLDER
from tests.unit.properties import examples

import mpijob
from mpijob.client.observe import diagnose
from mpijob.diagnosis import explain
from mpijob.diagnosis.logs import log_windows, prefilter, standalone_log
from mpijob.diagnosis.logs.prefilter import Prefilter
from mpijob.diagnosis.rules import RULES
from mpijob.errors import InvalidJob
from mpijob.model import Exit, Family

INNOCENT = sorted((Path(__file__).parents[2] / "fixtures" / "innocent").glob("*.txt"))
STACK = b'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\nValueError: no\n'
LITERALS = sorted({sign.literal for rule in RULES for sign in rule.signs})


def fixture(case: str) -> tuple[bytes, int]:
    """Return everything that a real failure said, as one file, and how its launcher ended."""
    head, _, rest = (FOLDER / f"{case}.txt").read_bytes().partition(b"===== stdout =====\n")
    code = re.search(rb"# exit_code: (-?\d+)", head)
    assert code is not None
    return rest.replace(b"===== stderr =====\n", b""), int(code[1])


NOT_PROVED = {"intel/not_enough_slots", "mpich/not_enough_slots"}  # they ended with 0, and rightly


@pytest.mark.thorough
@pytest.mark.req("AC3", "C-top10")
@pytest.mark.parametrize("case", CASES)
def test_a_bare_log_tells_the_same_cause_as_the_engines_evidence(case: str) -> None:
    from tests.unit.diagnosis.test_diagnosis_fixtures import FROM_THE_LOG_ALONE

    text, code = fixture(case)
    told = mpijob.diagnose(text, exit_code=code, family=case.split("/")[0])
    assert (told.first.code if told.first else None) == FROM_THE_LOG_ALONE[case]


@pytest.mark.thorough
@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_PROVED])
def test_the_family_need_not_be_named(case: str) -> None:
    text, code = fixture(case)
    named = mpijob.diagnose(text, exit_code=code, family=case.split("/")[0])
    assert mpijob.diagnose(text, exit_code=code).first.code == named.first.code  # type: ignore[union-attr]  # both have one


def test_nothing_of_a_spec_is_quoted_where_there_is_none() -> None:
    text, code = fixture("openmpi/not_enough_slots")
    told = mpijob.diagnose(text, exit_code=code)
    assert told.first is not None
    assert not re.search(r"\d workers", told.first.message)
    assert not any(fix.patch.get("ranks") for fix in told.fixes)


def test_the_place_is_the_files_own_line(tmp_path: Path) -> None:
    path = tmp_path / "rank-3.log"
    path.write_bytes(b"step\n" * 5000 + STACK)
    told = mpijob.diagnose(path)
    assert told.first is not None
    assert told.first.place is not None
    assert (told.first.rank, told.first.place.line) == (3, 5001)


def test_of_many_ranks_the_first_to_fail_is_named_by_the_times_in_their_logs(tmp_path: Path) -> None:
    for rank, second in ((0, 40), (1, 20), (2, 30)):
        stamp = f"2026-01-01 10:00:{second},000 INFO step\n".encode()
        (tmp_path / f"rank-{rank}.log").write_bytes(stamp + STACK)
    told = mpijob.diagnose(tmp_path)
    assert told.first is not None
    assert told.first.rank == 1


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (b"[Rank-7] ", 7),
        (b"[1,7]<stderr>:", 7),
        (b"[rank7]: ", 7),
        (b"2026-01-01T10:00:00.1Z [Rank-7] ", 7),
        (b"", None),
    ],
)
def test_tags_say_who_spoke(line: bytes, rank: int | None) -> None:
    text = b"".join(line + part + b"\n" for part in STACK.splitlines())
    told = mpijob.diagnose(text, exit_code=1)
    assert told.first is not None
    assert (told.first.code, told.first.rank) == ("PYTHON_EXCEPTION", rank)


def test_a_log_of_hydra_with_tags_is_understood() -> None:
    text = b"".join(b"[2] " + part + b"\n" for part in (b"a\nb\nc\n" + STACK).splitlines())
    told = mpijob.diagnose(text, exit_code=1, family=Family.MPICH)
    assert told.first is not None
    assert told.first.rank == 2


@pytest.mark.parametrize("path", INNOCENT, ids=lambda path: path.stem)
def test_no_rule_fires_on_the_log_of_a_run_that_succeeded(path: Path) -> None:
    assert mpijob.diagnose(path, exit_code=0).findings == ()
    assert mpijob.diagnose(path.read_bytes(), exit_code=0).findings == ()


@pytest.mark.parametrize(
    "path", [one for one in INNOCENT if "noisy" not in one.stem], ids=lambda path: path.stem
)
def test_nothing_in_a_quiet_log_is_taken_for_a_cause_even_where_the_job_failed(path: Path) -> None:
    assert [finding.code for finding in mpijob.diagnose(path, exit_code=1).findings] == ["UNKNOWN"]


def test_an_empty_log_says_so() -> None:
    told = mpijob.diagnose(b"", exit_code=1)
    assert told.first is not None
    assert told.first.code == "UNKNOWN"
    assert told.first.fixes


@pytest.mark.thorough
@pytest.mark.security
@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.sampled_from([one.encode() for one in LITERALS]) | st.binary(max_size=40), max_size=60),
    st.booleans(),
)
def test_no_log_makes_it_fail(parts: list[bytes], lines: bool) -> None:
    text = (b"\n" if lines else b" ").join(parts)
    told = mpijob.diagnose(text, exit_code=1)
    assert told.findings
    assert all(
        quote.replace("\t", "").isprintable() for finding in told.findings for quote in finding.evidence
    )


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize("literal", LITERALS)
def test_a_literal_that_fills_a_log_does_not_stall_it(literal: str) -> None:
    assert mpijob.diagnose((literal.encode() + b" ") * 1000, exit_code=1).findings


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", [("/dev/zero",), ("-",), (str(INNOCENT[0]), "/dev/zero")])
def test_an_endless_device_is_no_log(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "BLOCK_BYTES", 1 << 20)
    with open("/dev/zero", "rb") as endless:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
        with pytest.raises(InvalidJob, match=r"(/dev/zero|stdin) is a device with more than 1 MiB") as told:
            diagnose.of_logs(diagnose.files(words))
    assert "the path of a log" in told.value.hint


def test_an_empty_device_and_a_log_from_a_pipe_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnose.of_logs(diagnose.files(("/dev/null",)), exit_code=1).first is not None
    monkeypatch.setattr(diagnose, "BLOCK_BYTES", 10)
    reading, writing = os.pipe()
    os.write(writing, b"bash: orted: command not found\n")
    os.close(writing)
    told = diagnose.of_logs(diagnose.files((f"/dev/fd/{reading}",)), exit_code=127).first
    os.close(reading)
    assert told is not None
    assert told.code == "MPI_NOT_ON_WORKER"


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([b"abc", b"error", b"x", b"\n", b"\n", b"long " * 30, b"fatal"]), max_size=200),
    st.integers(1, 50),
)
def test_pieces_are_lines_of_the_log_with_their_own_numbers(parts: list[bytes], size: int) -> None:
    text = b"".join(parts)
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    pieces = log_windows.cut(blocks, Prefilter(["error", "fatal"]))
    for piece in pieces:
        assert list(piece.lines) == lines[piece.first - 1 : piece.first - 1 + len(piece.lines)]
    kept = {number for piece in pieces for number in range(piece.first, piece.first + len(piece.lines))}
    assert len(kept) == sum(len(piece.lines) for piece in pieces)
    assert kept >= set(range(1, min(len(lines), log_windows.HEAD_LINES) + 1)) if lines else not kept


def test_of_a_log_without_lines_no_more_is_kept_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_windows, "BLOCK_BYTES", 1 << 16)
    reader = log_windows._Reader(Prefilter(["error"]))
    for number in range(100):
        reader.take(b"%9d\r" % number * (1 << 12))
        assert len(reader._tail) <= log_windows.LINE_BYTES
    assert len(reader.pieces()[-1].lines[-1]) == log_windows.LINE_BYTES
    last = log_windows.cut([b"a" * 3000] * 100, Prefilter(["error"]))[-1]
    assert last.lines == (b"a" * log_windows.LINE_BYTES,)


@given(st.lists(st.sampled_from([b"aa", b"ab", b"b", b"c", b"aab"]), max_size=40))
def test_with_and_without_re2_the_same_places_are_found(parts: list[bytes]) -> None:
    text, literals = b"".join(parts), frozenset({b"aab", b"ba", b"cc"})
    slow = prefilter._Each(literals)
    at, found = 0, []
    while (span := slow(text, at, len(text))) is not None:
        found.append(span[0])
        at = span[0] + 1
    expected = [at for at in range(len(text)) if any(text.startswith(one, at) for one in literals)]
    assert found == expected
    assert set(Prefilter(one.decode() for one in literals).places(text)) <= set(expected)


def test_a_frequent_literal_is_dropped_and_a_rare_one_behind_it_still_found() -> None:
    text = b"noise " * 1000 + b"rare"
    places = list(Prefilter(["noise", "rare"]).places(text))
    assert len(places) == prefilter.PLACES + 1
    assert places[-1] == 6000


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "end", [b"", b"...", b"x.ChildFailedError: a", b"RuntimeError: Connection reset by peer", b"\x00 1"]
)
def test_a_long_traceback_with_an_odd_end_does_not_stall_it(end: bytes) -> None:
    frames = b'  File "t.py", line 1, in f\n    f()\n    ^^^\n' * 300
    for tag in (b"", b"[rank1]: "):
        text = STACK.splitlines()[0] + b"\n" + frames + end + b"\n"
        tagged = b"".join(tag + line + b"\n" for line in text.splitlines())
        assert mpijob.diagnose(tagged, exit_code=1).findings


def test_a_rank_that_went_on_after_an_exception_did_not_die_of_it() -> None:
    text = STACK + b"step\n" * 50
    seen = standalone_log.read({"rank-1.log": iter((text,))}, exit_code=1)
    assert [finding.code for finding in explain(seen)] == ["UNKNOWN"]
    assert seen.launcher == Exit(code=1)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_without_a_job_no_command_is_offered_that_needs_one(case: str) -> None:
    text, code = fixture(case)
    for fix in mpijob.diagnose(text, exit_code=code).fixes:
        assert "JOB" not in fix.text
        assert "JOB" not in fix.command
