"""Doing what jobs need while the command that started them is attached, on a cluster without a controller.

`mpijob run` is an explicit command of the jobs' owner, so it may do what waiting and following never do: start the
next attempt of a job that failed, start one that waited for others, end one whose pods cannot start. It acts as the
caller, and the API server judges each of its writes. Where a controller runs, both find the same work done.
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
    """Reconcile jobs in the background until they have ended, or the caller leaves."""
    stop = threading.Event()
    threading.Thread(target=_reconcile, args=(backend, [*refs], stop), daemon=True, name="reconcile").start()
    try:
        yield
    finally:
        stop.set()


def _reconcile(backend: Backend, refs: list[JobRef], stop: threading.Event) -> None:
    while refs and not stop.wait(_PAUSE_SECONDS):
        refs = [ref for ref in refs if not stop.is_set() and _goes_on(backend, ref)]


def _goes_on(backend: Backend, ref: JobRef) -> bool:
    """Do what one job needs now; return whether it may need more later."""
    try:
        state = backend.get(ref)
        if state.phase.final:
            return False
        backend.reconcile(state)
    except BackendError as error:
        _log.debug("reconciling %s failed, retrying: %s", ref, error.message)
    except MpiJobError as error:  # it is gone, or may not be changed: whoever follows it is told the same
        _log.warning("%s: %s", ref.name, error.message)
        return False
    return True
