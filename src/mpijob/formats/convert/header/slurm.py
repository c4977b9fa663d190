"""The head of a Slurm script: every `#SBATCH` line as fields of a job, and what became of it.

One node becomes one worker. Which options there are is in `slurm_options`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mpijob.formats.convert.header import dependencies, lines, mail, slurm_options, units
from mpijob.formats.convert.header.request import (
    DEADLINE,
    INHERITED,
    NAMED,
    Request,
    take_name,
    take_variables,
)
from mpijob.formats.convert.header.size import Asked
from mpijob.formats.convert.header.slurm_options import GONE, SAME
from mpijob.model import Placement, Retry, Signal, Topology
from mpijob.model.spec.enums import SIGNALS, did_you_mean

_DIRECTIVE = re.compile(r"#SBATCH\b\s*(.*)")
_MISSPELT = re.compile(r"#\s?S(?!BATCH\b)[A-Z]{3,7}\s+-")
ARRAY = "SLURM_ARRAY_TASK_ID"
Handler = Callable[[Request, str, str], None]


def head(text: str) -> Request:
    """Return what the directives of a script ask for; they end where the first command begins."""
    request = Request(system="Slurm", components=[Asked()])
    for line in lines.header(text):
        request.notes.line = line.number
        if match := _DIRECTIVE.match(line.text):
            _directive(request, match[1])
        elif _MISSPELT.match(line.text):
            note = "a directive begins with #SBATCH; so it is a comment, to Slurm too"
            request.notes.dropped(line.text, "", note, "write #SBATCH, or take it out", blocks=True)
    request.notes.line = 0
    lines.tell_late(request, text, "#SBATCH")
    mail.finish(request, mail.SLURM)
    if not any(entry.field == "--export" for entry in request.notes.entries):
        request.notes.changed("--export", "(not said: ALL)", "", INHERITED, NAMED)
    return request


def _directive(request: Request, text: str) -> None:
    words = list(slurm_options.directives(text))
    if words and words[0] in ("hetjob", "packjob"):
        request.components.append(Asked())
        note = (
            "the components of a heterogeneous job become workers that are all alike, as large as the largest"
        )
        request.notes.changed(
            words[0], "", "workers", note, "name the ranks of each component on its srun line: -n"
        )
        return
    found, count = slurm_options.pairs(words)
    for name, value, written in found:
        take(request, name, value, written)
    if count < len(words):
        rest = " ".join(words[count:])
        request.notes.dropped("#SBATCH", rest, "this is not an option", "check the line", blocks=False)


def take(request: Request, name: str, value: str, written: str) -> None:
    """Take one option over; Slurm takes an abbreviation that means one option alone."""
    longer = [one for one in (*_HANDLERS, *SAME, *GONE) if one.startswith(name)] if len(name) > 1 else []
    name = longer[0] if len(longer) == 1 else name
    field = f"--{name}"
    if name in _HANDLERS:
        _HANDLERS[name](request, field, value)
    elif name in SAME:
        request.notes.exact(field, value, "", SAME[name])
    elif name in GONE:
        note, todo = GONE[name]
        request.notes.dropped(field, value, note, todo)
    elif meant := did_you_mean(name, [*_HANDLERS, *SAME, *GONE], cutoff=0.8):
        note = f"Slurm has no such option; --{meant} is one"
        request.notes.dropped(written, "", note, f"write --{meant}, or take it out", blocks=True)
    else:
        request.notes.dropped(written, "", "this option is not known here", "check whether the job needs it")


def _number(key: str, ours: str) -> Handler:
    def handler(request: Request, field: str, value: str) -> None:
        number = units.whole(value)
        if number is None or number < 1:
            request.notes.dropped(field, value, "this is not a plain number", f"set {ours}", blocks=True)
            return
        request.ask(**{key: number})
        request.notes.exact(field, value, ours)

    return handler


def _nodes(request: Request, field: str, value: str) -> None:
    least, dash, most = value.partition("-")
    number = units.whole(most or least)
    if number is None or number < 1:
        request.notes.dropped(field, value, "this is not a number of nodes", "set workers", blocks=True)
        return
    request.ask(nodes=number)
    if dash and most != least:
        request.notes.changed(
            field, value, "workers", f"a job here has a fixed number of workers: {number}, the most"
        )
    else:
        request.notes.exact(field, value, "workers", "one worker for each node")


def _size(key: str, ours: str, note: str) -> Handler:
    def handler(request: Request, field: str, value: str) -> None:
        found = units.memory(value)
        if found is None or found.startswith("0"):
            reason = "0 asks for all memory of a node" if found else "this is not a size"
            request.notes.dropped(field, value, reason, "set resources.memory: what one worker needs")
            return
        request.ask(**{key: found})
        if note:
            request.notes.changed(field, value, ours, note)
        else:
            request.notes.exact(field, value, ours, "Slurm's limit of a node is the limit of a worker")

    return handler


def _gres(request: Request, field: str, value: str) -> None:
    for part in value.split(","):
        pieces = (
            re.sub(r"\(.*", "", part.removeprefix("gres:").removeprefix("gres/")).replace("=", ":").split(":")
        )
        number = units.whole(pieces[-1]) if len(pieces) > 1 else 1
        if pieces[0] != "gpu" or number is None:
            request.notes.dropped(
                field, part, "there is no such resource here", "name it in resources.others"
            )
            continue
        request.ask(gpus_per_node=number)
        _gpu_type(request, field, part, pieces[1] if len(pieces) > 2 else "", "resources.gpu")


def _gpus(key: str, note: str) -> Handler:
    def handler(request: Request, field: str, value: str) -> None:
        kind, _, count = value.rpartition(":")
        number = units.whole(count)
        if number is None:
            request.notes.dropped(field, value, "this is not a number of GPUs", "set resources.gpu")
            return
        request.ask(**{key: number})
        if note and not kind:
            request.notes.changed(field, value, "resources.gpu", note)
        else:
            _gpu_type(request, field, value, kind, "resources.gpu")

    return handler


def _gpu_type(request: Request, field: str, value: str, kind: str, ours: str) -> None:
    if not kind:
        request.notes.exact(field, value, ours)
        return
    todo = "name the nodes that have it: placement.node_selector, for example nvidia.com/gpu.product"
    request.notes.changed(field, value, ours, f"the number is kept, the type {kind} is not", todo)


def _time(request: Request, field: str, value: str) -> None:
    found = units.seconds(value)
    if value.upper() in ("UNLIMITED", "INFINITE") or found == 0:
        request.notes.exact(field, value, "", "a job here has no deadline unless it names one")
    elif found is None:
        request.notes.dropped(field, value, "this is not a time", "set deadline_seconds")
    else:
        request.fields["deadline_seconds"] = found
        request.notes.changed(field, value, f"deadline_seconds: {found:g}", DEADLINE)


def _signal(request: Request, field: str, value: str) -> None:
    match = re.fullmatch(r"((?:[BR]+:)?)(?:SIG)?(\w+)(?:@(\d{1,7}))?", value)
    numbers = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}
    name = numbers.get(match[2], match[2].upper()) if match else ""
    if match is None or name not in SIGNALS:
        request.notes.dropped(field, value, "no rank can be given this signal here", "set signal.name")
        return
    request.fields["signal"] = Signal(name=name, seconds_before=float(match[3] or 60))
    if "B" in match[1]:
        note = "B: means the batch shell alone; here every rank gets the signal, and the script does not"
        request.notes.changed(
            field, value, "signal", note, "catch it in the program, not by a trap of the script"
        )
    else:
        request.notes.exact(field, value, "signal", "every rank gets it before the deadline")


def _array(request: Request, field: str, value: str) -> None:
    take_array(request, field, value, ARRAY)
    if request.values:
        numbers = [int(number) for number in request.values[f"env.{ARRAY}"]]
        for name, number in (("COUNT", len(numbers)), ("MIN", min(numbers)), ("MAX", max(numbers))):
            request.env(f"SLURM_ARRAY_TASK_{name}", str(number))


def take_array(request: Request, field: str, value: str, variable: str) -> None:
    """Make a job of each number of an array, which the script finds in a variable."""
    listed, percent, together = value.partition("%")
    found = units.tasks(listed)
    if found is None:
        note = f"this is no list of numbers, or more than {units.MOST_TASKS}"
        request.notes.dropped(field, value, note, "use mpijob array", blocks=True)
        return
    request.values = {f"env.{variable}": found}
    request.env(variable, found[0])
    note = f"one job for each of {len(found)} values, made by mpijob array"
    request.notes.changed(field, listed, f"env.{variable}", note)
    if percent:
        todo = "give the namespace a quota of jobs, or the queue one of resources"
        request.notes.dropped(
            f"{field} %", together, "nothing here limits how many run at the same time", todo
        )


def take_queue(request: Request, field: str, value: str) -> None:
    """Name the queue after a partition or a queue of the batch system."""
    first, comma, _ = value.partition(",")
    queue = re.sub(r"[^a-z0-9.-]+", "-", first.lower()).strip("-.")
    if not queue:
        request.notes.dropped(field, value, "it cannot be the name of a queue", "set queue")
        return
    request.fields["queue"] = queue
    note = (
        "a queue of the cluster must have this name (mpijob queue shows them); a local engine has one queue"
    )
    request.notes.changed(
        field, value, f"queue: {queue}", note + ("; only the first is kept" if comma else "")
    )


def take_account(request: Request, field: str, value: str) -> None:
    """Keep who pays as a label."""
    key = {"--account": "account", "--wckey": "wckey", "-A": "account", "-P": "project"}[field]
    label = re.sub(r"[^-\w.]+", "-", value)[:63].strip("-_.")
    if not label:
        request.notes.dropped(field, value, "it cannot be a label", "set cost")
        return
    request.fields["cost"] = request.fields.get("cost", {}) | {key: label}
    note = "it is a label by which use is counted; nothing is refused because of it"
    request.notes.changed(field, value, f"cost.{key}", note)


def _requeue(request: Request, field: str, value: str) -> None:
    request.fields |= {"retry": Retry(limit=1), "requeue_on_lost_worker": True}
    note = "Slurm starts a job again when a node is lost or it is preempted; here also, once, when it fails"
    request.notes.changed(field, value, "retry.limit, requeue_on_lost_worker", note)


def _exclude(request: Request, field: str, value: str) -> None:
    found = units.hosts(value)
    if found is None:
        request.notes.dropped(field, value, "this list cannot be read", "set placement.exclude_nodes")
        return
    placement: Placement = request.fields.get("placement", Placement())
    request.fields["placement"] = placement.replace(exclude_nodes=found)
    note = "the names are kept; a cluster's nodes are called otherwise"
    request.notes.changed(field, value, "placement.exclude_nodes", note)


def _switches(request: Request, field: str, value: str) -> None:
    placement: Placement = request.fields.get("placement", Placement())
    request.fields["placement"] = placement.replace(topology=Topology.PACKED_RACK)
    request.notes.changed(
        field, value, "placement.topology", "a wish to be near each other, not a count of switches"
    )


def _comment(request: Request, field: str, value: str) -> None:
    request.fields["description"] = value
    request.notes.exact(field, value, "description")


def _image(request: Request, field: str, value: str) -> None:
    request.fields["image"] = value.removeprefix("docker://").replace("#", "/")
    request.notes.changed(
        field, value, "image", "the engine pulls it; it needs sshd and the MPI library (docs/cluster.md)"
    )


def _export(request: Request, field: str, value: str) -> None:
    take_variables(request, field, value, INHERITED)


def take_dependency(request: Request, field: str, value: str) -> None:
    """Remember that the job waits for another, whose name nobody knows here."""
    note = "jobs wait for each other by name, not by number"
    if dependencies.for_success(value):
        request.after = dependencies.FIRST
        todo = (
            "FIRST in the command that runs it is the name of the job that it waits for: --after FIRST; of an array "
            "each of its jobs: --after FIRST-0 --after FIRST-1 …"
        )
        request.notes.dropped(field, value, note, todo)
    for when, line in dependencies.otherwise(value, dependencies.FIRST, "mpijob run -f FILE"):
        todo = dependencies.explained(f"run it so that it starts when {when}: {line}")
        request.notes.dropped(field, value, note, todo)


def _exclusive(request: Request, field: str, value: str) -> None:
    todo = "ask for all cores of a node in resources.cpu, or placement.topology: spread"
    request.notes.dropped(field, value, "other jobs may share the nodes", todo)


_HANDLERS: dict[str, Handler] = {
    "job-name": take_name,
    "nodes": _nodes,
    "ntasks": _number("ranks", "ranks"),
    "ntasks-per-node": _number("per_node", "slots"),
    "tasks-per-node": _number("per_node", "slots"),
    "cpus-per-task": _number("cores", "cores_per_rank"),
    "mem": _size("memory", "resources.memory", ""),
    "mem-per-cpu": _size(
        "memory_per_core", "resources.memory", "times the cores of a worker: a limit is for a worker"
    ),
    "mem-per-gpu": _size(
        "memory_per_gpu", "resources.memory", "times the GPUs of a worker: a limit is for a worker"
    ),
    "gres": _gres,
    "gpus": _gpus("gpus", "shared out evenly: so many for each worker"),
    "gpus-per-node": _gpus("gpus_per_node", ""),
    "gpus-per-task": _gpus("gpus_per_rank", "times the slots of a worker: GPUs belong to a worker"),
    "time": _time,
    "signal": _signal,
    "array": _array,
    "partition": take_queue,
    "account": take_account,
    "wckey": take_account,
    "requeue": _requeue,
    "exclude": _exclude,
    "switches": _switches,
    "comment": _comment,
    "container-image": _image,
    "export": _export,
    "dependency": take_dependency,
    "exclusive": _exclusive,
    "mail-user": mail.take_address,
    "mail-type": mail.take_moments,
}
