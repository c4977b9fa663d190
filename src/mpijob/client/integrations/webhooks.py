"""Callbacks: deliver each change of a job's phase to the configured addresses, signed, with retries.

Deliveries are stored before they are sent, so that a restart continues where the process was killed. A change
has one id for all attempts, so that a receiver that stores ids handles it once. The pause between attempts
doubles, up to an hour; after ten attempts the delivery is logged as failed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mpijob.client.integrations import notices
from mpijob.client.integrations.notices import Delivery
from mpijob.errors import BackendError, InvalidJob, MpiJobError, NotFound
from mpijob.model import JobRef, JobState, Phase
from mpijob.outbound import guard, http, smtp
from mpijob.outbound.policy import PUBLIC, UNRESTRICTED, is_public

if TYPE_CHECKING:
    from mpijob.client.client import Client
    from mpijob.model.spec.job import Notify
    from mpijob.settings import CallbackSetting

FIRST_SECONDS, MOST_SECONDS, MOST_TRIES = 5.0, 3600.0, 10
# A job that ended longer ago was reported by another process, or by none.
_OLD_SECONDS = 3600.0
_SWEEP_SECONDS = 30.0
_MOST_NOTIFY = 10_000
_KEPT_SECONDS = 7 * 86_400.0
_WAITING, _SENT, _FAILED = 0, 1, 2
_TABLE = """CREATE TABLE IF NOT EXISTS deliveries (
  id TEXT PRIMARY KEY, place TEXT NOT NULL, body BLOB NOT NULL, tries INTEGER NOT NULL, due REAL NOT NULL,
  status INTEGER NOT NULL, created REAL NOT NULL)"""
_log = logging.getLogger(__name__)


def place_of(setting: CallbackSetting) -> str:
    """Return the key of a callback: the same when the order of the settings changes, and unique."""
    return f"to:{_digest(' '.join((setting.shape, setting.secret_file, setting.url)))}"


def number_of(state: JobState, place: str, delivery: Delivery | None = None) -> str:
    """Return the id of a change, equal for all attempts to deliver it."""
    change, to = delivery or Delivery(state.phase.value)
    whom = f"{place} {to}" if to else place
    return _digest(f"{state.ref.namespace}/{state.ref.uid}/{state.attempt}/{change}/{whom}")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


class Outbox:
    """Deliveries, stored in a database."""

    def __init__(
        self, path: str, settings: Iterable[CallbackSetting], clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = tuple((place_of(setting), setting) for setting in settings)
        self._clock = clock
        self._lock = threading.Lock()
        self._notify: dict[tuple[str, str], tuple[Notify, ...]] = {}
        # Addresses in `notify` of jobs that no callback may use, and for which this was logged.
        self._refused: set[tuple[str, str]] = set()
        # os.O_CREAT | SQLite would create it readable by others (umask).
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(handle)
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.execute(_TABLE)

    def close(self) -> None:
        self._db.close()

    def notify(self, ref: JobRef, read: Callable[[], tuple[Notify, ...]]) -> tuple[Notify, ...]:
        """Return the `notify` of a job, read once: it does not change."""
        key = (ref.namespace, ref.uid)
        if key not in self._notify:
            if len(self._notify) >= _MOST_NOTIFY:
                self._notify.clear()
            self._notify[key] = read()
        return self._notify[key]

    def is_old(self, state: JobState) -> bool:
        """Return whether a job ended so long ago that it is not reported."""
        now = self._clock()
        return state.phase.final and now - (state.finished or now) > _OLD_SECONDS

    def offer(self, state: JobState, notify: Iterable[Notify] = ()) -> None:
        """Store the deliveries for a job's state, by the settings and by the job's own `notify`."""
        now, notify = self._clock(), tuple(notify)
        if self.is_old(state):
            return
        for place, setting in self._settings:
            for delivery in notices.deliveries(setting, state, notify):
                number = number_of(state, place, delivery)
                content = notices.body(state, setting, number, now, delivery.to)
                self._write(
                    # Deliveries that are stored already, sent or not, stay unchanged.
                    "INSERT INTO deliveries VALUES (?,?,?,0,?,?,?) ON CONFLICT DO NOTHING",
                    (number, place, content, now, _WAITING, now),
                )
        for to in notices.untaken((one for _, one in self._settings), state.ref.namespace, notify):
            if (state.ref.uid, to) not in self._refused:
                self._refused.add((state.ref.uid, to))
                _log.warning("job %s: no callback in the settings may notify %s", state.ref, to)

    def work(self) -> int:
        """Send the deliveries that are due; return how many were accepted."""
        now = self._clock()
        self._write("DELETE FROM deliveries WHERE created<?", (now - _KEPT_SECONDS,))
        with self._lock:
            due = self._db.execute(
                "SELECT id, place, body, tries FROM deliveries WHERE status=? AND due<=? ORDER BY created",
                (_WAITING, now),
            ).fetchall()
        return sum(self._deliver(*row) for row in due)

    def _deliver(self, number: str, place: str | int, content: bytes, tries: int) -> bool:
        """Send one delivery; return whether it was accepted."""
        # Older versions stored the position of the callback in the settings, which may mean another address
        # now: no key is a number.
        setting = dict(self._settings).get(str(place))
        why = "its address is no longer in the settings"
        if setting is not None:
            why = _sent(setting, number, content, self._clock())
        if not why:
            self._write("UPDATE deliveries SET status=? WHERE id=?", (_SENT, number))
            return True
        status = _FAILED if tries + 1 >= MOST_TRIES or setting is None else _WAITING
        pause = min(MOST_SECONDS, FIRST_SECONDS * 2**tries)
        self._write(
            "UPDATE deliveries SET tries=?, due=?, status=? WHERE id=?",
            (tries + 1, self._clock() + pause, status, number),
        )
        _log.warning("callback %s %s: %s", number, "gave up" if status == _FAILED else "will be retried", why)
        return False

    def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        with self._lock:
            self._db.execute(sql, values)


def _sent(setting: CallbackSetting, number: str, content: bytes, now: float) -> str:
    """Send one delivery; return the error, "" on success."""
    headers = {DELIVERY: number}
    try:
        secret = _secret(setting)
        if setting.by_smtp:
            login = smtp.Login(setting.user, secret.decode())
            smtp.send(setting.url, content, login, allow_private=setting.allow_private)
            return ""
        if secret:
            headers[SIGNATURE] = signature(secret, int(now), content)
        status = post(setting.url, content, headers, allow_private=setting.allow_private)
    except (MpiJobError, OSError, UnicodeDecodeError) as error:
        return str(error)
    return "" if 200 <= status < 300 else f"response status {status}"


def _secret(setting: CallbackSetting) -> bytes:
    if not setting.secret_file:
        return b""
    with open(setting.secret_file, "rb") as file:
        return file.read().strip()


def run(client: Client, stop: threading.Event, *, all_namespaces: bool = False) -> None:
    """Deliver changes of jobs until `stop`."""
    settings = client.settings
    if not settings.callbacks:
        raise InvalidJob(
            "there are no callbacks in the settings", hint='write [[callbacks]] with url = "https://…"'
        )
    os.makedirs(settings.home, mode=0o700, exist_ok=True)
    outbox = Outbox(os.path.join(settings.home, "callbacks.db"), settings.callbacks)
    watcher = threading.Thread(target=_watch, args=(client, outbox, stop, all_namespaces), daemon=True)
    watcher.start()
    swept = -_SWEEP_SECONDS
    while not stop.wait(1.0):
        if time.monotonic() - swept >= _SWEEP_SECONDS:
            swept = time.monotonic()
            _sweep(client.twin(), outbox, all_namespaces)
        outbox.work()


def _sweep(client: Client, outbox: Outbox, all_namespaces: bool) -> None:
    """Offer recently ended jobs: a watch reports the newest job of each name only, and nothing from before it
    began.
    """
    try:
        since = time.time() - _OLD_SECONDS
        for account in client.accounts(
            all_namespaces=all_namespaces, since=since, by_end=True, limit=1000
        ).items:
            if account.ended:
                _offer(client, outbox, client.state(account.ref))
    except MpiJobError as error:
        _log.warning("%s", error)


def _watch(client: Client, outbox: Outbox, stop: threading.Event, all_namespaces: bool) -> None:
    while not stop.is_set():
        try:
            for state in client.watch(all_namespaces=all_namespaces):
                _offer(client, outbox, state)
                if stop.is_set():
                    return
        # The engine does not respond: watched again after a pause.
        except BackendError as error:
            _log.warning("%s", error)
            stop.wait(5.0)


def _offer(client: Client, outbox: Outbox, state: JobState) -> None:
    """Offer the state of a job with its `notify`."""
    if outbox.is_old(state) or state.phase is Phase.DELETING:
        return
    try:
        # Read again: a failed attempt that will be retried is not the end of the job.
        now = client.state(state.ref) if state.phase.final else state
        outbox.offer(now, outbox.notify(state.ref, lambda: client.spec(state.ref).notify))
    # Deleted, and without a record.
    except NotFound:
        outbox.offer(state)


__all__ = ["DELIVERY", "SIGNATURE", "is_public", "post", "resolved", "signature", "verified"]

SIGNATURE, DELIVERY = "X-MPIJob-Signature", "X-MPIJob-Delivery"
_SECONDS = 10.0
_PRIVATE = "an administrator can set allow_private to allow private addresses"


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """Return the signature of a body as `t=…,v1=…`; the time is signed too, against replays."""
    return f"t={moment},v1={hmac.new(secret, f'{moment}.'.encode() + body, hashlib.sha256).hexdigest()}"


def verified(secret: bytes, header: str, body: bytes, now: float, tolerance_seconds: float = 300.0) -> bool:
    """Return whether a signature is valid and recent; for receivers."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    if not parts.get("t", "").isdecimal() or abs(now - int(parts["t"])) > tolerance_seconds:
        return False
    return hmac.compare_digest(signature(secret, int(parts["t"]), body), header)


