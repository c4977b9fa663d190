"""The header of a Slurm script: `#SBATCH` lines as fields of a job, with a report.

One node becomes one worker. `slurm_options` lists the options.
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
    """Return what the directives ask for; they end at the first command."""
    request = Request(system="Slurm", components=[Asked()])
    for line in lines.header(text):
        request.notes.line = line.number
        if match := _DIRECTIVE.match(line.text):
            _directive(request, match[1])
        elif _MISSPELT.match(line.text):
            note = "a directive starts with #SBATCH; this line is a comment, also for Slurm"
            request.notes.dropped(line.text, "", note, "write #SBATCH, or remove the line", blocks=True)
    request.notes.line = 0
    lines.report_late(request, text, "#SBATCH")
    mail.finish(request, mail.SLURM)
    if not any(entry.field == "--export" for entry in request.notes.entries):
        request.notes.changed("--export", "(not set: ALL)", "", INHERITED, NAMED)
    return request


def _directive(request: Request, text: str) -> None:
    words = list(slurm_options.directives(text))
    if words and words[0] in ("hetjob", "packjob"):
        request.components.append(Asked())
        number = len(request.components) - 1
        note = f"component {number} becomes the group 'het-group-{number}', in the same MPI world"
        request.notes.changed(words[0], "", "groups", note)
        return
    found, count = slurm_options.pairs(words)
    for name, value, written in found:
        take(request, name, value, written)
    if count < len(words):
        rest = " ".join(words[count:])
        request.notes.dropped("#SBATCH", rest, "not an option", "check the line", blocks=False)


def take(request: Request, name: str, value: str, written: str) -> None:
    """Take one option; like Slurm, accept an unambiguous abbreviation."""
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
        note = f"Slurm has no such option; did you mean --{meant}?"
        request.notes.dropped(written, "", note, f"write --{meant}, or remove it", blocks=True)
    else:
        request.notes.dropped(written, "", "unknown option", "check whether the job needs it")


def _number(key: str, ours: str) -> Handler:
    def handler(request: Request, field: str, value: str) -> None:
        number = units.whole(value)
        if number is None or number < 1:
            request.notes.dropped(field, value, "not a whole number", f"set {ours}", blocks=True)
            return
        request.ask(**{key: number})
        request.notes.exact(field, value, request.of(ours))

    return handler


def _nodes(request: Request, field: str, value: str) -> None:
    least, dash, most = value.partition("-")
    number = units.whole(most or least)
    if number is None or number < 1:
        request.notes.dropped(field, value, "not a number of nodes", "set workers", blocks=True)
        return
    request.ask(nodes=number)
    if dash and most != least:
        request.notes.changed(
            field, value, request.of("workers"), f"the number of workers is fixed: {number}, the maximum"
        )
    else:
        request.notes.exact(field, value, request.of("workers"), "one worker for each node")


def _size(key: str, ours: str, note: str) -> Handler:
    def handler(request: Request, field: str, value: str) -> None:
        found = units.memory(value)
        if found is None or found.startswith("0"):
            reason = "0 requests all memory of a node" if found else "not a size"
            request.notes.dropped(field, value, reason, "set resources.memory to what one worker needs")
            return
        request.ask(**{key: found})
        if note:
            request.notes.changed(field, value, request.of(ours), note)
        else:
            note_of_node = "the limit of a node becomes the limit of a worker"
            request.notes.exact(field, value, request.of(ours), note_of_node)

    return handler


def _gres(request: Request, field: str, value: str) -> None:
    for part in value.split(","):
        pieces = (
            re.sub(r"\(.*", "", part.removeprefix("gres:").removeprefix("gres/")).replace("=", ":").split(":")
        )
        number = units.whole(pieces[-1]) if len(pieces) > 1 else 1
        if pieces[0] != "gpu" or number is None:
            request.notes.dropped(field, part, "unknown resource", "set it in resources.others")
            continue
        request.ask(gpus_per_node=number)
        _gpu_type(request, field, part, pieces[1] if len(pieces) > 2 else "", "resources.gpu")


def _gpus(key: str, note: str) -> Handler:
    def handler(request: Request, field: str, value: str) -> None:
        kind, _, count = value.rpartition(":")
        number = units.whole(count)
        if number is None:
            request.notes.dropped(field, value, "not a number of GPUs", "set resources.gpu")
            return
        request.ask(**{key: number})
        if note and not kind:
            request.notes.changed(field, value, request.of("resources.gpu"), note)
        else:
            _gpu_type(request, field, value, kind, "resources.gpu")

    return handler


def _gpu_type(request: Request, field: str, value: str, kind: str, ours: str) -> None:
    ours = request.of(ours)
    if not kind:
        request.notes.exact(field, value, ours)
        return
    todo = "select nodes that have it with placement.node_selector, for example nvidia.com/gpu.product"
    request.notes.changed(field, value, ours, f"the number is kept, but not the type {kind}", todo)


def _time(request: Request, field: str, value: str) -> None:
    found = units.seconds(value)
    if value.upper() in ("UNLIMITED", "INFINITE") or found == 0:
        request.notes.exact(field, value, "", "a job has no deadline unless deadline_seconds is set")
    elif found is None:
        request.notes.dropped(field, value, "not a time", "set deadline_seconds")
    else:
        request.fields["deadline_seconds"] = found
        request.notes.changed(field, value, f"deadline_seconds: {found:g}", DEADLINE)


def _signal(request: Request, field: str, value: str) -> None:
    match = re.fullmatch(r"((?:[BR]+:)?)(?:SIG)?(\w+)(?:@(\d{1,7}))?", value)
    numbers = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}
    name = numbers.get(match[2], match[2].upper()) if match else ""
    if match is None or name not in SIGNALS:
        request.notes.dropped(field, value, "this signal cannot be sent to ranks", "set signal.name")
        return
    request.fields["signal"] = Signal(name=name, seconds_before=float(match[3] or 60))
    if "B" in match[1]:
        note = "B: sends the signal only to the batch shell; mpijob sends it to every rank, not to the script"
        request.notes.changed(
            field, value, "signal", note, "handle it in the program, not with a trap in the script"
        )
    else:
        request.notes.exact(field, value, "signal", "sent to every rank before the deadline")


def _array(request: Request, field: str, value: str) -> None:
    take_array(request, field, value, ARRAY)
    if request.values:
        numbers = [int(number) for number in request.values[f"env.{ARRAY}"]]
        for name, number in (("COUNT", len(numbers)), ("MIN", min(numbers)), ("MAX", max(numbers))):
            request.env(f"SLURM_ARRAY_TASK_{name}", str(number))


def take_array(request: Request, field: str, value: str, variable: str) -> None:
    """Make a job of each index of an array; the script gets the index in a variable."""
    listed, percent, together = value.partition("%")
    found = units.tasks(listed)
    if found is None:
        note = f"not a list of numbers, or more than {units.MOST_TASKS}"
        request.notes.dropped(field, value, note, "use mpijob array", blocks=True)
        return
    request.values = {f"env.{variable}": found}
    request.env(variable, found[0])
    note = f"mpijob array creates one job for each of the {len(found)} values"
    request.notes.changed(field, listed, f"env.{variable}", note)
    if percent:
        todo = "set a quota of jobs for the namespace, or a quota of resources for the queue"
        request.notes.dropped(
            f"{field} %", together, "the number of jobs that run at the same time is not limited", todo
        )


def take_queue(request: Request, field: str, value: str) -> None:
    """Set the queue from a partition or a queue of the batch system."""
    first, comma, _ = value.partition(",")
    queue = re.sub(r"[^a-z0-9.-]+", "-", first.lower()).strip("-.")
    if not queue:
        request.notes.dropped(field, value, "not a valid name of a queue", "set queue")
        return
    if len(request.components) > 1 and "queue" in request.fields:
        note = "a job has one queue: that of the first component is kept"
        request.notes.dropped(field, value, note, "set placement.node_selector in the group")
        return
    request.fields["queue"] = queue
    note = "the cluster must have a queue of this name (see mpijob queue); on one machine there is one queue"
    request.notes.changed(
        field, value, f"queue: {queue}", note + ("; only the first one is kept" if comma else "")
    )


def take_account(request: Request, field: str, value: str) -> None:
    """Keep the account as a cost label."""
    key = {"--account": "account", "--wckey": "wckey", "-A": "account", "-P": "project"}[field]
    label = re.sub(r"[^-\w.]+", "-", value)[:63].strip("-_.")
    if not label:
        request.notes.dropped(field, value, "not a valid label", "set cost")
        return
    request.fields["cost"] = request.fields.get("cost", {}) | {key: label}
    note = "it becomes a label for accounting; jobs are not refused because of it"
    request.notes.changed(field, value, f"cost.{key}", note)


def _requeue(request: Request, field: str, value: str) -> None:
    request.fields |= {"retry": Retry(limit=1), "requeue_on_lost_worker": True}
    note = "Slurm restarts a job after a node failure or preemption; mpijob also retries it once if it fails"
    request.notes.changed(field, value, "retry.limit, requeue_on_lost_worker", note)


def _exclude(request: Request, field: str, value: str) -> None:
    found = units.hosts(value)
    if found is None:
        request.notes.dropped(field, value, "the list is not valid", "set placement.exclude_nodes")
        return
    placement: Placement = request.fields.get("placement", Placement())
    request.fields["placement"] = placement.replace(exclude_nodes=found)
    note = "the names are kept; nodes of a cluster have other names"
    request.notes.changed(field, value, "placement.exclude_nodes", note)


def _switches(request: Request, field: str, value: str) -> None:
    placement: Placement = request.fields.get("placement", Placement())
    request.fields["placement"] = placement.replace(topology=Topology.PACKED_RACK)
    request.notes.changed(
        field, value, "placement.topology", "a preference for nearby nodes, not a number of switches"
    )


def _comment(request: Request, field: str, value: str) -> None:
    request.fields["description"] = value
    request.notes.exact(field, value, "description")


def _image(request: Request, field: str, value: str) -> None:
    request.fields["image"] = value.removeprefix("docker://").replace("#", "/")
    request.notes.changed(
        field,
        value,
        "image",
        "the cluster pulls it; it needs sshd and the MPI library (docs/how-to/users/cluster.md)",
    )


def _export(request: Request, field: str, value: str) -> None:
    take_variables(request, field, value, INHERITED)


def take_dependency(request: Request, field: str, value: str) -> None:
    """Store that the job waits for another one, whose name here is unknown."""
    note = "jobs are identified by name, not by number"
    if dependencies.for_success(value):
        request.after = dependencies.FIRST
        todo = (
            "replace FIRST with the name of the job to wait for: --after FIRST; for an array, name each of its jobs: "
            "--after FIRST-0 --after FIRST-1 …"
        )
        request.notes.dropped(field, value, note, todo)
    for when, line in dependencies.otherwise(value, dependencies.FIRST, "mpijob run -f FILE"):
        todo = dependencies.explained(f"start it when {when}: {line}")
        request.notes.dropped(field, value, note, todo)


def _exclusive(request: Request, field: str, value: str) -> None:
    todo = "request all cores of a node with resources.cpu, or placement.topology: spread"
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
        "memory_per_core", "resources.memory", "multiplied by the cores of a worker: mpijob limits a worker"
    ),
    "mem-per-gpu": _size(
        "memory_per_gpu", "resources.memory", "multiplied by the GPUs of a worker: mpijob limits a worker"
    ),
    "gres": _gres,
    "gpus": _gpus("gpus", "divided evenly between the workers"),
    "gpus-per-node": _gpus("gpus_per_node", ""),
    "gpus-per-task": _gpus(
        "gpus_per_rank", "multiplied by the slots of a worker: mpijob counts GPUs per worker"
    ),
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
