"""A converted script ends where the script ended: `set -e`, and what a shell exempts from it, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpijob.client.converting import Stage, convert

pytestmark = pytest.mark.req("C-hpc", "D-migrate")
HEAD = "#SBATCH -J strict -N 1 -n 1"
SRUN = '#!/bin/sh\nexec "$@"\n'
LAUNCH = "srun echo launched"
GONE = "tar xf gone.tar"


def status_of_script(text: str, folder: Path) -> tuple[int, str]:
    """Run a script as Slurm runs it, with its lines as they are."""
    (folder / "srun").write_text(SRUN)
    (folder / "srun").chmod(0o755)
    script = folder / "script"
    script.write_text(text)
    script.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        [script], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=30
    )
    return done.returncode, done.stdout


def status_of_job(text: str, folder: Path) -> tuple[int, str]:
    """Run the one rank of each of the converted jobs in their order, until one fails."""
    (one,) = convert(text, file="strict.sbatch")
    assert one.stage is not Stage.BLOCKED
    said = ""
    for job in one.jobs:
        for name, content in job.code.files.items():
            (folder / name).write_text(content)
        done = subprocess.run(
            job.argv, cwd=folder, env={**os.environ, **job.env}, capture_output=True, text=True, timeout=30
        )
        said += done.stdout
        if done.returncode:
            return done.returncode, said
    return 0, said


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        (f"set -e\n{GONE}", True),
        ("set -e\ncp params.default params.in", True),
        ("set -euo pipefail\ncp params.default params.in", True),
        ("set -o errexit\ncp gone here", True),
        ("set -u -e -o pipefail; cp gone here", True),
        (f"set -e\nset +e\n{GONE}", False),
        (f"set -e\nset +o errexit\n{GONE}", False),
        (f"set +e\nset -e\n{GONE}", True),
        (f"{GONE}\nset -e", False),
        (GONE, False),
        ("set -e\ncp gone here || true", False),
        ("set -e\ncp gone here || touch made", False),
        ("set -e\ncp gone here && touch made", False),
        ("set -e\ntouch made && cp gone here", True),
        ("set -e\ncp gone here && export X=1", False),
        ("set -e\nif [ -f gone ]; then cp gone here; fi", False),
        ("set -e\nif [ ! -f gone ]; then cp gone here; touch made; fi", True),
        ("set -e\nif cp gone here; then touch made; fi", False),
        ("set -e\nfor f in one two; do cp $f.gone here; done", True),
        ("set -e\n! cp gone here", False),
        ("set -e\n[ -f gone ] && cp gone here\ntouch made", False),
        ("set -e\ntest -f gone", True),
        ("set -e\ncd gone", True),
        ("set -e\nmkdir -p made\nchmod u+x gone\ntouch made/it", True),
        ("set -e\ntar tf gone.tar | head -n 1", False),
        ("set -e -o pipefail\ntar xf gone.tar | tail -n 1", True),
        ("set -u\ntouch made\necho $GONE_WITH_THE_WIND > told", True),
        (f"{LAUNCH}\nset -e\npython3 -c 'raise SystemExit(7)'\npython3 -c ''", True),
        (f"set -e\n{LAUNCH}\nset +e\npython3 -c 'raise SystemExit(7)'\npython3 -c ''", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ["#!/bin/bash", "#!/bin/bash -e", "#!/usr/bin/env -S bash -eu"])
def test_a_line_that_fails_ends_the_job_where_it_ended_the_script(
    tmp_path: Path, first: str, body: str, ends: bool
) -> None:
    text = "\n".join((first, HEAD, body, *(() if LAUNCH in body else (LAUNCH,)))) + "\n"
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    status, said = status_of_script(text, before)
    assert status_of_job(text, after) == (status, said)
    if first == "#!/bin/bash":
        assert bool(status) is ends


def test_the_options_of_the_first_line_are_told() -> None:
    (one,) = convert(f"#!/bin/bash -l -eu -o pipefail\n{HEAD}\n{LAUNCH}\n", file="strict.sbatch")
    assert ("set -eu -o pipefail", 1) in [(entry.value, entry.line) for entry in one.entries]
