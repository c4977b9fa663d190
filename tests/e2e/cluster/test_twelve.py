"""Twelve failures, provoked in real pods: each explained rightly, first cause first, with what mends it.

How soon is measured by `make bench-cluster`: the ten seconds that are promised hold where nothing else keeps the
machine busy.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.cluster.support import own_place
from tests.e2e.cluster.twelve import FAILURES, provoked, wrongly


@pytest.mark.req("AC3", "US1-3", "SC-005", "C-top10", "B-story4", "C-translate", "A-edge-worker")
def test_twelve_failures_are_explained(kubeconfig: Path) -> None:
    with own_place(kubeconfig, "twelve") as place:
        told = provoked(place)
    assert {one.job.name: wrong for one in FAILURES if (wrong := wrongly(one, told[one.job.name]))} == {}
