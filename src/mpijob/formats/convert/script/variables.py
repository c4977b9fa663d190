"""Variables that a script uses: those of the batch system that have a like here, and those that nobody sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from mpijob.formats.convert.header.request import INHERITED, Request, given_by
from mpijob.formats.convert.header.size import Asked, shaped
from mpijob.formats.convert.header.units import listed
from mpijob.formats.convert.script import build_steps
from mpijob.formats.convert.script.steps import Step
from mpijob.formats.convert.shell.constants import constant, defaulted, filled, mentioned, needed
from mpijob.model import MPIJob, Resources

_FOREIGN = ("SLURM_", "SBATCH_", "PBS_")
_USUAL = listed(
    "HOME PATH PWD OLDPWD USER LOGNAME SHELL HOSTNAME TMPDIR LANG RANDOM SECONDS LINENO IFS UID OMP_NUM_THREADS "
    "BASH_SOURCE FUNCNAME PIPESTATUS NF NR"
)
_PYTHON = re.compile(
    r"environ\[\s*[\"'](?P<held>[A-Za-z_]\w*)[\"']\s*\](?!\s*=[^=])"
    r"|(?:environ\.get|getenv)\(\s*[\"'](?P<got>[A-Za-z_]\w*)[\"']\s*\)"
)
_FOREIGN_NAME = re.compile(r"(?<![\w])(?:SLURM|SBATCH|PBS)_[A-Z][A-Z0-9_]*(?!\w)")
_SET = re.compile(r"\b([A-Za-z_]\w*)[+:]?=|\b(?:for|read)\s+(\w+)")
_OF_ITSELF = re.compile(r"\b([A-Za-z_]\w*)=\"?(?=\$\{\1:?[-=])|(?<=\$\{)([A-Za-z_]\w*):?=")

LIKE = {
    "SLURM_PROCID": "$MPIJOB_RANK",
    "SLURM_LOCALID": "$MPIJOB_LOCAL_RANK",
    "SLURM_JOB_ID": "$MPIJOB_NAME",
    "SLURM_JOBID": "$MPIJOB_NAME",
    "SLURM_SUBMIT_DIR": "$PWD",
    "PBS_O_WORKDIR": "$PWD",
    "PBS_JOBID": "$MPIJOB_NAME",
    "SLURM_TMPDIR": "${TMPDIR:-/tmp}",
    "SLURM_ARRAY_JOB_ID": "$MPIJOB_NAME",
    "SLURM_RESTART_COUNT": "$((${MPIJOB_ATTEMPT:-1} - 1))",
}


def unknown(words: tuple[str, ...], request: Request) -> frozenset[str]:
    """Return the batch system's variables in words that have no like here."""
    names = {name for word in words for name in mentioned(word) if name.startswith(_FOREIGN)}
    return frozenset(
        names - set(request.known) - set(LIKE) - {key.partition(".")[2] for key in request.values}
    )


def known(request: Request, asked: Asked) -> dict[str, str]:
    """Return the batch system's variables whose values the head tells."""
    shape = shaped(asked)
    ranks = asked.ranks or shape.workers * shape.slots
    said = of_head(request.fields.get("queue", ""), request.fields.get("cost", {}), request.values)
    return said | _of_shape(request.name, ranks, shape.workers, shape.slots, shape.cores, shape.resources)


