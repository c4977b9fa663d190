"""A cluster from the doctor's side: reachable, as whom, with which rights, and what is installed there."""

from __future__ import annotations

from collections.abc import Iterator

from mpijob.admission import installation
from mpijob.backends.kubernetes import access, discovery, failures, kinds, rights, versions
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.failures import ApiError
from mpijob.dialects.engine_choice import Engine
from mpijob.errors import Finding
from mpijob.settings import Settings, namespace_at


def report(settings: Settings) -> Iterator[Finding]:
    """Yield what was found; raise when the cluster cannot be asked at all."""
    with Api(access.load(path=settings.kubeconfig, context=settings.context)) as api:
        namespace = namespace_at(settings, api.access.namespace)
        try:
            served = discovery.served(api)
            found = versions.matrix(api, served)
            own = rights.review(api, namespace)
        except ApiError as error:
            raise failures.translate(error, doing="look at the cluster") from error
        yield installation.reached(api.access.context or "in-cluster", api.access.server)
        yield from installation.examine(found)
        engines = [Engine.TRAINER] if kinds.TRAINER_API in served else []
        engines += [Engine.MPI_OPERATOR] if kinds.MPI_OPERATOR_API in served else []
        lacks = {one.value: own.lacking(rights.TO_CREATE[one]) for one in engines}
        yield from installation.permitted(namespace, lacks, own.lacking((rights.LOGS, rights.EXEC)))
