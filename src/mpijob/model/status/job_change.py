"""What a watch on all jobs yields: states (`JobState`), deleted jobs, and heartbeats."""

from __future__ import annotations

import msgspec

from mpijob.errors import MpiJobError
from mpijob.model.ref import JobRef
from mpijob.model.status.state import JobState


class Gone(msgspec.Struct, frozen=True):
    """A job that does not exist any more."""

    ref: JobRef


class Heard(msgspec.Struct, frozen=True):
    """The engine is reachable and all changes were delivered; otherwise `trouble` has the reason."""

    trouble: MpiJobError | None = None


Overseen = JobState | Gone | Heard
