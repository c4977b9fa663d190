"""Compare other people's batch scripts with a real Slurm: `python -m tools.compare_scripts FOLDER [NAME…]`.

Each script of the folder runs by sbatch and by `mpijob run SCRIPT`, and a table says whether steps, world sizes, exit
status and lines are the same. Programs that are not here are replaced, for both, by one that notes its name, words,
world size and rank. What a script needs is found by running it with Slurm until no file or program is missing any more.
Larger requests are cut to `_MOST` in both copies. A script of PBS runs by sbatch with the size of its header; launchers
that no Slurm has (aprun, ibrun, PALS' mpiexec) are played there by srun and mpiexec, without placing and binding.
A script that asks its steps for more than the header has comes from a site that gives whole nodes: it gets them.
The folder of the runs, `--work`, must be one that all nodes see; `--open` is where Open MPI's mpirun is on the nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mpijob import Client
from mpijob.backends.local import LocalBackend
from mpijob.errors import MpiJobError, WaitTimeout
from mpijob.settings import load
from tools.compare_slurm import comparable, directories, said


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PATIENCE = 25.0  # seconds, for each side
_TRIES = 7
_MOST = {"nodes": 4, "per node": 4, "cores": 4, "tasks": 16, "gpus": 4}
_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "srun")
_LAUNCHES = re.compile(r"\b(srun|mpirun|mpiexec|aprun|ibrun|orterun)\b")
_SITE = _words("""partition p account A qos q reservation constraint C mail-type mail-user licenses L cluster clusters M
    image module volume nodelist w exclude x output o error e chdir D workdir dependency d comment switches tmp wckey
    container-image container-mounts network core-spec S begin b nice get-user-env time-min power bb""")
_SIZES = {  # how options are written, and what they count
    "nodes": r"--nodes[= ]|-N ?|select=|nodes=",
    "per node": r"--n?tasks-per-node[= ]|mpiprocs=|ppn=|--?ppn[= ]|-perhost |-npernode |mppnppn=",
    "cores": r"--cpus-per-task[= ]|-c ?|ompthreads=|mppdepth=|-d ",
    "tasks": r"--ntasks[= ]|--tasks[= ]|-n ?|-np |mppwidth=|size=|--mincpus[= ]|ncpus=",
    "gpus": r"--gpus-per-node[= ](?:\w+:)?|--gres[= ]gpu:(?:[a-zA-Z]\w*:)?|--gpus[= ](?:\w+:)?|-G ?|ngpus=",
}
_COUNTS = re.compile(
    r"^(\s*(?:export |set )?\w*(?:np|nproc|procs|ntasks|tasks|ranks|cores|cpus)\w*=)(\d+)\s*$", re.I
)
_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr", "var")
_ABSOLUTE = re.compile(r"(?<![\w./$}{~%*\])-])/(?!/)([a-zA-Z][\w.+-]*)((?:/[\w.+%-]*)*)")
_MISSING = re.compile(
    r"(?:cd: (?P<folder>[^:\n]+): No such file|line \d+: (?P<sourced>[^:\n]+): No such file"
    r"|(?:execve\(\): |execvp error on file )(?P<run>[^:(\n]+?)(?:: | \()No such file|Executable: (?P<open>\S+)"
    r"|line \d+: (?P<name>[^:/\n]+): command not found|can't cd to (?P<to>\S+)"
    r"|(?:cannot (?:stat|access|open) |^\w+: )['\"]?(?P<file>[^'\":\n]+)['\"]?: No such file)",
    re.MULTILINE,
)
_PRETENDED = _words("""R Rscript activate apptainer cc CC cmake conda curl free ftn g++ gcc gfortran git icc icpc ifort
    java julia lfs lscpu lstopo mail make mamba matlab mpic++ mpicc mpicxx mpif77 mpif90 mpifort nproc numactl nvcc
    nvidia-smi nvidia-cuda-mps-control pip pip3 python python3 rocm-smi rsync scp singularity ssh taskset top uptime
    wget""")
_FOLDERS = _words("SCRATCH WORK WORKDIR PROJECT PROJECTS DATA STORE CSCRATCH PSCRATCH LOCAL_SCRATCH")
_NOTES = """set -- NAME "$@"
if [ -n "${SLURM_STEP_ID:-}" ]; then
  PMI_SIZE=${PMI_SIZE:-$SLURM_STEP_NUM_TASKS} PMI_RANK=${PMI_RANK:-$SLURM_PROCID}
