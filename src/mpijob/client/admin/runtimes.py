"""Runtimes of Kubeflow Trainer for administrators: list, lint, install and test them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mpijob.client.audit import recorder
from mpijob.client.base import open_backend
from mpijob.errors import Finding, InvalidJob, NotFound, Severity, Unsupported
from mpijob.formats.kubernetes import manifests
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin, lint, smoke_test
from mpijob.model import JobRef
from mpijob.model.status.audit import Verb
from mpijob.settings import CLUSTER, Settings, namespace_at

T = TypeVar("T")


class Row(msgspec.Struct, frozen=True):
    """One row of the list; `traps` counts findings of lint without notices."""

    name: str
    kind: str
    origin: str
    image: str
    traps: int = 0
    description: str = ""


class Runtimes:
    """The implementation of `mpijob runtimes`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def on_cluster(self) -> bool:
        return self._settings.engine == CLUSTER

    def list(self) -> tuple[Row, ...]:
        """Return the cluster's MPI runtimes, then the built-in ones that are not installed."""
        there = self._known()
        names = {one["metadata"]["name"] for one in there}
        rows = [_row(one, "cluster" if one["kind"] == builtin.KIND else "namespace") for one in there]
        ship = [
            Row(one.name, one.kind, "ships", one.image, 0, one.description)
            for one in builtin.SHIPPED
            if one.name not in names
        ]
        return (*rows, *ship)

    def show(self, name: str, *, image: str = "") -> Document:
        """Return a runtime as a manifest: that of the cluster, else the built-in one."""
        found = next((one for one in self._known() if one["metadata"]["name"] == name), None)
        return found if found is not None and not image else self.shipped(name, image=image)

    def shipped(self, name: str, *, image: str = "") -> Document:
        """Return a built-in runtime for this cluster."""
        return builtin.document(builtin.shipped(name), image=image, user=self._user())

    def lint(self, names: tuple[str, ...] = ()) -> dict[str, tuple[Finding, ...]]:
        """Return the findings of files and runtimes by name; without names, of all runtimes of the cluster."""
        found: dict[str, tuple[Finding, ...]] = {}
        files_only = bool(names) and all(Path(name).is_file() for name in names)
        # Files are linted without a request to the cluster.
        openshift = not files_only and self._openshift()
        for label, document in self._documents(names):
            traps = lint.lint(document, openshift=openshift)
            if traps is not None:
                found[label] = traps
        return found

    def install(self, name: str, *, image: str = "", dry_run: bool = False) -> str:
        """Install a built-in runtime or one of a file; raise InvalidJob for errors of lint."""
        from mpijob.backends.kubernetes.admin import runtimes as cluster

        path = Path(name)
        documents = _read(path) if path.is_file() else (self.shipped(name, image=image),)
        for document in documents:
            errors = [one for one in lint.lint(document) or () if one.severity is Severity.ERROR]
            if errors:
                raise InvalidJob.of(tuple(errors), f"runtime {document['metadata']['name']}")
        names = ", ".join(one["metadata"]["name"] for one in documents)

        def work() -> None:
            with self._api() as api:
                for document in documents:
                    cluster.install(api, document, dry_run=dry_run)

        if dry_run:
            work()
            return f"{names} would be installed"
        self._acted(Verb.INSTALL, JobRef("", names[:200]), work)
        return f"{names} installed"

    def test(self, name: str) -> tuple[Finding, ...]:
        """Run a small job with a runtime of the cluster; return its findings and those of lint."""
        from mpijob.backends.kubernetes.admin import runtimes as cluster

        with self._api() as api:
            namespace = namespace_at(self._settings, api.access.namespace)
            runtime = cluster.find(api, name, namespace)
            trial = lambda: tuple(cluster.run_test(api, runtime, namespace))  # noqa: E731
            tried = self._acted(Verb.CREATE, JobRef(namespace, name), trial)
        traps = lint.lint(runtime, openshift=self._openshift()) or ()
        return (*tried, *(one for one in traps if one.severity is not Severity.NOTICE))

    def _acted(self, verb: Verb, ref: JobRef, work: Callable[[], T]) -> T:
        """Do and audit something on the cluster."""
        audited = recorder.with_audit(open_backend(self._settings), self._settings)
        return recorder.act(audited, verb, ref, work, resource="runtimes")

    def _known(self) -> tuple[Document, ...]:
        if not self.on_cluster:
            return ()
        from mpijob.backends.kubernetes.admin import runtimes as cluster

        with self._api() as api:
            return cluster.list_runtimes(api, namespace_at(self._settings, api.access.namespace))

    def _documents(self, names: tuple[str, ...]) -> Iterator[tuple[str, Document]]:
        files = [name for name in names if Path(name).is_file()]
        for name in files:
            for document in _read(Path(name)):
                yield f"{name}: {(document.get('metadata') or {}).get('name', '?')}", document
        wanted = [name for name in names if name not in files]
        if names and not wanted:
            return
        if not self.on_cluster:
            yield from (
                (name, self.shipped(name)) for name in wanted or [one.name for one in builtin.SHIPPED]
            )
            return
        there = {one["metadata"]["name"]: one for one in self._known()}
        for name in wanted or there:
            if name not in there:
                raise NotFound(
                    f"no MPI runtime '{name}' on this cluster", hint="mpijob runtimes list shows them"
                )
            yield name, there[name]

    def _user(self) -> int | None:
        """Return the user ID for pods, None on OpenShift, which gives each namespace its own range."""
        from mpijob.backends.kubernetes.preflight.preflight import PLAIN_USER

        return None if self._openshift() else PLAIN_USER

    def _openshift(self) -> bool:
        if not self.on_cluster:
            return False
        from mpijob.backends.kubernetes.client import discovery

        with self._api() as api:
            return any(one.startswith("security.openshift.io/") for one in discovery.served(api))

    @contextmanager
    def _api(self) -> Iterator[Any]:
        """Connect to the cluster, and translate its errors."""
        if not self.on_cluster:
            raise Unsupported(
                "this command requires a cluster",
                hint="name one with --context, or set MPIJOB_ENGINE=kubernetes",
            )
        from mpijob.backends.kubernetes.auth import kubeconfig
        from mpijob.backends.kubernetes.client import api_errors
        from mpijob.backends.kubernetes.client.api import Api
        from mpijob.backends.kubernetes.client.api_errors import ApiError

        try:
            with Api(kubeconfig.load(path=self._settings.kubeconfig, context=self._settings.context)) as api:
                yield api
        except ApiError as error:
            raise api_errors.translate(error, doing="read the runtimes of the cluster") from error


def _read(path: Path) -> tuple[Document, ...]:
    try:
        return manifests.read(path.read_bytes(), str(path))
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from error


def _row(document: Document, origin: str) -> Row:
    metadata = document["metadata"]
    traps = [one for one in lint.lint(document) or () if one.severity is not Severity.NOTICE]
    described = (metadata.get("annotations") or {}).get("mpijob.dev/description", "")
    return Row(
        metadata["name"], document["kind"], origin, smoke_test.image_of(document), len(traps), described
    )
