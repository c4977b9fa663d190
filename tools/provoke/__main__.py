"""Provoke failures and keep their logs: `python -m tools.provoke [NAME …]`, all of them without a name.

Each runs in a folder of its own with a time limit; what it prints is kept with paths and host names made neutral and
its middle left out where it is long. A stack that is not installed is named and left out. `unshare -m` gives a
private overlay in which the distribution's packages can be installed without changing the machine.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mpijob.diagnosis import Evidence
from tools.provoke import engine
from tools.provoke.case import Case, Truth, cases, keep
from tools.provoke.stacks import CLUSTER, FOLDERS, SLURM, Stack, environ, known, missing

MOST_BYTES = 60 << 10
_MARK = "===== provoked"
_BUILD = {
    "c": ("program.c", "$MPICC -g -O0 -w program.c -o program -lm"),
    "cpp": (
        "program.cpp",
        "OMPI_CC=g++ MPICH_CC=g++ $MPICC -DOMPI_SKIP_MPICXX -g -O0 -w program.cpp -o program -lstdc++ -lm",
    ),
    "f90": ("program.f90", "gfortran -g -fcheck=all program.f90 -o program"),
}


def main() -> None:
    """Provoke the cases whose names are given, or all."""
    wanted = sys.argv[1:]
    absent = [stack.name for stack in known().values() if not stack.there]
    parts = FOLDERS | {SLURM: "Slurm"} | dict.fromkeys(CLUSTER, "Kubernetes")
    absent += [f"{title} ({name} is not set)" for name, title in parts.items() if not os.environ.get(name)]
    if absent:
        sys.stderr.write(f"not installed, left out: {', '.join(absent)}\n")
    if wanted[:1] == ["--scripts"]:
        _scripts(Path(wanted[1]))
        return
    if wanted[:1] == ["--collect"]:
        _collect(Path(wanted[1]))
        return
    for name, case, stack in _all():
        if not wanted or case.name in wanted or name in wanted:
            path = _provoke(name, case, stack)
            sys.stderr.write(f"{path.parent.name:8} {name}\n")


def _all() -> Iterator[tuple[str, Case, Stack | None]]:
    stacks = known()
    for case in cases():
        if case.gpu or missing(case.run):
            continue
        if not case.stacks:
            yield case.name, case, None
        for name in case.stacks:
            if stacks[name].there:
                yield f"{case.name}-{name}", case, stacks[name]


def _scripts(folder: Path) -> None:
    """Write what needs a GPU as one script for another machine; it prints each log after a line with name and code."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        for path, text in case.files.items() if case.gpu else ():
            (folder / case.name).mkdir(exist_ok=True)
            (folder / case.name / path).write_text(text)
    runs = "".join(
        f"(cd {case.name} && timeout {case.seconds} bash -c '{case.run}') > log 2>&1; echo '{_MARK} {case.name}' $?; "
        f"head -c {MOST_BYTES // 2} log; tail -c +{MOST_BYTES // 2 + 1} log | tail -c {MOST_BYTES // 2}; echo\n"
        for case in cases()
        if case.gpu
    )
    (folder / "all.sh").write_text(f"cd $(dirname $0)\n{runs}")


def _collect(file: Path) -> None:
    """Keep the logs that such a script printed."""
    known_cases = {case.name: case for case in cases()}
    for part in file.read_bytes().split(_MARK.encode() + b" ")[1:]:
        head, _, text = part.partition(b"\n")
        name, code = head.decode().split()
        text = re.sub(rb"/\S*/" + name.encode(), b"/job", text)
        text = re.sub(rb"/[\w./-]+?(?=/lib/python3|/bin/(?:python|torchrun))", b"/opt/frameworks", text)
        _keep(name, known_cases[name], None, int(code), text)


def _provoke(name: str, case: Case, stack: Stack | None) -> Path:
    code, text, seen = (case.exit_code, case.log.encode(), None) if case.log else _run(case, stack)
    return _keep(name, case, stack, code, text, seen)


def _keep(
    name: str, case: Case, stack: Stack | None, code: int | None, text: bytes, seen: Evidence | None = None
) -> Path:
    of_stack = {} if stack is None else {"family": stack.family, **case.facts_on.get(stack.name, {})}
    truth = Truth(
        what=case.what,
        codes=case.codes,
        words=case.words,
        facts=case.facts | of_stack,
        exit_code=code,
        software=case.software or (stack.title if stack is not None else ""),
        written=bool(case.log),
        mends=case.mends,
    )
    return keep(case.name, name, truth, text, seen)


def _run(case: Case, stack: Stack | None) -> tuple[int, bytes, Evidence | None]:
    with tempfile.TemporaryDirectory(prefix="provoke-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        done = built(case, stack, place)
        as_job = case.job is not None and stack is not None and stack.name in engine.STACKS
        seen = engine.evidence(case, stack, place) if as_job and stack is not None else None
        return done.returncode, _shortened(_neutral(done.stdout, place, stack)), seen


def built(case: Case, stack: Stack | None, place: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a case's script in a folder, where its program is built then."""
    for path, text in case.files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    script = place / "run.sh"
    prelude = stack.prelude if stack is not None else ""
    script.write_text(f"cd {place}\n{prelude}\n{_launch(case, place)}\n")
    alone = ("--pid", "--fork", "--kill-child", "--mount-proc")  # nothing outlives the run
    in_bed = f"${SLURM}" in case.run  # the cluster is entered by its process ids
    argv = ["unshare", "--mount", *(() if in_bed else alone)]
    argv += ["timeout", "--signal=TERM", "--kill-after=5", str(case.seconds)]
    return subprocess.run(
        [*argv, "bash", str(script)],
        env=environ(stack) | {"TMPDIR": tempfile.gettempdir()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def _launch(case: Case, place: Path) -> str:
    """Return the script's lines: how the program is built, and how it is started."""
    start = f"exec $MPIRUN -n {case.ranks} "
    if case.py:
        (place / "train.py").write_text(case.py)
        return case.run or f"{start}$PYTHON -m mpi4py train.py"
    for kind, (file, build) in _BUILD.items():
        if text := getattr(case, kind):
            (place / file).write_text(text)
            own = "$MPICC" in case.run
            return case.run if own else f"{build} || exit 99\n{case.run or start + './program'}"
    return case.run


def _neutral(text: bytes, place: Path, stack: Stack | None) -> bytes:
    """Return the output without what belongs to this machine."""
    text = text.replace(str(place).encode(), b"/job").replace(sys.prefix.encode(), b"/opt/venv")
    text = text.replace(sys.base_prefix.encode() + b"/lib/python", b"/usr/lib/python")
    text = text.replace(str(Path(__file__).parent).encode(), b"/opt/provoke")
    for name in FOLDERS:
        if folder := os.environ.get(name):
            text = text.replace(str(Path(folder).parent).encode(), f"/opt/{name.lower()}".encode())
    if stack is not None and (root := str(Path(stack.mpirun).parents[1])) != "/usr":
        text = text.replace(root.encode(), b"/opt/mpi")
    host = socket.gethostname().encode()
    text = re.sub(rb"(?<![\w/.-])" + re.escape(host) + rb"(?![\w-])", b"node01", text)
    text = re.sub(rb"prterun-" + re.escape(host), b"prterun-node01", text)
    return re.sub(rb"/tmp/provoke-\w+", b"/job", text)


def _shortened(text: bytes) -> bytes:
    if len(text) <= MOST_BYTES:
        return text
    head, tail = text[: MOST_BYTES // 2], text[-MOST_BYTES // 2 :]
    return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


if __name__ == "__main__":
    main()
