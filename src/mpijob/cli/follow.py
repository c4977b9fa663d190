"""Follow a job to its end: phases on stderr, merged output on stdout.

`run` uses it; `logs` shares how lines are shown. Ctrl-C detaches, twice cancels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mpijob.cli.context import App
from mpijob.cli.output import Format, as_json, finding_lines
from mpijob.cli.render import job_table, text
from mpijob.cli.render.warning_lines import WarningPrinter
from mpijob.errors import BackendError, MpiJobError
from mpijob.model import JobState, LogLine, Mark, Phase
from mpijob.observation.redaction import masking

if TYPE_CHECKING:
    from mpijob.client import Job

SECOND_CHANCE_SECONDS = 2.0
_PHASE_SECONDS = 1.0
_WAITING = (Phase.QUEUED, Phase.SUSPENDED)


class FollowedState(NamedTuple):
    """How log lines are shown."""

    raw: bool = False
    prefix: bool = True
    timestamps: bool = False
    secrets: tuple[str, ...] = ()
    highlight: Callable[[str], str] | None = None
    # Lines that are written at once.
    together: int = 1


def show_lines(app: App, lines: Iterable[LogLine], look: FollowedState) -> None:
    """Print log lines: as JSON, as raw bytes, or as escaped text."""
    if _as_it_is(app, look):
        for line in lines:
            show_line(app, line, look)
        return
    held: list[str] = []
    try:
        for line in lines:
            held += shown_line(app, line, look)
            if len(held) >= look.together:
                app.out.ready(held)
                held.clear()
    finally:
        app.out.ready(held)


def show_line(app: App, line: LogLine, look: FollowedState) -> None:
    if _as_it_is(app, look):
        prefix = job_table.log_prefix(line, timestamps=look.timestamps, prefix=look.prefix)
        app.out.raw(prefix.encode() + line.text)
        return
    app.out.ready(shown_line(app, line, look))


def _as_it_is(app: App, look: FollowedState) -> bool:
    return look.raw and app.out.format is not Format.JSON


def shown_line(app: App, line: LogLine, look: FollowedState) -> list[str]:
    """Return the output for a log line, with control characters escaped and known secrets masked."""
    if app.out.format is Format.JSON:
        value = job_table.log_value(line)
        return [as_json(value | {"text": masking.masked_text(value["text"], look.secrets)})]
    said = masking.masked_text(text.visible(line.text), look.secrets)
    said = look.highlight(said) if look.highlight and Mark.CONTEXT not in line.marks else said
    prefix = job_table.log_prefix(line, timestamps=look.timestamps, prefix=look.prefix)
    chorus = f" ×{len(line.ranks)} ranks" if line.ranks else ""
    return ["--"] * (Mark.APART in line.marks) + [prefix + said + chorus]


def waits(state: JobState) -> bool:
    """Return whether a job waits in a queue or for its workers, so that it has no output yet."""
    return state.phase in _WAITING or (state.phase is Phase.PENDING and bool(state.waiting_for))


def starts(state: JobState) -> bool:
    """Return whether the job's program does not run yet."""
    return state.phase in (*_WAITING, Phase.PENDING, Phase.INITIALIZING)


def waiting(app: App, first: JobState, still: Callable[[JobState], bool] = waits) -> Iterator[JobState]:
    """Yield the state of a job, then each change until it no longer waits."""
    yield first
    if not still(first):
        return
    for state in app.client.watch(names=(first.ref.name,), namespace=first.ref.namespace):
        yield state
        if not still(state):
            return


