"""Tables and lines about jobs, for `list`, `get`, `describe` and others. Commands read the jobs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.model import Phase
from mpijob.model.spec.quantity import as_bytes, as_count, ranks_on
from mpijob.model.status.records import spans

if TYPE_CHECKING:
    from mpijob.cli.context import App
    from mpijob.model import (
        Amounts,
        Artifact,
        Event,
        JobState,
        LogLine,
        Plan,
        Quota,
        StepState,
    )
    from mpijob.model.spec.job import Part


def show_page(app: App, *, deleted: bool = False, **chosen: Any) -> None:
    """Print one page of the jobs that were chosen, or of those that were and are deleted."""
    page = app.client.deleted(**chosen) if deleted else app.client.list(**chosen)
    if app.out.structured:
        app.out.value(page)
        return
    items = [_as_run(state) for state in page.items] if chosen.get("runs") else page.items
    show_states(app, items, namespaced=chosen.get("all_namespaces", False))
    for notice in page.notices:
        app.out.note(notice.message)
    if page.after:
        words = f"{app.program} list --deleted" if deleted else f"{app.program} list"
        app.out.note(f"{page.total} jobs in total; next page: {words} --after {page.after}")


def _as_run(state: JobState) -> JobState:
    from msgspec.structs import replace

    return replace(state, ref=replace(state.ref, name=run_name(state)))


def show_states(app: App, states: Iterable[JobState], *, namespaced: bool, named: bool = False) -> None:
    """Print jobs as a table, or their names alone; of those that were asked for by name also the launcher."""
    states = tuple(states)
    if app.out.format is Format.NAME:
        app.out.lines(_name(state, namespaced) for state in states)
        return
    if not states:
        app.out.note("no jobs found")
        return
    wide = app.out.format is Format.WIDE
    header, *rows = list_lines(states, app.now(), wide=wide, namespaced=namespaced, named=named)
    app.out.line(header)
    app.out.phases(rows, (state.phase for state in states))


def tell_if_deleted(app: App, state: JobState | None) -> None:
    """Say on stderr that a job is gone and that what follows is its record."""
    if state is not None and state.deleted is not None:
        when = text.ago(state.deleted, app.now())
        app.out.note(f"job '{state.ref.name}' was deleted {when}; this is its record")


def _name(state: JobState, namespaced: bool) -> str:
    return str(state.ref) if namespaced else state.ref.name


LIST = ("NAME", "PHASE", "WORKERS", "RANKS", "AGE", "DURATION", "REASON")
_NAMED_FILES = 3
# For jobs given by name.
ONE = (*LIST[:2], "LAUNCHER", *LIST[2:])
WIDE = (*LIST, "LAUNCHER", "NAMESPACE", "OWNER", "QUEUE", "PRIORITY", "MPI", "ENGINE", "ATTEMPT", "UID")


def list_lines(
    states: Iterable[JobState], now: float, *, wide: bool, namespaced: bool, named: bool = False
) -> list[str]:
    """Return the table of jobs; the first line is the header."""
    header = WIDE if wide else ONE if named else (("NAMESPACE", *LIST) if namespaced else LIST)
    states = tuple(states)
    rows = [_list_row(state, now, wide=wide, namespaced=namespaced) for state in states]
    if named and not wide:
        rows = [[*row[:2], launcher_word(state), *row[2:]] for row, state in zip(rows, states, strict=True)]
    if any(state.deleted is not None for state in states):
        header = (*header, "DELETED")
        rows = [[*row, _deleted(state, now) or "-"] for row, state in zip(rows, states, strict=True)]
    return text.table(header, rows)


def _deleted(state: JobState, now: float) -> str:
    return "" if state.deleted is None else text.ago(state.deleted, now)


def run_name(state: JobState) -> str:
    """Return how a job is named among all that have its name."""
    return f"{state.ref.name}@{state.run}" if state.run else state.ref.name


def _list_row(state: JobState, now: float, *, wide: bool, namespaced: bool) -> list[str]:
    row = [
        state.ref.name,
        state.phase.value,
        state.aggregate,
        str(state.world),
        text.age(state.created, now),
        text.duration(state.duration_seconds(now)),
        _list_reason(state),
    ]
    if wide:
        attempt = f"{state.attempt}/{_attempts(state)}"
        more = (
            launcher_word(state),
            state.ref.namespace,
            state.owner,
            state.queue,
            str(state.priority),
            state.mpi,
            state.engine,
        )
        return [*row, *(cell or "-" for cell in (*more, attempt, state.ref.uid))]
    return [state.ref.namespace, *row] if namespaced else row


def _list_reason(state: JobState) -> str:
    """Return the reason, of a job that waits with its place and when it will start."""
    place = f"position {state.queue_position}" if state.queue_position is not None else ""
    parts = (state.reason or state.waiting_for, place, wait_phrase(state))
    return ", ".join(part for part in parts if part) or "-"


def state_lines(state: JobState, now: float, runs: Sequence[JobState] = ()) -> list[str]:
    """Return what is known of one job, a fact a line; `runs` are the jobs that have or had its name."""
    return text.pairs(
        (
            ("Name", state.ref.name),
            ("Namespace", state.ref.namespace),
            ("UID", state.ref.uid),
            ("Description", state.description),
            ("Deleted", _deleted(state, now)),
            ("Phase", state.phase.value),
            ("Reason", _sentence(state)),
            ("Waiting for", _waiting(state)),
            ("Starts in", _starts(state)),
            ("Launcher", _launcher(state)),
            ("Launcher log", state.launcher.log_source if state.launcher is not None else ""),
            ("Workers", state.aggregate),
            ("Groups", _groups(state)),
            ("Ranks", str(state.world)),
            ("Engine", " ".join(part for part in (state.engine, state.mpi) if part)),
            ("Image", state.image),
            ("Owner", state.owner),
            ("Queue", state.queue),
            ("Labels", ", ".join(f"{key}={value}" for key, value in state.labels.items())),
            ("Run", _run(state, runs)),
            ("Attempt", f"{state.attempt} of {_attempts(state)}"),
            ("Created", text.ago(state.created, now)),
            ("Started", text.ago(state.started, now) if state.started else ""),
            ("Duration", text.duration(state.duration_seconds(now)) if state.started else ""),
            ("Finished", text.ago(state.finished, now) if state.finished else ""),
        )
    )


def _groups(state: JobState) -> str:
    """Return which workers are in which group: `cpu: workers 4-5`."""
    found: dict[str, list[int]] = {}
    for worker in state.workers:
        if worker.group:
            found.setdefault(worker.group, []).append(worker.index)
    return ", ".join(
        f"{name}: worker{'s' * (len(those) != 1)} {spans(those, ',')}" for name, those in found.items()
    )


def _run(state: JobState, runs: Sequence[JobState]) -> str:
    """Return which run of its name a job is; of one that is the only one, nothing."""
    if len(runs) < 2:
        return ""
    number = next((one.run for one in runs if one.ref.uid == state.ref.uid), state.run)
    return f"{number} of {runs[0].run}; all runs: mpijob runs {state.ref.name}"


def launcher_word(state: JobState) -> str:
    """Return how the launcher is, in a word for a table: `Running`, `Failed (3)`."""
    if state.launcher is None:
        return "-"
    code = state.launcher.exit_code
    return state.launcher.phase.value + (f" ({code})" if code else "")


def _launcher(state: JobState) -> str:
    launcher = state.launcher
    if launcher is None:
        return ""
    ended = "" if launcher.exit_code is None else f", exit code {launcher.exit_code}"
    return launcher.phase.value + (f" on {launcher.node}" if launcher.node else "") + ended


def _attempts(state: JobState) -> int:
    """Return how many attempts there may be; lost workers and resumed jobs have some beyond the spec's."""
    # Lost workers and resumed jobs have attempts beyond those of the spec.
    return max(state.attempt, state.attempts_allowed)


