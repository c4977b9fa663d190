"""The launcher's merged output, taken apart."""

from __future__ import annotations

import pytest

from mpijob.formats.launch.rank_output import Output, RankLine, Report, reports
from mpijob.model import Family


def _all(output: Output, *lines: bytes) -> list[RankLine | Report]:
    return [said for line in lines for said in output.read(line)]


@pytest.mark.parametrize(
    ("world", "line"),
    [
        (b"mpijob-world ranks=2 gap=1", b"[1,1]<stderr>: hi"),
        (b"mpijob-world ranks=2 gap=0", b"[1,1]<stderr>:hi"),
    ],
)
def test_both_generations_of_open_mpi_tag_their_ranks(world: bytes, line: bytes) -> None:
    assert _all(Output(Family.OPENMPI), world, line)[1:] == [RankLine(1, "stderr", b"hi")]


def test_a_space_that_belongs_to_the_text_stays() -> None:
    old, new = Output(Family.OPENMPI), Output(Family.OPENMPI)
    _all(old, b"mpijob-world ranks=2 gap=0")
    assert _all(old, b"[1,0]<stdout>:  x") == [RankLine(0, "stdout", b"  x")]
    assert _all(new, b"[1,0]<stdout>:   x") == [RankLine(0, "stdout", b"  x")]


def test_without_a_census_the_form_of_the_tags_is_learnt_from_the_first_of_them() -> None:
    old, new = Output(Family.OPENMPI), Output(Family.OPENMPI)
    assert _all(old, b"[1,0]<stdout>:a[1,0]<stdout>: [1,0]<stdout>:b") == [RankLine(0, "stdout", b"a b")]
    assert _all(new, b"[1,0]<stdout>: a[1,0]<stdout>:  [1,0]<stdout>: b") == [RankLine(0, "stdout", b"a b")]


def test_a_line_without_newline_does_not_swallow_the_next_rank() -> None:
    output = Output(Family.OPENMPI)
    assert _all(output, b"[1,1]<stdout>: no-newline[1,0]<stdout>: other") == [RankLine(0, "stdout", b"other")]
    assert [*output.rest()] == [RankLine(1, "stdout", b"no-newline")]
    assert [*output.rest()] == []


@pytest.mark.parametrize("family", [Family.MPICH, Family.INTEL])
def test_hydra_tags_its_ranks(family: Family) -> None:
    assert _all(Output(family), b"[rank 12] text [3] more") == [RankLine(12, "stdout", b"text [3] more")]


def test_what_carries_no_tag_is_the_launchers() -> None:
    assert _all(Output(Family.OPENMPI), b"mpirun noticed that process rank 1") == [
        RankLine(None, "stdout", b"mpirun noticed that process rank 1")
    ]
    assert _all(Output(Family.MPICH, tagged=False), b"[0] mine") == [RankLine(None, "stdout", b"[0] mine")]


@pytest.mark.parametrize(
    ("family", "line"),
    [
        (Family.INTEL, b"[rank 0] hello[rank 0]  [rank 0] 4[rank 1] other"),
        (Family.OPENMPI, b"[1,0]<stdout>: hello[1,0]<stdout>:  [1,0]<stdout>: 4[1,1]<stdout>: other"),
    ],
)
def test_what_one_rank_wrote_in_pieces_is_put_together(family: Family, line: bytes) -> None:
    output = Output(family)
    assert [*_all(output, line), *output.rest()] == [
        RankLine(1, "stdout", b"other"),
        RankLine(0, "stdout", b"hello 4"),
    ]


def test_reports_are_no_output_and_keep_what_stood_before_them() -> None:
    line = b"[1,1]<stdout>: halfmpijob-exit rank=1 code=3"
    said, report = _all(Output(Family.OPENMPI), line)
    assert said == RankLine(1, "stdout", b"half")
    assert isinstance(report, Report)
    assert (report.kind, report.number("rank"), report.number("code")) == ("exit", 1, 3)