def post(url: str, body: bytes, headers: dict[str, str], *, allow_private: bool = False) -> int:
    """Send a body and return the status; raise InvalidJob for an address that is not allowed."""
    try:
        # Raises for an invalid port.
        parts, _ = urlsplit(url), urlsplit(url).port
    except ValueError as error:
        raise InvalidJob(f"{url!r} is not a valid URL: {error}", hint="write https://HOST/PATH") from error
    _refuse(url, parts, allow_private)
    sent = {"content-type": "application/json", "user-agent": "mpijob", **headers}
    policy = UNRESTRICTED if allow_private else PUBLIC
    try:
        return http.request("POST", url, body, sent, seconds=_SECONDS, max_bytes=0, policy=policy).status
    except guard.Forbidden as error:
        raise InvalidJob(error.reason, hint=_PRIVATE) from error
    except (OSError, ValueError) as error:
        raise BackendError(f"{parts.scheme}://{parts.netloc} rejected a callback: {error}") from error


def _refuse(url: str, parts: Any, allow_private: bool) -> None:
    if parts.scheme not in ("https", *(("http",) if allow_private else ())) or not parts.hostname:
        raise InvalidJob(
            f"{url!r} is not allowed for callbacks",
            hint="write https://…; http only with allow_private, for addresses of your own",
        )
    if parts.username or parts.password:
        raise InvalidJob(f"{parts.hostname}: credentials in a URL are not supported", hint="use secret_file")


def resolved(host: str, port: int, *, allow_private: bool = False) -> str:
    """Return the address of a host; raise InvalidJob if any of its addresses is not public."""
    try:
        found = guard.resolve(host, port)
    except OSError as error:
        raise BackendError(f"cannot resolve {host}: {error}") from error
    if refused := guard.forbidden_address(UNRESTRICTED if allow_private else PUBLIC, host, port, found):
        raise InvalidJob(f"{host} resolves to {refused}, which is not a public address", hint=_PRIVATE)
    return str(found[0][4][0])
