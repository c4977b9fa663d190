"""Homes that are full, read-only, foreign, oddly named or very long; programs that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpijob import Client, Phase
from mpijob.backends.local import LocalBackend
from mpijob.errors import BackendError, InvalidJob, NotFound
from mpijob.model import Code
from mpijob.settings import Settings

from .support import a_job, check_nothing_runs, emptied_client, ended, said

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    "directory", ["with space and ünïcode 東京", 'quote\'s "here"', "dollar$HOME;x", "long" * 55]
)
def test_a_home_of_any_name_works(settings: Settings, tmp_path: Path, family: str, directory: str) -> None:
    mine = msgspec.structs.replace(settings, home=str(tmp_path / directory / "home"))
    script = "echo $MPIJOB_WORKER; while [ ! -e go-on ]; do sleep 0.05; done"
    with Client(LocalBackend(mine), settings=mine) as client:
        job = client.submit(a_job("odd", script, mpi=family))
        job.wait(15, {Phase.RUNNING})
        assert job.execute(("touch", "go"), worker=1) == 0
        job.execute(("mv", "go", "go-on"), worker=1)  # may be ended with the job, so its code says nothing
        job.wait_for_completion(15)
        assert said(job) == {0: ["0"], 1: ["1"]}


@pytest.mark.req("C-top10", "AC3")
@pytest.mark.parametrize(
    ("name", "text", "mode", "code"),
    [
        ("missing", None, 0, "MISSING_EXECUTABLE"),
        ("script", "#!/nonexistent/python\n", 0o755, "MISSING_INTERPRETER"),
        ("plain", "echo hi\n", 0o644, "NOT_EXECUTABLE"),
    ],
)
def test_a_program_that_cannot_be_started_is_told_with_its_cause(
    client: Client, family: str, tmp_path: Path, name: str, text: str | None, mode: int, code: str
) -> None:
    (tmp_path / "code").mkdir()
    if text is not None:
        (tmp_path / "code" / name).write_text(text)
        (tmp_path / "code" / name).chmod(mode)
    command = (f"./{name}",) if mode & 0o100 else ("sh", "-c", f"exec ./{name}")
    state = ended(
        client, a_job("unable", command=command, mpi=family, code=Code(path=str(tmp_path / "code")))
    )
    assert (state.phase, state.findings[0].code) == (Phase.FAILED, code)
    check_nothing_runs(Path(client.settings.home) / "jobs" / state.ref.uid)


@pytest.mark.parametrize(
    "command", ["no-such-program-here", "./no-such-program-here", "/no-such-program-here"]
)
def test_a_program_that_is_nowhere_is_refused_before_anything_starts(client: Client, command: str) -> None:
    with pytest.raises(InvalidJob, match="no-such-program-here"):
        client.submit(a_job("unable", command=(command,)))
    assert client.list().total == 0


def test_a_command_that_ends_at_once_is_a_success_or_a_failure_by_its_code(
    client: Client, family: str
) -> None:
    assert ended(client, a_job("fast", command=("true",), mpi=family)).phase is Phase.SUCCEEDED
    state = ended(client, a_job("false", command=("false",), mpi=family))
    assert (state.phase, state.findings[0].code) == (Phase.FAILED, "RANK_EXIT")


# -- places that must be made by another process: mounts, other users, directories that vanish -----------
SCRIPT = """
import json, os, sys
import msgspec
from mpijob import Client, MPIJob, MpiJobError
from mpijob.settings import Settings
client = Client(settings=msgspec.json.decode(sys.argv[1], type=Settings))
def attempt(act):
    try:
        return act()
    except MpiJobError as error:
        return {"error": type(error).__name__, "text": str(error)}
def run(script, **fields):
    job = MPIJob(name="job", workers=2, command=("sh", "-c", script), resources={"cpu": "500m", "memory": "128Mi"},
                 **fields)
    def act():
        state = client.submit(job).wait(30)
        return {"phase": state.phase.value, "reason": state.reason, "codes": [f.code for f in state.findings],
                "message": state.message}
    return attempt(act)
