"""An elastic job on one machine: it runs with the workers it begins with, finds them as on a cluster, and says so."""

from __future__ import annotations

import pytest
from tests.integration.support import PATIENCE, a_job

from mpijob import Client, Phase
from mpijob.errors import Unsupported
from mpijob.model import Elastic, Role


@pytest.mark.engine
@pytest.mark.req("R8")
def test_an_elastic_job_runs_with_its_workers_and_its_command_finds_them(client: Client) -> None:
    script = '"$MPIJOB_DISCOVER_HOSTS"; echo "of $MPIJOB_WORLD"'
    wanted = a_job("elastic", script, workers=2, elastic=Elastic(max_workers=4))
    (notice,) = (one for one in client.plan(wanted).notices if one.field == "elastic")
    assert notice.message == "elastic is not used here: 2 workers run from the beginning to the end"
    job = client.submit(wanted)
    assert job.wait(PATIENCE).phase is Phase.SUCCEEDED
    said = [line.text.decode() for line in job.logs(roles=[Role.LAUNCHER])]
    assert said == ["elastic-worker-0", "elastic-worker-1", "of 2"], "once, by the launcher"
    with pytest.raises(Unsupported, match="where jobs cannot be scaled"):
        client.scale("elastic", 3)