fi
printf '%s\\t%s\\t%s\\t%s\\n' "$1" "${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-alone}}$(
  if [ -n "${PMI_RANK:-}" ] && [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    echo " gpus=$(echo "$CUDA_VISIBLE_DEVICES" | tr , ' ' | wc -w)"
  fi
)" "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" "$(printf '%s' "$*" | tr '\\n\\t' '  ')" >>JOURNAL
printf 'standin %s\\n' "$(printf '%s' "$*" | tr '\\n' ' ')"
shift
"""
_FILTER = """left=$#
while [ "$left" -gt 0 ]; do
  word=$1 left=$((left - 1))
  shift
  case $word in
    FLAGS) ;;
    VALUES) shift && left=$((left - 1)) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec LAUNCH "$@"
"""
_PYXIS = "--container-*=* | --no-container-* | --container-mount-home | --container-writable | --container-remap-root"
_PLAYED = """options=
while [ $# -gt 0 ]; do
  case $1 in
    -n | -np) options="$options -n $2" && shift ;;
    -N | -ppn | --ppn) options="$options PER $2" && shift ;;
    -d | -cc | -j | -S | -ss | -o | --cpu-bind | --depth | --gpu-bind | --mem-bind) shift ;;
    --env | -env | --hostfile | -hostfile) shift ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