"""


def elsewhere(settings: Settings, script: str, *before: str, **how: Any) -> dict[str, Any]:
    """Return what a script says (as JSON) that runs in a process of its own, behind some words."""
    words = [*before, sys.executable, "-c", SCRIPT + script, msgspec.json.encode(settings).decode()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False, **how)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def on_a_file_system(settings: Settings, options: str, script: str) -> dict[str, Any]:
    """Run a script with the home on a small file system of its own, which needs no rights."""
    mount = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    Path(settings.home).mkdir()
    return elsewhere(
        settings, script, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, settings.home
    )


FILL = """
def fill():
    fd = os.open(client.settings.home + "/filler", os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(fd, b"x" * 4096): pass
    except OSError: pass
"""
ROOM_AGAIN = """
import threading, time
def make_room():
    while not all(os.path.exists(f"{client.settings.home}/ended.{rank}") for rank in (0, 1)): time.sleep(0.05)
    os.unlink(client.settings.home + "/filler")
threading.Thread(target=make_room, daemon=True).start()
"""


@pytest.mark.req("FR-030")
def test_a_home_that_is_full_is_told_and_how_to_mend_it(settings: Settings) -> None:
    answer = on_a_file_system(settings, "size=1m", FILL + 'fill()\nprint(json.dumps(run("true")))')
    assert answer["error"] == "BackendError"
    assert settings.home in answer["text"]
    assert "MPIJOB_HOME" in answer["text"]


@pytest.mark.req("C-top10")
def test_a_disk_that_fills_while_the_job_runs_costs_no_truth_once_there_is_room_again(
    settings: Settings,
) -> None:
    home = settings.home
    full = f"head -c 20000000 /dev/zero > {home}/filler; code=$?; touch {home}/ended.$MPIJOB_RANK; exit $code"
    state = on_a_file_system(settings, "size=3m", ROOM_AGAIN + f'print(json.dumps(run("{full}")))')
    assert (state["phase"], state["reason"]) == ("Failed", "RankFailed")


def test_output_that_no_longer_fits_the_disk_stops_no_rank(settings: Settings) -> None:
    flood = f"seq 2000000 | head -c 8000000; touch {settings.home}/ended.$MPIJOB_RANK"
    script = (
        FILL
        + ROOM_AGAIN
        + f"""
open(client.settings.home + "/filler", "wb").write(b"x" * 500000)
print(json.dumps(run("{flood}")))
"""
    )
    assert on_a_file_system(settings, "size=3m", script)["phase"] == "Succeeded"


@pytest.mark.req("FR-030")
def test_a_read_only_home_is_told_and_how_to_mend_it(settings: Settings) -> None:
    script = 'print(json.dumps({"create": run("true"), "list": attempt(lambda: client.list().total)}))'
    for answer in on_a_file_system(settings, "ro", script).values():
        assert answer["error"] == "BackendError"
        assert settings.home in answer["text"]


def test_a_home_in_a_place_without_write_right_is_told(settings: Settings, tmp_path: Path) -> None:
    mine = msgspec.structs.replace(settings, home="/proc/1/mpijob")
    with (
        Client(LocalBackend(mine), settings=mine) as client,
        pytest.raises(BackendError, match="/proc/1/mpijob"),
    ):
        client.list()


def test_a_working_directory_that_was_deleted_is_no_crash(settings: Settings, tmp_path: Path) -> None:
    script = """
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
print(json.dumps(run("true")))
"""
    answer = elsewhere(settings, script, cwd=tmp_path)
    assert answer.get("phase") == "Succeeded", answer


def test_a_folder_that_a_job_left_is_fetched_whole(client: Client, tmp_path: Path) -> None:
    script = "mkdir -p out/deep outer; echo a > out/a; echo b > out/deep/b; echo c > outer/c"
    job = client.submit(a_job("leaves", script, workers=1))
    job.wait_for_completion(15)
    fetched = client.fetch("leaves", tmp_path / "here", ("out", "outer/c"))
    assert [str(path.relative_to(tmp_path / "here")) for path in fetched] == [
        "out/a",
        "out/deep/b",
        "outer/c",
    ]
    assert (tmp_path / "here/out/deep/b").read_text() == "b\n"
    with pytest.raises(NotFound, match="the job has no output file 'ou'"):
        client.fetch("leaves", tmp_path / "there", ("ou",))


@pytest.mark.parametrize("where", ["state", "home/.local/state/mpijob"])
def test_a_home_inside_the_code_stays_out_of_it_and_whole(
    settings: Settings, tmp_path: Path, where: str
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "hello.sh").write_text("echo hello\n")
    home = project / where
    words = [sys.executable, "-m", "mpijob", "run", "inproj", "--workers", "2", "--", "sh", "hello.sh"]
    env = os.environ | {"MPIJOB_HOME": str(home), "MPIJOB_ENGINE": "local"}
    for _ in range(3):
        done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    copied = {str(one.relative_to(work)) for work in home.glob("jobs/*/work") for one in work.rglob("*")}
    assert copied == {"hello.sh", "attempt-1"}
    check_nothing_runs(home / "jobs")


def test_a_link_to_the_database_in_the_code_takes_no_locks_away(settings: Settings, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "link.db").symlink_to(Path(settings.home) / "state.db")
    with emptied_client(settings) as client:
        for turn in range(3):
            ended(client, a_job(f"linked-{turn}", "true", code=Code(path=str(project))))
            assert [state.phase for state in client.jobs()] == [Phase.SUCCEEDED] * (turn + 1)
