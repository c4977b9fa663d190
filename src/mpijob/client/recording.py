"""Running a cluster's recorder in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mpijob.errors import Unsupported
from mpijob.settings import CLUSTER, Settings, history_directory


def record(
    settings: Settings, namespace: str, stop: threading.Event, ready: Callable[[str], None] = lambda _: None
) -> None:
    """Record the jobs of a namespace, "" for all, until `stop`; `ready` hears where the record is."""
    if settings.engine != CLUSTER:
        raise Unsupported(
            "this machine's jobs need no recorder: their record is kept when they are deleted",
            hint="give the cluster with --context NAME, or set MPIJOB_ENGINE=kubernetes",
        )
    from mpijob.backends.kubernetes import kubeconfig
    from mpijob.backends.kubernetes.api import Api
    from mpijob.backends.kubernetes.failures import telling
    from mpijob.backends.kubernetes.recorder import Recorder
    from mpijob.history.archive import Archive
    from mpijob.history.keeping import Policy

    access = kubeconfig.load(path=settings.kubeconfig, context=settings.context)
    directory = history_directory(settings, access.context or "cluster")
    archive = Archive(directory, shared=True)
    try:
        with telling("record jobs"):
            recorder = Recorder(Api(access), archive, Policy.of(settings), namespace, settings.rules)
            recorder.run(stop, lambda: ready(directory))
    finally:
        archive.close()
