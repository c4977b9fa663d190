"""Compare script jobs with a real Slurm: `python -m tools.compare_slurm [--write] [--mpi FAMILY] [NAME…]`.

Runs each script of tests/fixtures/slurm with sbatch, where there is one, and on the local engine, and prints a
table: equal, or the lines that differ. Without an sbatch, the lines that Slurm printed before (NAME.out) stand for it;
`--write` writes them. The current directory must be one that all nodes see. Lines between two that begin with `==` are
those of one step: its tasks print in any order.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from mpijob import Client, MPIJob
from mpijob.backends.local import LocalBackend
from mpijob.errors import WaitTimeout
from mpijob.model import Code, Family, Resources
from mpijob.settings import Settings

SCRIPTS = Path(__file__).parents[1] / "tests" / "fixtures" / "slurm"
# What a launcher prints of its own accord: each has its own words.
_MESSAGES = re.compile(r"(srun|slurmstepd\S*|mpijob): |\[(mpiexec|proxy:\d+)@|=(={20,}|   )|$")
_PATIENCE = 60.0  # seconds


def names() -> list[str]:
    """Return the names of all scripts."""
    return sorted(path.stem for path in SCRIPTS.glob("*.sh"))


def expected(name: str) -> list[str]:
    """Return what the real Slurm printed."""
    return (SCRIPTS / f"{name}.out").read_text(encoding="utf-8").splitlines()


def comparable(lines: Iterable[str], status: int, replaced: dict[str, str]) -> list[str]:
    """Return the lines with common names for nodes and job, sorted within each step, and the script's exit status."""
    sections: list[list[str]] = [[]]
    for line in lines:
        if _MESSAGES.match(line):
            continue
        for pattern, common in replaced.items():
            line = re.sub(pattern, common, line)
        if line.startswith("=="):
            sections.append([])
        sections[-1].append(line.rstrip())
    ordered = [line for section in sections for line in section[:1] + sorted(section[1:])]
    if sections[0]:
        ordered[: len(sections[0])] = sorted(sections[0])
    return [*ordered, f"exit status {status}"]


def arguments(name: str) -> tuple[str, ...]:
    """Return the words that a script is given."""
    path = SCRIPTS / f"{name}.args"
    return tuple(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()


def job(name: str, family: str) -> MPIJob:
    """Return the job that asks for what the script's header does."""
    text = (SCRIPTS / f"{name}.sh").read_text(encoding="utf-8")
    header = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\d+)$", text, re.MULTILINE))
    return MPIJob(
        name=name.replace("_", "-"),
        workers=int(header["nodes"]),
        slots=int(header["ntasks-per-node"]),
        cores_per_rank=int(header.get("cpus-per-task", 1)),
        mpi=Family(family),
        script=f"{name}.sh",
        args=arguments(name),
        code=Code(path=str(SCRIPTS), include=(f"{name}.sh", *(path.name for path in _helpers()))),
        resources=Resources(cpu="1", memory="512Mi"),
        grace_seconds=1.0,
    )


def _helpers() -> list[Path]:
    return [path for path in SCRIPTS.iterdir() if path.suffix not in (".sh", ".out", ".args")]


def on_local_engine(client: Client, wanted: MPIJob) -> list[str]:
    """Run a script on the local engine; return its lines."""
    handle = client.submit(wanted)
    try:
        status = handle.wait(_PATIENCE).launcher_exit_code
    except WaitTimeout:
        status = None
        handle.cancel()
    lines = [line.text.decode() for line in handle.logs()]
    return comparable(
        lines,
        -1 if status is None else status,
        {rf"\b{wanted.name}-worker-": "node", r"\b[1-9]\d{6}\b": "JOBID", r"/\S*/(?=inner\b)": "/"},
    )


def on_slurm(name: str) -> list[str]:
    """Run a script by sbatch in a directory that all nodes see; return its lines."""
    directory = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=Path.cwd()))
    for path in _helpers():
        shutil.copy(path, directory)
    shutil.copy(SCRIPTS / f"{name}.sh", directory / "run.sh")
    command = ["sbatch", "--parsable", f"--job-name={name.replace('_', '-')}", "--output=slurm.log", "run.sh"]
    number = said([*command, *arguments(name)], directory)
    deadline = time.monotonic() + _PATIENCE
    while True:
        shown = dict(re.findall(r"(\w+)=(\S+)", said(["scontrol", "show", "job", "-o", number], directory)))
        if shown["JobState"] in ("COMPLETED", "FAILED"):
            break
        if shown["JobState"] not in ("PENDING", "RUNNING", "COMPLETING") or time.monotonic() > deadline:
            raise SystemExit(f"{name}: job {number} is {shown['JobState']}")
        time.sleep(0.2)
    lines = (directory / "slurm.log").read_text(encoding="utf-8").splitlines()
    shutil.rmtree(directory)
    nodes = said(["scontrol", "show", "hostnames", shown["NodeList"]], directory.parent).split()
    stem = nodes[0].rstrip("0123456789")
    replaced = {rf"\b{stem}\[1-2\]": "node[0-1]"}
    replaced |= {rf"\b{node}\b": f"node{index}" for index, node in enumerate(nodes)}
    replaced |= {rf"\b{number}\b": "JOBID", r"/\S*/(?=inner\b)": "/"}
    return comparable(lines, int(shown["ExitCode"].partition(":")[0]), replaced)


def said(command: list[str], directory: Path) -> str:
    """Return what a command prints."""
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def directories() -> dict[str, str]:
    """Return the MPI families that tests have installed."""
    root = Path(os.environ.get("MPIJOB_TEST_MPI", "/nonexistent"))
    return {path.name: str(path.resolve()) for path in root.glob("*") if path.is_dir()}


def main(words: list[str]) -> int:
    """Print the table; the exit status says whether all are equal."""
    parser = argparse.ArgumentParser(prog="python -m tools.compare_slurm", description=__doc__)
    parser.add_argument("names", nargs="*", default=names())
    parser.add_argument("--write", action="store_true", help="write what Slurm prints to NAME.out")
    parser.add_argument(
        "--recorded", action="store_true", help="compare with NAME.out, as where no sbatch is"
    )
    parser.add_argument("--mpi", default="mpich", help="the MPI family on the local engine")
    given = parser.parse_args(words)
    real = not given.recorded and shutil.which("sbatch") is not None
    different = 0
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=home, cores=4, memory="8Gi", gpus=0, mpi_directories=directories())
        with Client(LocalBackend(settings), settings=settings) as client:
            for name in given.names:
                slurm = on_slurm(name) if real else expected(name)
                if given.write:
                    (SCRIPTS / f"{name}.out").write_text("\n".join(slurm) + "\n", encoding="utf-8")
                local = on_local_engine(client, job(name, given.mpi))
                lines = [
                    line
                    for line in difflib.unified_diff(slurm, local, "slurm", "local", lineterm="", n=0)
                    if not line.startswith(("---", "+++", "@@"))
                ]
                different += bool(lines)
                sys.stdout.write(f"{name:16} {'different' if lines else 'equal'}\n")
                sys.stdout.writelines(f"    {line}\n" for line in lines)
                sys.stdout.flush()
    sys.stdout.write(f"{len(given.names) - different} of {len(given.names)} equal\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
