"""Recurring jobs: when they start, and what happens while the previous one still runs.

`observation/state/cron` computes due times; engines start the jobs.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mpijob.model.spec.job import MPIJob, Value

LABEL = "mpijob/schedule"


class Overlap(StrEnum):
    """What happens when a job is due and the previous one has not ended."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class Schedule(Value, frozen=True, kw_only=True):
    """One recurring job.

    `when` is a cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly. `time_zone` is a
    name such as Europe/Berlin; without one UTC counts (the command line fills in this machine's).
    `start_within_seconds` is how late a missed start may be made up for; without it, the newest one always is.
    """

    name: str
    when: str
    job: MPIJob
    namespace: str = "default"
    time_zone: str = ""
    overlap: Overlap = Overlap.FORBID
    start_within_seconds: float | None = None
    paused: bool = False

    def job_of(self, moment: float) -> MPIJob:
        """Return the job of one moment; its name tells the minute, so that one moment starts one job."""
        return self.job_named(f"{self.name}-{int(moment) // 60}")

    def job_named(self, name: str) -> MPIJob:
        """Return the job of one start, with the label by which the others find it."""
        labels = {**self.job.labels, LABEL: self.name}
        return self.job.replace(name=name, namespace=self.namespace, labels=labels)


class Recurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a schedule: the last due time, its result, and the next due time.

    Starts count from `since`: runs missed during a pause are skipped.
    """

    schedule: Schedule
    since: float
    last: float | None = None
    told: str = ""
    next: float | None = None
