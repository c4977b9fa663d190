"""The engines of a cluster, their versions, and whether they respond; `admission` evaluates them.

An administrator may read deployments and webhooks. For other users, versions come from the served APIs, the
schema of TrainJobs, and the config map that Trainer publishes for all users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from mpijob.admission import installation
from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.client import api_errors, concurrent, discovery, resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.backends.kubernetes.client.concurrent import ReadResult, ReadResults
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.preflight import permissions
from mpijob.errors import Finding
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing.engine_selection import Engine
from mpijob.model.platform.installation import Answering, Component, Installation, Product
from mpijob.settings import Settings, namespace_at

_DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
_VALIDATING = Kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
)
_MUTATING = Kind(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)
_METRICS, _PUBLIC = "metrics.k8s.io/v1beta1", "kubeflow-trainer-public"
_PUBLIC_PLACES = ("kubeflow-system", "kubeflow", "opendatahub", "redhat-ods-applications")
_OLD = "kubeflow.org/v1"
# The field with which a TrainJob changes its runtime, by Trainer's version (kueue#11931), newest first.
_PATCHES = {"runtimePatches": "2.2", "podTemplateOverrides": "2.1", "podSpecOverrides": "2.0"}
_APIS = {
    Product.TRAINER: resources.TRAINER_API,
    Product.JOBSET: resources.JOBSET_API,
    Product.MPI_OPERATOR: resources.MPI_OPERATOR_API,
}
# Names of the products' deployments in their manifests and charts; the first match counts.
_DEPLOYED = {
    Product.TRAINER: r"(kubeflow-)?trainer-controller-manager",
    Product.JOBSET: r"jobset-controller(-manager)?",
    Product.KUEUE: r"kueue-controller-manager",
    Product.MPI_OPERATOR: r"mpi-operator",
    Product.OLD_OPERATOR: r"training-operator|kubeflow-training-operator",
    Product.VOLCANO: r"volcano-scheduler",
    Product.COSCHEDULING: r"scheduler-plugins-scheduler|scheduler-plugins-controller",
}
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:-[0-9A-Za-z.]+)?)")
_MEANINGS = {
    "deployments": ("deployments of all namespaces", "versions, readiness and options of the engines"),
    "checking": ("ValidatingWebhookConfigurations", "whether the engines' webhooks answer"),
    "changing": ("MutatingWebhookConfigurations", "whether the engines' webhooks answer"),
    "schema": ("the schema of TrainJobs", "which field queues use to change a runtime"),
}


def matrix(api: Api, served: frozenset[str]) -> Installation:
    """Return what is installed, as far as this user may read it; `served` are the cluster's API versions."""
    reads = concurrent.together(
        {
            "version": lambda: api.get("/version"),
            "deployments": lambda: api.list(_DEPLOYMENT.path()),
            "schema": lambda: _patches(api.raw(f"/openapi/v3/apis/{resources.TRAINER_API}")),
            "old": lambda: api.get(f"/apis/{_OLD}"),
            "metrics": lambda: api.get(f"/apis/{_METRICS}"),
            "visibility": lambda: api.get(f"/apis/{resources.VISIBILITY_API}"),
            "checking": lambda: api.list(_VALIDATING.path()),
            "changing": lambda: api.list(_MUTATING.path()),
        }
        | {f"public {place}": _public(api, place) for place in _PUBLIC_PLACES}
    )
    return Installation(
        components=tuple(_components(reads, served)),
        openshift=any(api_version.startswith("security.openshift.io/") for api_version in served),
        served=served,
        patches=reads["schema"].value or "",
        old_mpijob=any(
            resource.get("name") == "mpijobs"
            for resource in (reads["old"].value or {}).get("resources") or ()
        ),
        silent_webhooks=_silent_webhooks(api, [*reads["checking"].items, *reads["changing"].items]),
        metrics=_answering(_METRICS, reads["metrics"], served),
        visibility=_answering(resources.VISIBILITY_API, reads["visibility"], served),
        unread=concurrent.unread(reads, _MEANINGS),
    )


def _public(api: Api, place: str) -> Any:
    return lambda: api.find(resources.CONFIG_MAP.path(place, _PUBLIC))


def _patches(schema: bytes) -> str:
    # Searched as bytes: parsing the OpenAPI document takes longer than everything else here.
    return next((field for field in _PATCHES if f'"{field}"'.encode() in schema), "")


def _answering(api: str, result: ReadResult, served: frozenset[str]) -> Answering:
    if result.error is None:
        return Answering.YES
    return Answering.DOWN if api in served or result.error.status >= 500 else Answering.ABSENT


def _components(reads: ReadResults, served: frozenset[str]) -> Iterator[Component]:
    version = str((reads["version"].value or {}).get("gitVersion") or "").removeprefix("v")
    yield Component(product=Product.KUBERNETES, version=version, source="server", ready=True)
    deployed = dict(_deployed(reads["deployments"].items))
    for product in _DEPLOYED:
        if product in deployed:
            yield _from_deployment(product, deployed[product], reads)
        elif _is_served(product, served):
            version, source = _trainer_version(reads) if product is Product.TRAINER else ("", "")
            yield Component(product=product, version=version, source=source)


