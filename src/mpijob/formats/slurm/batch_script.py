"""The batch script of a job, and the options for sbatch and srun.

The script has only directives, variables and the launch line, so that users can read it. Everything else is in the
scripts beside it in the job's directory (`scripts/`), which are the same for every job. A user's own script is
submitted unchanged, with options on sbatch's command line (`own_options`).
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

# Slurm's limit is 1024.
MOST_COMMENT_BYTES = 1000
# Slurm's limit is later than our deadline: ours sends the warning signal, and its message has a reason.
_GRACE_MINUTES = 2
_SETTLE_SECONDS = 5.0


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
    """A word of the script that the shell expands, so it is not quoted."""

    __slots__ = ()


SHELL = Raw('"$MPIJOB_SH"')
# The script that runs each rank.
RANK = Raw('"$MPIJOB_DIR/allocation_rank.sh"')


class Launcher(NamedTuple):
    """How the ranks are started: by srun with a launch plugin, or by the library's own launcher in the allocation."""

    # One of srun, mpirun, hydra, custom, own.
    kind: str
    # srun's launch plugin.
    plugin: str = ""
    path: str = ""
    why: str = ""

    @property
    def display_name(self) -> str:
        """The launcher as messages name it."""
        return (
            f"srun --mpi={self.plugin}" if self.kind == "srun" else os.path.basename(self.path) or self.kind
        )


def choose(job: MPIJob, family: Family, launcher: str, plugins: Iterable[str], own: str) -> Launcher:
    """Return how the ranks of a job are started, with the reason."""
    names = set(plugins)
    if own:
        return Launcher(
            "own", path=own, why="the command contains its own launcher, which finds the allocation itself"
        )
    if family is Family.CUSTOM:
        return Launcher("custom", path=launcher, why="set in the job")
    kind = "mpirun" if family is Family.OPENMPI else "hydra"
    known_mappings = ("", "slot") if job.groups else ("", "slot", "node")
    needs_own_launcher = job.launch.rankfile or job.launch.flags or job.launch.map_by not in known_mappings
    if needs_own_launcher:
        return Launcher(kind, path=launcher, why="launch options that srun does not have")
    if family is Family.OPENMPI and "pmix" in names:
        return Launcher("srun", "pmix", why="this Slurm has PMIx, which Open MPI supports")
    if family is Family.MPICH and "pmi2" in names:
        return Launcher("srun", "pmi2", why="this Slurm has PMI-2, which MPICH supports")
    # Without the path, ranks of Intel MPI started by srun are one world each.
    if family is Family.INTEL and "pmi2" in names and job.env.get("I_MPI_PMI_LIBRARY"):
        return Launcher("srun", "pmi2", why="the job names Slurm's PMI-2 library (I_MPI_PMI_LIBRARY)")
    lacking = "Intel MPI has no path to Slurm's PMI library" if family is Family.INTEL else (
        f"this Slurm has no launch plugin for {family.value} (srun --mpi=list: {', '.join(sorted(names)) or 'nothing'})"
    )  # fmt: skip
    return Launcher(kind, path=launcher, why=lacking)


