"""Our commands as plugins of kubectl and oc, reached through a dispatcher that does what theirs does.

Both tools look for the longest dashed name on the PATH that the words on the command line make up
(`oc odh mpijob list` → `oc-odh-mpijob-list`, `oc-odh-mpijob`, `oc-odh`, in that order) and run it with the
words that are left. The twin of these tests with a real kubectl comes with the cluster tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
INSTALLED = {
    "mpijob": "mpijob",
    "kubectl-mpijob": "kubectl mpijob",
    "oc-mpijob": "oc mpijob",
    "kubectl-odh-mpijob": "kubectl odh mpijob",
    "oc-odh-mpijob": "oc odh mpijob",
}
DISPATCHER = f"""#!{sys.executable}
import os, shutil, sys

host = os.path.basename(sys.argv[0])
words = sys.argv[1:]
first_flag = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
for count in range(first_flag, 0, -1):
    name = "-".join([host, *(word.replace("-", "_") for word in words[:count])])
    if found := shutil.which(name):
        os.execv(found, [found, *words[count:]])
sys.exit(f"error: unknown command {{words[0]!r}} for {{host!r}}")
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose kubectl and oc are dispatchers only, with our plugins beside them."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for host in ("kubectl", "oc"):
        (tools / host).write_text(DISPATCHER)
        (tools / host).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MPIJOB_", "XDG_"))}
    path = f"{tools}:{BIN}:/usr/bin:/bin"
    return {**kept, "PATH": path, "HOME": str(tmp_path), "MPIJOB_ENGINE": "memory"}


def run(environ: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is looked for on the environment's own PATH."""
    found = ["/usr/bin/env", *argv]
    return subprocess.run(found, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.thorough
@pytest.mark.req("FR-006", "E-cli")
@pytest.mark.parametrize("name", sorted(INSTALLED))
def test_an_installed_command_runs_and_its_usage_line_shows_the_words_that_are_typed(
    name: str, environ: dict[str, str]
) -> None:
    done = run(environ, str(BIN / name), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: {INSTALLED[name]} [OPTIONS] COMMAND")


@pytest.mark.thorough
@pytest.mark.req("FR-006", "E-cli")
@pytest.mark.parametrize("words", ["kubectl mpijob", "oc mpijob", "kubectl odh mpijob", "oc odh mpijob"])
def test_the_words_of_kubectl_and_oc_reach_us(words: str, environ: dict[str, str]) -> None:
    done = run(environ, *words.split(), "list", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["items"] == []


@pytest.mark.thorough
@pytest.mark.req("FR-006", "E-cli")
def test_a_mistake_is_answered_in_the_words_that_were_typed(environ: dict[str, str]) -> None:
    done = run(environ, "oc", "odh", "mpijob", "lst")
    assert done.returncode == 2
    assert "did you mean 'list'?" in done.stderr
    assert "oc odh mpijob --help" in done.stderr


@pytest.mark.thorough
@pytest.mark.req("FR-006", "E-cli")
@pytest.mark.parametrize("words", [("oc", "odh", "status"), ("kubectl", "odh"), ("oc", "get", "pods")])
def test_no_other_subcommand_is_hijacked(words: tuple[str, ...], environ: dict[str, str]) -> None:
    done = run(environ, *words)
    assert done.returncode == 1
    assert done.stderr == f"error: unknown command {words[1]!r} for {words[0]!r}\n"


@pytest.mark.req("FR-006", "E-cli")
def test_no_name_that_would_take_all_of_odh_is_installed() -> None:
    installed = {path.name for path in BIN.iterdir()}
    assert set(INSTALLED) <= installed
    assert installed.isdisjoint({"kubectl", "oc", "kubectl-odh", "oc-odh"})
