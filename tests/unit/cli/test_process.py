"""The command line as a process: start-up, plugin names, pipes, exit codes."""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PLUGINS = ("mpijob", "kubectl-mpijob", "oc-mpijob", "kubectl-odh-mpijob", "oc-odh-mpijob")
HEAVY = ("rich", "yaml", "asyncio", "sqlite3", "difflib", "http", "email")


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MPIJOB_", "XDG_"))}
    return {**kept, "HOME": str(home), "MPIJOB_ENGINE": "memory", **more}


def python(home: Path, source: str, *words: str, engine: str = "memory") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", source, *words]
    env = environment(home, MPIJOB_ENGINE=engine)
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)


def mpijob(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mpijob", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment(home))


IMPORTED = """
import os, sys
from mpijob.cli.main import main
os._exit = sys.exit
try:
    main()
except SystemExit as end:
    print("status", end.code, "loaded", *sorted(set(sys.modules) & set(%r)), file=sys.stderr)
"""

LOADED = """
import os, sys
from mpijob.cli.main import main
os._exit = sys.exit
try:
    main()
except SystemExit:
    print(*sys.modules, sep="\\n")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", [("--help",), ("list",), ("create", "--help"), ("run", "j", "--workers", "2", "--", "true")]
)
def test_a_command_imports_only_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    heavy = [name for name in HEAVY if name != "difflib" or words[0] in ("--help", "list")]
    if words == ("list",):  # on the local engine, whose store is SQLite
        heavy = [*(set(heavy) - {"sqlite3"}), "dataclasses", "pathlib"]
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # measuring loads modules of its own
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)
    engine = "local" if words == ("list",) else "memory"
    result = python(tmp_path, IMPORTED % (heavy,), *words, engine=engine)
    assert result.stderr.splitlines()[-1] == "status 0 loaded"


def test_list_imports_no_other_command(tmp_path: Path) -> None:
    loaded = python(tmp_path, LOADED, "list").stdout.splitlines()
    commands = [name for name in loaded if name.startswith("mpijob.cli.commands.")]
    assert (commands, "mpijob.checks" in loaded) == (["mpijob.cli.commands.list"], False)


@pytest.mark.thorough
def test_a_list_with_a_filter_imports_one_command(tmp_path: Path) -> None:
    loaded = python(tmp_path, LOADED, "list", "--phase", "Running").stdout.splitlines()
    commands = [name for name in loaded if name.startswith("mpijob.cli.commands.")]
    assert commands == ["mpijob.cli.commands.list"]


@pytest.mark.thorough
@pytest.mark.req("FR-006", "E-cli", "FR-CLI-004")
@pytest.mark.parametrize("name", PLUGINS)
def test_each_plugin_name_is_installed_and_shows_its_own_words(tmp_path: Path, name: str) -> None:
    (point,) = entry_points(group="console_scripts", name=name)
    assert point.value == "mpijob.cli.main:main"
    source = f"import sys; sys.argv[0] = {'/somewhere/' + name!r}; from mpijob.cli.main import main; main()"
    result = python(tmp_path, source, "get", "--help")
    words = name if name == "mpijob" else name.replace("-", " ")
    assert result.stdout.startswith(f"Usage: {words} get ")


@pytest.mark.req("FR-006")
def test_no_other_subcommand_of_kubectl_or_oc_is_taken() -> None:
    names = {
        point.name for point in entry_points(group="console_scripts") if point.value.startswith("mpijob.")
    }
    assert names == set(PLUGINS)


@pytest.mark.thorough
@pytest.mark.req("FR-010")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("list",), 0),
        (("run", "j", "--workers", "2", "--", "false"), 1),
        (("list", "--nonsense"), 2),
        (("plan", "UPPER", "--", "true"), 2),
        (("get", "nobody"), 3),
    ],
)
def test_the_process_ends_with_the_promised_status(
    tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    result = mpijob(tmp_path, *words)
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr


def test_an_engine_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "mpijob", "list"]
    env = environment(tmp_path, MPIJOB_ENGINE="nonsense")
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    assert result.returncode == 2
    assert "there is no engine 'nonsense'" in result.stderr


@pytest.mark.thorough
@pytest.mark.req("FR-010")
def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "mpijob", "schema"]
    with os.fdopen(write, "wb") as gone:
        result = subprocess.run(
            argv, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, env=environment(tmp_path)
        )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.thorough
def test_a_run_whose_reader_goes_away_still_ends_with_the_jobs_result(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "mpijob", "run", "j", "--workers", "2", "--", "sh", "-c", "echo x; exit 3"]
    with os.fdopen(write, "wb") as gone:
        result = subprocess.run(
            argv, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60, env=environment(tmp_path)
        )
    assert result.returncode == 1
    assert "j Failed" in result.stderr
    assert "Broken" not in result.stderr


@pytest.mark.thorough
@pytest.mark.req("FR-010")
def test_nothing_moves_or_shines_in_a_pipe(tmp_path: Path) -> None:
    result = mpijob(tmp_path, "run", "j", "--workers", "2", "--", "false")
    assert "\x1b" not in result.stdout + result.stderr
    assert "\r" not in result.stdout + result.stderr


def test_completion_answers_with_commands(tmp_path: Path) -> None:
    env = environment(tmp_path, _MPIJOB_COMPLETE="bash_complete", COMP_WORDS="mpijob can", COMP_CWORD="1")
    source = "import sys; sys.argv[0] = 'mpijob'; from mpijob.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, env=env
    )
    assert result.stdout == "plain,cancel\n"


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "words",
    [
        ("plan", "-f", "/dev/zero"),
        ("convert", "/dev/zero"),
        ("run", "a", "--code-file", "a=/dev/zero", "--", "true"),
    ],
    ids=["job file", "script", "code"],
)
def test_an_endless_file_is_refused_in_bounded_memory(tmp_path: Path, words: tuple[str, ...]) -> None:
    argv = [sys.executable, "-m", "mpijob", *words]
    most = functools.partial(resource.setrlimit, resource.RLIMIT_AS, (2 << 30, 2 << 30))
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env=environment(tmp_path), preexec_fn=most
    )
    assert (done.returncode, "/dev/zero: more than 32 MiB" in done.stderr) == (2, True), done.stderr
