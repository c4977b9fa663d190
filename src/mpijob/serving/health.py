"""What a service in a cluster tells those who watch over it: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mpijob.serving import server, service
from mpijob.serving.service import Number as Number


class Health(server.Server):
    """Answers on a port as long as it is open; `alive` and `ready` are asked anew each time."""

    def __init__(
        self,
        port: int,
        *,
        alive: Callable[[], bool],
        ready: Callable[[], bool],
        numbers: Mapping[str, Number],
    ) -> None:
        gets = {"/metrics": service.metrics(service.registry_of(numbers))}
        app = service.application(gets=gets, alive=alive, ready=ready)
        super().__init__(
            app, server.listening("", port, what="the health of this service"), most=64, of_one=16
        )
