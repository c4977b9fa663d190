"""The batch script of a job: what sbatch is given, and what runs on the first node.

The script is short and readable: directives, variables, how the ranks are started. What it does with them is in the
texts that lie beside it in the job's directory (`scripts/`), the same for every job. A script of the user's own is
handed to sbatch unchanged, with options on the command line (`own_options`).
"""

from __future__ import annotations

import math
import os
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from typing import NamedTuple

import msgspec

from mpijob import codec
from mpijob.errors import InvalidJob
from mpijob.formats.convert.header import units
from mpijob.formats.launch import allocation, command_line
from mpijob.model import Family, MPIJob, Plan
from mpijob.model.platform import slurm
from mpijob.model.platform.slurm import Layout, SlurmFacts
from mpijob.model.spec.job import Part

# Slurm takes 1024.
MOST_COMMENT_BYTES = 1000
# Between our own deadline and Slurm's: ours warns, and says why.
_GRACE_MINUTES = 2
_SETTLES = 5.0


ARBITRARY = "--distribution=arbitrary"
_ALLOCATION = (
    'MPIJOB_NUMBER="$SLURM_JOB_ID" MPIJOB_RESTART="${{SLURM_RESTART_COUNT:-0}}" MPIJOB_NODES="{nodes}"'
    ' MPIJOB_SAID="$MPIJOB_DIR/slurm.out"'
)
# The directive between the components of a heterogeneous job.
_COMPONENT = "hetjob"
_HOSTS = (
    "scontrol show hostnames | awk 'NR == FNR { host[n++] = $1; next } { print host[$1] }' - \"$MPIJOB_DIR/layout\""
    ' >"$SLURM_HOSTFILE"'
)


class Raw(str):
    """A word of the script that the shell is to read, and not to take as it is."""

    __slots__ = ()


SHELL = Raw('"$MPIJOB_SH"')
# The wrapper of each rank.
RANK = Raw('"$MPIJOB_DIR/allocation_rank.sh"')


class Launcher(NamedTuple):
    """How the ranks are started: by srun with a launch plugin, or by the library's own launcher in the allocation."""

    # Srun, mpirun, hydra, custom, own.
    kind: str
    # Of srun.
    plugin: str = ""
    path: str = ""
    why: str = ""

    @property
    def told(self) -> str:
        """Return it as people say it."""
        return (
            f"srun --mpi={self.plugin}" if self.kind == "srun" else os.path.basename(self.path) or self.kind
        )


def choose(job: MPIJob, family: Family, launcher: str, plugins: Iterable[str], own: str) -> Launcher:
    """Return how the ranks of a job are started, with the reason."""
    has = set(plugins)
    if own:
        return Launcher(
            "own", path=own, why="the command contains its own launcher, which finds the allocation itself"
        )
    if family is Family.CUSTOM:
        return Launcher("custom", path=launcher, why="set in the job")
    kind = "mpirun" if family is Family.OPENMPI else "hydra"
    known = ("", "slot") if job.groups else ("", "slot", "node")
    odd = job.launch.rankfile or job.launch.flags or job.launch.map_by not in known
    if odd:
        return Launcher(kind, path=launcher, why="launch options that srun does not have")
    if family is Family.OPENMPI and "pmix" in has:
        return Launcher("srun", "pmix", why="this Slurm has PMIx, which Open MPI supports")
    if family is Family.MPICH and "pmi2" in has:
        return Launcher("srun", "pmi2", why="this Slurm has PMI-2, which MPICH supports")
    if family is Family.INTEL and "pmi2" in has and job.env.get("I_MPI_PMI_LIBRARY"):
        return Launcher("srun", "pmi2", why="the job names Slurm's PMI-2 library (I_MPI_PMI_LIBRARY)")
    lacking = "Intel MPI has no path to Slurm's PMI library" if family is Family.INTEL else (
        f"this Slurm has no launch plugin for {family.value} (srun --mpi=list: {', '.join(sorted(has)) or 'nothing'})"
    )  # fmt: skip
    return Launcher(kind, path=launcher, why=lacking)


