"""When the jobs of a namespace will start, asked of a fit broker or of the queues themselves, anew every few seconds.

Whoever waits looks at a job more often than queues change.
"""

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

_SAME_SECONDS = 5.0
_NEW_SECONDS = 1.0  # a job that was not there at the last look is looked for again
_RUNS = 50  # of one program are enough
_NAMESPACES = 256
_log = logging.getLogger(__name__)


class LiveForecasts:
    """Knows when jobs start, as one user sees it."""

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
        """Return when the jobs of a namespace (or of all, "") start that wait, by their objects' uids.

        Where one of `uids` is missing, the answer is at most a second old.
        """
        when, known = self._kept.get(namespace, (-math.inf, {}))
        most = _SAME_SECONDS if all(uid in known for uid in uids) else _NEW_SECONDS
        if time.monotonic() - when > most:
            known = self._asked(namespace)
            self._kept[namespace] = time.monotonic(), known
        return known

    def _asked(self, namespace: str) -> Mapping[str, Forecast]:
        """Ask the broker, which sees more; where there is none, or it does not answer, read the queues."""
        if self._settings.broker and namespace:
            from mpijob.backends.kubernetes.broker import client

            try:
                return client.ask_waits(namespace, self._access, self._settings)
            except MpiJobError as error:
                _log.info("the fit broker did not report waiting jobs: %s", error.message)
        try:
            return look(self._api, namespace, self._served(), of_record(self._past(), namespace))
        except (ApiError, MpiJobError) as error:
            _log.info("cannot estimate when jobs start: %s", error)
            return {}


def look(
    api: Api, namespace: str, served: frozenset[str], history: History = lambda keys: {}
) -> dict[str, Forecast]:
    """Return when jobs start, as far as the queues can be read."""
    found: dict[str, Forecast] = {}
    for seen in collect.queues(api, namespace, served, history):
        found |= forecasts.forecasts(seen, api.now())
    return found


def of_record(past: ArchiveReader | None, namespace: str) -> History:
    """Return who tells how long programs ran before, from the record of jobs."""

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
        one.ended - one.started
        for one, _ in zip(accounts, range(_RUNS), strict=False)
        if one.workers == workers and one.started is not None and one.ended is not None
    )
