"""First on every rank's Python path: an uncaught exception ends the whole world, as `python -m mpi4py` does.

Without it the rank that failed waits in MPI_Finalize for the others, and they wait for its messages:
all three MPI families hang. A `sitecustomize` of the user's own is loaded after this one.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import TracebackType


def _end_the_world(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    mpi = sys.modules.get("mpi4py.MPI")
    abort_later = getattr(mpi, "_set_abort_status", None)
    if abort_later is not None:
        abort_later(1)


def _load_the_users_own() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path != here]
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")  # for its effects
    except ImportError:
        sys.modules["sitecustomize"] = ours


sys.excepthook = _end_the_world
_load_the_users_own()