exec LAUNCH $options "$@"
"""


_FEW = re.compile(
    r"More processors requested than permitted|Requested node configuration is not available|Step requested GRES"
)
_SAME = ("equal", "lines differ")
# What is told of a step that is to be the same all the same.
_HARMLESS = re.compile(
    r"has no such option|own image is used|no modules here|waits until|there is no terminal"
)


class Outcome(NamedTuple):
    """What one side did: exit status, the programs with their world sizes and ranks, the lines, messages of ours."""

    status: int
    steps: list[tuple[str, str, str]]
    lines: list[str]
    told: tuple[str, ...] = ()


def scaled(text: str) -> str:
    """Return the script with no larger numbers than both sides have room for."""
    found = re.search(r"^#(?:SBATCH|PBS).*?(?:--nodes[= ]|-N ?|select=|nodes=)(\d+)", text, re.MULTILINE)
    nodes = min(int(found.group(1)), _MOST["nodes"]) if found else 0
    most = _MOST | ({"tasks": nodes * _MOST["per node"]} if nodes else {})
    lines, goes_on = [], False
    for line in text.splitlines():
        if line.startswith(("#SBATCH", "#PBS")) or (
            not line.startswith("#") and (goes_on or _LAUNCHES.search(line))
        ):
            for what, pattern in _SIZES.items():
                line = re.sub(
                    rf"((?:^|[\s:,+l])(?:{pattern}))(\d+)(?:-\d+)?(?![\w.])",
                    lambda one, limit=most[what]: one[1] + str(min(int(one[2]), limit)),  # type: ignore[misc]
                    line,
                )
            line = re.sub(
                r"(--array[= ]|-a |-J |-t )(\d+)-\d+\S*",
                lambda one: f"{one[1]}{one[2]}-{int(one[2]) + 1}",
                line,
            )
            goes_on = line.endswith("\\") and not line.startswith("#")
        line = re.sub(r"(\w*THREADS=)(\d+)", lambda one: one[1] + str(min(int(one[2]), most["cores"])), line)
        line = _COUNTS.sub(lambda one: one[1] + str(min(int(one[2]), most["tasks"])), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def pbs_places(text: str) -> list[int]:
    """Return how many ranks each node has that a PBS header asks for."""
    text = re.split(r"^\s*[^#\s]", text, maxsplit=1, flags=re.MULTILINE)[
        0
    ]  # no directive behind the first command counts
    header = " ".join(re.findall(r"^#PBS\s+-l\s*(.*)", text, re.MULTILINE))
    if found := re.search(r"mppwidth=(\d+)", header):
        per = int((re.search(r"mppnppn=(\d+)", header) or found)[1])
        return [per] * -(-int(found[1]) // per)
    found = re.search(r"(?:select|nodes)=([^\s,]+)", header)
    places = []
    for chunk in (found[1] if found else "1").split("+"):
        count = re.match(r"\d+", chunk)
        ranks = re.search(r"(?:mpiprocs|ppn)=(\d+)", chunk)
        places += [int(ranks[1]) if ranks else 1] * (int(count[0]) if count else 1)
    return places[: _MOST["nodes"]]


def slurm_header(line: str) -> str:
    """Return a line of the header without what belongs to a site: partitions, accounts, paths, kinds of GPUs."""
    kept, skip = [], False
    words = line.split("#", 2)[1].split()[1:]
    for word in words:
        name = re.match(r"--([\w-]+)|-(\w)", word)
        if name is None:
            kept += [] if skip else [word]
        else:
            skip = (name[1] or name[2]) in _SITE
            kept += (
                []
                if skip
                else [re.sub(r"gpu:[a-zA-Z]\w*:", "gpu:", re.sub(r"(--gpus\S*=)[a-z]\w*:", r"\1", word))]
            )
            skip = skip and (name[2] is None or len(word) == 2) and "=" not in word
    return " ".join(["#SBATCH", *kept])


class Side:
    """A copy of a script with all that it needs: `work` is its folder, `root` stands for the absolute paths in it."""

    def __init__(self, base: Path, script: Path, family: str, slurm: bool, open_mpi: str) -> None:
        self.base, self.slurm, self.family, self.open_mpi = base, slurm, family, open_mpi
        self.work, self.root, self.front = base / "work", base / "root", base / "front"
        for folder in (self.work, self.root / "home", self.front, base / "back"):
            folder.mkdir(parents=True)
        self.journal = base / "journal"
        self.made: set[Path] = set()
        for name, body in self._programs().items():
            _executable(self.front / name, body)
        text = scaled(script.read_text(encoding="utf-8", errors="replace"))
        self.pbs = "#SBATCH" not in text
        self.places = pbs_places(text)
        (base / "prelude.sh").write_text(self._prelude(text))
        self.text = "\n".join(self._prepared(text.splitlines())) + "\n"
        self.script = self.work / "script.sh"
        self.script.write_text(self.text)
        self.script.chmod(0o755)
        for word in set(re.findall(r"(?<![\w./$-])[a-zA-Z_][\w.+-]*", self.text)):
            if shutil.which(word) is None and not _LAUNCHES.fullmatch(word):
                self.provide(self.base / "back" / word)
        for word in set(re.findall(r"(?<![\w/.$}])\./([\w.+-]+(?:/[\w.+-]+)*)(?![/*$])", self.text)):
            self.provide(self.work / word)

    def _prelude(self, text: str) -> str:
        (self.root / "var").mkdir()
        return "\n".join([
            f'export PATH="{self.front}:$PATH:{self.base}/back" HOME="{self.root}/home"',
            *(f'export {name}="{self.root}/var"' for name in _FOLDERS),
            "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            *(self._site(text) if self.slurm else ()),
            "module() { :; }", "ml() { :; }", f'echo "$PWD" >"{self.base}/cwd"',
            f'echo "${{SLURM_JOB_ID:-}}" >"{self.base}/number"', ""])  # fmt: skip

    def _site(self, text: str) -> Iterator[str]:
        """Yield what Slurm would say of a site's names, which the header is without."""
        for variable, option in (("ACCOUNT", "--account[= ]|-A ?"), ("PARTITION", "--partition[= ]|-p ?")):
            found = re.search(rf"^#SBATCH\s.*?(?:{option})([\w.-]+)", text, re.MULTILINE)
            yield f"export SLURM_JOB_{variable}={found[1].lower() if found else 'default'}"

    def _programs(self) -> dict[str, str]:
        programs = {name: self._notes(name) for name in _PRETENDED}
        programs["python"] = programs["python3"] = (
            f'if [ "$1" = -c ]; then exec {sys.executable} "$@"; fi\n' + self._notes("python")
        )
        programs["sleep"] = programs["ulimit"] = "exit 0\n"
        programs["date"] = 'case "$*" in *%s*) echo 1700000000 ;; *) echo DATE ;; esac\n'
        if self.slurm:
            programs["srun"] = _filter("/usr/bin/srun", _PYXIS, "--container-*")
            programs["aprun"] = _PLAYED.replace("LAUNCH", "srun").replace("PER", "--ntasks-per-node")
            programs["ibrun"] = _PLAYED.replace("LAUNCH", 'mpiexec -n "$SLURM_NTASKS"').replace("PER", "-ppn")
            if self.family == "pals":
                programs["mpiexec"] = _PLAYED.replace("LAUNCH", _hydra()).replace("PER", "-ppn")
            if self.family == "openmpi":
                programs["mpirun"] = programs["mpiexec"] = _filter(
                    self.open_mpi, "--report-bindings | -report-bindings", "--bind-to | -bind-to"
                )  # the nodes have fewer cores than they say
        return programs

    def _notes(self, name: str) -> str:
        """Return a program that notes who it is; read by `.` it goes on."""
        return _NOTES.replace("NAME", shlex.quote(name)).replace("JOURNAL", str(self.journal))

    def _prepared(self, lines: list[str]) -> Iterator[str]:
        begun = False
        shell = "csh" if "csh" in lines[0] and lines[0].startswith("#!") else "sh"
        for at, line in enumerate(lines):
            if line.startswith("#SBATCH") and self.slurm:
                line = slurm_header(line)
            elif line.strip() and not line.startswith("#"):
                if not begun:
                    yield (
                        f". {self.base}/prelude.sh"
                        if shell == "sh"
                        else f"setenv PATH {self.front}:${{PATH}}:{self.base}/back"
                    )
                begun = True
                line = _ABSOLUTE.sub(self._moved, line) if at else line
            yield line

    def _moved(self, found: re.Match[str]) -> str:
        return found[0] if found[1] in _SYSTEM else f"{self.root}/{found[1]}{found[2]}"

    def provide(self, path: Path, folder: bool = False) -> bool:
        """Make a program or a folder, where it is missing; say whether it was."""
        if path.exists() or not path.is_relative_to(self.base):
            return False
        try:
            if folder:
                path.mkdir(parents=True)
                (path / "input").touch()  # a folder without files is not taken along
                self.made |= {path, path / "input"}
                return True
            body = self._notes(path.name)
            if path.name in _LAUNCHERS and path.parent.name == "bin":
                body = f'exec {self._launcher(path.name)} "$@"\n'
            path.parent.mkdir(parents=True, exist_ok=True)
            _executable(path, body)
        except OSError:
            return False
        self.made |= {path, *path.parents}
        return True

    def _launcher(self, name: str) -> str:
        if name == "srun":
            return name
        if self.family == "openmpi":
            return self.open_mpi if self.slurm else f"{directories()['openmpi']}/bin/mpirun"
        return _hydra()

    def clean(self) -> None:
        """Remove what a run has left."""
        self.journal.unlink(missing_ok=True)
        for path in sorted(self.work.rglob("*"), reverse=True):
            if path not in self.made and path != self.script:
                with contextlib.suppress(OSError):
                    path.rmdir() if path.is_dir() else path.unlink()

    def written(self) -> str:
        """Return what the script's programs wrote into files of its folder."""
        files = [path for path in self.work.rglob("*") if path.is_file() and path != self.script]
        return "".join(path.read_text(errors="replace") for path in files if path.stat().st_size < 100_000)

    def missing(self, log: str) -> list[tuple[str, bool]]:
        """Return what a run did not find, below the base: paths, and whether they are folders."""
        found = []
        for one in _MISSING.finditer(log):
            kind, word = next((kind, word) for kind, word in one.groupdict().items() if word)
            path = Path(word.strip())
            if kind == "name":
                found.append((f"back/{word.strip()}", False))
            elif path.is_absolute() and path.is_relative_to(self.base):
                found.append((str(path.relative_to(self.base)), kind in ("folder", "to")))
            elif not path.is_absolute() and ".." not in path.parts:
                found.append((f"work/{path}", kind in ("folder", "to")))
        return found

    def outcome(
        self, status: int, lines: list[str], replaced: dict[str, str], told: tuple[str, ...] = ()
    ) -> Outcome:
        """Return what can be compared."""
        cwd = (self.base / "cwd").read_text().strip() if (self.base / "cwd").exists() else str(self.work)
        replaced = {
            re.escape(cwd) + r"\b": "WORK",
            re.escape(str(self.work)): "WORK",
            re.escape(str(Path(cwd).parent)) + r"\b": "BASE",
            re.escape(str(self.base)): "BASE",
        } | replaced
        if number := (self.base / "number").read_text().strip() if (self.base / "number").exists() else "":
            replaced |= {rf"(?<!\d){number}(?!\d)": "JOBID"}
        replaced |= {
            r"^\S*(slurm_script|script\.sh)\b": "script",
            r"(\d+m)?\d+\.\d+\s?s\b": "TIME",
            re.escape(f"{sys.prefix}/lib"): "",
            r"\b\d+\.\d+\.\d+\.\d+\b": "ADDRESS",
        }
        seen: dict[tuple[str, str], list[str]] = {}
        for line in self.journal.read_text().splitlines() if self.journal.exists() else ():
            for pattern, common in replaced.items():
                line = re.sub(pattern, common, line)
            name, size, rank, words = (line.split("\t") + [""] * 4)[:4]
            seen.setdefault((words or name, size), []).append(rank)
        steps = [(words, size, " ".join(sorted(ranks))) for (words, size), ranks in seen.items()]
        return Outcome(status, steps, comparable(lines, status, replaced), told)


