"""Programs that go wrong by themselves: no hang, the true rank and cause, nothing left running."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from mpijob import Client, Phase
from mpijob.diagnosis import fixed
from mpijob.errors import InvalidJob
from mpijob.model import Code, Resources

from .support import a_job, check_nothing_runs, ended, said, succeeded

pytestmark = pytest.mark.engine

ROOMY = Resources(cpu="500m", memory="512Mi")
WORLD = "import os, sys, time\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\nworld.barrier()\n"
CRASHES = {
    "exception": (
        "if world.rank == 1: raise ValueError('no such batch')\nworld.barrier()",
        "PYTHON_EXCEPTION",
    ),
    "exit-1": ("if world.rank == 1: os._exit(1)\nworld.barrier()", "RANK_EXIT"),
    "sys-exit": ("if world.rank == 1: sys.exit(3)\nworld.barrier()", "RANK_EXIT"),
    "system-exit": ("if world.rank == 1: raise SystemExit('no data')\nworld.barrier()", "PROGRAM_ERROR"),
    "abort": ("if world.rank == 1: world.Abort(42)\nworld.barrier()", "MPI_ABORT"),
    "segfault": ("import ctypes\nif world.rank == 1: ctypes.string_at(0)\nworld.barrier()", "SEGFAULT"),
}


@pytest.mark.req("SC-005", "C-top10", "AC3", "B-story4")
@pytest.mark.parametrize("how", CRASHES)
def test_a_rank_that_goes_wrong_ends_the_others_that_wait_in_mpi(
    client: Client, family: str, how: str
) -> None:
    script, code = CRASHES[how]
    job = a_job("crash", mpi=family, command=("python", "crash.py"), resources=ROOMY,
                code=Code(files={"crash.py": WORLD + script}), deadline_seconds=20.0)  # fmt: skip
    state = ended(client, job)
    first = state.findings[0]
    assert (state.phase, first.code, first.rank, first.worker) == (Phase.FAILED, code, 1, 1)
    assert (state.duration_seconds(time.time()) or 0.0) < 15
    check_nothing_runs(Path(client.settings.home) / "jobs" / state.ref.uid)


EXITS = """
import atexit, sys, threading
from mpi4py import MPI
world = MPI.COMM_WORLD
def leave():
    sys.exit(9)
thread = threading.Thread(target=leave)
thread.start()
thread.join()
try:
    sys.exit(8)
except SystemExit as ending:
    print("caught", ending.code, flush=True)
world.barrier()
if world.rank == 1:
    atexit.register(lambda: print("last words", flush=True))
    sys.exit(STATUS)
if STATUS:
    world.barrier()
