"""A cluster from the doctor's side: reachable, as whom, with which rights, and what is installed there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from mpijob.admission import installation
from mpijob.backends.kubernetes.admin import versions
from mpijob.backends.kubernetes.auth import access
from mpijob.backends.kubernetes.client import api_errors, discovery, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.preflight import permissions
from mpijob.errors import Finding
from mpijob.formats.sizing.engine_selection import Engine
from mpijob.settings import Settings, namespace_at


def report(settings: Settings, asked: Api | None = None) -> Iterator[Finding]:
    """Yield what was found, by an API client that is there already or as the settings' user.

    Raise when the cluster cannot be asked at all.
    """
    own = Api(access.load(path=settings.kubeconfig, context=settings.context)) if asked is None else asked
    with own if asked is None else nullcontext(own) as api:
        namespace = namespace_at(settings, api.access.namespace)
        try:
            served = discovery.served(api)
            found = versions.matrix(api, served)
            may = permissions.review(api, namespace)
        except ApiError as error:
            raise api_errors.translate(error, doing="look at the cluster") from error
        yield installation.reached(api.access.context or "in-cluster", api.access.server)
        yield from installation.examine(found)
        engines = [Engine.TRAINER] if resources.TRAINER_API in served else []
        engines += [Engine.MPI_OPERATOR] if resources.MPI_OPERATOR_API in served else []
        lacks = {one.value: may.lacking(permissions.TO_CREATE[one]) for one in engines}
        yield from installation.permitted(namespace, lacks, may.lacking((permissions.LOGS, permissions.EXEC)))
