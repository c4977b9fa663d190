"""Recurring jobs of the twin in memory: kept, shown and fired by hand; nobody keeps the time."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mpijob.backends.common_errors import no_such_schedule
from mpijob.model import MPIJob
from mpijob.model.spec.schedule import Recurrence


class MemorySchedules:
    """Schedules in a dictionary."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Recurrence] = {}
        self._one_at_a_time = threading.Lock()

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        """Return the job as it is: nothing goes along with a simulated one."""
        return job

    def lock(self) -> AbstractContextManager[Any]:
        """Let nobody else change a schedule meanwhile."""
        return self._one_at_a_time

    def put(self, recurrence: Recurrence) -> None:
        """Keep a schedule, new or changed."""
        self._kept[recurrence.schedule.namespace, recurrence.schedule.name] = recurrence

    def get(self, namespace: str, name: str) -> Recurrence:
        """Return one schedule; raise NotFound."""
        try:
            return self._kept[namespace, name]
        except KeyError:
            raise no_such_schedule(namespace, name) from None

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        """Return the schedules of a namespace, or of all."""
        return tuple(self._kept[key] for key in sorted(self._kept) if namespace in ("", key[0]))

    def remove(self, namespace: str, name: str) -> None:
        """Forget a schedule."""
        self.get(namespace, name)
        del self._kept[namespace, name]

    def ensure_scheduler(self) -> None:
        """Nobody keeps the time of a simulation."""
