"""A converted script ends where the script ended: `set -e`, and what a shell exempts from it, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpijob.client.convert.convert_jobs import Stage, convert

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
        ("set -e\n( set +e; true )\ncp gone here", True),
        ("( set -e; true )\ncp gone here", False),
        ("set -e\nset +e | true\ncp gone here", True),
        ("set -e\n{ set +e; true; } > told\ncp gone here", False),
        ("set -e\nif true; then ( set +e; true ); fi\ncp gone here", True),
        ("strict() { set -e; }\nstrict\ncp gone here", True),
        ("strict () {\n  set -e\n}\nboth() { strict; }\nboth\ncp gone here", True),
        ("set -e\nloose() { set +e; }\nloose\ncp gone here", False),
        ("set -e\nloose() { set +e; }\ncp gone here\nloose", True),
        ("set -e\nloose() ( set +e )\nloose\ncp gone here", True),
        ("set -e && python3 -c ''\ncp gone here", True),
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


@pytest.mark.parametrize(
    "line",
    [
        'if [ -n "$CAREFUL" ]; then set -e; fi',
        'if [ -z "$CAREFUL" ]; then set +e; else set -e; fi',
        '[ -n "$CAREFUL" ] && set -e',
        'case "$CAREFUL" in y) set -e ;; *) set +e ;; esac',
        "if [ -n \"$CAREFUL\" ]; then set -e; python3 -c ''; fi",
        'careful() { if [ -n "$CAREFUL" ]; then set -e; fi; }\ncareful',
        "for one in $CAREFUL; do set -e; done",
    ],
)
def test_where_only_a_run_can_know_whether_a_script_goes_on_the_job_ends_and_that_is_told(
    tmp_path: Path, line: str
) -> None:
    text = f"#!/bin/bash\n{HEAD}\n{line}\ncp gone here\n{LAUNCH}\n"
    assert status_of_job(text, tmp_path) == (1, "")
    (one,) = convert(text, file="strict.sbatch")
    (told,) = [entry for entry in one.entries if "known only when this line has run" in entry.note]
    assert (told.value, told.line, one.stage) == ("set -e", 3 + line.count("\n"), Stage.CHECK)


def test_what_follows_a_strict_line_of_work_stays_in_its_job() -> None:
    (one,) = convert(f"#!/bin/bash\n{HEAD}\nset -e && python3 -c ''\npython3 -c '1'\n", file="strict.sbatch")
    assert [job.world for job in one.jobs] == [1]


def test_functions_that_call_themselves_or_each_other_many_times_are_followed() -> None:
    chain = "".join(f"f{at}() {{ f{at + 1}; f{at + 1}; }}\n" for at in range(200))
    text = (
        f"#!/bin/bash\n{HEAD}\nself() {{ self; }}\n{chain}f200() {{ set -e; }}\nself\nf0\ncp a b\n{LAUNCH}\n"
    )
    (one,) = convert(text, file="strict.sbatch")
    assert any("prepare_1() (\n  set -e\n  cp a b" in job.code.files["rank.sh"] for job in one.jobs)


def test_what_follows_the_first_line_is_none_of_its_options() -> None:
    (one,) = convert(f"#!/bin/bash\n-foo\n{HEAD}\n{LAUNCH}\n", file="strict.sbatch")
    assert not [entry for entry in one.entries if entry.value.startswith("set ")]


def test_the_options_of_the_first_line_are_told() -> None:
    (one,) = convert(f"#!/bin/bash -l -eu -o pipefail\n{HEAD}\n{LAUNCH}\n", file="strict.sbatch")
    assert ("set -eu -o pipefail", 1) in [(entry.value, entry.line) for entry in one.entries]
