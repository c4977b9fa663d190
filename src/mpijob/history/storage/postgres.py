"""The archive's database in PostgreSQL: SQLite's statements, translated. Needs the extra `postgres`.

The archive uses the common subset of both dialects; the few differences are translated here, once per
statement. Writers are serialized by an advisory lock, as in SQLite, so the same guarantees hold. After a lost
connection it reconnects; a transaction that was open fails, and its caller repeats it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from mpijob.errors import BackendError, Unsupported
from mpijob.history.storage import schema

# The advisory lock of all writers of an archive.
_LOCK = 0x6D70696A6F62
_RETURNS_ID = re.compile(r"INSERT INTO (chunks|sessions) ")
_TRANSLATIONS = (
    (re.compile(r"INTEGER PRIMARY KEY AUTOINCREMENT"), "BIGSERIAL PRIMARY KEY"),
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bREAL\b"), "DOUBLE PRECISION"),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (re.compile(r"\) STRICT(, WITHOUT ROWID)?"), ")"),
    (re.compile(r"\browid=\?"), "ctid=?::tid"),
    (re.compile(r"\browid\b"), "ctid"),
    (re.compile(r"BEGIN IMMEDIATE"), "BEGIN"),
    # In this order: the second one writes `%`, which the first one would double.
    (re.compile(r"%"), "%%"),
    (re.compile(r"\?"), "%s"),
)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_SEQUENCES = {"jobs": "seq", "voices": "id", "chunks": "id", "sessions": "id"}
_CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"


@functools.lru_cache(maxsize=512)
def translate(sql: str) -> str:
    """Translate a statement for PostgreSQL; raise ValueError where a `?` is not a placeholder."""
    if any("?" in text for text in _LITERAL.findall(sql)):
        raise ValueError(f"a literal holds a question mark, pass it as a parameter: {sql}")
    for pattern, replacement in _TRANSLATIONS:
        sql = pattern.sub(replacement, sql)
    return sql + " RETURNING id" if _RETURNS_ID.match(sql) else sql


class Result:
    """The rows of a statement, or the id of the inserted row."""

    def __init__(self, cursor: Any, returns_id: bool) -> None:
        self._cursor = cursor
        self.lastrowid: int | None = cursor.fetchone()[0] if returns_id else None

    # psycopg raises when rows of a statement without a result are fetched; sqlite3 returns none.
    def fetchall(self) -> list[Any]:
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def fetchone(self) -> Any:
        return self._cursor.fetchone() if self._cursor.description else None


class Database:
    """A PostgreSQL connection with the interface of a SQLite connection."""

    def __init__(self, address: str) -> None:
        if find_spec("psycopg") is None:
            raise Unsupported("PostgreSQL needs psycopg", hint="run: pip install 'mpijob[postgres]'")
        self._address = address
        self._in_transaction = False
        self._connection: Any = None
        self._connect()
        self._migrate()

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Result:
        if sql == _CHECKPOINT:
            return self._vacuum()
        return self._execute(lambda cursor: cursor.execute(translate(sql), _adapt(values)), sql)

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> Result | None:
        rows = [_adapt(row) for row in values]
        if not rows:
            return None
        return self._execute(lambda cursor: cursor.executemany(translate(sql), rows), sql, many=True)

    def close(self) -> None:
        self._connection.close()

    # -- the server -------------------------------------------------------------------------------
    def _execute(self, run: Any, sql: str, *, many: bool = False) -> Result:
        import psycopg

        begins = sql.startswith("BEGIN")
        try:
            cursor = self._run_or_reconnect(run, may_repeat=not self._in_transaction)
            if begins:
                self._in_transaction = True
                # PostgreSQL lets transactions write concurrently; the archive relies on one writer at a time.
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            elif sql in ("COMMIT", "ROLLBACK"):
                self._in_transaction = False
            return Result(cursor, not many and bool(_RETURNS_ID.match(sql)))
        except psycopg.Error as error:
            if sql in ("COMMIT", "ROLLBACK") or self._connection.closed:
                self._in_transaction = False
            # The connection is lost, and the server has rolled the transaction back.
            if sql == "ROLLBACK":
                return Result(_EmptyCursor(), returns_id=False)
            raise BackendError(
                f"history database error: {str(error).splitlines()[0] if str(error) else error!r}",
                hint="check that the server of the setting history_database runs and that this user may write to it",
            ) from error

    def _run_or_reconnect(self, run: Any, *, may_repeat: bool) -> Any:
        import psycopg

        if self._connection.closed:
            self._connect()
        cursor = self._connection.cursor()
        try:
            run(cursor)
        except psycopg.OperationalError:
            # Only a statement outside a transaction may be repeated, and only after the connection was lost.
            if not may_repeat or not self._connection.closed:
                raise
            self._connect()
            cursor = self._connection.cursor()
            run(cursor)
        return cursor

    def _connect(self) -> None:
        import psycopg

        try:
            self._connection = psycopg.connect(self._address, autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise BackendError(
                f"cannot connect to the history database: {str(error).splitlines()[0]}",
                hint="check the setting history_database and its server",
            ) from error

    def _vacuum(self) -> Result:
        # Without it, the content of deleted rows stays in the server's files.
        for table in schema.TABLES:
            self._execute(lambda cursor, table=table: cursor.execute(f"VACUUM {table}"), "VACUUM")
        return Result(_EmptyCursor(), returns_id=False)

    # -- its format -------------------------------------------------------------------------------
    def _migrate(self) -> None:
        """Create or migrate the tables, on live data, in one transaction."""
        self.execute("BEGIN IMMEDIATE")
        try:
            self.execute("CREATE TABLE IF NOT EXISTS format (version BIGINT NOT NULL)")
            row = self.execute("SELECT version FROM format").fetchone()
            version = 0 if row is None else int(row[0])
            if version > schema.VERSION:
                raise BackendError(
                    f"the history database was written by a newer mpijob (format {version}, this one supports"
                    f" {schema.VERSION})", hint="use the newer version, or another database",
                )  # fmt: skip
            if version < schema.VERSION:
                schema.migrate(self, version)
                self._reset_sequences()
                self.execute("DELETE FROM format")
                self.execute("INSERT INTO format VALUES (?)", (schema.VERSION,))
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def _reset_sequences(self) -> None:
        """Set sequences after the ids that a migration copied; SQLite does that by itself."""
        for table, column in _SEQUENCES.items():
            self.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
                f" (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
            )


class _EmptyCursor:
    description = None


def _adapt(values: Sequence[Any]) -> list[Any]:
    """Return values that PostgreSQL accepts: integers for booleans, no NUL in texts."""
    return [
        int(value) if isinstance(value, bool)
        else value.replace("\0", "�") if isinstance(value, str)
        else value
        for value in values
    ]  # fmt: skip
