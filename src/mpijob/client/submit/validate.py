"""Everything that is wrong with a written job in one answer: what cannot be read, and what contradicts itself.

Reading (`formats/jobfile`) and judging (`checks`) do not know each other; without this a file with
both kinds of faults would be refused twice.
"""

from __future__ import annotations

from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.model import MPIJob
from mpijob.settings import load

_READ_ALREADY = frozenset({"WRONG_TYPE", "UNKNOWN_WORD", "UNKNOWN_FIELD", "MISSING_FIELD"})


def read_job(text: str | bytes, file: str = "") -> MPIJob:
    """Return the one job of a file; raise InvalidJob with everything that is wrong in it."""
    from mpijob.formats.jobfile import jobfile_reader

    try:
        return jobfile_reader.read(text, file=file)
    except InvalidJob as error:
        more = contradictions(error.findings, _sketch(text))
        if not more:
            raise
        raise InvalidJob.of(
            (*error.findings, *jobfile_reader.locate(text, more, file=file)), file or "the job"
        ) from error


def contradictions(told: tuple[Finding, ...], job: MPIJob | None) -> tuple[Finding, ...]:
    """Return what else is wrong with a job of which some fields could not be read."""
    if job is None:
        return ()
    from mpijob import checks

    said = {(finding.field, finding.message) for finding in told}
    return tuple(
        finding
        for finding in checks.run(job, max_workers=load().max_workers)
        if finding.severity is Severity.ERROR
        and finding.code not in _READ_ALREADY
        and (finding.field, finding.message) not in said
    )


def _sketch(text: str | bytes) -> MPIJob | None:
    from mpijob.formats.jobfile import jobfile_reader

    try:
        return jobfile_reader.sketch(text)
    except InvalidJob:
        return None  # it is no YAML at all