def of_head(queue: str, cost: Mapping[str, str], values: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the batch system's variables that only repeat the head: queue, account, and the numbers of an array."""
    found = {"SLURM_JOB_PARTITION": queue, "PBS_QUEUE": queue, "SLURM_JOB_ACCOUNT": cost.get("account", "")}
    numbers = [int(one) for one in values.get("env.SLURM_ARRAY_TASK_ID", ())]
    if numbers:
        steps = {second - first for first, second in pairwise(numbers)}
        found |= {
            "SLURM_ARRAY_TASK_COUNT": str(len(numbers)),
            "SLURM_ARRAY_TASK_MIN": str(min(numbers)),
            "SLURM_ARRAY_TASK_MAX": str(max(numbers)),
            "SLURM_ARRAY_TASK_STEP": str(steps.pop() if len(steps) == 1 else 1),
        }
    return {name: value for name, value in found.items() if value}


def plain_words(words: tuple[str, ...], values: dict[str, str]) -> tuple[str, ...] | None:
    """Return words as they are handed to a program, or None when a shell has to look at them.

    A word in single quotes may be a script that uses the batch system's variables: they must be set for it.
    """
    told = [filled(word, values) for word in words]
    if any(name in LIKE or name.startswith(_FOREIGN) for word in told for name in mentioned(word)):
        return None
    found = [constant(word) for word in told]
    return None if any(word is None for word in found) else tuple(word for word in found if word is not None)


def like(request: Request, used: Iterable[str], text: str) -> list[str]:
    """Return lines that set what the batch system would, and tell what each is here."""
    found = [key for key in LIKE if key in used and key not in request.known]
    for key in found:
        if f"${key}" not in {entry.field for entry in request.notes.entries}:
            request.notes.at(_line(text, key)).changed(f"${key}", "", "code.files", meaning(key))
    return [exported(key) for key in found]


def meaning(key: str) -> str:
    """Return what a variable of the batch system is here, in a sentence."""
    note = f"it is {LIKE[key]} here"
    if "NAME" in LIKE[key]:
        return f"{note}; a name, not a number"
    if "PWD" in LIKE[key]:
        return f"{note}: the job's own directory; what is left in it: mpijob artifacts list NAME"
    return note


def tell_unset(request: Request, steps: list[Step], text: str) -> None:
    """Tell which variables are used and never set: they come from the site, or from the user's shell."""
    kept = "\n".join(line for step in steps for line in _lines(step))
    given = {*LIKE, *request.known, *_USUAL, *request.fields.get("env", {})}
    given |= {name for step in steps for name in step.env}
    _tell_defaults(request, defaulted(kept) - given - _set(_OF_ITSELF.sub("", kept)), text)
    asked = needed(kept) | asked_for(request.files.values())
    for name in sorted(asked - given - _set(kept)):
        if not name.startswith(("MPIJOB_", *_FOREIGN)):
            note = f"the script uses it and does not set it: {INHERITED}"
            request.notes.at(_line(text, name)).dropped(f"${name}", "", note, given_by(name))


def _tell_defaults(request: Request, names: Iterable[str], text: str) -> None:
    """Tell which variables the user's shell may have set, so that the script's own value is used from now on."""
    for name in sorted(names):
        if not name.startswith(("MPIJOB_", *_FOREIGN)):
            note = f"the script's own value is used, also where your shell has another: {INHERITED}"
            todo = f"nothing, or add --env {name} when you run it, which takes your shell's value"
            request.notes.at(_line(text, name)).changed(f"${name}", "", "", note, todo)


def asked_for(texts: Iterable[str]) -> frozenset[str]:
    """Return the variables without which Python programs fail."""
    return (
        frozenset(match["held"] or match["got"] for text in texts for match in _PYTHON.finditer(text))
        - _USUAL
    )


def foreign(text: str) -> frozenset[str]:
    """Return the batch system's variables that a program names outside of its comments."""
    kept = (line for line in text.split("\n") if not line.lstrip().startswith(("#", "//")))
    return frozenset(name for line in kept for name in _FOREIGN_NAME.findall(line))


def set_in(texts: Iterable[str]) -> frozenset[str]:
    """Return the variables that scripts set."""
    return frozenset(name for text in texts for name in _set(text))


def fixed(job: MPIJob, values: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, str]:
    """Return the batch system's variables that have one value for all ranks of a job, perhaps one of an array."""
    return of_head(job.queue, job.cost, values or {}) | _of_shape(
        job.name, job.world, job.workers, job.slots, job.cores_per_rank, job.resources
    )


def _of_shape(
    name: str, ranks: int, workers: int, slots: int, cores: int, resources: Resources
) -> dict[str, str]:
    found: dict[tuple[str, ...], object] = {
        ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "PBS_NP"): ranks,
        ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PBS_NUM_NODES"): workers,
        ("SLURM_NTASKS_PER_NODE", "PBS_NUM_PPN"): slots,
        ("SLURM_CPUS_PER_TASK",): cores,
        ("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "NCPUS"): resources.cpu,
        ("SLURM_TASKS_PER_NODE",): slots if workers == 1 else f"{slots}(x{workers})",
        ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"): resources.gpu,
        ("SLURM_JOB_NAME", "PBS_JOBNAME"): name,
    }
    return {name: str(value) for names, value in found.items() for name in names}


def exported(key: str) -> str:
    """Return the line that gives a rank a variable of the batch system."""
    return set_unless(key, LIKE[key])


def set_unless(key: str, value: str) -> str:
    """Return the line that sets a variable where the batch system itself does not."""
    return f'export {key}="${{{key}:-{value}}}"'


def _lines(step: Step) -> list[str]:
    lines = [*build_steps.written(step.prepared), *step.setting, step.text, " ".join(step.words)]
    return [line for line in lines if not line.startswith("# ")]


def _set(text: str) -> set[str]:
    return {first or second for first, second in _SET.findall(text)}


def _line(text: str, name: str) -> int:
    """Return the number of the first line that uses a variable; 0 when it is in none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.lstrip().startswith("#") and (name in mentioned(line) or name in asked_for((line,))):
            return number
    return 0
