"""What is told to whoever keeps an eye on every job: states (`JobState`), jobs that are gone, and signs of life."""

from __future__ import annotations

import msgspec

from mpijob.errors import MpiJobError
from mpijob.model.ref import JobRef
from mpijob.model.status.state import JobState


class Gone(msgspec.Struct, frozen=True):
    """A job that is not there any more."""

    ref: JobRef


class Heard(msgspec.Struct, frozen=True):
    """The engine is reachable and all changes were delivered; or `trouble` has the reason why not."""

    trouble: MpiJobError | None = None


Overseen = JobState | Gone | Heard
