"""How the measurements on a cluster judge what they have measured; they themselves are run by `make bench-cluster`."""

from __future__ import annotations

from bench.cluster import gangs, large, scale, submitting


def test_nine_submissions_in_ten_and_the_slowest_have_a_line_each() -> None:
    ninth, slowest = submitting.lines([0.2] * 18 + [0.4, 6.0])
    assert (ninth.rows, ninth.ours, ninth.must_holds, ninth.holds) == (("D-p90",), 0.2, True, True)
    assert (slowest.rows, slowest.ours, slowest.must_holds) == (("NFR-002", "SC-008"), 6.0, False)
    assert "20 times `mpijob create`, median 0.20 s" in slowest.note


def test_a_gang_is_held_against_the_clock_and_against_single_pods() -> None:
    whole, added = gangs.lines(gang=25.0, pods=4.0, job=20.0, worst=28.0)
    assert (whole.rows, whole.holds, added.rows, added.holds) == (
        ("SC-014", "D-gang"),
        True,
        ("C-gang",),
        True,
    )
    assert added.ratio == 21.0
    whole, added = gangs.lines(gang=40.0, pods=4.0, job=20.0, worst=41.0)
    assert (whole.holds, added.holds) == (False, False)


def test_the_slowest_start_of_a_large_job_counts() -> None:
    line = large.line("16 workers, submit to Running", [30.0, 130.0], "C-start")
    assert (line.ours, line.holds, line.rows) == (130.0, False, ("C-start",))


def test_what_was_reached_is_told_as_it_was() -> None:
    whole = scale.line("jobs that run at once", "jobs", 100, 100, "", ("C-100", "NFR-006"))
    part = scale.line("jobs that run at once", "jobs", 93, 100, "", ("C-100", "NFR-006"))
    assert (whole.ours, whole.holds, part.ours, part.holds) == (100, True, 93, False)
