"""Two seeds of every fault, of all but the cheap ones in the long run; `make faults` makes twenty, with a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.cluster.fault_table import FAULTS, SHORT_SECONDS, Fault, tally
from tests.e2e.cluster.governed import install_resources
from tests.e2e.cluster.support import own_place


@pytest.fixture(scope="module", autouse=True)
def resources(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "resources") as place:
        install_resources(place)


def marked(fault: Fault) -> object:
    marks = [pytest.mark.alone] * fault.alone + [pytest.mark.long] * (not fault.cheap)
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.mark.testbed
@pytest.mark.req("C-ha", "FR-RES-004", "B-8", "B-edge-ns")
@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_after_a_fault_everything_is_as_promised(kubeconfig: Path, fault: Fault) -> None:
    assert tally(kubeconfig, fault, (1, 2), SHORT_SECONDS).wrong == []
