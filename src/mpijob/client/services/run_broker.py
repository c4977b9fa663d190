"""Run the fit broker in this process, and ask it, or the engine itself, whether a job would start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpijob.errors import Unsupported
from mpijob.settings import CLUSTER, Settings

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import MPIJob
    from mpijob.model.platform.fit import Fit


def fit(job: MPIJob, backend: Backend) -> Fit:
    from mpijob.admission.fit import fit as judged

    who = backend.whoami()
    return judged(job, who, (backend.preflight(job, who)).facts)


def serve(
    settings: Settings,
    address: tuple[str, int],
    tls: tuple[str, str] | None,
    stop: threading.Event,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Answer users until `stop`; `ready` is called with the address."""
    if settings.engine != CLUSTER:
        raise Unsupported(
            "the fit broker requires a cluster; on this machine all users see the free resources",
            hint="select a cluster with --context NAME, or set MPIJOB_ENGINE=kubernetes",
        )
    from mpijob.backends.kubernetes.auth import kubeconfig
    from mpijob.backends.kubernetes.broker.server import Server
    from mpijob.backends.kubernetes.broker.service import Broker
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.logs.archive import open_recorded
    from mpijob.settings import history_directory

    access = kubeconfig.load(path=settings.kubeconfig, context=settings.context)
    past = open_recorded(history_directory(settings, access.context or "cluster"), settings)
    broker = Broker(Api(access), settings, f"cluster {access.context}".strip(), past)
    with Server(broker, address, tls) as server:
        ready(f"{'https' if tls else 'http'}://{address[0]}:{server.port}")
        stop.wait()
