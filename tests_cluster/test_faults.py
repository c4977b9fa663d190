"""Two seeds of every fault, of the slow ones only in the long run; `make faults` makes twenty and prints the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests_cluster.fault_table import FAULTS, SHORT_SECONDS, Fault, tally

SLOW = ("operator killed", "leader of two killed", "API server silent")


def marked(fault: Fault) -> object:
    marks = [pytest.mark.alone] * fault.alone + [pytest.mark.long] * (fault.name in SLOW)
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.mark.testbed
@pytest.mark.req("C-ha", "FR-RES-004", "B-8", "B-edge-ns")
@pytest.mark.parametrize("fault", [marked(fault) for fault in FAULTS])
def test_after_a_fault_everything_is_as_promised(kubeconfig: Path, fault: Fault) -> None:
    assert tally(kubeconfig, fault, (1, 2), SHORT_SECONDS).wrong == []