class Follower:
    """Follows one job; prints each phase once."""

    def __init__(self, app: App, job: Job, look: FollowedState, *, stays: bool = True) -> None:
        self._app = app
        self._job = job
        self._stays = stays
        self._look = look._replace(secrets=app.client.masked_values(job.ref))
        self._last_printed: tuple[Any, ...] = ()
        self._read_at = 0.0
        self._epilogue: list[LogLine] = []

    def to_the_end(self) -> JobState:
        """Follow the job to its end and print the result; return its last state."""
        try:
            state = self._follow()
        except KeyboardInterrupt:
            self._detach()
        self._result(state)
        return state

    def _follow(self) -> JobState:
        self._until_it_runs()
        try:
            self._show_lines()
        except BrokenPipeError:
            # The reader closed the pipe; the exit status still counts.
            self._app.out.silence()
        return self._app.client.wait(self._job.ref)

    def _show_lines(self) -> None:
        with WarningPrinter(self._app, self._app.out.note).beside(self._job.ref):
            for line in self._app.client.logs(self._job.ref, follow=True, tidy=not self._look.raw):
                if self._is_epilogue(line):
                    self._epilogue.append(line)
                else:
                    show_line(self._app, line, self._look)
                self._print_phase_changes()

    def _is_epilogue(self, line: LogLine) -> bool:
        """Return whether a line is only about the launcher's own end, which users take for a crash of the job."""
        if self._look.raw or self._app.out.format is Format.JSON or line.rank is not None:
            return False
        # Imported here because lines of the launcher are rare.
        from mpijob.formats.launch import rank_output

        return rank_output.is_epilogue(line.text)

    def _print_epilogue(self, state: JobState) -> None:
        """Print how many lines of the launcher were hidden; all of them if the job succeeded."""
        if state.phase is Phase.SUCCEEDED:
            show_lines(self._app, self._epilogue, self._look)
        elif self._epilogue:
            logs = self._app.words(self._job.ref, "logs")
            count = len(self._epilogue)
            self._app.out.note(f"({count} lines of MPI's launcher at its end are hidden; {logs} has them)")

    def _until_it_runs(self) -> None:
        """Print each phase until the program runs: before that there is no output."""
        for state in waiting(self._app, self._job.state(), starts):
            self._print_phase(state)

    def _print_phase_changes(self) -> None:
        now = time.monotonic()
        if now - self._read_at >= _PHASE_SECONDS:
            self._read_at = now
            try:
                self._print_phase(self._job.state())
            except BackendError as error:
                # A temporary error: the log stream tolerates it, too.
                if not error.passing:
                    raise

    def _print_phase(self, state: JobState) -> None:
        key = (state.phase, state.attempt, state.waiting_for, state.queue_position)
        if key != self._last_printed and not state.phase.final:
            self._last_printed = key
            self._app.out.phase_note(job_table.phase_line(state), state.phase)

    def _result(self, state: JobState) -> None:
        if self._app.out.format is Format.JSON:
            self._app.out.json_line(state)
            return
        self._print_epilogue(state)
        self._app.out.phase_note(job_table.result_line(state), state.phase)
        if self._stays:
            self._print_output_files()
        if state.phase is not Phase.SUCCEEDED:
            for line in finding_lines(self._app.client.why(self._job.ref)):
                self._app.out.note(line)

    def _print_output_files(self) -> None:
        try:
            files = self._app.client.artifacts(self._job.ref, at_hand=True)
        except MpiJobError:
            # The engine cannot list files; the result stands.
            return
        if files:
            fetch = self._app.words(self._job.ref, "artifacts fetch")
            self._app.out.note(f"{job_table.artifacts_phrase(files)}; fetch: {fetch}")

    def _detach(self) -> None:
        ref = self._job.ref
        self._app.out.note(
            f"\ndetached: job {ref.name} is still running; reattach: {self._app.words(ref, 'logs -f')}; "
            f"cancel: {self._app.words(ref, 'cancel')}, or Ctrl-C within {SECOND_CHANCE_SECONDS:g} s"
        )
        try:
            time.sleep(SECOND_CHANCE_SECONDS)
        except KeyboardInterrupt:
            state = self._app.client.cancel(ref)
            self._app.out.phase_note(job_table.phase_line(state), state.phase)
        raise click.exceptions.Exit(130) from None
