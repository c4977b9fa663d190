"""Run the controller of a cluster in this process."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mpijob.errors import Unsupported
from mpijob.settings import CLUSTER, Settings

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.controller.controller import Controller

LEASE = "mpijob-controller"
_STUCK_SECONDS = 60.0


def control(
    settings: Settings,
    namespace: str,
    stop: threading.Event,
    *,
    lease_namespace: str = "",
    health_port: int | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Reconcile the jobs of a namespace ("": all) until `stop`; of several controllers one is active."""
    if settings.engine != CLUSTER:
        raise Unsupported(
            "the controller requires a cluster; jobs of this machine do not need it",
            hint="select a cluster with --context NAME, or set MPIJOB_ENGINE=kubernetes",
        )
    from mpijob.backends.kubernetes.auth import kubeconfig
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.client.api_errors import translated
    from mpijob.backends.kubernetes.controller.controller import Controller
    from mpijob.backends.kubernetes.controller.leader_election import Election

    access = kubeconfig.load(path=settings.kubeconfig, context=settings.context)
    api = Api(access)
    who = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    where = lease_namespace or namespace or access.namespace or "default"
    # A client of its own with a short timeout: a slow request must not outlast the lease.
    election = Election(Api(access, timeout=4.0), where, LEASE, who)

    with translated("watch jobs"):
        controller = Controller(api, election, namespace, settings)
        with _watched(controller, health_port):
            controller.run(stop, ready)


@contextlib.contextmanager
def _watched(controller: Controller, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from mpijob.serving.service import HealthServer, Metric

    numbers = {
        "mpijob_controller_jobs": Metric("Watched jobs.", lambda: controller.jobs),
        "mpijob_controller_leads": Metric("1 if this instance is the leader.", lambda: controller.leads),
        "mpijob_controller_looks_total": Metric(
            "Reconciliations of jobs.", lambda: controller.looks, counter=True
        ),
    }
    with HealthServer(
        port,
        alive=lambda: time.monotonic() - controller.beat < _STUCK_SECONDS,
        ready=lambda: True,
        metrics=numbers,
    ):
        yield