def _sentence(state: JobState) -> str:
    return ": ".join(part for part in (state.reason, state.message) if part)


def _waiting(state: JobState) -> str:
    position = f"position {state.queue_position}" if state.queue_position is not None else ""
    return ", ".join(part for part in (state.waiting_for, position, wait_phrase(state)) if part)


def wait_phrase(state: JobState) -> str:
    """Return when a job that waits will start: `about 4m10s`, `at most 12m`; "" where nobody can tell."""
    if state.wait_estimate_seconds is not None:
        return f"about {text.duration(state.wait_estimate_seconds)}" if state.wait_estimate_seconds else ""
    return f"at most {text.duration(state.wait_range_seconds[1])}" if state.wait_range_seconds else ""


def wait_range(state: JobState) -> str:
    """Return from when to when a job that waits may start: `2m00s to 9m00s`."""
    span = state.wait_range_seconds
    if span is None or state.wait_estimate_seconds is None:
        return "-"
    low, high = (text.duration(one) for one in span)
    return low if low == high else f"{low} to {high}"


def _starts(state: JobState) -> str:
    """Return when a job that waits will start, between what, and what that rests on."""
    if not state.wait_basis or state.phase is not Phase.QUEUED:
        return ""
    when = wait_phrase(state) or ("at once" if state.wait_estimate_seconds == 0 else "not known")
    span = wait_range(state)
    between = f" ({span})" if " to " in span else ""
    return f"{when}{between}: {state.wait_basis}"