def _filter(launcher: str, flags: str, values: str) -> str:
    """Return a program that starts another without some options."""
    return _FILTER.replace("LAUNCH", launcher).replace("FLAGS", flags).replace("VALUES", values)


def _hydra() -> str:
    return str(Path(sys.executable).parent / "mpiexec.hydra")


def _executable(path: Path, body: str) -> None:
    if path.suffix == ".csh":
        body = ""
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)


def with_slurm(side: Side, twin: Side) -> Outcome:
    """Run the script by sbatch, again until nothing is missing; the twin gets the same."""
    submitted = side.script
    words = ["sbatch", "--parsable", f"--output={side.base}/log.%j"]
    if side.pbs:
        words += [f"--nodes={len(side.places)}", f"--ntasks-per-node={max(side.places)}", "--job-name=pbs"]
        submitted = side.base / "pbs.sh"
        names = "; ".join(f'for i in $(seq {ranks}); do echo "$1"; done; shift' for ranks in side.places)
        _executable(submitted, f"set -- $(scontrol show hostnames)\n{{ {names}; }} >{side.base}/nodefile\n"
            f"export PBS_NODEFILE={side.base}/nodefile PBS_O_WORKDIR={side.work} PBS_JOBID=$SLURM_JOB_ID.mpijob\n"
            f"export PBS_NP={sum(side.places)} PBS_NUM_NODES={len(side.places)} PBS_NUM_PPN={max(side.places)}\n"
            f"export PBS_JOBNAME=pbs NCPUS={max(side.places)} PBS_ENVIRONMENT=PBS_BATCH PBS_QUEUE=default\n"
            f"exec {_interpreter(side.text)} {side.script}\n")  # fmt: skip
    for _ in range(_TRIES):
        side.clean()
        result = subprocess.run(
            [*words, str(submitted)], cwd=side.work, capture_output=True, text=True, check=False
        )
        if result.returncode:
            return Outcome(-2, [], [], (f"sbatch: {result.stderr.strip().splitlines()[0]}",))
        number = result.stdout.strip()
        shown = _ended(number, side.work)
        log = "".join(path.read_text(errors="replace") for path in sorted(side.base.glob("log.*")))
        for path in side.base.glob("log.*"):
            path.unlink()
        if _FEW.search(log) and "--exclusive" not in words:
            words.append("--exclusive")  # the script's site gives whole nodes
            continue
        needed = [
            one for one in side.missing(log + side.written()) if side.provide(side.base / one[0], one[1])
        ]
        for name, folder in needed:
            twin.provide(twin.base / name, folder)
        if not needed:
            break
    (side.base / "lines").write_text(log)
    listed = shown.get("NodeList", "")
    nodes = said(["scontrol", "show", "hostnames", listed], side.work).split() if listed else []
    replaced = {rf"\b{node}\b": f"node{at}" for at, node in enumerate(nodes)}
    if len(nodes) > 1:
        replaced = {re.escape(listed): "NODELIST"} | replaced
    code = shown["ExitCode"].split(":")
    return side.outcome(int(code[0]) or int(code[1]), log.splitlines(), replaced)


