"""WHAT WAS: the record of jobs, which stays when everything of them is deleted.

An `Archive` is one directory: a SQLite database and compressed chunks of logs. Engines write into it
(the local one when a job is deleted, a cluster's recorder while jobs run); `Past` reads it and answers as
an engine would. Nothing here knows an engine, and nobody else opens these files.
"""
