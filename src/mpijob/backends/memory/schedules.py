"""The schedules of the engine in memory; no scheduler runs, so jobs start only when a caller triggers them."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mpijob.backends.common_errors import no_such_schedule
from mpijob.model import MPIJob
from mpijob.model.spec.schedule import Recurrence


class MemorySchedules:
    """The port `protocol.Schedules` over a dictionary."""

    def __init__(self) -> None:
        self._recurrences: dict[tuple[str, str], Recurrence] = {}
        self._lock = threading.Lock()

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        return job

    def lock(self) -> AbstractContextManager[Any]:
        return self._lock

    def put(self, recurrence: Recurrence) -> None:
        self._recurrences[recurrence.schedule.namespace, recurrence.schedule.name] = recurrence

    def get(self, namespace: str, name: str) -> Recurrence:
        try:
            return self._recurrences[namespace, name]
        except KeyError:
            raise no_such_schedule(namespace, name) from None

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        return tuple(
            recurrence for key, recurrence in sorted(self._recurrences.items()) if namespace in ("", key[0])
        )

    def remove(self, namespace: str, name: str) -> None:
        self.get(namespace, name)
        del self._recurrences[namespace, name]

    def ensure_scheduler(self) -> None:
        """Do nothing: there is no scheduler."""
