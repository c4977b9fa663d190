"""A launcher's command as our own launch line: mpirun and its options taken apart, scripts looked into."""

from __future__ import annotations

import shlex
from typing import Any

from mpijob.formats.convert.header.request import Request
from mpijob.formats.convert.header.size import Asked
from mpijob.formats.convert.report import Notes
from mpijob.formats.convert.script import build_steps, launch_line
from mpijob.formats.convert.script.body import Body
from mpijob.formats.convert.script.classify import starts_ranks
from mpijob.formats.convert.script.steps import name_jobs
from mpijob.formats.convert.script.variables import plain_words
from mpijob.model import MPIJob, Program
from mpijob.model.spec.command import own_launcher

_SHELLS = frozenset({"sh", "bash", "dash"})


def unwrapped(job: MPIJob, notes: Notes, field: str, *, once: bool = True) -> MPIJob:
    """Return the job with the program itself as its command, where its launch line can be understood.

    `once` says that a command without a launcher runs once there, and not as every rank.
    """
    if job.programs or not job.argv:
        return job
    if launch_line.base(job.argv[0]) in launch_line.MPIRUNS:
        return _launched(job, tuple(shlex.quote(word) for word in job.argv), notes)
    own = own_launcher(job.argv)
    if own is not None and not _is_script(job):
        notes.exact(field, own.program, "command", "it starts the ranks itself, on the job's workers")
        return job
    if _is_script(job) and starts_ranks(job.argv[-1]):
        return _scripted(job, notes, field)
    if not once:
        return job
    note = "no launcher is in the command: there it runs once, in the launcher; here as one rank"
    todo = "nothing, or leave ranks out to have it started as every rank, or name the program that is to be"
    notes.changed(field, shlex.join(job.argv), "ranks: 1", note, todo)
    return job.replace(ranks=1)


def _is_script(job: MPIJob) -> bool:
    words = job.argv
    return (
        len(words) == 3
        and launch_line.base(words[0]) in _SHELLS
        and words[1].startswith("-")
        and "c" in words[1]
    )


def _request(job: MPIJob, notes: Notes) -> Request:
    fields = {"env": dict(job.env), "launch": job.launch, "mpi": job.mpi}
    asked = Asked(nodes=job.workers, per_node=job.slots, cores=job.cores_per_rank)
    return Request(system="MPIJob", name=job.name, components=[asked], fields=fields, notes=notes)


def _launched(job: MPIJob, words: tuple[str, ...], notes: Notes, env: dict[str, str] | None = None) -> MPIJob:
    line = launch_line.read(words, _request(job, notes))
    asked = line.request.components[-1]
    fields = dict(line.request.fields)
    fields["env"] = dict(fields["env"]) | (env or {})
    if len(line.sections) > 1:
        programs = [(one.ranks or 1, plain_words(one.words, {})) for one in line.sections]
        if all(command for _, command in programs):
            found = tuple(Program(ranks=ranks, command=command or ()) for ranks, command in programs)
            return job.replace(programs=found, command=(), args=(), **fields)
        return job
    command = plain_words(line.sections[0].words, {})
    if not command:
        return job
    return job.replace(command=command, args=(), **fields, **_room(job, asked.ranks, notes))


def _room(job: MPIJob, ranks: int | None, notes: Notes) -> dict[str, Any]:
    """Return ranks and slots such that all ranks have a place."""
    room = job.workers * job.slots
    if ranks is None or ranks == room:
        return {"ranks": None}
    if ranks < room:
        return {"ranks": ranks}
    slots = -(-ranks // job.workers)
    note = f"{ranks} ranks do not fit into {job.workers} workers with {job.slots} slots: {slots} slots are written"
    notes.changed("slots", job.slots, "slots", note)
    return {"slots": slots, "ranks": None if ranks == slots * job.workers else ranks}


def _scripted(job: MPIJob, notes: Notes, field: str) -> MPIJob:
    """Return the job of a script that starts ranks once, with what stands before it run by each rank."""
    body = Body(_request(job, notes))
    body.read(job.argv[-1])
    name_jobs(notes, [job.name])
    launches = [step for step in body.steps if step.launches]
    if len(body.steps) != 1 or len(launches) != 1:
        note = "the launcher's script does more than start ranks once, and a job is one launch"
        todo = "write the program that the ranks run as the command, and the rest as jobs before and after"
        notes.dropped(field, job.argv[-1], note, todo, blocks=True)
        return job
    step = launches[0]
    setting = [one for one in step.setting if not one.startswith("# ")]
    made = _launched(job, step.words, notes, step.env).replace(**step.onto({"launch": job.launch}))
    if made.command == job.command or setting:
        return _with_script(job, made, step.words, [*build_steps.written(step.prepared), *setting])
    return made


def _with_script(job: MPIJob, made: MPIJob, words: tuple[str, ...], setting: list[str]) -> MPIJob:
    line = launch_line.read(words, _request(job, Notes()))
    text = "\n".join([*setting, "exec " + " ".join(line.sections[0].words)])
    asked = line.request.components[-1]
    fields = dict(line.request.fields) | {"env": dict(line.request.fields["env"]) | dict(made.env)}
    fields |= _room(job, asked.ranks, Notes())
    return job.replace(command=("sh", "-c", text), args=(), **fields)
