"""The scheduler of this machine's schedules: sleeps until a job is due, starts it, ends when no schedule is
left.

It is a process of its own, started by every command that creates or lists schedules (decision 0038). It can
be killed at any time: the next one finds what was due meanwhile, and the minute in a job's name ensures that
each start happens once.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mpijob import codec
from mpijob.client.services.schedules import Schedules
from mpijob.errors import MpiJobError
from mpijob.model.spec.schedule import Recurrence
from mpijob.observation.state import cron
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.protocol import Schedules as Kept
    from mpijob.client.client import Client

# A change of the clock, or a resume from suspend, is noticed within a minute.
LONGEST_SLEEP_SECONDS = 60.0
# A schedule whose last start is further in the future than this: the clock was set back.
_AHEAD_SECONDS = 90.0


def main() -> None:
    """Run the scheduler with the settings from the environment."""
    from mpijob.backends.recurring import background

    settings = codec.decode(os.environ.pop(background.SETTINGS), Settings)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(settings)


def serve(settings: Settings) -> str:
    """Run until no schedule is left; return why it ended."""
    from mpijob.backends.recurring.schedule_files import ScheduleFiles
    from mpijob.client.base import open_backend
    from mpijob.client.client import Client

    kept = open_backend(settings).schedules()
    # Only engines with schedule files start this process.
    assert isinstance(kept, ScheduleFiles)
    while True:
        with kept.scheduler_lock() as wakeup:
            if wakeup is None:
                return "another process already runs the scheduler of these schedules"
            with Client(open_backend(settings), settings=settings) as client:
                _run_rounds(CronDaemon(client, kept), wakeup)
        # A schedule that was created after the last round found the lock taken, and started no process.
        if not kept.all():
            return "there is no schedule"


def _run_rounds(daemon: CronDaemon, wakeup: int) -> None:
    while (seconds := daemon.round()) is not None:
        select.select([wakeup], [], [], seconds)
        _empty(wakeup)


def _empty(wakeup: int) -> None:
    try:
        os.read(wakeup, 4096)
    except BlockingIOError:
        return


class CronDaemon:
    """Starts due jobs, by a clock that tests can set."""

    def __init__(self, client: Client, kept: Kept, now: Callable[[], float] = time.time) -> None:
        self._client = client
        self._kept = kept
        self._now = now

    def round(self) -> float | None:
        """Start what is due; return the seconds until the next start, None if there is no schedule."""
        known = self._kept.all()
        for one in known:
            self._start_due(one)
        if not known:
            return None
        coming = [self._next(one) for one in known if not one.schedule.paused]
        return min([LONGEST_SLEEP_SECONDS, *coming])

    def _next(self, known: Recurrence) -> float:
        now = self._now()
        moments = cron.following(known.schedule, now)
        return max(0.05, moments[0] - now) if moments else LONGEST_SLEEP_SECONDS

    def _start_due(self, known: Recurrence) -> None:
        now = self._now()
        # The clock was set back: starts are counted from now.
        if known.since > now + _AHEAD_SECONDS:
            self._note(known, since=now)
            known = msgspec.structs.replace(known, since=now)
        due = None if known.schedule.paused else cron.due(known.schedule, known.since, now)
        if due is None:
            return
        told = self._fired(known, due.moment, now)
        if due.missed:
            told += (
                f" (and {due.missed} start{'s' if due.missed > 1 else ''} before it missed: the "
                f"scheduler did not run)"
            )
        self._note(known, since=due.moment, last=due.moment, told=told)

    def _fired(self, known: Recurrence, moment: float, now: float) -> str:
        schedule = known.schedule
        if cron.is_too_late(schedule, moment, now):
            return f"missed by {now - moment:.0f} s, beyond the limit of {schedule.start_within_seconds:g} s"
        try:
            return Schedules(self._client).fire(schedule, schedule.job_of(moment).name)
        except MpiJobError as error:
            return f"could not be started: {error.message}"

    def _note(self, known: Recurrence, **told: float | str) -> None:
        """Record the result, unless the schedule was deleted or changed meanwhile."""
        with self._kept.lock():
            fresh = [
                one for one in self._kept.all(known.schedule.namespace) if one.schedule == known.schedule
            ]
            if fresh:
                self._kept.put(msgspec.structs.replace(fresh[0], **told))
