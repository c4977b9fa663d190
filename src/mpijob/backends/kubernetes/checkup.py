"""A cluster from the doctor's side: reachable, as whom, with which rights, and what is installed there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from mpijob.admission import installation
from mpijob.backends.kubernetes import access, discovery, failures, kinds, rights, versions
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.failures import ApiError
from mpijob.dialects.engine_choice import Engine
from mpijob.errors import Finding
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
            may = rights.review(api, namespace)
        except ApiError as error:
            raise failures.translate(error, doing="look at the cluster") from error
        yield installation.reached(api.access.context or "in-cluster", api.access.server)
        yield from installation.examine(found)
        engines = [Engine.TRAINER] if kinds.TRAINER_API in served else []
        engines += [Engine.MPI_OPERATOR] if kinds.MPI_OPERATOR_API in served else []
        lacks = {one.value: may.lacking(rights.TO_CREATE[one]) for one in engines}
        yield from installation.permitted(namespace, lacks, may.lacking((rights.LOGS, rights.EXEC)))
