"""Reconcile the platform: compare everything it consists of with the spec, and take one step.

Every step may be repeated, and a crash between two steps does no harm. Only objects with our label are
changed or deleted. Components managed by others are adopted: reported and left unchanged. An engine of ours
is removed after its jobs have ended; CRDs stay as long as they have objects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.cluster import components, crds, engines, manifests, owners, service_certs, trust, ui_route
from mpijob.cluster.apply import (
    CRD,
    AppliedObject,
    ObjectClient,
    component_of,
    creation_order,
    entry_of,
    with_component,
)
from mpijob.cluster.engines import DEPLOYMENT, EngineInfo
from mpijob.cluster.inventory import Inventory
from mpijob.cluster.webhook import configuration
from mpijob.errors import MpiJobError, NotAllowed, NotFound
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.governance import Component, Management, Page, Platform

READY, WAITING, ADOPTED = "Ready", "Progressing", "Adopted"
ABSENT, REMOVING, FAILED = "Absent", "Removing", "Failed"
HEALTHY_STATES = (READY, ADOPTED, ABSENT)
_MAX_SHOWN = 3
_log = logging.getLogger(__name__)


class PlatformReconciler:
    """Reconciles the platform of one cluster; `deploy` is the directory of our own manifests."""

    def __init__(self, api: Api, namespace: str, deploy: Path) -> None:
        self._objects = ObjectClient(api)
        self._inventory = Inventory(api, namespace)
        self._namespace = namespace
        self._deploy = deploy
        self._owners: list[Document] = []

    def reconcile(self, platform: Platform) -> tuple[Component, ...]:
        """Take one step for every component and return their states."""
        # Removed in the reverse order: Trainer requires JobSet.
        ordered = engines.ENGINES if _is_managed(platform) else reversed(engines.ENGINES)
        steps: list[tuple[str, Callable[[], Component]]] = [
            ("crds", partial(self._part, "crds", lambda: [*crds.documents()], platform, stays=True)),
            *((engine.name, partial(self._engine, engine, platform)) for engine in ordered),
            ("queues", partial(self._queues, platform)),
            ("runtimes", partial(self._runtimes, platform)),
            ("monitoring", partial(self._monitoring, platform)),
            *((name, partial(self._folder, name, platform)) for name in components.STATIC_COMPONENTS),
            *((name, partial(self._service, name, platform)) for name in components.services(platform)),
        ]
        return tuple(_guarded(name, step) for name, step in steps)

    def update_owners(self, platform: Platform) -> bool:
        """Update the permission to impersonate job owners; return whether it is granted."""
        # Admission verifies who owns a job: without it, nobody is impersonated.
        has_admission = components.is_managed(platform.services.admission.management_state, platform)
        has_controller = components.is_managed(platform.services.controller.management_state, platform)
        if not (has_admission and has_controller and self._objects.find(_IDENTITY_POLICY) is not None):
            self._remove("owners", self._inventory.read("owners"), Component(name="owners", state=ABSENT))
            return False
        documents = owners.rbac_documents(owners.jobs_to_recreate(self._objects.api), self._namespace)
        if documents != self._owners:
            self._apply("owners", documents)
            self._owners = documents
        return True

    # -- engines ------------------------------------------------------------------------------------
    def _engine(self, engine: EngineInfo, platform: Platform) -> Component:
        settings = engines.engine_settings(engine, platform.engines)
        observed = engines.engine_state(self._objects, engine)
        manager = engines.external_manager(self._objects, engine)
        component = Component(
            name=engine.name, state=ABSENT, version=observed.version, wanted=settings.version
        )
        if manager:
            message = "" if observed.ready else "installed, but its controller is not available"
            return msgspec.structs.replace(component, state=ADOPTED, kept_by=manager, message=message)
        if not components.is_managed(settings.management_state, platform):
            return self._remove_engine(engine, component)
        documents = manifests.manifests(
            settings.source or platform.source, engine.name, settings.version, settings.digest
        )
        self._apply(engine.name, manifests.with_images(documents, platform.registry))
        observed = engines.engine_state(self._objects, engine)
        state, message = (READY, "") if observed.ready else (WAITING, "its controller is not available yet")
        return msgspec.structs.replace(
            component, state=state, version=observed.version, kept_by="mpijob", message=message
        )

    def _remove_engine(self, engine: EngineInfo, component: Component) -> Component:
        """Remove an engine of ours once no job needs it."""
        entries = self._inventory.read(engine.name)
        if not entries:
            return component
        if unfinished := engines.unfinished_jobs(self._objects, engine):
            names = ", ".join(unfinished[:_MAX_SHOWN]) + (" …" if len(unfinished) > _MAX_SHOWN else "")
            message = f"waiting for {len(unfinished)} unfinished jobs to end: {names}"
            return msgspec.structs.replace(component, state=REMOVING, kept_by="mpijob", message=message)
        return self._remove(engine.name, entries, component)

    # -- our own ------------------------------------------------------------------------------------
    def _part(
        self, name: str, documents: Callable[[], list[Document]], platform: Platform, *, stays: bool = False
    ) -> Component:
        component = Component(name=name, state=ABSENT)
        if stays or _is_managed(platform):
            self._apply(name, documents())
            return msgspec.structs.replace(component, state=READY, kept_by="mpijob")
        return self._remove(name, self._inventory.read(name), component)

    def _queues(self, platform: Platform) -> Component:
        if platform.queues and self._objects.kind(components.KUEUE_API, "ClusterQueue") is None:
            return Component(
                name="queues", state=WAITING, message="the cluster does not serve Kueue's API yet"
            )
        if not platform.queues and not self._inventory.read("queues"):
            return Component(name="queues", state=ABSENT)
        return self._part("queues", lambda: components.queues(platform), platform)

    def _runtimes(self, platform: Platform) -> Component:
        """Install the built-in runtimes; one that others created under such a name stays unchanged."""
        component = Component(name="runtimes", state=ABSENT)
        if not components.is_managed(platform.runtimes, platform):
            return self._remove("runtimes", self._inventory.read("runtimes"), component)
        runtimes = components.runtimes(platform, openshift=self._on_openshift())
        if self._objects.kind(runtimes[0]["apiVersion"], runtimes[0]["kind"]) is None:
            return msgspec.structs.replace(
                component, message="the cluster does not serve the API of Kubeflow Trainer"
            )
        others = [
            runtime["metadata"]["name"]
            for runtime in runtimes
            if self._belongs_to_others(runtime, "runtimes")
        ]
        own_runtimes = [runtime for runtime in runtimes if runtime["metadata"]["name"] not in others]
        self._apply("runtimes", own_runtimes)
        message = f"created by others, left unchanged: {', '.join(others)}" if others else ""
        return msgspec.structs.replace(component, state=READY, kept_by="mpijob", message=message)

    def _monitoring(self, platform: Platform) -> Component:
        component = Component(name="monitoring", state=ABSENT)
        if not components.is_managed(platform.monitoring.management_state, platform):
            return self._remove("monitoring", self._inventory.read("monitoring"), component)
        documents = components.monitoring(self._deploy, self._namespace, platform)
        self._apply("monitoring", documents)
        missing = sorted({document["kind"] for document in documents if not self._is_served(document)})
        message = (
            f"the cluster does not serve {', '.join(missing)}: no Prometheus integration" if missing else ""
        )
        return msgspec.structs.replace(component, state=READY, kept_by="mpijob", message=message)

    def _on_openshift(self) -> bool:
        return self._objects.api.find("/apis/security.openshift.io") is not None

    def _belongs_to_others(self, document: Document, component: str) -> bool:
        existing = self._objects.find(entry_of(document))
        return existing is not None and component_of(existing) != component

    def _folder(self, name: str, platform: Platform) -> Component:
        folder = self._deploy / "base" / name
        if not folder.is_dir():
            return Component(name=name, state=ABSENT, message=f"the deploy directory has no {name}")
        return self._part(name, lambda: manifests.read_kustomization(folder), platform)

    def _service(self, name: str, platform: Platform) -> Component:
        settings = components.services(platform)[name]
        component = Component(name=name, state=ABSENT)
        entries = self._inventory.read(name)
        if not components.is_managed(settings.management_state, platform):
            return self._remove_service(name, entries, component)
        openshift = self._on_openshift()
        source = components.service_directory(name, self._deploy, openshift=openshift)
        if not source.is_dir():
            return msgspec.structs.replace(component, message="the deploy directory has no such service")
        documents = components.service(settings, source, platform)
        if openshift:
            documents = [*map(components.without_fs_group, documents)]
        if others := self._external_manager(name, documents):
            return msgspec.structs.replace(
                component, state=ADOPTED, kept_by="another manager", message=others
            )
        if name == "admission":
            documents = self._with_trusted_accounts(documents)
        documents = service_certs.with_certificate(self._objects.api, name, documents, openshift=openshift)
        if isinstance(settings, Page):
            documents = ui_route.with_host_and_login(self._objects.api, documents, settings.host)
        self._apply(name, documents)
        ready = all(map(self._is_available, filter(_is_deployment, documents)))
        state, message = (READY, "") if ready else (WAITING, "its pods are not available yet")
        return msgspec.structs.replace(component, state=state, kept_by="mpijob", message=message)

    def _with_trusted_accounts(self, documents: list[Document]) -> list[Document]:
        """Return the admission manifests with the service accounts of the installed engines."""
        accounts = trust.accounts_of(
            [
                deployment
                for engine in engines.ENGINES
                for deployment in engines.deployments(self._objects, engine)
            ]
        )
        generated = (
            *configuration.configurations(self._namespace, engines=accounts),
            *configuration.policies(accounts, self._namespace),
        )
        by_entry = {entry_of(document): document for document in generated}
        return [by_entry.get(entry_of(document), document) for document in documents]

    def _remove_service(self, name: str, entries: list[AppliedObject], component: Component) -> Component:
        """Remove a service of ours and its certificate."""
        for namespace in {entry.namespace for entry in entries if entry.kind == "Deployment"}:
            for secret in (service_certs.secret_of(name, namespace), ui_route.login_secret(namespace)):
                self._objects.remove(secret, name)
        return self._remove(name, entries, component)

    def _external_manager(self, name: str, documents: Iterable[Document]) -> str:
        """Return why a service is managed by others, or ""."""
        for deployment in filter(_is_deployment, documents):
            existing = self._objects.find(entry_of(deployment))
            if existing is not None and entry_of(deployment) not in self._inventory.read(name):
                return f"Deployment {deployment['metadata']['name']} was applied by another manager"
        return ""

    def _is_available(self, document: Document) -> bool:
        metadata = document["metadata"]
        deployment = self._objects.api.find(DEPLOYMENT.path(metadata["namespace"], metadata["name"]))
        return deployment is not None and engines.is_available(deployment)

    # -- applying and removing --------------------------------------------------------------------
    def _apply(self, component: str, documents: list[Document]) -> None:
        """Apply manifests and delete objects that the component no longer has."""
        documents = [document for document in documents if self._is_served(document)]
        recorded, current = self._inventory.read(component), [entry_of(document) for document in documents]
        # Recorded before they are created: after a crash in between, they are still known and can be removed.
        if not set(current) <= set(recorded):
            self._inventory.write(component, [*recorded, *current])
        for document in creation_order(documents):
            self._objects.apply(with_component(document, component))
        obsolete = [entry for entry in recorded if entry not in current and entry.kind not in _NEVER_PRUNED]
        for entry in obsolete:
            self._objects.remove(entry, component)
        if obsolete:
            self._inventory.write(
                component, [entry for entry in [*recorded, *current] if entry not in obsolete]
            )

    def _is_served(self, document: Document) -> bool:
        # Older clusters have no ValidatingAdmissionPolicy; there the webhook alone decides.
        kind = document["kind"]
        return kind not in _OPTIONAL_KINDS or self._objects.kind(document["apiVersion"], kind) is not None

    def _remove(self, name: str, entries: list[AppliedObject], component: Component) -> Component:
        if not entries:
            return component
        kept = [entry for entry in entries if entry.kind == CRD.name and self._in_use(entry)]
        # In the reverse order of creation: webhooks first, so that they cannot block the rest.
        to_delete = [entry for entry in reversed(_removal_order(entries)) if entry not in kept]
        remaining = [
            entry for entry in to_delete if entry.kind != _DATA and not self._objects.remove(entry, name)
        ]
        # Until then the inventory stays as it is, and the next step continues from it.
        if all(entry.kind == CRD.name for entry in remaining):
            self._inventory.write(name, [*remaining, *kept])
        if remaining:
            return msgspec.structs.replace(
                component, state=REMOVING, message=f"deleting {len(remaining)} objects"
            )
        if not kept:
            return component
        names = ", ".join(entry.name for entry in kept)
        message = f"CRDs stay because they have objects: {names}"
        return msgspec.structs.replace(component, state=ABSENT, message=message)

    def _in_use(self, definition: AppliedObject) -> bool:
        # Deleting the CRD would delete them.
        crd = self._objects.api.find(CRD.path("", definition.name))
        return crd is not None and bool(self._objects.instances(crd))


_IDENTITY_POLICY = AppliedObject(configuration.API, "ValidatingAdmissionPolicy", "", "mpijob-identity")
_OPTIONAL_KINDS = (
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ServiceMonitor", "PodMonitor", "PrometheusRule",
    "Route", "ConsoleLink",
)  # fmt: skip
# Recorded data outlives the recorder.
_DATA = "PersistentVolumeClaim"
_NEVER_PRUNED = ("CustomResourceDefinition", "Namespace", _DATA)


def _removal_order(entries: Iterable[AppliedObject]) -> list[AppliedObject]:
    documents: list[dict[str, Any]] = [{"kind": item.kind, "entry": item} for item in entries]
    return [item["entry"] for item in creation_order(documents)]


def _is_managed(platform: Platform) -> bool:
    return platform.management_state is Management.MANAGED


def _is_deployment(document: Document) -> bool:
    return bool(document["kind"] == "Deployment")


def _guarded(name: str, step: Callable[[], Component]) -> Component:
    """Take one step; an error becomes the component's state, and the other components continue."""
    try:
        return step()
    except (MpiJobError, ApiError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        state = FAILED if isinstance(error, (NotAllowed, NotFound)) else WAITING
        return Component(name=name, state=state, message=f"{error.message}{hint}")
