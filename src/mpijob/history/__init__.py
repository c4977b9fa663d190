"""Job history: what is kept of jobs, their logs and the audit log after everything else is deleted.

An `Archive` is one directory: a SQLite database and compressed chunks of logs. Engines write to it (the local
engine when a job is deleted, the recorder of a cluster while jobs run); `ArchiveReader` reads it and returns
what an engine would return. This package knows no engine, and no other package opens these files.
"""