"""


def test_the_code_of_a_rank_that_exits_is_kept_and_the_others_only_follow(
    client: Client, family: str
) -> None:
    files = {"exits.py": EXITS.replace("STATUS", "3")}
    job = client.submit(
        a_job("exits", mpi=family, command=("python", "exits.py"), resources=ROOMY, code=Code(files=files),
              deadline_seconds=20.0)
    )  # fmt: skip
    state = job.wait(60)
    assert state.findings[0].message == "Rank 1 on worker 1 exited with code 3."
    assert [(rank.exit_code == 3, rank.followed) for rank in state.ranks] == [(False, True), (True, False)]
    heard = said(job)
    assert heard[0][:1] == ["caught 8"]
    told = "mpijob: this rank exits with 3, so all ranks are ended: they would wait for it"
    assert {"caught 8", "last words", told} <= set(heard[1])


def test_a_rank_that_exits_with_0_lets_the_others_finish(client: Client, family: str) -> None:
    files = {"exits.py": EXITS.replace("STATUS", "0")}
    job = a_job("exits", mpi=family, command=("python", "exits.py"), resources=ROOMY, code=Code(files=files))
    assert said(succeeded(client, job)) == {0: ["caught 8"], 1: ["caught 8", "last words"]}


NATIVE = (
    "#include <stdlib.h>\nstatic void inner(int *p) { *p = 1; }\nint main(void) { inner(0); return 0; }\n"
)


def test_the_fix_for_a_native_program_that_crashes_shows_its_line(client: Client, tmp_path: Path) -> None:
    (tmp_path / "crash.c").write_text(NATIVE)
    subprocess.run(["cc", "-g", "-O0", "-o", "crash", "crash.c"], cwd=tmp_path, check=True)
    job = a_job("native", command=("./crash",), resources=ROOMY, code=Code(path=str(tmp_path)))
    (crash, *_) = ended(client, job).findings
    assert crash.code == "SEGFAULT"
    mended = fixed(job, crash.fixes[0]).replace(name="mended")
    if shutil.which("gdb") is None:
        with pytest.raises(InvalidJob, match="gdb"):
            client.submit(mended)
        return
    (again, *_) = ended(client, mended).findings
    assert again.code == "SEGFAULT"
    assert any("in inner (" in line and "crash.c:2" in line for line in again.evidence)
    assert "gdb" not in again.fixes[0].text, "it is applied"


@pytest.mark.req("UC1-AF2", "B-story4")
def test_a_worker_over_its_memory_limit_is_ended_and_named(client: Client) -> None:
    script = 'import os, time\nif os.environ["MPIJOB_RANK"] == "1": hog = b"x" * (300 << 20)\ntime.sleep(300)'
    job = a_job("hog", command=("python3", "hog.py"), code=Code(files={"hog.py": script}))
    state = ended(client, job)
    first = state.findings[0]
    assert (state.phase, first.code, first.worker) == (Phase.FAILED, "MEMORY_LIMIT", 1)
    assert (state.workers[1].memory_bytes or 0) > 128 << 20


@pytest.mark.parametrize(
    ("fault", "code"),
    [("refuse-start", "CONNECTION_REFUSED"), ("drop-name", "UNKNOWN_HOST")],
)
def test_a_worker_that_cannot_be_reached_is_named(client: Client, family: str, fault: str, code: str) -> None:
    state = ended(client, a_job("lonely", mpi=family, labels={f"fault.mpijob/{fault}": "1"}))
    assert (state.phase, state.findings[0].code, state.findings[0].worker) == (Phase.FAILED, code, 1)


def test_a_rank_that_leaves_mpi_without_a_word_never_makes_the_job_succeed(
    client: Client, family: str
) -> None:
    script = WORLD + "if world.rank == 1: os._exit(0)\nworld.barrier()"
    job = a_job("rude", mpi=family, command=("python", "rude.py"), resources=ROOMY,
                code=Code(files={"rude.py": script}), deadline_seconds=3.0)  # fmt: skip
    state = ended(client, job)
    assert state.phase is Phase.FAILED
    assert state.ranks[1].exit_code == 0


@pytest.mark.security
@pytest.mark.parametrize(
    "lies",
    [
        "hello",
        "hello x y z",
        "bye",
        "bye 0 x",
        "run rm",
        "ready",
        "hello 1 2",
        "daemon 0",
        "unreached x missing",
        "left 7 3",
        "x" * 5000,
    ],
)
def test_lies_on_the_report_pipe_do_not_bring_the_supervisor_down(client: Client, lies: str) -> None:
    state = ended(client, a_job("liar", f'echo "{lies}" > "$MPIJOB_PIPES/report"'))
    assert (state.phase, state.message) == (Phase.SUCCEEDED, "all 2 ranks ended with 0")


@pytest.mark.security
@pytest.mark.parametrize("value", ["9_0", "x", "1_x", "", "1_" + "9" * 40])
def test_a_fault_label_that_fits_nothing_is_ignored(client: Client, value: str) -> None:
    labels = {
        "fault.mpijob/kill-worker": value,
        "fault.mpijob/kill-rank": value,
        "fault.mpijob/nonsense": value,
    }
    assert ended(client, a_job("calm", labels=labels)).phase is Phase.SUCCEEDED


def test_the_users_own_python_path_and_site_customization_still_count(client: Client) -> None:
    files = {
        "lib/sitecustomize.py": "import builtins; builtins.greeting = 'hello'",
        "lib/mine.py": "answer = 42",
    }
    command = ("python", "-c", "import mine; print(greeting, mine.answer)")
    job = a_job("own", command=command, env={"PYTHONPATH": "lib"}, code=Code(files=files))
    assert said(succeeded(client, job)) == {0: ["hello 42"], 1: ["hello 42"]}
