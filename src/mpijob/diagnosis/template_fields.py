"""Fills the fields of a rule's sentences and patches with numbers and names.

An unknown field is None, and a sentence or remedy that requires it is not used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from string import Formatter
from typing import Any

import msgspec

from mpijob.diagnosis.evidence import Evidence
from mpijob.model import Family, MPIJob
from mpijob.model.spec import quantity
from mpijob.model.spec.command import SHELLS
from mpijob.model.status.records import spans

GIB, MIB = 1 << 30, 1 << 20
_HOST = re.compile(r"(?:worker|-node-\d{1,6})-(\d{1,6})(?:\.|$)")
_TITLES = {Family.OPENMPI: "Open MPI", Family.MPICH: "MPICH", Family.INTEL: "Intel MPI"}
_BATCH_OPTION = re.compile(r"-{1,2}[\w.-]*batch[\w.-]*|-b|-bs")
_BATCH = re.compile(r"((?:^|\s)-{0,2}[\w.-]*batch[\w.-]*[= ])(\d{1,7})(?=\s|$)")
_HEAP = re.compile(r"(-Xmx|--max-old-space-size=)(\d{1,7})([kmgKMG]?)")
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
_NAMES_PYTHON = re.compile(r"(?:^|[\s/;&|])(?:python[0-9.]{0,8}|[\w.-]{1,80}\.py)(?=\s|$)")
_SAYS_PYTHON = re.compile(rb"python\d|\.py\b|Traceback \(most recent|Fatal Python error")
_MORE_FILES = ("bash", "-c", 'ulimit -n "$(ulimit -Hn)"; exec "$@"', "bash")
_GDB = ("gdb", "-q", "-batch", "-return-child-result", "-ex", "run", "-ex", "bt", "--args")


def field_values(
    seen: Evidence, worker: int | None, rank: int | None, sign: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all fields for one finding; the values of the sign itself take precedence."""
    memory = seen.memory_of(worker)
    peak = max(sign.get("peak_bytes") or 0, memory.peak_bytes if memory else 0)
    limit = sign.get("limit_bytes") or (memory.limit_bytes if memory else 0)
    spec = seen.spec.part_of(worker or 0).job
    limit = limit or (0 if seen.bare else spec.resources.asked.memory_bytes)
    return {
        "worker": worker,
        "rank": rank,
        "who": subject(worker, rank),
        "whom": lowered(subject(worker, rank)),
        "family": None if seen.family is Family.AUTO else seen.family.value,
        **{family.value: name for family, name in _TITLES.items() if seen.family in (family, Family.AUTO)},
        "ranks_there": spans(seen.ranks_of(worker)) or None,
        "node": _node(seen, worker),
        "peak": quantity.as_bytes(peak) if peak else None,
        "limit": quantity.as_bytes(limit) if limit else None,
        "limit_short": short_size(limit) if limit else None,
        "more_memory": doubled(max(peak, limit)) if limit else None,
        **(
            {}
            if seen.bare
            else {**_of_spec(seen.spec), **_of_worker(spec), **_of_components(seen.spec, sign)}
        ),
        **_of_library(seen, sign),
        **_crash_tools(seen),
        "with_mpi4py": None if seen.bare or seen.ranks_watched else with_mpi4py(seen.spec.command),
    } | {name: value for name, value in sign.items() if value is not None}


def _of_spec(spec: MPIJob) -> dict[str, Any]:
    return {
        "job": spec.name,
        "workers": spec.workers,
        "fewer_workers": spec.workers // 2 or None,
        "world": spec.world,
        "room": spec.total_slots,
        "program": spec.argv[0] if spec.argv else None,
        "deadline": None if spec.deadline_seconds is None else f"{spec.deadline_seconds:g}",
        "signal_before": (early := min(120.0, (spec.deadline_seconds or 240.0) / 2)),
        "signal_text": f"{early:g}",
        "longer_deadline": None if spec.deadline_seconds is None else spec.deadline_seconds * 2,
        "with_shm": _with_shm(spec),
        "rendezvous": "MASTER_PORT" if "MASTER_PORT" in spec.env else None,
        "with_files": None if "ulimit" in " ".join(spec.command) else [*_MORE_FILES, *spec.command],
        **_smaller_batch(spec.command),
        **_larger_heap(spec.command),
    }


def _of_worker(spec: MPIJob) -> dict[str, Any]:
    # From the worker's group.
    return {
        "slots": spec.slots,
        "fewer_slots": spec.slots // 2 or None,
        "gpu_slots": spec.resources.gpu if 0 < spec.resources.gpu < spec.slots else None,
    }


