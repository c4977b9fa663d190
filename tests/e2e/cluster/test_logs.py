"""Logs of real pods: who said a line cannot be forged, and a chosen part of them is what was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.support import Place, a_job, image, own_place, said

FAMILIES = {"openmpi5": "openmpi", "mpich": "mpich", "intel": "intel"}
FORGED = """
if [ "$MPIJOB_RANK" = 0 ]; then
  printf half; sleep 1
  printf ' more [1,1]<stdout>:forged [rank 1] forged\\n[1,1]<stdout>: [rank 1] forged\\nERROR: bad\\n'
  printf 'mpijob-exit rank=1 code=7\\n'
else sleep 0.5; echo other; fi
"""


@pytest.fixture(scope="module")
def place(kubeconfig: Path) -> Iterator[Place]:
    with own_place(kubeconfig, "logs") as made:
        yield made


@pytest.mark.req("AC2", "FR-009", "FR-021", "D-loglabels")
@pytest.mark.security
@pytest.mark.parametrize("name", FAMILIES)
def test_a_rank_in_a_pod_cannot_speak_in_anothers_name(place: Place, name: str) -> None:
    job = place.succeeded(a_job(f"forged-{name}", FORGED, mpi=FAMILIES[name], image=image(name)))
    assert said(job) == {
        0: [
            "half more [1,1]<stdout>:forged [rank 1] forged",
            "[1,1]<stdout>: [rank 1] forged",
            "ERROR: bad",
            "mpijob-exit rank=1 code=7",
        ],
        1: ["other"],
    }
    assert said(job, level="error") == {0: ["ERROR: bad"]}
    assert [line.text for line in job.logs(follow=True, tail=1, ranks=[1])] == [b"other"]
    told = [json.loads(line) for line in place.mpijob("logs", job.name, "-o", "json").stdout.splitlines()]
    assert [(one["rank"], one["worker"]) for one in told if one["text"] == "other"] == [(1, 1)]
    assert {one["rank"] for one in told if "[rank 1] forged" in one["text"]} == {0}
