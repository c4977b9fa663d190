"""What every Python rank loads first changes nothing for programs without MPI: exits, threads and pickles stay.

That it ends a world is shown with real MPI in tests/integration/test_crashes.py.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from mpijob.backends.mpi.fail_fast import DIRECTORY


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": DIRECTORY}
    words = [sys.executable, *options, *(("-c", script) if script else ())]
    return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "status", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(None)", 0, ""),
        ("import sys; sys.exit(256)", 0, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit('no data')", 1, "no data\n"),
        ("raise SystemExit(4)", 4, ""),
        ("exit(5)", 5, ""),
        ("import os; os._exit(6)", 6, ""),
    ],
)
def test_a_program_ends_with_its_own_status(script: str, status: int, stderr: str) -> None:
    done = run(script)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", stderr)


@pytest.mark.thorough
@pytest.mark.parametrize("leave", ["sys.exit(3)", "raise SystemExit(3)", "_thread.exit()"])
def test_a_thread_that_exits_says_nothing(leave: str) -> None:
    script = f"import _thread, sys, threading\ndef work():\n    {leave}\nt = threading.Thread(target=work)\n"
    done = run(script + "t.start(); t.join()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_thread_that_fails_says_so() -> None:
    done = run("import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()")
    assert "ZeroDivisionError" in done.stderr


def test_an_exit_that_is_caught_is_one_like_any_other() -> None:
    script = (
        "import pickle, sys\n"
        "class Own(SystemExit): pass\n"
        "for leave in (lambda: sys.exit(3), lambda: exit(3), lambda: (_ for _ in ()).throw(Own(3))):\n"
        "    try: leave()\n"
        "    except SystemExit as ending: print(ending.code, isinstance(ending, SystemExit), ending.args)\n"
        "print(repr(pickle.loads(pickle.dumps(SystemExit(3)))), SystemExit.__name__, SystemExit.__module__)\n"
    )
    done = run(script)
    assert done.stdout.splitlines() == ["3 True (3,)"] * 3 + ["SystemExit(3) SystemExit builtins"]
    assert (done.returncode, done.stderr) == (0, "")


def test_in_a_pod_a_rank_that_leaves_is_heard_before_it_ends_the_world() -> None:
    """What it says and its abort reach the launcher by two ways; what comes behind an abort is lost."""
    script = "import sitecustomize, sys\nsitecustomize._report_exit(7)\nprint('it ends the world', file=sys.stderr)"
    environ = {"PYTHONPATH": DIRECTORY, "MPIJOB_RANK": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as rank:
        assert rank.stdout is not None
        assert rank.stderr is not None
        assert select.select([rank.stdout], [], [], 60)[0], "it says that it leaves"
        assert not select.select([rank.stderr], [], [], 0.1)[0], "nobody has read it yet"
        assert rank.stdout.read() == b"mpijob-exit rank=1 code=7 left=1\n"
        assert rank.stderr.read() == b"it ends the world\n"


def test_it_is_loaded() -> None:
    assert (
        run("import sitecustomize; print(sitecustomize.__file__)").stdout.strip()
        == f"{DIRECTORY}/sitecustomize.py"
    )


def test_modules_run_as_programs_end_as_before() -> None:
    done = run("", "-m", "json.tool", "--no-such-option")
    assert (done.returncode, "usage" in done.stderr) == (2, True)


def test_nothing_heavy_is_loaded_for_it() -> None:
    script = "import sys; print(*(name for name in ('typing', 're', 'threading', 'subprocess') if name in sys.modules))"
    bare = subprocess.run([sys.executable, "-c", script], env={}, capture_output=True, text=True, check=True)
    assert set(run(script).stdout.split()) <= set(bare.stdout.split())
