"""Keeping the platform: one look at everything that it is made of, and one step nearer to what is wanted.

Every step may be repeated, and a kill between two of them costs nothing. Only what bears our mark is changed or
taken away. What others keep is adopted: seen, told, left alone. An engine of ours that is to go waits for the
work that it has not seen to its end; definitions stay as long as there is an object of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.cluster import components, engines, manifests, owners, service_certs, trust, ui_route
from mpijob.cluster.apply import CRD, AppliedObject, Objects, entry_of, in_order, mark_of, marked
from mpijob.cluster.engines import DEPLOYMENT, Known
from mpijob.cluster.inventory import Inventory
from mpijob.cluster.webhook import configuration
from mpijob.errors import MpiJobError, NotAllowed, NotFound
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.governance import Component, Management, Page, Platform

READY, WAITING, ADOPTED, ABSENT, REMOVING, FAILED = (
    "Ready",
    "Progressing",
    "Adopted",
    "Absent",
    "Removing",
    "Failed",
)
WELL = (READY, ADOPTED, ABSENT)
_SHOWN = 3
_log = logging.getLogger(__name__)


class PlatformReconciler:
    """Keeps the platform of one cluster; `deploy` is the folder of our own manifests."""

    def __init__(self, api: Api, namespace: str, deploy: Path) -> None:
        self._objects = Objects(api)
        self._inventory = Inventory(api, namespace)
        self._namespace = namespace
        self._deploy = deploy
        self._owners: list[Document] = []

    def keep(self, platform: Platform) -> tuple[Component, ...]:
        """Do what is to be done now and return how every component stands."""
        steps: list[tuple[str, Callable[[], Component]]] = [
            ("crds", lambda: self._part("crds", components.definitions, stays=True, platform=platform)),
        ]
        steps += [
            (one.name, lambda one=one: self._engine(one, platform))  # type: ignore[misc] # mypy knows no defaults of a lambda
            for one in (engines.KNOWN if _managed(platform) else reversed(engines.KNOWN))
        ]
        steps += [
            ("queues", lambda: self._queues(platform)),
            ("runtimes", lambda: self._runtimes(platform)),
            ("monitoring", lambda: self._monitoring(platform)),
        ]
        steps += [
            (name, lambda name=name: self._folder(name, platform))  # type: ignore[misc] # as above
            for name in components.FOLDERS
        ]
        steps += [
            (name, lambda name=name: self._service(name, platform))  # type: ignore[misc] # as above
            for name in components.services(platform)
        ]
        return tuple(_carefully(name, step) for name, step in steps)

    def keep_owners(self, platform: Platform) -> bool:
        """Let the controller act as the owners of jobs that it may have to start again; return whether it may.

        Who an owner is, is proved by admission: where ours is not kept, nobody is acted for.
        """
        proved = components.is_kept(platform.services.admission.management_state, platform)
        needed = components.is_kept(platform.services.controller.management_state, platform)
        if not (proved and needed and self._objects.find(_IDENTITY_POLICY) is not None):
            self._take_away("owners", self._inventory.read("owners"), Component(name="owners", state=ABSENT))
            return False
        wanted = owners.documents(owners.of_jobs(self._objects.api), self._namespace)
        if wanted != self._owners:
            self._make("owners", wanted)
            self._owners = wanted
        return True

    # -- engines ------------------------------------------------------------------------------------
    def _engine(self, known: Known, platform: Platform) -> Component:
        wanted = engines.wanted(known, platform.engines)
        found = engines.seen(self._objects, known)
        keeper = engines.keeper(self._objects, known)
        told = Component(name=known.name, state=ABSENT, version=found.version, wanted=wanted.version)
        if keeper:
            message = "" if found.ready else "it is there, and its controller is not available"
            return msgspec.structs.replace(told, state=ADOPTED, kept_by=keeper, message=message)
        if not components.is_kept(wanted.management_state, platform):
            return self._without_engine(known, told)
        documents = manifests.manifests(
            wanted.source or platform.source, known.name, wanted.version, wanted.digest
        )
        self._make(known.name, manifests.with_images(documents, platform.registry))
        found = engines.seen(self._objects, known)
        state, message = (READY, "") if found.ready else (WAITING, "its controller is not available yet")
        return msgspec.structs.replace(
            told, state=state, version=found.version, kept_by="mpijob", message=message
        )

    def _without_engine(self, known: Known, told: Component) -> Component:
        """Take an engine of ours away when nothing needs it any more."""
        entries = self._inventory.read(known.name)
        if not entries:
            return told
        if open_work := engines.unfinished(self._objects, known):
            names = ", ".join(open_work[:_SHOWN]) + (" …" if len(open_work) > _SHOWN else "")
            message = f"it stays until {len(open_work)} unfinished jobs have ended: {names}"
            return msgspec.structs.replace(told, state=REMOVING, kept_by="mpijob", message=message)
        return self._take_away(known.name, entries, told)

    # -- our own ------------------------------------------------------------------------------------
    def _part(
        self, name: str, documents: Callable[[], list[Document]], platform: Platform, *, stays: bool = False
    ) -> Component:
        told = Component(name=name, state=ABSENT)
        if stays or _managed(platform):
            self._make(name, documents())
            return msgspec.structs.replace(told, state=READY, kept_by="mpijob")
        return self._take_away(name, self._inventory.read(name), told)

    def _queues(self, platform: Platform) -> Component:
        if platform.queues and self._objects.kind(components.KUEUE_API, "ClusterQueue") is None:
            return Component(
                name="queues", state=WAITING, message="the cluster does not serve Kueue's API yet"
            )
        if not platform.queues and not self._inventory.read("queues"):
            return Component(name="queues", state=ABSENT)
        return self._part("queues", lambda: components.queues(platform), platform)

    def _runtimes(self, platform: Platform) -> Component:
        """Keep the runtimes that ship; one that somebody else made under such a name stays as it is."""
        told = Component(name="runtimes", state=ABSENT)
        if not components.is_kept(platform.runtimes, platform):
            return self._take_away("runtimes", self._inventory.read("runtimes"), told)
        wanted = components.runtimes(platform, openshift=self._on_openshift())
        if self._objects.kind(wanted[0]["apiVersion"], wanted[0]["kind"]) is None:
            return msgspec.structs.replace(told, message="the cluster does not serve Trainer's API")
        others = [one["metadata"]["name"] for one in wanted if self._is_anothers(one, "runtimes")]
        self._make("runtimes", [one for one in wanted if one["metadata"]["name"] not in others])
        message = f"made by somebody else, and left alone: {', '.join(others)}" if others else ""
        return msgspec.structs.replace(told, state=READY, kept_by="mpijob", message=message)

    def _monitoring(self, platform: Platform) -> Component:
        told = Component(name="monitoring", state=ABSENT)
        if not components.is_kept(platform.monitoring.management_state, platform):
            return self._take_away("monitoring", self._inventory.read("monitoring"), told)
        documents = components.monitoring(self._deploy, self._namespace, platform)
        self._make("monitoring", documents)
        missing = sorted({one["kind"] for one in documents if not self._fits(one)})
        message = (
            f"the cluster does not serve {', '.join(missing)}: Prometheus is not told" if missing else ""
        )
        return msgspec.structs.replace(told, state=READY, kept_by="mpijob", message=message)

    def _on_openshift(self) -> bool:
        return self._objects.api.find("/apis/security.openshift.io") is not None

    def _is_anothers(self, document: Document, component: str) -> bool:
        found = self._objects.find(entry_of(document))
        return found is not None and mark_of(found) != component

    def _folder(self, name: str, platform: Platform) -> Component:
        folder = self._deploy / "base" / name
        if not folder.is_dir():
            return Component(name=name, state=ABSENT, message=f"this deploy folder has no {name}")
        return self._part(name, lambda: manifests.folder(folder), platform)

    def _service(self, name: str, platform: Platform) -> Component:
        wanted = components.services(platform)[name]
        told = Component(name=name, state=ABSENT)
        entries = self._inventory.read(name)
        if not components.is_kept(wanted.management_state, platform):
            return self._without_service(name, entries, told)
        openshift = self._on_openshift()
        source = components.folder(name, self._deploy, openshift=openshift)
        if not source.is_dir():
            return msgspec.structs.replace(told, message="this deploy folder has no such service")
        documents = components.service(wanted, source, platform)
        if openshift:
            documents = [*map(components.ranged, documents)]
        if others := self._installed_otherwise(name, documents):
            return msgspec.structs.replace(told, state=ADOPTED, kept_by="somebody else", message=others)
        if name == "admission":
            documents = self._trusting(documents)
        documents = service_certs.certified(self._objects.api, name, documents, openshift=openshift)
        if isinstance(wanted, Page):
            documents = ui_route.completed(self._objects.api, documents, wanted.host)
        self._make(name, documents)
        ready = all(map(self._is_available, filter(_is_deployment, documents)))
        state, message = (READY, "") if ready else (WAITING, "its pods are not available yet")
        return msgspec.structs.replace(told, state=state, kept_by="mpijob", message=message)

    def _trusting(self, documents: list[Document]) -> list[Document]:
        """Return admission's documents with the accounts of the engines that are there, and of no others."""
        found = trust.of_deployments(
            [one for known in engines.KNOWN for one in engines.deployments(self._objects, known)]
        )
        made = (
            *configuration.configurations(self._namespace, engines=found),
            *configuration.policies(found, self._namespace),
        )
        named = {entry_of(one): one for one in made}
        return [named.get(entry_of(one), one) for one in documents]

    def _without_service(self, name: str, entries: list[AppliedObject], told: Component) -> Component:
        """Take a service of ours away, and the certificate that was made for it."""
        for namespace in {one.namespace for one in entries if one.kind == "Deployment"}:
            for secret in (service_certs.secret_of(name, namespace), ui_route.login_of(namespace)):
                self._objects.remove(secret, name)
        return self._take_away(name, entries, told)

    def _installed_otherwise(self, name: str, documents: Iterable[Document]) -> str:
        """Return why a service is not ours to keep: whoever applied it by hand keeps it."""
        for one in filter(_is_deployment, documents):
            found = self._objects.find(entry_of(one))
            if found is not None and entry_of(one) not in self._inventory.read(name):
                return f"Deployment {one['metadata']['name']} was applied by somebody else"
        return ""

    def _is_available(self, document: Document) -> bool:
        metadata = document["metadata"]
        found = self._objects.api.find(DEPLOYMENT.path(metadata["namespace"], metadata["name"]))
        return found is not None and engines.is_available(found)

    # -- making and taking away -------------------------------------------------------------------
    def _make(self, component: str, documents: list[Document]) -> None:
        """Apply documents and prune what the component had before and has no more."""
        documents = [one for one in documents if self._fits(one)]
        before, now = self._inventory.read(component), [entry_of(one) for one in documents]
        if not set(now) <= set(before):
            self._inventory.write(component, [*before, *now])
        for one in in_order(documents):
            self._objects.apply(marked(one, component))
        stale = [one for one in before if one not in now and one.kind not in _LASTING]
        for entry in stale:
            self._objects.remove(entry, component)
        if stale:
            self._inventory.write(component, [one for one in [*before, *now] if one not in stale])

    def _fits(self, document: Document) -> bool:
        """Whether the cluster has what a document needs; older ones judge by the webhook alone."""
        kind = document["kind"]
        return kind not in _WHERE_SERVED or self._objects.kind(document["apiVersion"], kind) is not None

    def _take_away(self, component: str, entries: list[AppliedObject], told: Component) -> Component:
        if not entries:
            return told
        stays = [one for one in entries if one.kind == CRD.name and self._in_use(one)]
        going = [one for one in reversed(_removal_order(entries)) if one not in stays]
        left = [one for one in going if one.kind != _DATA and not self._objects.remove(one, component)]
        if all(one.kind == CRD.name for one in left):
            self._inventory.write(component, [*left, *stays])
        if left:
            return msgspec.structs.replace(told, state=REMOVING, message=f"{len(left)} objects are going")
        if not stays:
            return told
        names = ", ".join(one.name for one in stays)
        message = f"definitions stay because objects of them do: {names}"
        return msgspec.structs.replace(told, state=ABSENT, message=message)

    def _in_use(self, definition: AppliedObject) -> bool:
        """Whether there are objects of a definition; it would take them along."""
        found = self._objects.api.find(CRD.path("", definition.name))
        return found is not None and bool(self._objects.instances(found))


_IDENTITY_POLICY = AppliedObject(configuration.API, "ValidatingAdmissionPolicy", "", "mpijob-identity")
_WHERE_SERVED = (
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ServiceMonitor", "PodMonitor", "PrometheusRule",
    "Route", "ConsoleLink",
)  # fmt: skip
_DATA = "PersistentVolumeClaim"  # what was recorded outlives whoever recorded it
_LASTING = ("CustomResourceDefinition", "Namespace", _DATA)


def _removal_order(entries: Iterable[AppliedObject]) -> list[AppliedObject]:
    documents: list[dict[str, Any]] = [{"kind": one.kind, "entry": one} for one in entries]
    return [one["entry"] for one in in_order(documents)]


def _managed(platform: Platform) -> bool:
    return platform.management_state is Management.MANAGED


def _is_deployment(document: Document) -> bool:
    return bool(document["kind"] == "Deployment")


def _carefully(name: str, step: Callable[[], Component]) -> Component:
    """Take one step; what fails is told on the platform, and the other components go on."""
    try:
        return step()
    except (MpiJobError, ApiError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        state = FAILED if isinstance(error, (NotAllowed, NotFound)) else WAITING
        return Component(name=name, state=state, message=f"{error.message}{hint}")
