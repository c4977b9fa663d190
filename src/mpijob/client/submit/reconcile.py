"""Reconcile jobs while the command that started them is attached, on a cluster without a controller.

`mpijob run` is an explicit command of the jobs' owner, so it may do what waiting and following never do:
start the next attempt of a failed job, start a job that waited for others, end one whose pods cannot start.
It acts as the caller, and the API server authorizes each write. Beside a controller it finds the work done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mpijob.errors import BackendError, MpiJobError

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobRef

_PAUSE_SECONDS = 1.0
_log = logging.getLogger(__name__)


@contextmanager
def reconciling(backend: Backend, refs: Iterable[JobRef]) -> Iterator[None]:
    """Reconcile jobs in the background until they have ended, or the context is left."""
    stop = threading.Event()
    threading.Thread(target=_reconcile, args=(backend, [*refs], stop), daemon=True, name="reconcile").start()
    try:
        yield
    finally:
        stop.set()


def _reconcile(backend: Backend, refs: list[JobRef], stop: threading.Event) -> None:
    while refs and not stop.wait(_PAUSE_SECONDS):
        refs = [ref for ref in refs if not stop.is_set() and _reconcile_job(backend, ref)]


def _reconcile_job(backend: Backend, ref: JobRef) -> bool:
    """Reconcile one job; return whether it may need more."""
    try:
        state = backend.get(ref)
        if state.phase.final:
            return False
        backend.reconcile(state)
    except BackendError as error:
        _log.debug("reconciling %s failed, retrying: %s", ref, error.message)
    # It was deleted, or may not be changed: the command that follows it reports the same error.
    except MpiJobError as error:
        _log.warning("%s: %s", ref.name, error.message)
        return False
    return True
