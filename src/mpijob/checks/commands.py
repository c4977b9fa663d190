"""Rules about what runs: a command, several programs in one world, and commands with a launcher of their own.

`launching` has the rules about the layout of ranks.
"""

from __future__ import annotations

from mpijob.checks.rule import Findings, Limits, error, unfit, warning
from mpijob.checks.size import counted_slots, oversubscribed
from mpijob.errors import Finding
from mpijob.model import Family, MPIJob
from mpijob.model.spec.command import OwnLauncher, own_launcher
from mpijob.model.spec.command_options import DISCOVERY_OPTION
from mpijob.model.spec.enums import shown


def command(job: MPIJob, limits: Limits) -> Findings:
    """There must be exactly one of a command, programs and a script."""
    given = [name for name in ("command", "programs", "script") if getattr(job, name)]
    if len(given) > 1:
        both = " and ".join(given)
        yield error(given[-1], f"the job has both {both}", "keep one of them")
    elif job.args and not job.command and not job.script:
        yield error(
            "args", "the job has args but no command", "put the program into command, its arguments into args"
        )
    elif not given:
        yield error("command", "the job has no command", "for example: command: [python, train.py]")
    yield from _words("command", job.command)
    yield from _words("args", job.args, first_may_be_empty=True)
    yield from _script(job)


def _script(job: MPIJob) -> Findings:
    if not job.script:
        return
    inside = not job.script.startswith("/") and ".." not in job.script.split("/")
    if reason := unfit(job.script):
        yield error("script", f"the path {reason}", "rename the script")
    elif not inside:
        hint = "set its path below the uploaded directory (code.path)"
        yield error("script", f"{shown(job.script)} is outside the uploaded directory", hint)
    if job.elastic is not None:
        message = "elastic cannot be used with a script, whose steps have a fixed number of ranks"
        yield error("elastic", message, "remove elastic, or set a command")


def _words(field: str, words: tuple[str, ...], first_may_be_empty: bool = False) -> Findings:
    if words and not words[0].strip() and not first_may_be_empty:
        yield error(f"{field}[0]", "the program has no name", "for example: [python, train.py]")
    for index, word in enumerate(words):
        if reason := unfit(word):
            yield error(
                f"{field}[{index}]", f"the argument {reason}", "remove it; it cannot be passed to a program"
            )
        elif word == ":":
            hint = "combine it with other text, or put the command into a script"
            yield error(f"{field}[{index}]", "the argument ':' starts another program in mpirun", hint)


def programs(job: MPIJob, limits: Limits) -> Findings:
    """Each program has a command and ranks, and their ranks add up to the job's."""
    for index, program in enumerate(job.programs):
        field = f"programs[{index}]"
        if program.ranks < 1:
            yield error(f"{field}.ranks", f"{shown(program.ranks)} ranks requested; at least 1 is required")
        if not program.command:
            yield error(
                f"{field}.command", "the program has no command", "for example: command: [python, train.py]"
            )
        yield from _words(f"{field}.command", program.command)
        yield from _words(f"{field}.args", program.args, first_may_be_empty=True)
        yield from _nested(field, own_launcher((*program.command, *program.args)))
    yield from _sum_of_programs(job)


def _nested(field: str, own: OwnLauncher | None) -> Findings:
    if own is not None:
        message = f"{shown(own.program)} would nest a second MPI launch inside the first"
        yield error(f"{field}.command", message, "set only the program; set its ranks in the ranks field")


def _sum_of_programs(job: MPIJob) -> Findings:
    if job.programs and job.ranks is not None and job.ranks != job.world:
        message = f"the programs have {shown(job.world)} ranks in all, but ranks is {shown(job.ranks)}"
        yield error("ranks", message, f"remove ranks, or use ranks: {shown(job.world)}", {"ranks": None})


def own_ranks(job: MPIJob, limits: Limits) -> Findings:
    """A command's own launcher must ask for the job's number of ranks."""
    own = own_launcher(job.argv)
    if own is None or job.programs:
        return
    within = job.fewest_workers * job.slots <= (own.ranks or 0) <= job.most_workers * job.slots
    if job.elastic is not None and within:
        # Horovod may start with any number between its limits.
        return
    if own.ranks is not None and own.ranks != job.world and not oversubscribed(job):
        yield _ranks_differ(job, own, own.ranks)
    slots = {part.job.slots for part in job.parts}
    if own.per_worker is not None and slots != {own.per_worker}:
        asked = f"{own.program} {own.ranks_option} asks for {own.per_worker} ranks on each worker"
        message = f"{asked}, but the job has slots: {', '.join(map(shown, sorted(slots)))}"
        patch = None if job.groups else {"slots": own.per_worker}
        yield error("command", message, f"use slots: {own.per_worker}", patch)


def _ranks_differ(job: MPIJob, own: OwnLauncher, ranks: int) -> Finding:
    asked = f"{own.program} {own.ranks_option} asks for {ranks} ranks"
    world = counted_slots(job) if job.ranks is None else "ranks"
    message = f"{asked}, but the job has {shown(job.world)} ({world})"
    patch = {"ranks": ranks} if 0 < ranks <= job.total_slots else None
    remedy = f"set ranks: {ranks}" if patch else f"change workers and slots to get {ranks} ranks"
    hint = f"remove {own.ranks_option}, use {own.ranks_option} {shown(job.world)}, or {remedy}"
    return error("command", message, hint, patch)


def own_hosts(job: MPIJob, limits: Limits) -> Findings:
    """A command's own launcher must not bring its own list of hosts."""
    own = own_launcher(job.argv)
    if own is not None and own.own_hosts and not (job.elastic and own.hosts_option == DISCOVERY_OPTION):
        message = f"{own.program} {own.hosts_option} sets its own list of hosts, but mpijob creates that list"
        yield error(
            "command", message, f"remove {own.hosts_option} and its value: workers are found automatically"
        )


def own_family(job: MPIJob, limits: Limits) -> Findings:
    """A command's own launcher must belong to the job's MPI family."""
    own = own_launcher(job.argv)
    if own is None or not own.families or job.mpi in (Family.AUTO, Family.CUSTOM):
        return
    if job.mpi not in own.families:
        wanted = " or ".join(own.families)
        message = f"{own.program} belongs to {wanted}, but the job says mpi: {job.mpi}"
        yield warning("mpi", message, f"use mpi: {own.families[0]}", {"mpi": own.families[0]})
