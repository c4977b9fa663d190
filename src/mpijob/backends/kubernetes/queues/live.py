"""The start times of a namespace's queued jobs, from a fit broker or the queues, cached for seconds."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.queues import collect, forecasts
from mpijob.backends.kubernetes.queues.collect import History, Key
from mpijob.errors import MpiJobError
from mpijob.model.status.accounts import AccountQuery
from mpijob.model.status.forecast import Forecast
from mpijob.model.status.state import Phase

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.auth.access import Access
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.settings import Settings

# Clients that wait read a job more often than queues change.
_SAME_SECONDS = 5.0
# A job that was not in the last result is read again sooner.
_NEW_SECONDS = 1.0
# Of one program: more do not change the estimate.
_RUNS = 50
_NAMESPACES = 256
_log = logging.getLogger(__name__)


class LiveForecasts:
    """The start times of jobs, as one user may see them."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        access: Access,
        served: Callable[[], frozenset[str]],
        past: Callable[[], ArchiveReader | None],
    ) -> None:
        self._api, self._settings, self._access = api, settings, access
        self._served, self._past = served, past
        self._kept: BoundedDict[str, tuple[float, Mapping[str, Forecast]]] = BoundedDict(_NAMESPACES)

    def of(self, namespace: str, uids: Collection[str] = ()) -> Mapping[str, Forecast]:
        """Return the start times of the queued jobs of a namespace ("" for all), by the uids of their
        objects.

        If one of `uids` is missing, the result is at most a second old.
        """
        when, known = self._kept.get(namespace, (-math.inf, {}))
        most = _SAME_SECONDS if all(uid in known for uid in uids) else _NEW_SECONDS
        if time.monotonic() - when > most:
            known = self._read(namespace)
            self._kept[namespace] = time.monotonic(), known
        return known

    def _read(self, namespace: str) -> Mapping[str, Forecast]:
        # The broker first, since it may read more than this user.
        if self._settings.broker and namespace:
            from mpijob.backends.kubernetes.broker import client

            try:
                return client.ask_waits(namespace, self._access, self._settings)
            except MpiJobError as error:
                _log.info("the fit broker did not report waiting jobs: %s", error.message)
        try:
            return read_queues(self._api, namespace, self._served(), of_record(self._past(), namespace))
        except (ApiError, MpiJobError) as error:
            _log.info("cannot estimate when jobs start: %s", error)
            return {}


def read_queues(
    api: Api, namespace: str, served: frozenset[str], history: History = lambda keys: {}
) -> dict[str, Forecast]:
    """Return the start times as far as the queues can be read."""
    found: dict[str, Forecast] = {}
    for seen in collect.queues(api, namespace, served, history):
        found |= forecasts.forecasts(seen, api.now())
    return found


def of_record(past: ArchiveReader | None, namespace: str) -> History:
    """Return a function that reads from the job history how long programs ran before."""

    def history(keys: Iterable[Key]) -> Mapping[Key, tuple[float, ...]]:
        found: dict[Key, tuple[float, ...]] = {}
        for key in keys if past is not None else ():
            if durations := _durations(past, namespace, key):
                found[key] = durations
        return found

    return history


def _durations(past: ArchiveReader | None, namespace: str, key: Key) -> tuple[float, ...]:
    program, workers = key
    ended = (Phase.SUCCEEDED.value, Phase.FAILED.value)
    query = AccountQuery(namespace=namespace, program=program, phases=ended, limit=_RUNS)
    accounts = past.accounts(query) if past is not None else ()
    return tuple(
        account.ended - account.started
        for account, _ in zip(accounts, range(_RUNS), strict=False)
        if account.workers == workers and account.started is not None and account.ended is not None
    )