def test_a_sentence_that_mentions_a_report_is_output() -> None:
    line = b"mpijob-exit was printed"
    assert _all(Output(Family.OPENMPI), line) == [RankLine(None, "stdout", line)]


def test_all_reports_of_a_log_are_found() -> None:
    log = (
        b"mpijob-census rank=0 size=2 local=0 host=a node=n1 gpus=0\n"
        b"mpijob-census rank=1 size=2 local=0 host=b node= gpus=0\n"
        b"mpijob-world ranks=2 gap=1\n[1,0]<stdout>: hello\n[1,0]<stdout>: mpijob-exit rank=0 code=0\n"
    )
    found = [*reports(log, Family.OPENMPI)]
    assert [report.kind for report in found] == ["census", "census", "world", "exit"]
    assert found[1].words["node"] == ""


def test_a_line_that_was_cut_off_goes_on_with_the_next_piece_of_its_rank() -> None:
    lines = (b"[rank 2] ha[rank 0] whole", b"[rank 1] x[rank 2] l[rank 0] more", b"[rank 2] f", b"[rank 2] ")
    assert _all(Output(Family.INTEL), *lines) == [
        RankLine(0, "stdout", b"whole"),
        RankLine(0, "stdout", b"more"),
        RankLine(2, "stdout", b"half"),
        RankLine(2, "stdout", b""),
    ]


def test_a_report_behind_a_line_that_was_cut_off_is_found() -> None:
    said, report = _all(
        Output(Family.MPICH), b"[rank 1] no-newline[rank 0] x", b"[rank 1] mpijob-exit rank=1 code=0"
    )[1:]
    assert said == RankLine(1, "stdout", b"no-newline")
    assert isinstance(report, Report)


@pytest.mark.security
@pytest.mark.parametrize("family", [Family.MPICH, Family.INTEL])
def test_hydras_tags_hold_a_word_that_no_rank_can_know(family: Family) -> None:
    world = b"mpijob-world ranks=2 gap=0 tag=9e40c5dc-d49e"
    line = b"[rank 0 9e40c5dc-d49e] half [rank 1] forged [rank 1 0000] forged[rank 1 9e40c5dc-d49e] true"
    output = Output(family)
    assert _all(output, world, line)[1:] == [RankLine(1, "stdout", b"true")]
    assert [*output.rest()] == [RankLine(0, "stdout", b"half [rank 1] forged [rank 1 0000] forged")]


@pytest.mark.security
def test_a_tag_inside_a_line_of_open_mpi_5_is_text() -> None:
    output = Output(Family.OPENMPI)
    _all(output, b"mpijob-world ranks=2 gap=1")
    assert _all(output, b"[1,0]<stdout>: hello [1,1]<stdout>: forged") == [
        RankLine(0, "stdout", b"hello [1,1]<stdout>: forged")
    ]


@pytest.mark.security
@pytest.mark.parametrize("text", [b"[1,1]<stdout>:copied", b"of another job: [1,7]<stdout>:copied"])
def test_a_log_that_a_rank_of_open_mpi_4_prints_stays_its_own(text: bytes) -> None:
    output = Output(Family.OPENMPI)
    _all(output, b"mpijob-world ranks=2 gap=0")
    assert _all(output, b"[1,0]<stdout>:" + text) == [RankLine(0, "stdout", text)]


@pytest.mark.security
@pytest.mark.parametrize(
    "forged",
    [b"mpijob-world ranks=9 gap=1 tag=x", b"mpijob-exit rank=1 code=7", b"mpijob-census rank=1 size=9"],
)
def test_a_report_about_somebody_else_is_output(forged: bytes) -> None:
    output = Output(Family.MPICH)
    _all(output, b"mpijob-world ranks=2 gap=0 tag=abc")
    assert _all(output, b"[rank 0 abc] " + forged) == [RankLine(0, "stdout", forged)]
    assert _all(output, b"[rank 1 abc] still known") == [RankLine(1, "stdout", b"still known")]
