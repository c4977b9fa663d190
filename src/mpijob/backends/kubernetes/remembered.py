"""What a recorder wrote down of a cluster's jobs, read with the same understanding of pods' logs as `logs`."""

from __future__ import annotations

from mpijob.backends.kubernetes import logs
from mpijob.history.archive import Archive
from mpijob.history.past import LineReader, Past, past
from mpijob.history.values import Voice
from mpijob.model import Family, JobState


def remembered(directory: str, database: str = "") -> Past | None:
    """Return the past that a recorder has written into a directory, if there is any."""
    return past(directory, _reader, database)


def of_archive(archive: Archive) -> Past:
    """Return the past of an archive that is open already."""
    return Past(archive, _reader)


def _reader(voice: Voice, state: JobState) -> LineReader:
    workers = {rank.rank: rank.worker for rank in state.ranks}
    speaker = logs.Voice(
        state.ref.namespace,
        voice.source,
        "",
        voice.role,
        voice.worker,
        voice.attempt,
        Family(voice.family),
        voice.tagged,
    )
    return logs.Reader(speaker, workers)