def _ended(number: str, folder: Path) -> dict[str, str]:
    """Wait for all jobs of a number; return the fields of the worst."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        text = said(["scontrol", "show", "job", "-o", number], folder)
        jobs = [dict(re.findall(r"(?<!\S)(\w+)=(\S+)", line)) for line in text.splitlines()]
        if all(job["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING") for job in jobs):
            return max(jobs, key=lambda job: job["ExitCode"])
        if time.monotonic() > deadline:
            subprocess.run(["scancel", number], cwd=folder, check=False)
            return jobs[0] | {"ExitCode": "-1:0"}
        time.sleep(0.2)


def _interpreter(text: str) -> str:
    first = text.splitlines()[0]
    return first[2:].strip() if first.startswith("#!") else "/bin/bash"


def with_mpijob(side: Side) -> Outcome:
    """Run the script by the command that a user types."""
    environment = os.environ | {
        "USER": "root",
        "MPIJOB_HOME": str(side.base / "home"), "MPIJOB_ENGINE": "local", "MPIJOB_CORES": "64", "MPIJOB_GPUS": "64",
        "MPIJOB_MEMORY": "900Ti", "MPIJOB_SETTINGS": str(side.base / "settings.toml"),
    }  # fmt: skip
    folders = "".join(f"{name} = {path!r}\n".replace("'", '"') for name, path in directories().items())
    (side.base / "settings.toml").write_text(f"[mpi_directories]\n{folders}")
    family = "openmpi" if side.family == "openmpi" else "mpich"
    command = [sys.executable, "-m", "mpijob", "run", "script.sh", "--mpi", family]
    if re.search(r"^#SBATCH.*(--array|-a )|^#PBS.* -J ", side.text, re.MULTILINE):
        command[3] = "array"
    side.clean()
    settings = load(environment)
    late = False
    try:
        result = subprocess.run(
            command, cwd=side.work, env=environment, capture_output=True, timeout=2 * _PATIENCE, check=False
        )
        printed = result.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        printed, late = (error.stderr or b"").decode(errors="replace"), True
    (side.base / "printed").write_text(printed)
    with Client(LocalBackend(settings), settings=settings) as client:
        jobs = [client.get(state.ref) for state in client.jobs()]
        for job in jobs:
            if late:
                job.cancel()
            with contextlib.suppress(WaitTimeout):
                job.wait(_PATIENCE)
        lines = [line.text.decode(errors="replace") for job in jobs for line in job.logs()]
        codes = [job.state().launcher_exit_code for job in jobs]
    told = tuple(
        dict.fromkeys(
            line
            for line in [*lines, *printed.splitlines()]
            if re.match(r"mpijob: |error: |hint: |.*it has no effect", line)
        )
    )
    status = -1 if late else -2 if not jobs else max(-1 if code is None else code for code in codes)
    names = {job.name for job in jobs}
    (side.base / "lines").write_text("\n".join(lines) + "\n")
    replaced = {rf"\b{name}-worker-\[\d[\d,-]*\]": "NODELIST" for name in names}
    replaced |= {rf"\b{name}-worker-(\d+)\b": r"node\1" for name in names}
    return side.outcome(status, lines, replaced, told)


def judged(text: str, slurm: Outcome, local: Outcome) -> str:
    """Return the word for a script's row."""
    if slurm.status == -2:
        return "refused by Slurm"
    loose = "&\n" in text or "& \n" in text or "|" in text
    same = Counter(slurm.steps) == Counter(local.steps) if loose else slurm.steps == local.steps
    if same and slurm.status == local.status:
        return "equal" if slurm.lines == local.lines else "lines differ"
    failed = local.status not in (0, slurm.status)  # which the command tells, with the cause
    return "told" if failed or any(not _HARMLESS.search(line) for line in local.told) else "WRONG"


