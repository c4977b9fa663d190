"""Administration: limits of namespaces, and an overview of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.admission import alerts
from mpijob.client.audit import recorder
from mpijob.client.audit.entries import changed
from mpijob.client.audit.recorder import with_audit
from mpijob.errors import InvalidJob, Unsupported
from mpijob.model import JobRef
from mpijob.model.platform.governance import NamespaceLimits, effective
from mpijob.model.spec.enums import choice_hint
from mpijob.model.status.audit import Verb
from mpijob.model.status.overview import ClusterView, Line
from mpijob.settings import CLUSTER

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.admin.namespace_limits import Governor
    from mpijob.client.base import BaseClient


class Governed(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that apply to a namespace: its own, the cluster's defaults, quotas and queues."""

    namespace: str
    own: NamespaceLimits | None = None
    effective: NamespaceLimits = NamespaceLimits()
    quotas: tuple[Line, ...] = ()
    queues: Mapping[str, str] = {}


class LimitChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to apply: limits by field, hard quotas, and the ClusterQueue of the queue."""

    limits: Mapping[str, Any] = {}
    unset: tuple[str, ...] = ()
    quota: Mapping[str, str] = {}
    cluster_queue: str = ""


class Administration:
    """Administration of the client's cluster."""

    def __init__(self, client: BaseClient) -> None:
        if client.settings.engine != CLUSTER:
            raise Unsupported(
                "namespace limits require a cluster; on this machine, set quotas in the settings",
                hint="select a cluster with --context NAME, or set MPIJOB_ENGINE=kubernetes",
            )
        self._client = client

    def limits(self, namespace: str) -> Governed:
        governor = self._governor()
        own = governor.own(namespace)
        return Governed(
            namespace=namespace,
            own=own,
            effective=effective(own, governor.platform().defaults),
            quotas=governor.quotas(namespace),
            queues=governor.queues(namespace),
        )

    def set(self, namespace: str, wishes: LimitChanges, *, dry_run: bool = False) -> str:
        """Set limits and return a summary of the changes; a dry run is validated by the cluster and changes
        nothing.
        """
        governor = self._governor()
        before = governor.own(namespace) or NamespaceLimits()
        after = changed_limits(before, wishes.limits, wishes.unset)
        told = _summary(before, after, wishes)
        if not told:
            return ""

        def work() -> None:
            if wishes.cluster_queue:
                queue = after.queue or wishes.cluster_queue
                governor.write_queue(namespace, queue, wishes.cluster_queue, dry_run=dry_run)
            if wishes.quota:
                governor.write_quota(namespace, wishes.quota, dry_run=dry_run)
            if after != before:
                governor.write(namespace, after, dry_run=dry_run)

        if dry_run:
            work()
        else:
            self._audited(namespace, told, work)
        return told

    def overview(self) -> ClusterView:
        """Return the overview, with alerts for nearly exhausted quotas."""
        from mpijob.backends.kubernetes.admin import overview

        found = overview.read(self._api())
        overview.refuse_unreadable(found)
        percent = self._governor().platform().monitoring.quota_alert_percent
        return msgspec.structs.replace(
            found, alerts=alerts.alerts(found.namespaces, found.queues, percent=percent)
        )

    def _audited(self, namespace: str, told: str, work: Any) -> None:
        port = with_audit(self._client.backend, self._client.settings)
        ref, details = JobRef(namespace, namespace), {"changed": told}
        recorder.act(port, Verb.SET, ref, work, details, resource="mpijoblimits")

    def _api(self) -> Any:
        from mpijob.backends.kubernetes.capabilities import SupportsKubernetesApi

        if (cluster := self._client.backend.capability(SupportsKubernetesApi)) is not None:
            # With the user of the client.
            return cluster.api
        from mpijob.backends.kubernetes.auth import kubeconfig
        from mpijob.backends.kubernetes.client.api import Api

        settings = self._client.settings
        return Api(kubeconfig.load(path=settings.kubeconfig, context=settings.context))

    def _governor(self) -> Governor:
        from mpijob.backends.kubernetes.admin.namespace_limits import Governor

        return Governor(self._api())


def changed_limits(
    before: NamespaceLimits, wanted: Mapping[str, Any], unset: Iterable[str] = ()
) -> NamespaceLimits:
    """Return limits with fields set (also `gang.timeout_seconds`) or unset; raise InvalidJob for unknown ones."""
    tree: dict[str, Any] = msgspec.to_builtins(msgspec.structs.asdict(before))
    empty = msgspec.structs.asdict(NamespaceLimits())
    for name in unset:
        tree[_field(name, empty)] = msgspec.to_builtins(empty[_field(name, empty)])
    for path, value in wanted.items():
        first, _, rest = path.partition(".")
        _field(first, empty)
        tree[first] = {**(tree.get(first) or {}), _camel(rest): value} if rest else value
    renamed = {_camel(name): value for name, value in tree.items()}
    try:
        return codec.convert(renamed, NamespaceLimits)
    except msgspec.ValidationError as error:
        raise InvalidJob(f"the limits are not valid: {error}") from error


def _field(name: str, known: Mapping[str, Any]) -> str:
    field = name.replace("-", "_")
    if field not in known:
        raise InvalidJob(f"there is no limit '{name}'", hint=choice_hint(field, tuple(known)))
    return field


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _summary(before: NamespaceLimits, after: NamespaceLimits, wishes: LimitChanges) -> str:
    parts = [changed(before, after, None)] if before != after else []
    parts += [f"quota {name}: {amount or 'none'}" for name, amount in wishes.quota.items()]
    parts += [f"cluster queue: {wishes.cluster_queue}"] if wishes.cluster_queue else []
    return "; ".join(part for part in parts if part)