def minutes(job: MPIJob, most_seconds: float | None) -> int | None:
    """Return the time limit to request, None without a deadline: enough for all attempts, at most what is allowed."""
    if job.deadline_seconds is None:
        return None
    tries = job.retry.limit + 1
    pauses = sum(job.retry.delay_seconds(number) for number in range(1, tries))
    whole = (
        math.ceil((job.deadline_seconds * tries + pauses + job.grace_seconds + _SETTLE_SECONDS) / 60)
        + _GRACE_MINUTES
    )
    return whole if most_seconds is None else max(1, min(whole, int(most_seconds // 60)))


def own_options(job: MPIJob, facts: SlurmFacts) -> list[str]:
    """Return the options that the job itself sets: partition, account, QOS, nodes and the like."""
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
    """Return the options of a job with a command, with `hetjob` between the components of its groups."""
    found: list[str] = []
    for part, layout in zip(job.parts, layouts, strict=True):
        found += [*([_COMPONENT] if found else []), *options(part.job, layout, facts)]
    return found


def options(job: MPIJob, layout: Layout, facts: SlurmFacts) -> list[str]:
    """Return the options of a job, or of a component: its shape, its limits, its placement."""
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
    """Return the options in which a job differs from the header of its script (`script`)."""
    plain = (one.replace(requeue_on_lost_worker=False) for one in (script, job))
    own, asked = (options(one, slurm.layout(one, facts.nodes), facts) for one in plain)
    fixed = ("--job-name", "--kill-on-invalid-dep", "--no-requeue")
    return [one for one in asked if one not in own and not one.startswith(fixed)]


def directives(script: str) -> list[str]:
    """Return the options in the header of a script that `write` has written, except for its output."""
    lines = (line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH "))
    words = [word for line in lines for word in shlex.split(line)]
    return [word for word in words if not word.startswith(("--output", "--open-mode"))]


def command_key(job: MPIJob) -> str:
    """Return a short hash of the command and the size of the world: equal for jobs that should take equally long."""
    text = "\0".join((*job.words, job.script, str(job.world)))
    return f"{zlib.crc32(text.encode()):08x}"


def comment(job: MPIJob, uid: str, mpi: str) -> str:
    """Return the job's comment, which squeue shows; labels and description are left out if they are too long."""
    entries: dict[str, object] = {
        "mpijob": uid,
        "ns": job.namespace,
        "name": job.name,
        "n": [job.workers, job.world],
        "runs": command_key(job),
    }
    more = {"mpi": mpi, "owner": job.owner, "priority": job.priority_number, "queue": job.queue}
    entries |= {name: value for name, value in more.items() if value}
    texts = {"labels": dict(job.labels), "description": job.description}
    whole = entries | {name: value for name, value in texts.items() if value}
    # Lists of jobs need no file of the job: the comment says enough about a waiting one.
    text = msgspec.json.encode(whole).decode()
    return (
        text
        if len(text.encode()) <= MOST_COMMENT_BYTES
        else msgspec.json.encode(entries | {"more": True}).decode()
    )


class Comment(msgspec.Struct, frozen=True):
    """The comment of a job of ours; `more`: labels and description did not fit."""

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
    """Return a job's comment, None for a job that is not ours."""
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
    """Return the batch script. Ranks of an `arbitrary` layout get their nodes from a file in the same directory."""
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
            # sbatch sets it for the allocation; it would contradict the options of srun and hydra.
            "  unset SLURM_NTASKS_PER_NODE",
            *(f"  {line}" for line in (*arbitrary, f"exec {_wrapped(words)}")),
            "}",
            '. "$MPIJOB_DIR/allocation.sh"',
            "",
        ]
    )


def _nodes(job: MPIJob) -> str:
    """Return the variable with the job's nodes; with groups, one for each component, joined by `+`."""
    if not job.groups:
        return "$SLURM_JOB_NODELIST"
    return "+".join(f"$SLURM_JOB_NODELIST_HET_GROUP_{at}" for at in range(len(job.parts)))


def _wrapped(words: Iterable[str]) -> str:
    return " ".join(word if isinstance(word, Raw) else shlex.quote(word) for word in words)


def _word(text: str) -> str:
    """Return a directive: sbatch understands quotes in it, but no other escapes."""
    name, equals, value = text.partition("=")
    # A line break would end the directive, and the rest would be a command.
    if {"'", '"'} <= {*value} or not value.isprintable():
        message = f"{name} cannot have the value {value!r} in a batch script"
        raise InvalidJob(message, hint="use a value without line breaks, and without both kinds of quotes")
    plain = all(letter.isalnum() or letter in "-_./:,@%+=&[]" for letter in value)
    return text if plain else f"{name}{equals}'{value}'" if "'" not in value else f'{name}{equals}"{value}"'


def variables(
    job: MPIJob, launcher: Launcher, family: Family, layouts: Sequence[Layout], *, directory: str, uid: str
) -> dict[str, str]:
    """Return the variables for the scripts that start a job's ranks, and for the ranks."""
    layout = layouts[0]
    environ = command_line.job_variables(job) | allocation.limits(job)
    if family is Family.OPENMPI:
        # With Slurm's default fence (tree) 2 to 5 of 100 starts crash in MPI_Init (Slurm 22.05, Open MPI 4.1).
        environ["SLURM_PMIX_FENCE"] = "ring"
        own = {key: value for key, value in job.launch.settings.items() if not key.isupper()}
        environ |= {f"OMPI_MCA_{key}": value for key, value in own.items()}
    return environ | {
        "MPIJOB_DIR": directory,
        "MPIJOB_UID": uid,
        "MPIJOB_SLOTS": str(job.slots),
        "MPIJOB_TASKS": str(layout.tasks_per_node),
        "MPIJOB_LAUNCH": launcher.kind if launcher.kind != "srun" else launcher.display_name,
        "MPIJOB_PMI": {"pmi2": "PMI_FD", "pmix": "PMIX_NAMESPACE"}.get(launcher.plugin, ""),
        "MPIJOB_GPUS_PER_RANK": str(layout.gpus // layout.tasks_per_node),
        "MPIJOB_STDIN": f"{directory}/work/{job.launch.stdin}" if job.launch.stdin else "",
        "MPIJOB_PARTS": " ".join(starmap(_part_entry, zip(job.parts, layouts, strict=True)))
        if job.groups
        else "",
    }


def _part_entry(part: Part, layout: Layout) -> str:
    """Return a component for the rank script: its ranks, slots, tasks, GPUs, first worker and group."""
    ranks, gpus = part.job.workers * part.job.slots, layout.gpus // layout.tasks_per_node
    return f"{ranks}:{part.job.slots}:{layout.tasks_per_node}:{gpus}:{part.first}:{part.group}"


def launch(
    job: MPIJob, launcher: Launcher, family: Family, layouts: Sequence[Layout], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the line that starts the ranks, each with the rank script before its command."""
    shim = (SHELL, RANK)
    if launcher.kind == "own":
        return job.argv
    if launcher.kind == "srun":
        # Of several programs, each rank script selects its own.
        words = job.argv if not job.programs else ("true",)
        found: list[str] = []
        for number, (part, layout) in enumerate(zip(job.parts, layouts, strict=True)):
            component = [":", f"--het-group={number}"] if number else []
            component_job = part.job.replace(programs=()) if job.groups else job
            found += [*component, *srun(component_job, layout), *shim, *words]
        return ("srun", f"--mpi={launcher.plugin}", *found)
    names = sorted(environ) if family is Family.OPENMPI else ()
    return command_line.line(
        family, job, launcher=launcher.path, hostfile="", agent="", shim=shim, names=names, nodes=False
    )


def srun(job: MPIJob, layout: Layout) -> list[str]:
    """Return srun's options for the ranks of a job, or of a component, as planned."""
    bind = {"core": "cores", "hwthread": "threads", "socket": "sockets", "numa": "ldoms", "none": "none"}
    # By default srun waits for the other ranks when one fails, and reads the batch script's stdin.
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
    """Return a file with each rank's node for an `arbitrary` layout: the index in the job's list of nodes."""
    if ARBITRARY not in plan.launch:
        return ""
    component_job = (
        directive for directive in directives(plan.batch_script) if directive.startswith("--nodes=")
    )
    each = -(-plan.job.workers // int(next(component_job, "--nodes=1").partition("=")[2]))
    nodes = sorted((rank, worker.index // each) for worker in plan.workers for rank in worker.ranks)
    return "".join(f"{node}\n" for _, node in nodes)