def family_of(text: str) -> str:
    """Return whose mpirun a script means: PALS' by its options, Open MPI's by its own, else MPICH's."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    if re.search(r"\bmpiexec\b[^\n]*(--depth|--cpu-bind|--no-vni)", body) or (
        "--cpu-bind" in body and "#PBS" in text
    ):
        return "pals"
    own = (
        r"--?mca |--map-by|--report-bindings|--oversubscribe|--allow-run|(?i:open.?mpi)|mpirun[^\n]* -x |ompi"
    )
    return "openmpi" if re.search(own, body) else "mpich"


def compare(script: Path, work: Path, open_mpi: str) -> tuple[str, Outcome, Outcome]:
    """Run one script on both sides."""
    text = script.read_text(encoding="utf-8", errors="replace")
    base = work / re.sub(r"\W+", "-", script.name)[:80]
    shutil.rmtree(base, ignore_errors=True)
    local, slurm = (
        Side(base / name, script, family_of(text), name == "slurm", open_mpi) for name in ("local", "slurm")
    )
    first = with_slurm(slurm, local)
    second = with_mpijob(local)
    return judged(text, first, second), first, second


def main(words: list[str]) -> int:
    """Print the table and the counts; the exit status says whether one is silently wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.compare_scripts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="only scripts whose name holds one of these")
    parser.add_argument(
        "--work", type=Path, default=Path.cwd() / "compare", help="a folder that all nodes see"
    )
    parser.add_argument("--open", default="/usr/bin/mpirun.openmpi", help="Open MPI's mpirun on the nodes")
    parser.add_argument("--short", action="store_true", help="print no differences")
    given = parser.parse_intermixed_args(words)
    counts: Counter[str] = Counter()
    for script in sorted(given.folder.iterdir()):
        if given.names and not any(name in script.name for name in given.names):
            continue
        try:
            word, slurm, local = compare(script, given.work.absolute(), given.open)
        except (OSError, subprocess.SubprocessError, ValueError, MpiJobError) as error:
            counts["not compared"] += 1
            sys.stdout.write(f"{script.name[:90]:90} not compared     {error}\n")
            continue
        counts[word] += 1
        if word in _SAME and slurm.status:
            counts["fail with both"] += 1
            counts["of these before a program"] += not slurm.steps
        numbers = f"status {slurm.status}/{local.status} programs {len(slurm.steps)}/{len(local.steps)}"
        sys.stdout.write(f"{script.name[:90]:90} {word:16} {numbers}\n")
        if not given.short:
            for mark, one, other in (("slurm", slurm, local), ("local", local, slurm)):
                sys.stdout.writelines(f"    {mark} {step}\n" for step in one.steps if step not in other.steps)
                sys.stdout.writelines(
                    f"    {mark}: {line}\n" for line in one.lines[:400] if line not in other.lines
                )
            sys.stdout.writelines(f"    told {line}\n" for line in (*slurm.told, *local.told))
        sys.stdout.flush()
    total = sum(counts[word] for word in (*_SAME, "told", "WRONG"))
    same = sum(counts[word] for word in _SAME)
    rest = ", ".join(f"{number} {word}" for word, number in counts.items())
    sys.stdout.write(f"{total} compared, {same} with the same steps, world sizes and exit status: {rest}\n")
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
