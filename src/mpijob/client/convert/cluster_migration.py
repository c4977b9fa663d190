"""Convert every MPIJob of a cluster, and report how far the migration is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mpijob.admission import webhook
from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, documents
from mpijob.errors import Unsupported
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.model.platform.governance import effective, limits_of
from mpijob.settings import CLUSTER, Settings, namespace_at


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of the summary: a source, its status, its fields by outcome, and what blocks it."""

    file: str
    source: str
    stage: Stage
    exact: int = 0
    changed: int = 0
    dropped: int = 0
    automatic: float = 0.0
    blocks: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a migration. `moved` counts jobs that already run with mpijob."""

    rows: tuple[Row, ...]
    ready: int
    check: int
    blocked: int
    moved: int = 0
    automatic: float = 1.0

    @property
    def total(self) -> int:
        """All jobs, moved or not."""
        return len(self.rows) + self.moved


def progress(conversions: tuple[Conversion, ...], moved: int = 0) -> Progress:
    """Return the status of a migration, blocked sources first."""
    order = {Stage.BLOCKED: 0, Stage.CHECK: 1, Stage.READY: 2}
    rows = sorted((_row(one) for one in conversions), key=lambda row: (order[row.stage], row.file))
    fields = [entry for one in conversions for entry in one.every]
    dropped = sum(entry.fate is FieldOutcome.DROPPED for entry in fields)
    return Progress(
        rows=tuple(rows),
        ready=sum(row.stage is Stage.READY for row in rows),
        check=sum(row.stage is Stage.CHECK for row in rows),
        blocked=sum(row.stage is Stage.BLOCKED for row in rows),
        moved=moved,
        automatic=round(1 - dropped / len(fields), 3) if fields else 1.0,
    )


def _row(one: Conversion) -> Row:
    counts = {fate.value: one.count(fate) for fate in FieldOutcome}
    matters = [f"{entry.field}: {entry.note}" for entry in one.every if entry.matters]
    why = [*one.blockers, *(matters if one.stage is Stage.CHECK else [])]
    more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
    return Row(
        one.file,
        one.source,
        one.stage,
        **counts,
        automatic=one.automatic,
        blocks=(why[0] + more) if why else "",
    )


def of_cluster(
    settings: Settings,
    *,
    everywhere: bool = False,
    to: str = "job",
    image: str = "",
    format: str = "yaml",
    openshift: bool = False,
    as_seen_by: Any = None,
) -> tuple[tuple[Conversion, ...], int]:
    """Convert the MPIJobs of a namespace or of all; also return the number of jobs that mpijob runs already.

    `as_seen_by` is the API of another user, for a server that acts for its users.
    """
    with _api(settings, as_seen_by) as api:
        namespace = "" if everywhere else namespace_at(settings, api.access.namespace)
        found, moved = _listed(api, namespace)
    return documents(found, to=to, image=image, format=format, openshift=openshift), moved


def retiring(settings: Settings, *, everywhere: bool = False, as_seen_by: Any = None) -> dict[str, str]:
    """Return the administrators' messages about old MPIJobs, by namespace, as far as the user may read them.

    "*" stands for namespaces without own limits.
    """
    from mpijob.backends.kubernetes.admin.namespace_limits import LIMITS, Governor
    from mpijob.backends.kubernetes.client.api_errors import ApiError

    with _api(settings, as_seen_by) as api:
        defaults, found = Governor(api).platform().defaults, dict[str, str]()
        namespace = namespace_at(settings, api.access.namespace)
        try:
            own = api.list(LIMITS.path("")).items if everywhere else [api.find(LIMITS.path("", namespace))]
        except ApiError:
            # The resource is not installed, or the user may not read it.
            own = []
        limits = {one["metadata"]["name"]: effective(limits_of(one), defaults) for one in own if one}
        limits.setdefault("*" if everywhere else namespace, defaults)
        for name, held in limits.items():
            if (said := webhook.retirement(name, held)) is not None:
                found[name] = said.message
    return found


def _listed(api: Any, namespace: str) -> tuple[list[dict[str, Any]], int]:
    from mpijob.backends.kubernetes.client import resources

    ours = f"{well_known.MANAGED_LABEL}={well_known.MANAGED_BY}"
    theirs = [
        {"apiVersion": resources.MPIJOB.api, "kind": resources.MPIJOB.name} | one
        for one in api.list(
            resources.MPIJOB.path(namespace), labels=f"{well_known.MANAGED_LABEL}!={well_known.MANAGED_BY}"
        ).items
    ]
    moved = [
        one for kind in (resources.TRAINJOB, resources.MPIJOB) for one in _found(api, kind, namespace, ours)
    ]
    return theirs, len(moved)


def _found(api: Any, kind: Any, namespace: str, labels: str) -> list[dict[str, Any]]:
    from mpijob.backends.kubernetes.client.api_errors import ApiError

    try:
        found: list[dict[str, Any]] = list(api.list(kind.path(namespace), labels=labels).items)
    except ApiError:
        # The resource is not installed, or the user may not read it: nothing is counted.
        return []
    return found


@contextmanager
def _api(settings: Settings, given: Any = None) -> Iterator[Any]:
    """Connect to the cluster, and translate its errors."""
    if settings.engine != CLUSTER:
        raise Unsupported(
            "this command requires a cluster", hint="name one with --context, or set MPIJOB_ENGINE=kubernetes"
        )
    from mpijob.backends.kubernetes.auth import kubeconfig
    from mpijob.backends.kubernetes.client import api_errors
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.kubernetes.client.api_errors import ApiError

    try:
        if given is not None:
            yield given
            return
        with Api(kubeconfig.load(path=settings.kubeconfig, context=settings.context)) as api:
            yield api
    except ApiError as error:
        raise api_errors.translate(error, doing="list MPIJobs") from error
