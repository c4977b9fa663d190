"""Reads files that mpijob wrote: job files, and manifests with the complete job in an annotation."""

from __future__ import annotations

from typing import Any

from mpijob.formats.convert.report import Converted, FieldEntry, FieldOutcome
from mpijob.formats.jobfile import jobfile_reader, jobfile_writer
from mpijob.formats.kubernetes.trainjob import Reading
from mpijob.model import Family, MPIJob


def read(text: str, file: str = "") -> tuple[Converted, ...]:
    jobs = jobfile_reader.read_all(text, file=file)
    return tuple(Converted(source="job file", jobs=(job,), entries=exactly(job), file=file) for job in jobs)


def job_of(reading: Reading, source: str, file: str, family: Family) -> Converted:
    """Return the job of a manifest that was written by mpijob."""
    entries = exactly(reading.job)
    return Converted(
        source=source, jobs=(reading.job,), entries=entries, file=file, foreign=reading.foreign, family=family
    )


def exactly(job: MPIJob) -> tuple[FieldEntry, ...]:
    """Return an entry for each field that a job sets."""
    return tuple(
        FieldEntry(field, FieldOutcome.EXACT, value[:200], field) for field, value in fields(job).items()
    )


def fields(job: MPIJob) -> dict[str, str]:
    """Return the fields that a job sets, by path, with their values as text."""
    return dict(_flat(jobfile_writer.plain(job), ""))


def _flat(value: dict[str, Any], path: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, item in value.items():
        here = f"{path}{key}"
        if isinstance(item, dict) and here in _PARTS:
            found += _flat(item, f"{here}.")
        else:
            found.append((here, item if isinstance(item, str) else str(item)))
    return found


_PARTS = frozenset({"launch", "code", "resources", "launcher", "placement", "retry", "signal", "retention"})
