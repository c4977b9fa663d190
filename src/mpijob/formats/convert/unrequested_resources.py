"""The report's entry on CPU and memory that a source does not request: the job requests none either."""

from __future__ import annotations

from mpijob.formats.convert.report import UNASKED, FieldEntry, FieldOutcome
from mpijob.model import MPIJob, Resources
from mpijob.model.spec.quantity import NONE

NOTHING = Resources(cpu=NONE, memory=NONE)
_NOTE = "not requested: no request and no limit are set, except the default of the namespace"


def first_line(job: MPIJob) -> tuple[FieldEntry, ...]:
    """Return the report's first entry, None if the job requests all resources."""
    parts = {"resources": job.resources, "launcher": job.launcher}
    names = [
        f"{part}.{name}" for part in parts for name in ("memory", "cpu") if getattr(parts[part], name) == NONE
    ]
    if not names:
        return ()
    missing = ", ".join(names)
    return (
        FieldEntry(
            missing, FieldOutcome.CHANGED, UNASKED, NONE, f"{missing} {_NOTE}", f"nothing, or set {missing}"
        ),
    )


def added_launcher(job: MPIJob) -> tuple[FieldEntry, ...]:
    """Return the entry on the launcher that a job gets because its source has none."""
    amounts = f"launcher.cpu: {job.launcher.cpu}, launcher.memory: {job.launcher.memory}"
    note = "mpijob adds a launcher that starts the ranks; the source sets no resources for it"
    return (
        FieldEntry("launcher", FieldOutcome.CHANGED, "(not set)", amounts, note, "nothing, or set launcher"),
    )
