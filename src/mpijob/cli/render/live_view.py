"""The screen of `watch` on a terminal, drawn with rich, which only this module imports.

Text of others is escaped first and passed as plain text, never as markup of rich.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mpijob.cli.output import finding_lines
from mpijob.cli.render import job_table, text
from mpijob.errors import Finding
from mpijob.model import JobState, LogLine, Phase
from mpijob.observation.redaction.masking import masked_text

LAST_LINES = 10
_MOST_WORKERS = 32
_STYLES = {
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.CANCELLED: "yellow",
    Phase.RUNNING: "cyan",
    Phase.SUSPENDED: "magenta",
}


def jobs(states: Iterable[JobState], now: float) -> RenderableType:
    """Return the table of all jobs."""
    table = _table(job_table.LIST)
    for state in states:
        cells = (
            state.ref.name,
            state.phase.value,
            state.aggregate,
            str(state.world),
            text.age(state.created, now),
            text.duration(state.duration_seconds(now)),
            state.reason or state.waiting_for,
        )
        table.add_row(*(_cell(cell, state.phase if at == 1 else None) for at, cell in enumerate(cells)))
    return table


def job(
    state: JobState,
    lines: Sequence[LogLine],
    now: float,
    secrets: tuple[str, ...] = (),
    warnings: tuple[Finding, ...] = (),
) -> RenderableType:
    """Return one job: its phase, workers with their ranks, last lines, and findings."""
    line = job_table.result_line(state) if state.phase.final else job_table.phase_line(state)
    parts: list[RenderableType] = [Text(line, style=_STYLES.get(state.phase, ""))]
    parts.append(
        Text(f"age {text.age(state.created, now)}, ran {text.duration(state.duration_seconds(now))}")
    )
    if state.workers:
        parts.append(_workers(state))
    for log_line in lines:
        prefix = job_table.log_prefix(log_line, timestamps=False, prefix=True)
        shown_text = masked_text(text.visible(log_line.text), secrets)
        parts.append(Text(prefix + shown_text, no_wrap=True, overflow="ellipsis"))
    running = state.phase is Phase.RUNNING
    parts += [Text(line, style="yellow") for line in finding_lines(warnings if running else ())]
    findings = () if running and warnings else state.findings
    parts += [Text(line) for line in finding_lines(findings)]
    return Group(*parts)


def _workers(state: JobState) -> RenderableType:
    table = _table(("WORKER", "PHASE", "RANKS", "CPU", "MEMORY", "REASON"))
    for worker in state.workers[:_MOST_WORKERS]:
        ranks = ",".join(str(rank.rank) for rank in state.ranks if rank.worker == worker.index)
        cpu = "-" if worker.cpu_cores is None else f"{worker.cpu_cores:.2f}"
        memory = job_table.memory_of(worker.memory_bytes, worker.memory_limit_bytes)
        cells = (
            str(worker.index),
            worker.phase.value,
            ranks or "-",
            cpu,
            memory,
            worker.message or worker.reason,
        )
        table.add_row(*(_cell(cell, worker.phase if at == 1 else None) for at, cell in enumerate(cells)))
    hidden = len(state.workers) - _MOST_WORKERS
    return Group(table, Text(f"… and {hidden} more workers")) if hidden > 0 else table


def _table(header: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in header:
        table.add_column(title, no_wrap=True)
    return table


def _cell(content: str, phase: Phase | None) -> Text:
    return Text(text.one_line(content), style=_STYLES.get(phase, "") if phase else "")
