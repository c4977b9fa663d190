"""The archive's database in PostgreSQL: the same statements, said in its words. Needs the extra `postgres`.

The archive speaks SQLite's dialect, kept to what both know; the few words that differ are translated here, once for
each statement. Writers take turns by a lock of the database, as they do in SQLite, so what is true there is true
here. A server that went away is connected to again; what was under way is told as failed and done again by whoever
wrote it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from mpijob.errors import BackendError, Unsupported
from mpijob.history.storage import schema

_LOCK = 0x6D70696A6F62  # everybody's who writes into an archive
_HAS_NUMBER = re.compile(r"INSERT INTO (chunks|sessions) ")
_WORDS = (
    (re.compile(r"INTEGER PRIMARY KEY AUTOINCREMENT"), "BIGSERIAL PRIMARY KEY"),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bREAL\b"), "DOUBLE PRECISION"),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (re.compile(r"\) STRICT(, WITHOUT ROWID)?"), ")"),
    (re.compile(r"\browid=\?"), "ctid=?::tid"),
    (re.compile(r"\browid\b"), "ctid"),
    (re.compile(r"BEGIN IMMEDIATE"), "BEGIN"),
    (re.compile(r"%"), "%%"),
    (re.compile(r"\?"), "%s"),
)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_NUMBERED = {"jobs": "seq", "voices": "id", "chunks": "id", "sessions": "id"}
_TIDY = "PRAGMA wal_checkpoint(TRUNCATE)"


@functools.lru_cache(maxsize=512)
def translated(sql: str) -> str:
    """Return a statement in PostgreSQL's words; raise ValueError where a `?` is no placeholder."""
    if any("?" in text for text in _LITERAL.findall(sql)):
        raise ValueError(f"a literal holds a question mark, pass it as a parameter: {sql}")
    for found, word in _WORDS:
        sql = found.sub(word, sql)
    return sql + " RETURNING id" if _HAS_NUMBER.match(sql) else sql


class Answer:
    """The rows of a statement, or the number of what it wrote."""

    def __init__(self, cursor: Any, numbered: bool) -> None:
        self._cursor = cursor
        self.lastrowid: int | None = cursor.fetchone()[0] if numbered else None

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def fetchone(self) -> Any:
        """Return the first row, or None."""
        return self._cursor.fetchone() if self._cursor.description else None


class Database:
    """A connection to PostgreSQL that answers as one to SQLite does."""

    def __init__(self, address: str) -> None:
        if find_spec("psycopg") is None:
            raise Unsupported("PostgreSQL needs psycopg", hint="run: pip install 'mpijob[postgres]'")
        self._address = address
        self._within = False
        self._connection: Any = None
        self._connect()
        self._bring_forward()

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Answer:
        """Run one statement."""
        if sql == _TIDY:
            return self._vacuum()
        return self._told(lambda cursor: cursor.execute(translated(sql), _plain(values)), sql)

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> Answer | None:
        """Run one statement for each row."""
        rows = [_plain(row) for row in values]
        if not rows:
            return None
        return self._told(lambda cursor: cursor.executemany(translated(sql), rows), sql, many=True)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # -- the server -------------------------------------------------------------------------------
    def _told(self, work: Any, sql: str, *, many: bool = False) -> Answer:
        import psycopg

        beginning = sql.startswith("BEGIN")
        try:
            cursor = self._run(work, again=not self._within)
            if beginning:
                self._within = True
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            elif sql in ("COMMIT", "ROLLBACK"):
                self._within = False
            return Answer(cursor, not many and bool(_HAS_NUMBER.match(sql)))
        except psycopg.Error as error:
            if sql in ("COMMIT", "ROLLBACK") or self._connection.closed:
                self._within = False
            if sql == "ROLLBACK":  # the server is gone, and with it what was begun
                return Answer(_Nothing(), numbered=False)
            raise BackendError(
                f"the record's database does not do as asked: {str(error).splitlines()[0] if str(error) else error!r}",
                hint="is the server of the setting history_database there, and may this user write to it?",
            ) from error

    def _run(self, work: Any, *, again: bool) -> Any:
        import psycopg

        if self._connection.closed:
            self._connect()
        cursor = self._connection.cursor()
        try:
            work(cursor)
        except psycopg.OperationalError:
            if not again or not self._connection.closed:
                raise
            self._connect()
            cursor = self._connection.cursor()
            work(cursor)
        return cursor

    def _connect(self) -> None:
        import psycopg

        try:
            self._connection = psycopg.connect(self._address, autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise BackendError(
                f"the record's database cannot be reached: {str(error).splitlines()[0]}",
                hint="look at the setting history_database and its server",
            ) from error

    def _vacuum(self) -> Answer:
        """Give back what was erased: without it a row's old words stay in the server's files."""
        for table in schema.TABLES:
            self._told(lambda cursor, table=table: cursor.execute(f"VACUUM {table}"), "VACUUM")
        return Answer(_Nothing(), numbered=False)

    # -- its format -------------------------------------------------------------------------------
    def _bring_forward(self) -> None:
        """Make the tables, or bring those of an older format forward, on live data, in one transaction."""
        self.execute("BEGIN IMMEDIATE")
        try:
            self.execute("CREATE TABLE IF NOT EXISTS format (version BIGINT NOT NULL)")
            row = self.execute("SELECT version FROM format").fetchone()
            found = 0 if row is None else int(row[0])
            if found > schema.VERSION:
                raise BackendError(
                    f"the record's database was written by a newer mpijob (format {found}, this one knows"
                    f" {schema.VERSION})", hint="use the newer version, or another database",
                )  # fmt: skip
            if found < schema.VERSION:
                schema.take_steps(self, found)
                self._continue_numbers()
                self.execute("DELETE FROM format")
                self.execute("INSERT INTO format VALUES (?)", (schema.VERSION,))
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def _continue_numbers(self) -> None:
        """Number new rows behind those that a step has copied with their numbers; SQLite does that by itself."""
        for table, column in _NUMBERED.items():
            self.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
                f" (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
            )


class _Nothing:
    description = None


def _plain(values: Sequence[Any]) -> list[Any]:
    """Return values that PostgreSQL takes: numbers for truth, no NUL in texts."""
    return [
        int(one) if isinstance(one, bool) else one.replace("\0", "�") if isinstance(one, str) else one
        for one in values
    ]
