"""Taking a job away for good: its record goes into the archive first, its row and its files after it."""

from __future__ import annotations

import shutil

from mpijob.backends.local.queue.store import Row, Store
from mpijob.backends.local.storage import archive
from mpijob.backends.local.storage.paths import Home
from mpijob.errors import BackendError
from mpijob.settings import Settings


def remove(store: Store, home: Home, settings: Settings, row: Row, *, alone: bool) -> None:
    """Remove a job that has ended and, unless it is meant alone, the finished ones that had its name before."""
    ref = row.state.ref
    earlier = [] if alone else store.rows("namespace=? AND name=? AND newest=0", ref.namespace, ref.name)
    for gone in (*earlier, *store.rows("uid=?", row.uid)):
        archive.put_away(store, gone, settings)
        _forget(store, gone.uid)
        shutil.rmtree(home.job(gone.uid), ignore_errors=True)


def _forget(store: Store, uid: str) -> None:
    """Remove a job's row; its files go first where there is no room to write that down."""
    try:
        store.remove(uid)
    except BackendError:
        shutil.rmtree(store.home.job(uid), ignore_errors=True)
        store.remove(uid)
