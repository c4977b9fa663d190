"""The recorder's fault of `make faults`: killed again and again while ranks speak, on a real cluster.

`make kills` makes the same without a cluster, with PostgreSQL killed too.
"""

from __future__ import annotations

import os
import signal
import time

from tests.e2e.cluster.fault_checks import Moment
from tests.e2e.cluster.support import PATIENCE, TINY, a_job, eventually
from tests.e2e.cluster.test_recorder import COUNTS, EXPECTED, known, recorder, said

from mpijob import Phase
from mpijob.model import Role


def killed(moment: Moment) -> None:
    """Each new recorder goes on behind the last stored line; the job goes, and the record has every line once."""
    place, chance = moment.place, moment.chance
    job = place.client.submit(a_job("heard", COUNTS, resources=TINY))
    for _ in range(3):
        with recorder(place) as process:
            time.sleep(chance.uniform(0.2, 4.0))  # the fault's own moment
            os.kill(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
    with recorder(place):
        job.wait_for_completion(PATIENCE)
        eventually(
            lambda: (found := known(place, "heard")) and found.state.phase is Phase.SUCCEEDED,
            "the end is recorded",
            PATIENCE,
        )
        job.delete(grace_period=0)
        eventually(
            lambda: (found := known(place, "heard")) and found.deleted,
            "it is known that it is gone",
            PATIENCE,
        )
    assert said(place.client, "heard") == EXPECTED
    assert [gap for gap in place.client.record("heard").gaps if gap.role is not Role.WORKER] == []
