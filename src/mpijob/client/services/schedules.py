"""Schedules: create, list, pause, delete; and what happens when one is due.

The scheduler (`cron` on this machine, a CronJob's pod on a cluster) calls `fire`, which submits like any
other client: check, admit, plan, submit. So a job that no longer fits when it is due is refused then, with
the same message.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mpijob.errors import Conflict, NotFound
from mpijob.model.spec.schedule import LABEL, Overlap, Recurrence, Schedule
from mpijob.observation.state import cron
from mpijob.settings import LOCAL

if TYPE_CHECKING:
    from mpijob.client.client import Client
    from mpijob.model import JobState


class Schedules:
    """The recurring jobs of a client's place.

    >>> from mpijob import Client, MPIJob
    >>> from mpijob.backends.memory import MemoryBackend
    >>> from mpijob.model.spec.schedule import Schedule
    >>> client = Client(MemoryBackend())
    >>> job = MPIJob(name="nightly", workers=2, command=["python", "train.py"])
    >>> made = client.schedules.create(Schedule(name="nightly", when="30 2 * * *", job=job, time_zone="Etc/UTC"))
    >>> [one.schedule.name for one in client.schedules.list()]
    ['nightly']
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept = client._audited.schedules()

    def create(self, schedule: Schedule) -> Recurrence:
        """Store a new schedule after its job was checked; nothing is started now."""
        schedule = self._localized(schedule)
        cron.refuse(schedule)
        if self._exists(schedule):
            raise Conflict(
                f"schedule '{schedule.name}' already exists in namespace '{schedule.namespace}'",
                hint=f"delete it first: mpijob schedule delete {schedule.name} -n {schedule.namespace}",
            )
        job = self._kept.resolve(schedule.job, Path.cwd())
        schedule = schedule.replace(job=job.replace(name=schedule.name, namespace=schedule.namespace))
        self._client.plan(schedule.job_of(time.time()))
        made = Recurrence(schedule, time.time())
        self._kept.put(made)
        self._kept.ensure_scheduler()
        return _with_next(made)

    def _localized(self, schedule: Schedule) -> Schedule:
        """Return the schedule with the client's namespace and the engine's time zone as defaults."""
        here = self._client.backend.name == LOCAL
        zone = schedule.time_zone or (own_zone() if here else "Etc/UTC")
        namespace = self._client.localized(schedule.job.replace(namespace=schedule.namespace)).namespace
        return schedule.replace(namespace=namespace, time_zone=zone)

    def _exists(self, schedule: Schedule) -> bool:
        try:
            self._kept.get(schedule.namespace, schedule.name)
        except NotFound:
            return False
        return True

    def list(self, *, namespace: str | None = None, all_namespaces: bool = False) -> tuple[Recurrence, ...]:
        """Return the schedules of a namespace, or of all, by name."""
        where = "" if all_namespaces else namespace or self._client.namespace
        self._kept.ensure_scheduler()
        return tuple(_with_next(one) for one in self._kept.all(where))

    def get(self, name: str, *, namespace: str | None = None) -> Recurrence:
        """Return one schedule; raise NotFound."""
        return _with_next(self._kept.get(namespace or self._client.namespace, name))

    def delete(self, name: str, *, namespace: str | None = None) -> None:
        """Forget a schedule; the jobs that it started stay."""
        with self._kept.lock():
            self._kept.remove(namespace or self._client.namespace, name)

    def pause(self, name: str, *, namespace: str | None = None) -> Recurrence:
        """Start nothing until the schedule is resumed."""
        return self._changed(name, namespace, paused=True)

    def resume(self, name: str, *, namespace: str | None = None) -> Recurrence:
        """Resume a paused schedule; starts that were due meanwhile are skipped."""
        return self._changed(name, namespace, paused=False)

    def _changed(self, name: str, namespace: str | None, *, paused: bool) -> Recurrence:
        with self._kept.lock():
            known = self._kept.get(namespace or self._client.namespace, name)
            changed = msgspec.structs.replace(
                known, schedule=known.schedule.replace(paused=paused), since=time.time()
            )
            self._kept.put(changed)
        self._kept.ensure_scheduler()
        return _with_next(changed)

    def fire(self, schedule: Schedule, name: str = "", *, since: float = 0.0) -> str:
        """Start the schedule's job now, if its overlap allows; return the result as a sentence.

        `name` is that of a job for one moment; a moment before `since` is skipped.
        """
        job = schedule.job_named(name) if name else schedule.job_of(time.time())
        if _due_of(job.name) < since - 60:
            return f"job '{job.name}' was skipped: it was due while the schedule was paused"
        # The name contains the minute: a CronJob that runs its pod twice starts one job.
        if self._is_there(job.name, schedule.namespace):
            return f"job '{job.name}' was started before"
        others = self._unfinished(schedule)
        if others and schedule.overlap is Overlap.FORBID:
            return (
                f"job '{job.name}' was skipped: job '{others[0].ref.name}' of the same schedule has not ended"
            )
        if schedule.overlap is Overlap.REPLACE:
            for other in others:
                self._client.cancel(other.ref)
        self._client.submit(job)
        replaced = (
            f" in place of '{others[0].ref.name}'" if schedule.overlap is Overlap.REPLACE and others else ""
        )
        return f"job '{job.name}' was started{replaced}"

    def _is_there(self, name: str, namespace: str) -> bool:
        try:
            self._client.state(name, namespace=namespace)
        except NotFound:
            return False
        return True

    def _unfinished(self, schedule: Schedule) -> Sequence[JobState]:
        mine = self._client.jobs(namespace=schedule.namespace, selector=f"{LABEL}={schedule.name}")
        return [state for state in mine if not state.phase.final]


def _due_of(name: str) -> float:
    """Return when the job was due, from the minute at the end of its name."""
    minute = name.rpartition("-")[2]
    return int(minute) * 60.0 if minute.isdigit() else time.time()


def _with_next(known: Recurrence) -> Recurrence:
    if known.schedule.paused:
        return msgspec.structs.replace(known, next=None)
    coming = cron.following(known.schedule, time.time())
    return msgspec.structs.replace(known, next=coming[0] if coming else None)


def own_zone() -> str:
    """Return the name of this machine's time zone; a fixed offset would be wrong after the change to summer time."""
    named = os.environ.get("TZ", "").lstrip(":") or "/etc/localtime"
    if named.startswith("/"):
        named = os.path.realpath(named).partition("zoneinfo/")[2]
    return named or "Etc/UTC"