def _smaller_batch(command: tuple[str, ...]) -> dict[str, Any]:
    # The command with half of its batch size, and both numbers; nothing if it has none.
    for at, word in enumerate(command):
        # --batch-size=128, or a complete shell command.
        inside = _BATCH.search(word)
        following = command[at + 1] if _BATCH_OPTION.fullmatch(word) and at + 1 < len(command) else ""
        number = inside[2] if inside else following
        if not number.isdecimal() or int(number) < 2:
            continue
        half = str(int(number) // 2)
        changed = word[: inside.start(2)] + half + word[inside.end(2) :] if inside else word
        rest = command[at + 1 :] if inside else (half, *command[at + 2 :])
        return {"smaller_batch": [*command[:at], changed, *rest], "batch": number, "half_batch": half}
    return {}


def _of_components(spec: MPIJob, sign: Mapping[str, Any]) -> dict[str, Any]:
    # The job's own settings of the reported frameworks or parameter, emptied: Open MPI takes an empty list as
    # no list, and chooses among all.
    frameworks = [name for field in ("framework", "needed", "parameter") if (name := sign.get(field))]
    settings = {name: "" for name in frameworks if spec.launch.settings.get(name)}
    variables = {name: "" for framework in frameworks if spec.env.get(name := f"OMPI_MCA_{framework}")}
    return {
        "own_setting": ", ".join(settings) or None,
        "emptied_setting": settings or None,
        "own_variable": ", ".join(variables) or None,
        "emptied_variable": variables or None,
    }


def _of_library(seen: Evidence, sign: Mapping[str, Any]) -> dict[str, Any]:
    # The loader's path with the directory of the missing library, if it is known.
    directory = seen.libraries.get(sign.get("library", ""))
    if directory is None:
        return {"unknown_path": "unknown"}
    given = seen.spec.env.get("LD_LIBRARY_PATH")
    return {"library_path": f"{directory}:{given}" if given else directory}


def _larger_heap(command: tuple[str, ...]) -> dict[str, Any]:
    # The command with twice its heap limit for Java or Node.js, if it has one.
    for at, word in enumerate(command):
        if (option := _HEAP.fullmatch(word)) is not None:
            larger = f"{option[1]}{2 * int(option[2])}{option[3]}"
            return {
                "larger_heap": [*command[:at], larger, *command[at + 1 :]],
                "larger_heap_text": f"{word} → {larger}",
            }
    return {}


def _crash_tools(seen: Evidence) -> dict[str, Any]:
    # How to find the line of a crash: Python can report it, for other programs a debugger can.
    scripts = seen.spec.code.files.values()
    named = any(_NAMES_PYTHON.search(text) for text in (*seen.spec.words, *scripts)) and not seen.bare
    lines = (*(line.text for line in seen.logs), *(text for window in seen.windows for text in window.lines))
    if named or any(_SAYS_PYTHON.search(text) for text in lines):
        return {"python": "Python"}
    words = seen.spec.argv
    if seen.bare or not words or any("gdb" in text for text in (*words, *scripts)):
        return {}
    in_script = words[0].rpartition("/")[2] in SHELLS
    return {"gdb": " ".join(_GDB)} if in_script else {"with_gdb": [*_GDB, *seen.spec.command]}


def _node(seen: Evidence, worker: int | None) -> str | None:
    pods = (pod.node for pod in seen.pods if pod.worker == worker and pod.node)
    ranks = (state.node for state in seen.census if state.worker == worker and state.node)
    return None if worker is None else next(iter((*pods, *ranks)), None)


def _with_shm(spec: MPIJob) -> list[dict[str, Any]]:
    others = [msgspec.to_builtins(volume) for volume in spec.volumes if volume.mount != "/dev/shm"]  # noqa: S108
    return [*others, {"mount": "/dev/shm", "kind": "shm", "size": "2Gi"}]  # noqa: S108


def duration_text(seconds: float) -> str:
    """Return a duration for messages: `40 s`, `45 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def fill(template: str, values: Mapping[str, Any]) -> str | None:
    """Return a template with its fields, or None if one of them is unknown."""
    names = [name for _, name, _, _ in Formatter().parse(template) if name]
    if any(values.get(name) is None for name in names):
        return None
    return template.format_map(values)


def fill_patch(patch: Any, values: Mapping[str, Any]) -> Any:
    """Return a patch with its fields; a string that is only a field gets the field's type."""
    if isinstance(patch, Mapping):
        return {key: fill_patch(value, values) for key, value in patch.items()}
    if isinstance(patch, (list, tuple)):
        return [fill_patch(value, values) for value in patch]
    if isinstance(patch, str) and re.fullmatch(r"\{\w+\}", patch):
        return values.get(patch[1:-1])
    return patch


def subject(worker: int | None, rank: int | None) -> str:
    """Return the subject of a sentence: the rank or worker, as far as it is known."""
    if rank is not None:
        return f"Rank {rank}" if worker is None else f"Rank {rank} on worker {worker}"
    return "A rank" if worker is None else f"Worker {worker}"


def lowered(sentence: str) -> str:
    """Return a sentence with a lower-case first letter, to be used within another."""
    return sentence[:1].lower() + sentence[1:]


def worker_of_host(host: str) -> int | None:
    """Return a worker's index from its host name: `bert-worker-3`, or `bert-node-0-3` on a cluster, is worker 3."""
    match = _HOST.search(host)
    return int(match[1]) if match else None


def worker_at(seen: Evidence, host: str) -> int | None:
    """Return the worker of a host: by the known pods, else by the host's name."""
    short = host.partition(".")[0]
    known = (pod.worker for pod in seen.pods if short in (pod.name, pod.name.rpartition("-")[0]))
    return next(known, worker_of_host(host))


def short_size(size: int) -> str:
    """Return a memory size for messages: `32GB`, `512MB`."""
    if size >= GIB:
        return f"{size / GIB:.3g}GB"
    return f"{size / MIB:.3g}MB"


def doubled(size: int) -> str:
    """Return twice a memory size as a round amount: a process that was killed at a limit may need any amount more."""
    wanted = size * 2
    if wanted >= 2 * GIB:
        return f"{math.ceil(wanted / GIB)}Gi"
    return f"{math.ceil(wanted / MIB / 64) * 64}Mi"


def with_mpi4py(command: tuple[str, ...]) -> list[str] | None:
    """Return a Python command started through `mpi4py`, which ends all ranks when one fails; None for others."""
    if len(command) < 1 or not _PYTHON.fullmatch(command[0]) or "mpi4py" in command:
        return None
    return [command[0], "-m", "mpi4py", *command[1:]]