def step_lines(state: JobState, now: float) -> list[str]:
    """Return the table of a script's steps."""
    rows = [
        (
            str(step.number),
            str(step.ranks or "-"),
            spans(step.workers, ",") or "-",
            text.duration((step.finished or now) - step.started),
            as_bytes(step.peak_bytes) if step.peak_bytes else "-",
            _step_end(step),
            text.one_line(step.command),
        )
        for step in state.steps
    ]
    return text.table(("STEP", "RANKS", "WORKERS", "TIME", "MEMORY", "EXIT", "COMMAND"), rows)


def _step_end(step: StepState) -> str:
    if step.exit_code is None:
        return "running" if step.finished is None else "-"
    first = f" (rank {step.failed_rank})" if step.failed_rank is not None else ""
    return f"{step.exit_code}{first}"


def memory_of(used: int | None, limit: int | None) -> str:
    """Return memory in use, and its limit where there is one."""
    if used is None:
        return "-"
    return as_bytes(used) + (f" of {as_bytes(limit)}" if limit else "")


def phase_line(state: JobState) -> str:
    """Return where a job stands, in one line: phase, workers, and why."""
    parts = [f"{state.ref.name}: {state.phase.value}"]
    if state.workers:
        parts.append(f"workers {state.aggregate}")
    if state.attempt > 1:
        parts.append(f"attempt {state.attempt}")
    if why := _waiting(state) or _sentence(state):
        parts.append(why)
    return ", ".join(text.one_line(part) for part in parts)


def result_line(state: JobState) -> str:
    """Return how a job ended, with its durations."""
    parts = [f"{state.ref.name} {state.phase.value}"]
    end = state.finished
    if end is not None:
        parts[0] += f" after {text.duration(end - (state.created or end))}"
    spent = [f"waited {text.duration(waited)}"] if (waited := _waited(state)) >= 0.05 else []
    spent += (
        [f"ran {text.duration(state.duration_seconds(end))}"]
        if end is not None and state.started is not None
        else []
    )
    if state.attempt > 1:
        parts += [f"the last attempt {' and '.join(spent)}"] if spent else []
        parts.append(f"attempt {state.attempt} of {_attempts(state)}")
    else:
        parts += spent
    parts.append(ranks_on(state.world, max(state.workers_wanted, len(state.workers))))
    return ", ".join(parts)


def _waited(state: JobState) -> float:
    """Return how long a job waited for others and for room; of one that was tried again, its last attempt."""
    if state.started is None or not state.created:
        return 0.0
    return state.started - state.created if state.attempt == 1 else state.queued_seconds(state.started)


def artifacts_phrase(files: Sequence[Artifact]) -> str:
    """Return which files a job left, the first few by name."""
    names = ", ".join(text.one_line(file.path) for file in files[:_NAMED_FILES])
    more = f" and {len(files) - _NAMED_FILES} more" if len(files) > _NAMED_FILES else ""
    return f"output files: {names}{more}"


def fetched_phrase(count: int, directory: str) -> str:
    """Return how many files were fetched, and where they are now."""
    if not count:
        return "the job has no output files"
    return f"{count} file{'s' if count > 1 else ''} in {os.path.abspath(directory)}"


def amounts(amount: Amounts) -> str:
    """Return cores, memory and GPUs in one phrase."""
    parts = [f"{as_count(amount.cores)} cores", as_bytes(amount.memory_bytes)]
    return ", ".join(parts + ([f"{amount.gpus} GPUs"] if amount.gpus else []))


