"""The speaker of a line is known from the tags of many launchers, also of those that this project has never met."""

from __future__ import annotations

import pytest

from mpijob.diagnosis import explain
from mpijob.diagnosis.logs import standalone_log
from mpijob.diagnosis.logs.line_tags import Speaker, Tags
from mpijob.model import Role

_TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 7, in <module>',
    "    load(path)",
    "KeyError: 'viscosity'",
)
NOBODY = Speaker(Role.LAUNCHER)


@pytest.mark.parametrize(
    ("line", "speaker", "text"),
    [
        (b"[Rank-3] step", Speaker(Role.RANK, None, 3), b"step"),
        (b"[1,4]<stderr>:step", Speaker(Role.RANK, None, 4), b"step"),
        (b"[prterun-n1-77@1,5]<stdout>: step", Speaker(Role.RANK, None, 5), b"step"),
        (b"[rank2]: step", Speaker(Role.RANK, None, 2), b"step"),
        (b"[default1]:  step", Speaker(Role.RANK, None, 1), b" step"),
        (b"[pod/bert-worker-1/mpi] 2026-11-19T15:32:03.12Z step", Speaker(Role.WORKER, 1), b"step"),
        (b"2026-11-19T15:32:03.12+01:00 [1,0]<stdout>: step", Speaker(Role.RANK, None, 0), b"step"),
        (b"[12] step", NOBODY, b"[12] step"),
    ],
)
def test_a_tag_of_a_known_form_names_the_speaker(line: bytes, speaker: Speaker, text: bytes) -> None:
    said = Tags(NOBODY, [line]).read(line)
    assert (said.speaker, said.text) == (speaker, text)


@pytest.mark.parametrize(
    ("tag", "speaker"),
    [
        ("[{n}] ", Speaker(Role.RANK, None, 1)),
        ("{n}: ", Speaker(Role.RANK, None, 1)),
        (" {n}: ", Speaker(Role.RANK, None, 1)),
        ("bert-worker-{n}  | ", Speaker(Role.WORKER, 1)),
        ("node{n}: ", Speaker(Role.LAUNCHER, tag=b"node1: ")),
        ("(Train pid={n}7, ip=10.0.0.5) ", Speaker(Role.LAUNCHER, tag=b"(Train pid=17, ip=10.0.0.5) ")),
    ],
)
def test_a_tag_of_most_lines_is_learnt(tag: str, speaker: Speaker) -> None:
    lines = [f"{tag.format(n=n)}step {step}".encode() for step in range(3) for n in range(2)]
    said = Tags(NOBODY, lines).read(lines[1])
    assert (said.speaker, said.text) == (speaker, b"step 0")


@pytest.mark.parametrize(
    "prefix",
    ["rank=1 L{n:02}: ", "[2026-11-19 15:28:2{n}] worker: ", "(RayTrainWorker pid=4{n}) ", "1| ", "<1> "],
)
def test_the_exception_of_a_traceback_is_found_behind_any_prefix(prefix: str) -> None:
    noise = "\n".join(f"tile {n} rendered" for n in range(9))
    text = noise + "\n" + "\n".join(prefix.format(n=n) + line for n, line in enumerate(_TRACEBACK)) + "\n"
    (first, *_) = explain(standalone_log.read({"log": iter((text.encode(),))}))
    assert first.code == "PYTHON_EXCEPTION"
    assert "KeyError: 'viscosity'" in first.message


def test_tracebacks_of_two_ranks_that_are_mixed_are_read_apart() -> None:
    lines = [f"rank {rank}| {line}" for line in _TRACEBACK for rank in (0, 1)]
    (first, *_) = explain(standalone_log.read({"log": iter(("\n".join(lines).encode(),))}))
    assert (first.code, first.rank) == ("PYTHON_EXCEPTION", 0)
