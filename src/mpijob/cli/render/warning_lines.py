"""Print warnings about a followed job once: `watch` with each change, `run` beside the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mpijob.cli.context import App
from mpijob.cli.output import finding_lines
from mpijob.errors import Finding, MpiJobError, Severity
from mpijob.model import JobKey, JobRef

if TYPE_CHECKING:
    from mpijob.observation.health.warnings import Key

LOOK_SECONDS = 15.0


class WarningPrinter:
    """Prints each warning once, even if its numbers change; `say` prints a line."""

    def __init__(self, app: App, say: Callable[[str], None]) -> None:
        self._app = app
        self._say = say
        self._told: set[tuple[JobKey, Key]] = set()

    def print_new(self, ref: JobRef, findings: Iterable[Finding]) -> None:
        """Print the new warnings of a job."""
        from mpijob.observation.health import (
            # Imported here because most jobs end before any warning.
            warnings,
        )

        for finding in findings:
            key = ref.key, warnings.key(finding)
            if finding.severity is Severity.WARNING and key not in self._told:
                self._told.add(key)
                for line in finding_lines((finding,)):
                    self._say(f"{ref.name}: {line}")

    @contextmanager
    def beside(self, ref: JobRef) -> Iterator[None]:
        """Read warnings at intervals while the caller waits for log lines: a job that hangs has none."""
        over = threading.Event()
        looking = threading.Thread(target=self._read, args=(ref, over), daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()

    def _read(self, ref: JobRef, over: threading.Event) -> None:
        while not over.wait(LOOK_SECONDS):
            try:
                found = self._app.client.warnings(ref)
            except MpiJobError:
                # The log stream reports problems of the engine.
                continue
            if not over.is_set():
                self.print_new(ref, found)