def quota_rows(quota: Quota) -> list[tuple[str, str, str]]:
    """Return what is used of each limit."""
    used = quota.used
    memory = None if quota.memory_bytes is None else as_bytes(quota.memory_bytes)
    limits = (
        ("cores", as_count(used.cores), None if quota.cores is None else as_count(quota.cores)),
        ("memory", as_bytes(used.memory_bytes), memory),
        ("GPUs", str(used.gpus), quota.gpus),
        ("jobs", str(quota.jobs_running), quota.jobs),
    )
    return [(name, now, "none" if limit is None else str(limit)) for name, now, limit in limits]


def _in_about(seconds: float | None) -> str:
    return "" if seconds is None else f", in about {text.duration(seconds)}"


def plan_lines(plan: Plan) -> list[str]:
    """Return a plan as people read it."""
    # Imported here because `list` must start quickly.
    import shlex

    start = "now" if plan.starts_now else f"when capacity is free{_in_about(plan.wait_estimate_seconds)}"
    lines = text.pairs(
        (
            ("Job", f"{plan.job.namespace}/{plan.job.name}"),
            ("Engine", plan.engine),
            ("MPI", " ".join(part for part in (plan.family.value, plan.family_version) if part)),
            ("World", ranks_on(plan.world, len(plan.workers))),
            ("Groups", "; ".join(_group_phrase(part) for part in plan.job.parts) if plan.job.groups else ""),
            ("Needs", amounts(plan.needs)),
            ("Free", f"{amounts(plan.free)} of {amounts(plan.capacity)}"),
            ("Starts", start),
            ("Isolation", plan.isolation),
            ("Guarantee", plan.guarantee),
            ("Launch", shlex.join(plan.launch)),
        )
    )
    lines += _titled("Hostfile", plan.hostfile.splitlines())
    lines += _titled("Environment", [f"{key}={value}" for key, value in sorted(plan.env.items())])
    lines += _titled("Why", plan.why)
    return lines + _titled("Notices", [str(notice) for notice in plan.notices])


def _group_phrase(part: Part) -> str:
    """Return the workers of one group, with what each may use: `cpu: workers 4-5, 4 slots, 4 cores, 8 GiB each`."""
    numbers = spans(range(part.first, part.first + part.job.workers), ",")
    workers = f"worker{'s' * (part.job.workers != 1)} {numbers}"
    slots = f"{part.job.slots} slot{'s' * (part.job.slots != 1)}"
    return f"{part.group or 'none'}: {workers}, {slots}, {amounts(part.job.resources.asked)} each"


def _titled(title: str, lines: Iterable[str]) -> list[str]:
    body = [f"  {text.one_line(line)}" for line in lines]
    return [f"{title}:", *body] if body else []


def log_prefix(line: LogLine, *, timestamps: bool, prefix: bool) -> str:
    """Return what is printed before a line: its time and who said it."""
    when = f"{iso(line.time / 1e9)} " if timestamps else ""
    return when + (f"[{line.source}] " if prefix else "")


def log_value(line: LogLine) -> dict[str, Any]:
    """Return a log line as a JSON object; its time is nanoseconds since the epoch."""
    value = {
        "time": line.time,
        "source": line.source,
        "role": line.role.value,
        "worker": line.worker,
        "rank": line.rank,
        "stream": line.stream,
        "attempt": line.attempt,
        "level": line.level,
        "text": line.text.decode("utf-8", "backslashreplace"),
    }
    value |= {"partial": True} if line.partial else {}
    value |= {"ranks": line.ranks} if line.ranks else {}
    value |= {} if line.step is None else {"step": line.step}
    return value | ({"marks": line.marks} if line.marks else {})


def event_line(event: Event, now: float) -> str:
    """Return an event in one line."""
    named = event.worker is None or event.message.lower().startswith((f"worker {event.worker} ", "rank "))
    who = "" if named else f"worker {event.worker}: "
    return f"{text.ago(event.time, now):>9}  {event.reason:<20}  {who}{text.one_line(event.message)}"


def iso(moment: float) -> str:
    """Return a moment as ISO 8601 in UTC, with milliseconds."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
