"""Report all errors of a job file at once: those of parsing and those of the checks.

`formats/jobfile` parses and `checks` checks, and they do not import each other; without this module a file
with both kinds of errors would be refused twice.
"""

from __future__ import annotations

from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.model import MPIJob
from mpijob.settings import load

_READ_ALREADY = frozenset({"WRONG_TYPE", "UNKNOWN_WORD", "UNKNOWN_FIELD", "MISSING_FIELD"})


def read_job(text: str | bytes, file: str = "") -> MPIJob:
    """Parse a job file; raise InvalidJob with all its errors."""
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


def contradictions(reported: tuple[Finding, ...], job: MPIJob | None) -> tuple[Finding, ...]:
    """Return the errors of the checks that parsing has not found."""
    if job is None:
        return ()
    from mpijob import checks

    known = {(finding.field, finding.message) for finding in reported}
    return tuple(
        finding
        for finding in checks.run(job, max_workers=load().max_workers)
        if finding.severity is Severity.ERROR
        and finding.code not in _READ_ALREADY
        and (finding.field, finding.message) not in known
    )


def _sketch(text: str | bytes) -> MPIJob | None:
    from mpijob.formats.jobfile import jobfile_reader

    try:
        return jobfile_reader.sketch(text)
    except InvalidJob:
        # Not even YAML.
        return None
