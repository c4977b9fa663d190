"""Two seeds of every fault; `make faults` makes twenty of each and prints the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests_cluster.fault_table import FAULTS, SHORT_SECONDS, Fault, tally


@pytest.mark.testbed
@pytest.mark.alone
@pytest.mark.req("C-ha", "FR-RES-004", "B-8", "B-edge-ns")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_after_a_fault_everything_is_as_promised(kubeconfig: Path, fault: Fault) -> None:
    assert tally(kubeconfig, fault, (1, 2), SHORT_SECONDS).wrong == []
