"""The page of measured figures: `python -m tools.figures_page` writes it from the records.

The make targets of the benches do it, so that page and records never differ; a test holds them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.figures import FILES, ROOT, Figure, number, recorded

PAGE = ROOT / "docs" / "reference" / "performance-figures.md"
COMMAND = "python -m tools.figures_page"
TITLES = {
    "local": ("One machine", "make bench"),
    "cluster": ("A cluster", "make bench-cluster"),
    "page": ("The web UI", "make bench-ui"),
    "services": ("Services over a day", "make soak"),
    "faults": ("Injected faults", "make faults"),
}
GREATEST = {
    "NFR-006": "jobs that run at once",
    "NFR-005": "workers of one job",
    "E-512": "GPUs in use at once",
}
_INTRO = """\
Measurements of mpijob, with date and machine. Results on other machines differ. Missed goals stay in the tables.

- `make bench-all` runs all benchmarks and prints one table; `make bench`, `make bench-cluster`, `make bench-ui` and \
`make soak` run a part. A new measurement on the same machine replaces the older one; measurements on other machines \
stay.
- *Reference* is the same work without mpijob (bare `mpiexec`, `kubectl`, single pods), measured alternately on the \
same machine, or a fixed limit. *Asked* is the limit for the ratio that the requirement sets, *goal* is our own limit. \
*Result* refers to *asked*, or to *goal* if nothing is asked.
- Cluster figures are from the [test bed](../how-to/contributors/testbed.md): a complete Kubernetes cluster on \
the named machine, which also runs the jobs. Fake nodes run no containers: they show the cost of many objects, not \
that MPI works at that size.
- Each rank uses one thread. Other processes were stopped where possible; otherwise the load before the measurement \
is given. Rows marked *quick* were measured with fewer rounds.
"""


def page(areas: Mapping[str, Sequence[Figure]]) -> str:
    """Return the page for these records."""
    every = [figure for figures in areas.values() for figure in figures]
    note = f"<!-- written by `{COMMAND}` from the records of the benches -->\n"
    parts = [f"{note}# Measured figures\n\n{_INTRO}", _machines(every), _greatest(every)]
    parts += [_area(area, figures) for area, figures in areas.items()]
    return "\n".join([*parts, _missed(every), _unmeasured(areas)])


def _machines(figures: Iterable[Figure]) -> str:
    known = sorted({(one.cores, one.processor) for one in figures if not one.missing})
    rows = "".join(f"| {cores} | {processor or 'not recorded'} |\n" for cores, processor in known)
    return f"## Machines\n\n| cores | processor |\n| --- | --- |\n{rows}"


def _greatest(figures: Sequence[Figure]) -> str:
    head = "| what | largest tested | run |\n| --- | --- | --- |\n"
    rows = "".join(f"| {what} | {_largest(figures, id)} |\n" for id, what in GREATEST.items())
    words = (
        "On fake nodes, as `make bench-cluster BENCH_FLAGS='--only scale'` runs them. Longer runs of the tests are in "
        "[how large it gets](../how-to/contributors/testbed.md#how-large-it-gets)."
    )
    return f"## Largest tested sizes\n\n{words}\n\n{head}{rows}"


def _largest(figures: Sequence[Figure], id: str) -> str:
    found = [one for one in figures if id in one.ids and not one.missing]
    if not found:
        return "not measured yet | "
    best = max(found, key=lambda one: one.ours)
    return f"{number(best.ours)} | {_plain(best.note)}; {best.machine}, {best.day}"


def _area(area: str, figures: Sequence[Figure]) -> str:
    title, command = TITLES[area]
    shown = [one for one in figures if not one.missing]
    if not shown:
        return f"## {title}\n\nNothing is recorded yet: `{command}`.\n"
    head = "| measurement | ours | reference | ratio | asked | goal | result | measured | conditions |\n"
    rule = f"|{' --- |' * 9}\n"
    return f"## {title}\n\n`{command}`\n\n{head}{rule}{''.join(map(_row, shown))}"


def _row(one: Figure) -> str:
    ours, reference = (f"{number(value)} {one.unit}".rstrip() for value in (one.ours, one.reference))
    beside = (reference, number(one.ratio)) if one.reference else ("", "")
    where = f"{one.day}, {one.machine}{', quick' if one.quick else ''}"
    ids = f" ({', '.join(one.ids)})" if one.ids else ""
    name = _plain(one.name) + ids
    cells = (name, ours, *beside, one.must, one.goal, _result(one), where, _plain(one.note))
    return f"| {' | '.join(cells)} |\n"


def _result(one: Figure) -> str:
    if one.verdict == "held" and one.holds is False:
        return "held, goal missed"
    return "" if one.verdict == "measured" else one.verdict


def _plain(text: str) -> str:
    return text.replace("|", "\\|")


def _missed(figures: Sequence[Figure]) -> str:
    missed = [one for one in figures if one.verdict == "missed"]
    lines = "".join(f"- {_plain(str(one)).removeprefix('missed: ')}\n" for one in missed) or "- none\n"
    return f"## Missed goals\n\n{lines}"


def _unmeasured(areas: Mapping[str, Sequence[Figure]]) -> str:
    lines = "".join(_gaps(areas)) or "- nothing was left out\n"
    return f"## Not measured\n\n{lines}"


def _gaps(areas: Mapping[str, Sequence[Figure]]) -> Iterator[str]:
    for area, figures in areas.items():
        if not figures:
            yield f"- {TITLES[area][0]}: nothing is recorded yet\n"
        yield from (f"- {_plain(one.name)}: {_plain(one.missing)}\n" for one in figures if one.missing)


def main(place: Path = PAGE) -> None:
    """Write the page from what is recorded."""
    place.write_text(page({area: recorded(path) for area, path in FILES.items()}), encoding="utf-8")


if __name__ == "__main__":
    main()