def _is_served(product: Product, served: frozenset[str]) -> bool:
    if product is Product.KUEUE:
        return any(api_version.startswith("kueue.x-k8s.io/") for api_version in served)
    return _APIS.get(product) in served


def _deployed(deployments: Iterable[Document]) -> Iterator[tuple[Product, Document]]:
    for deployment in deployments:
        for product, pattern in _DEPLOYED.items():
            if re.fullmatch(pattern, deployment["metadata"]["name"]):
                yield product, deployment


def _from_deployment(product: Product, deployment: Document, reads: ReadResults) -> Component:
    metadata, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
    container = (spec.get("containers") or [{}])[0]
    published = _published(reads) if product is Product.TRAINER else ""
    version, source = _version(container.get("image", ""), metadata.get("labels") or {}, published)
    return Component(
        product=product,
        version=version,
        source=source,
        place=f"{metadata.get('namespace', '')}/{metadata['name']}",
        ready=bool((deployment.get("status") or {}).get("availableReplicas")),
        options=_options([*(container.get("command") or ()), *(container.get("args") or ())]),
    )


def _version(image: str, labels: Mapping[str, str], published: str) -> tuple[str, str]:
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    texts = (published, tag, labels.get("app.kubernetes.io/version", ""), labels.get("helm.sh/chart", ""))
    sources = ("config map", "image", "label", "chart")
    for text, source in zip(texts, sources, strict=True):
        if found := _VERSION.search(text):
            return found[1], source
    return "", ""


def _published(reads: ReadResults) -> str:
    """Return the version that Trainer publishes for all users in a config map."""
    maps = (reads[f"public {place}"].value for place in _PUBLIC_PLACES)
    text = next(
        (
            str((config_map.get("data") or {}).get("kubeflow_trainer_version", ""))
            for config_map in maps
            if config_map
        ),
        "",
    )
    found = _VERSION.search(text)
    return found[1] if found else ""


def _trainer_version(reads: ReadResults) -> tuple[str, str]:
    """Return Trainer's version as any user can read it, and where from."""
    if published := _published(reads):
        return published, "config map"
    # The oldest version that has the field.
    return _PATCHES.get(reads["schema"].value or "", ""), "schema"


def _options(words: Iterable[str]) -> dict[str, str]:
    """Return a program's options: `--kube-api-qps=50`, `-v 4`, `--leader-elect`."""
    found, last = {}, ""
    for word in words:
        if word.startswith("-"):
            name, _, value = word.lstrip("-").partition("=")
            found[name], last = value, name
        elif last and not found[last]:
            found[last] = word
    return found


def _silent_webhooks(api: Api, configurations: Iterable[Document]) -> tuple[str, ...]:
    """Return the engines' webhook services without a ready pod, which make the API server refuse every job."""
    services = sorted({service for configuration in configurations for service in _services(configuration)})
    results = concurrent.together({f"{place}/{name}": _slices(api, place, name) for place, name in services})
    return tuple(key for key, result in results.items() if result.value is not None and not _ready(result))


def _services(configuration: Document) -> Iterator[tuple[str, str]]:
    for webhook in configuration.get("webhooks") or ():
        service = (webhook.get("clientConfig") or {}).get("service") or {}
        groups = {group for rule in webhook.get("rules") or () for group in rule.get("apiGroups") or ()}
        ours = groups & {
            resources.TRAINJOB.group,
            resources.JOBSET.group,
            resources.MPIJOB.group,
            resources.WORKLOAD.group,
        }
        # With failurePolicy Ignore, a webhook that does not respond is skipped.
        if service and ours and webhook.get("failurePolicy", "Fail") == "Fail":
            yield service["namespace"], service["name"]


def _slices(api: Api, place: str, name: str) -> Any:
    return lambda: api.list(_SLICE.path(place), labels=f"kubernetes.io/service-name={name}")


def _ready(result: ReadResult) -> bool:
    endpoints = [endpoint for item in result.items for endpoint in item.get("endpoints") or ()]
    return any((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)


def report(settings: Settings, existing: Api | None = None) -> Iterator[Finding]:
    """Yield findings about the cluster, with the given client or as the settings' user; raise MpiJobError."""
    own = (
        Api(kubeconfig.load(path=settings.kubeconfig, context=settings.context))
        if existing is None
        else existing
    )
    with own if existing is None else nullcontext(own) as api:
        namespace = namespace_at(settings, api.access.namespace)
        try:
            served = discovery.served(api)
            found = matrix(api, served)
            may = permissions.review(api, namespace)
        except ApiError as error:
            raise api_errors.translate(error, doing="read the cluster state") from error
        yield installation.cluster_finding(api.access.context or "in-cluster", api.access.server)
        yield from installation.examine(found)
        engines = [Engine.TRAINER] if resources.TRAINER_API in served else []
        engines += [Engine.MPI_OPERATOR] if resources.MPI_OPERATOR_API in served else []
        lacks = {engine.value: may.lacking(permissions.TO_CREATE[engine]) for engine in engines}
        yield from installation.permission_findings(
            namespace, lacks, may.lacking((permissions.LOGS, permissions.EXEC))
        )
