"""The logs that a recorder has stored, parsed like pods' logs (`pod_logs`)."""

from __future__ import annotations

from mpijob.backends.kubernetes.logs import pod_logs
from mpijob.history.archive import Archive
from mpijob.history.archive_reader import ArchiveReader, LineReader, open_archive
from mpijob.history.records import LogSource
from mpijob.history.storage.s3 import ObjectStore
from mpijob.model import Family, JobState
from mpijob.settings import Settings


def open_recorded(directory: str, settings: Settings | None = None) -> ArchiveReader | None:
    """Return the archive in a directory or of the settings' database; None without one."""
    settings = settings or Settings()
    return open_archive(directory, _reader, settings.history_database, store_of(settings))


def store_of(settings: Settings) -> ObjectStore | None:
    """Return the object store of the settings, if there is one."""
    return ObjectStore(settings.objects) if settings.objects.endpoint else None


def of_archive(archive: Archive) -> ArchiveReader:
    """Return a reader for an archive that is open already."""
    return ArchiveReader(archive, _reader)


def _reader(voice: LogSource, state: JobState) -> LineReader:
    workers = {rank.rank: rank.worker for rank in state.ranks}
    log_source = pod_logs.PodLogSource(
        state.ref.namespace,
        voice.source,
        "",
        voice.role,
        voice.worker,
        voice.attempt,
        Family(voice.family),
        voice.tagged,
    )
    return pod_logs.Reader(log_source, workers)
