"""Real failures on this machine, asked why: the cause, its place in the log, and a fix that really mends it."""

from __future__ import annotations

import sys

import pytest
from tests.integration.support import PATIENCE, a_job, ended, eventually, running, said

from mpijob import Client, Phase
from mpijob.client.observe import diagnose
from mpijob.diagnosis.checklist import Mark
from mpijob.model import Resources
from mpijob.model.spec import quantity

pytestmark = pytest.mark.engine

GREEDY = """
import os, time
if os.environ.get("PMI_RANK") == "1":
    block = bytearray(300 << 20)
    time.sleep(1.5)
"""
FLOOD = """
import os, sys
if os.environ.get("PMI_RANK") == "1":
    print("libgomp: Thread creation failed: Resource temporarily unavailable", file=sys.stderr)
    for step in range(3000):
        print("cleaning up after it", step)
    sys.exit(3)
import time; time.sleep(20)
"""


TOKEN = "s3cr3t-of-the-test"


@pytest.mark.req("FR-UI-007", "B-11", "UC1-AF2")
def test_a_job_that_is_retried_with_its_fix_succeeds(client: Client) -> None:
    job = a_job(command=("python3", "-c", GREEDY), resources=Resources(cpu="500m", memory="256Mi"))
    failed = client.submit(job)
    assert failed.wait(PATIENCE).phase is Phase.FAILED
    told = failed.diagnose()
    assert told.first is not None
    assert (told.first.code, told.first.worker) == ("MEMORY_LIMIT", 1)
    more = told.fixes[0].patch["resources"]["memory"]
    assert quantity.parse(more) > 300 << 20
    assert [step.what for step in told.timeline][0::4] == ["submitted", "failed"]
    again = client.retry("job", with_fix=1)
    assert again.wait(PATIENCE).phase is Phase.SUCCEEDED
    assert again.spec.resources.memory == more
    copy = client.clone(failed.ref, "copy", with_fix=1, command=("true",))
    assert (copy.spec.resources.memory, copy.spec.command) == (more, ("true",))


@pytest.mark.req("C-timeline")
def test_a_cause_before_a_flood_of_lines_is_found_and_its_place_opens_the_log(client: Client) -> None:
    state = ended(client, a_job(command=("python3", "-c", FLOOD)))
    told = client.diagnose("job")
    assert state.phase is Phase.FAILED
    assert told.first is not None
    assert (told.first.code, told.first.rank) == ("PROCESS_LIMIT", 1)
    place = told.first.place
    assert place is not None
    around = said(client.get("job"), ranks=(1,), since=place.time - 1, until=place.time + 0.001)
    assert any("Thread creation failed" in line for line in around[1])


def test_a_running_job_that_is_silent_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "SILENT_SECONDS", 0.5)
    job = running(client, a_job(script="sleep 30"))
    first = eventually(lambda: job.diagnose().first, "silence is told")
    assert first is not None
    assert (job.diagnose().phase, first.code) == ("Running", "HANG")
    job.cancel()
    assert job.wait(PATIENCE).phase is Phase.CANCELLED
    assert job.diagnose().findings[0].code == "CANCELLED"


@pytest.mark.parametrize(
    ("command", "code", "quoted"),
    [
        (("bash", "-c", "gmx_mpi mdrun"), "MISSING_EXECUTABLE", "gmx_mpi: command not found"),
        (("python3", "-m", "mypkg.train"), "IMPORT_ERROR", "No module named 'mypkg'"),
    ],
)
def test_what_all_ranks_fail_of_at_once_is_named_and_every_worker_counted(
    client: Client, family: str, command: tuple[str, ...], code: str, quoted: str
) -> None:
    ended(client, a_job(command=command, mpi=family))
    told = client.diagnose("job")
    assert told.first is not None
    assert told.first.code == code
    assert quoted in told.first.evidence[0]
    assert "MPI up" in [step.what for step in told.timeline]
    marks = {check.question: check.mark for check in told.checklist}
    assert marks["MPI started with 2 ranks"] is Mark.YES
    ranks = client.state("job").ranks
    own = {rank.worker for rank in ranks if rank.exit_code in (1, 127) and not rank.followed}
    assert told.summary.startswith(f"Failed - {len(own)}/2 workers failed: ")


@pytest.mark.parametrize("mpi", ["mpich", "openmpi", "intel"])
def test_the_last_words_of_the_rank_that_failed_are_quoted_as_such(client: Client, mpi: str) -> None:
    script = (
        'echo "step 1"; [ "$MPIJOB_RANK" = 1 ] || exec sleep 20; '
        'echo "negative density in cell 17, key $KEY" >&2; echo leaving; exit 3'
    )
    state = ended(client, a_job(script=script, mpi=mpi, env={"API_TOKEN": TOKEN, "KEY": TOKEN}))
    (cause,) = state.findings
    assert (cause.code, cause.rank) == ("PROGRAM_ERROR", 1)
    assert "exited with code 3: negative density in cell 17, key ***" in cause.message
    assert TOKEN not in cause.message + "".join(cause.evidence)


def test_the_last_words_of_a_serial_command_are_quoted(client: Client) -> None:
    state = ended(client, a_job(command=("cat", "input.dat"), workers=1))
    said_last = [
        line for line in state.findings[0].evidence if "input.dat: No such file or directory" in line
    ]
    assert len(said_last) == 1


def test_an_exception_under_plain_python_ends_the_job_at_once_and_needs_no_other_runner(
    client: Client,
) -> None:
    program = "from mpi4py import MPI\nassert MPI.COMM_WORLD.rank == 0, 'lost'\nMPI.COMM_WORLD.Barrier()"
    state = ended(client, a_job(command=(sys.executable, "-c", program)))
    (cause,) = state.findings
    assert (cause.code, cause.rank) == ("PYTHON_EXCEPTION", 1)
    assert not any("mpi4py" in fix.text for fix in cause.fixes)
