"""Choices of a form: what the engine offers, and images of recent jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.capabilities import SupportsFormOptions
from mpijob.model.platform.form_options import Choices, Option

if TYPE_CHECKING:
    from mpijob.client.client import Client

_RECENT_JOBS = 200


def choices(client: Client, namespace: str = "") -> Choices:
    """Return the choices of a namespace."""
    namespace = namespace or client.namespace
    page = client.list(namespace=namespace, limit=_RECENT_JOBS)
    images = dict.fromkeys(state.image for state in page.items if state.image)
    if client.settings.image:
        images.setdefault(client.settings.image)
    offered = client.backend.capability(SupportsFormOptions)
    known = _here(client, namespace) if offered is None else offered.form_options(namespace)
    queues = known.queues or tuple(map(Option, sorted({state.queue for state in page.items if state.queue})))
    return msgspec.structs.replace(
        known,
        projects=known.projects or (Option(namespace),),
        queues=queues,
        images=tuple(map(Option, images)),
    )


def _here(client: Client, namespace: str) -> Choices:
    """Return the choices of one machine: data connections of the settings, without keys."""
    connections = client.settings.connections.items()
    return Choices(
        namespace=namespace,
        connections=tuple(Option(name, f"{one.bucket} (s3)".lstrip()) for name, one in sorted(connections)),
    )