def minutes(job: MPIJob, most_seconds: float | None) -> int | None:
    """Return the time limit to ask for: a little more than the job's own deadline, at most what is allowed."""
    if job.deadline_seconds is None:
        return None
    tries = job.retry.limit + 1
    pauses = sum(job.retry.delay_seconds(number) for number in range(1, tries))
    whole = (
        math.ceil((job.deadline_seconds * tries + pauses + job.grace_seconds + _SETTLES) / 60)
        + _GRACE_MINUTES
    )
    return whole if most_seconds is None else max(1, min(whole, int(most_seconds // 60)))


def own_options(job: MPIJob, facts: SlurmFacts) -> list[str]:
    """Return what is asked of Slurm in the job's own words: where, in whose name, on which nodes."""
    place = job.placement
    selected = dict(place.node_selector)
    reservation = selected.pop("reservation", "")
    priority = job.priority_number
    options = {
        "partition": facts.partition.name if facts.partition else job.queue,
        "account": job.cost.get("account", ""),
        "qos": facts.qos,
        "exclude": ",".join(place.exclude_nodes),
        "constraint": "&".join(selected.values()),
        "reservation": reservation,
        "nice": str(-priority) if priority < 0 and not facts.qos else "",
        "licenses": ",".join(f"{name.removeprefix('license/')}:{count}" for name, count in job.resources.others.items()
                             if name.startswith("license/")),
    }  # fmt: skip
    return [f"--{name}={value}" for name, value in options.items() if value]


def components(job: MPIJob, layouts: Iterable[Layout], facts: SlurmFacts) -> list[str]:
    """Return the options of a job that has a command, of one component after the other where it has groups."""
    found: list[str] = []
    for part, layout in zip(job.parts, layouts, strict=True):
        found += [*([_COMPONENT] if found else []), *options(part.job, layout, facts)]
    return found


def options(job: MPIJob, layout: Layout, facts: SlurmFacts) -> list[str]:
    """Return the options of a job, or of a component: its shape, its limits, its place."""
    gres = [f"gpu:{layout.gpus}"] if layout.gpus else []
    gres += [f"{name.removeprefix('gres/')}:{count}" for name, count in job.resources.others.items()
             if not name.startswith("license/")]  # fmt: skip
    limit = minutes(job, facts.max_seconds)
    shape = {
        "job-name": job.name,
        "nodes": layout.nodes,
        "ntasks-per-node": layout.tasks_per_node,
        "cpus-per-task": layout.cpus_per_task,
        "mem": f"{layout.memory_mib}M" if layout.memory_mib else "",
        "gres": ",".join(gres),
        "time": units.clock(limit * 60.0) if limit else "",
    }
    asked = [f"--{name}={value}" for name, value in shape.items() if value]
    requeue = "--requeue" if job.requeue_on_lost_worker else "--no-requeue"
    spread = ["--spread-job"] if job.placement.topology == "spread" else []
    packed = ["--switches=1"] if job.placement.topology == "packed-rack" else []
    return [*asked, *own_options(job, facts), requeue, *spread, *packed, "--kill-on-invalid-dep=yes"]


def overriding(job: MPIJob, script: MPIJob, facts: SlurmFacts) -> list[str]:
    """Return the options that a job asks for otherwise than its script's own header does (`script`)."""
    plain = (one.replace(requeue_on_lost_worker=False) for one in (script, job))
    own, asked = (options(one, slurm.layout(one, facts.nodes), facts) for one in plain)
    fixed = ("--job-name", "--kill-on-invalid-dep", "--no-requeue")
    return [one for one in asked if one not in own and not one.startswith(fixed)]


def directives(script: str) -> list[str]:
    """Return the options in the header of a script that `write` has written, but for where its output goes."""
    lines = (line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH "))
    words = [word for line in lines for word in shlex.split(line)]
    return [word for word in words if not word.startswith(("--output", "--open-mode"))]


def command_key(job: MPIJob) -> str:
    """Return what jobs of equal length have in common, in a few letters: the command and the size of the world."""
    text = "\0".join((*job.words, job.script, str(job.world)))
    return f"{zlib.crc32(text.encode()):08x}"


def comment(job: MPIJob, uid: str, mpi: str) -> str:
    """Return what a list says of a waiting job, for squeue; labels and description where they fit."""
    told: dict[str, object] = {
        "mpijob": uid,
        "ns": job.namespace,
        "name": job.name,
        "n": [job.workers, job.world],
        "runs": command_key(job),
    }
    more = {"mpi": mpi, "owner": job.owner, "priority": job.priority_number, "queue": job.queue}
    told |= {name: value for name, value in more.items() if value}
    texts = {"labels": dict(job.labels), "description": job.description}
    whole = told | {name: value for name, value in texts.items() if value}
    text = msgspec.json.encode(whole).decode()
    return (
        text
        if len(text.encode()) <= MOST_COMMENT_BYTES
        else msgspec.json.encode(told | {"more": True}).decode()
    )


class Comment(msgspec.Struct, frozen=True):
    """What the comment of a job of ours says; `more`: its labels and its description did not fit."""

    mpijob: str
    ns: str
    name: str
    n: tuple[int, int]
    runs: str = ""
    mpi: str = ""
    owner: str = ""
    priority: int = 0
    queue: str = ""
    labels: dict[str, str] = {}
    description: str = ""
    more: bool = False


def read_comment(text: str) -> Comment | None:
    """Return what a job's comment says, if it is one of ours."""
    if not text.startswith('{"mpijob":'):
        return None
    try:
        return codec.decode(text, Comment)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def write(
    job: MPIJob,
    directives: Iterable[str],
    environ: Mapping[str, str],
    launch: Iterable[str],
    *,
    directory: str,
) -> str:
    """Return the batch script; the ranks of an `arbitrary` layout find their nodes in a file beside it."""
    place, words, first = shlex.quote(directory), list(launch), list(directives)
    at = first.index(_COMPONENT) if _COMPONENT in first else len(first)
    output = (f"--output={directory}/slurm.out", "--open-mode=append")
    variables = [f"export {name}={shlex.quote(value)}" for name, value in sorted(environ.items())]
    arbitrary = ['export SLURM_HOSTFILE="$MPIJOB_ATTEMPT_DIR/hosts"', _HOSTS] if ARBITRARY in words else []
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH {_word(one)}" for one in (*first[:at], *output, *first[at:])),
            f"[ -r {place}/allocation.sh ] || exit {allocation.NOT_SHARED} # this node does not see the directory",
            *variables,
            f"export {_ALLOCATION.format(nodes=_nodes(job))}",
            "mpijob_launch() {",
            # What is said to srun and hydra would differ from it.
            "  unset SLURM_NTASKS_PER_NODE",
            *(f"  {line}" for line in (*arbitrary, f"exec {_wrapped(words)}")),
            "}",
            '. "$MPIJOB_DIR/allocation.sh"',
            "",
        ]
    )


def _nodes(job: MPIJob) -> str:
    """Return the variable with the nodes of the job; of each component, with a `+` between."""
    if not job.groups:
        return "$SLURM_JOB_NODELIST"
    return "+".join(f"$SLURM_JOB_NODELIST_HET_GROUP_{at}" for at in range(len(job.parts)))


def _wrapped(words: Iterable[str]) -> str:
    return " ".join(word if isinstance(word, Raw) else shlex.quote(word) for word in words)


def _word(text: str) -> str:
    """Return a directive's words: sbatch reads quotes in it, and takes no other escapes."""
    name, equals, value = text.partition("=")
    # The line would end there, and the rest be a command.
    if {"'", '"'} <= {*value} or not value.isprintable():
        message = f"{name} cannot have the value {value!r} in a batch script"
        raise InvalidJob(message, hint="use a value without line breaks, and without both kinds of quotes")
    plain = all(letter.isalnum() or letter in "-_./:,@%+=&[]" for letter in value)
    return text if plain else f"{name}{equals}'{value}'" if "'" not in value else f'{name}{equals}"{value}"'


def variables(
    job: MPIJob, launcher: Launcher, family: Family, layouts: Sequence[Layout], *, directory: str, uid: str
) -> dict[str, str]:
    """Return what the texts that start a job's ranks, and the ranks, are told about it."""
    layout = layouts[0]
    environ = command_line.job_variables(job) | allocation.limits(job)
    if family is Family.OPENMPI:
        # with the tree of Slurm's default 2 to 5 of 100 starts die in MPI_Init
        environ["SLURM_PMIX_FENCE"] = "ring"
        own = {key: value for key, value in job.launch.settings.items() if not key.isupper()}
        environ |= {f"OMPI_MCA_{key}": value for key, value in own.items()}
    return environ | {
        "MPIJOB_DIR": directory,
        "MPIJOB_UID": uid,
        "MPIJOB_SLOTS": str(job.slots),
        "MPIJOB_TASKS": str(layout.tasks_per_node),
        "MPIJOB_LAUNCH": launcher.kind if launcher.kind != "srun" else launcher.told,
        "MPIJOB_PMI": {"pmi2": "PMI_FD", "pmix": "PMIX_NAMESPACE"}.get(launcher.plugin, ""),
        "MPIJOB_GPUS_PER_RANK": str(layout.gpus // layout.tasks_per_node),
        "MPIJOB_STDIN": f"{directory}/work/{job.launch.stdin}" if job.launch.stdin else "",
        "MPIJOB_PARTS": " ".join(starmap(_told, zip(job.parts, layouts, strict=True))) if job.groups else "",
    }


def _told(part: Part, layout: Layout) -> str:
    """Return what the ranks of a component are told of it: how many they are, their slots, tasks, GPUs and workers."""
    ranks, gpus = part.job.workers * part.job.slots, layout.gpus // layout.tasks_per_node
    return f"{ranks}:{part.job.slots}:{layout.tasks_per_node}:{gpus}:{part.first}:{part.group}"


def launch(
    job: MPIJob, launcher: Launcher, family: Family, layouts: Sequence[Layout], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the line that starts the ranks, each behind its wrapper."""
    shim = (SHELL, RANK)
    if launcher.kind == "own":
        return job.argv
    if launcher.kind == "srun":
        # Of several programs each rank finds its own.
        words = job.argv if not job.programs else ("true",)
        found: list[str] = []
        for number, (part, layout) in enumerate(zip(job.parts, layouts, strict=True)):
            component = [":", f"--het-group={number}"] if number else []
            wanted = part.job.replace(programs=()) if job.groups else job
            found += [*component, *srun(wanted, layout), *shim, *words]
        return ("srun", f"--mpi={launcher.plugin}", *found)
    names = sorted(environ) if family is Family.OPENMPI else ()
    return command_line.line(
        family, job, launcher=launcher.path, hostfile="", agent="", shim=shim, names=names, nodes=False
    )


def srun(job: MPIJob, layout: Layout) -> list[str]:
    """Return the options of srun for the ranks of a job, or of a component, as the plan lays them out."""
    bind = {"core": "cores", "hwthread": "threads", "socket": "sockets", "numa": "ldoms", "none": "none"}
    words = [f"--ntasks={job.world}", "--kill-on-bad-exit=1", "--input=none"]
    words += ["--nodes=1"] if layout.nodes == 1 else []
    if job.world == layout.nodes * layout.tasks_per_node:
        words.append(f"--ntasks-per-node={layout.tasks_per_node}")
        words.append(f"--distribution={'cyclic' if job.launch.map_by == 'node' else 'block'}")
    else:
        # SLURM_HOSTFILE names a node for each rank.
        words.append(ARBITRARY)
    words += [f"--cpus-per-task={layout.cpus_per_task}"] if layout.cpus_per_task > 1 else []
    words += [f"--cpu-bind={bind[job.launch.bind_to]}"] if job.launch.bind_to in bind else []
    return words


def rank_nodes(plan: Plan) -> str:
    """Return the text that gives each rank of an `arbitrary` layout its node: its place in the job's list of nodes."""
    if ARBITRARY not in plan.launch:
        return ""
    wanted = (directive for directive in directives(plan.batch_script) if directive.startswith("--nodes="))
    each = -(-plan.job.workers // int(next(wanted, "--nodes=1").partition("=")[2]))
    nodes = sorted((rank, worker.index // each) for worker in plan.workers for rank in worker.ranks)
    return "".join(f"{node}\n" for _, node in nodes)
