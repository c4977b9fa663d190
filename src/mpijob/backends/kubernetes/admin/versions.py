"""Which engines a cluster has, in which versions, and whether they answer; `admission` judges over it.

An administrator's token reads deployments and webhooks; any other user still learns much from what is
served, from the schema of TrainJobs and from the config map that Trainer publishes for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    pass

_DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
_CHECKING = Kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
)
_CHANGING = Kind(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)
_METRICS, _PUBLIC = "metrics.k8s.io/v1beta1", "kubeflow-trainer-public"
_PUBLIC_PLACES = ("kubeflow-system", "kubeflow", "opendatahub", "redhat-ods-applications")
_OLD = "kubeflow.org/v1"
_PATCHES = {"runtimePatches": "2.2", "podTemplateOverrides": "2.1", "podSpecOverrides": "2.0"}  # newest first
_APIS = {
    Product.TRAINER: resources.TRAINER_API,
    Product.JOBSET: resources.JOBSET_API,
    Product.MPI_OPERATOR: resources.MPI_OPERATOR_API,
}
_DEPLOYED = {  # how the products' deployments are called; the first that matches counts
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
    """Return what is installed, as far as this user may see it; `served` are the cluster's API versions."""
    seen = concurrent.together(
        {
            "version": lambda: api.get("/version"),
            "deployments": lambda: api.list(_DEPLOYMENT.path()),
            "schema": lambda: _patches(api.raw(f"/openapi/v3/apis/{resources.TRAINER_API}")),
            "old": lambda: api.get(f"/apis/{_OLD}"),
            "metrics": lambda: api.get(f"/apis/{_METRICS}"),
            "visibility": lambda: api.get(f"/apis/{resources.VISIBILITY_API}"),
            "checking": lambda: api.list(_CHECKING.path()),
            "changing": lambda: api.list(_CHANGING.path()),
        }
        | {f"public {place}": _public(api, place) for place in _PUBLIC_PLACES}
    )
    return Installation(
        components=tuple(_components(seen, served)),
        openshift=any(one.startswith("security.openshift.io/") for one in served),
        served=served,
        patches=seen["schema"].value or "",
        old_mpijob=any(
            one.get("name") == "mpijobs" for one in (seen["old"].value or {}).get("resources") or ()
        ),
        silent_webhooks=_silent(api, [*seen["checking"].items, *seen["changing"].items]),
        metrics=_answering(_METRICS, seen["metrics"], served),
        visibility=_answering(resources.VISIBILITY_API, seen["visibility"], served),
        unread=concurrent.unread(seen, _MEANINGS),
    )


def _public(api: Api, place: str) -> Any:
    return lambda: api.find(resources.CONFIG_MAP.path(place, _PUBLIC))


def _patches(schema: bytes) -> str:
    """Return the field by which a TrainJob changes its runtime, by its name in the schema; one search, no parse."""
    return next((field for field in _PATCHES if f'"{field}"'.encode() in schema), "")


def _answering(api: str, answer: ReadResult, served: frozenset[str]) -> Answering:
    if answer.error is None:
        return Answering.YES
    return Answering.DOWN if api in served or answer.error.status >= 500 else Answering.ABSENT


def _components(seen: ReadResults, served: frozenset[str]) -> Iterator[Component]:
    version = str((seen["version"].value or {}).get("gitVersion") or "").removeprefix("v")
    yield Component(product=Product.KUBERNETES, version=version, source="server", ready=True)
    deployed = dict(_deployed(seen["deployments"].items))
    for product in _DEPLOYED:
        if product in deployed:
            yield _from_deployment(product, deployed[product], seen)
        elif _is_served(product, served):
            version, source = _told_to_all(seen) if product is Product.TRAINER else ("", "")
            yield Component(product=product, version=version, source=source)


def _is_served(product: Product, served: frozenset[str]) -> bool:
    if product is Product.KUEUE:
        return any(one.startswith("kueue.x-k8s.io/") for one in served)
    return _APIS.get(product) in served


def _deployed(deployments: Iterable[Document]) -> Iterator[tuple[Product, Document]]:
    for one in deployments:
        for product, form in _DEPLOYED.items():
            if re.fullmatch(form, one["metadata"]["name"]):
                yield product, one


def _from_deployment(product: Product, deployment: Document, seen: ReadResults) -> Component:
    metadata, spec = deployment["metadata"], deployment["spec"]["template"]["spec"]
    container = (spec.get("containers") or [{}])[0]
    published = _published(seen) if product is Product.TRAINER else ""
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
    told = (published, tag, labels.get("app.kubernetes.io/version", ""), labels.get("helm.sh/chart", ""))
    sources = ("config map", "image", "label", "chart")
    for text, source in zip(told, sources, strict=True):
        if found := _VERSION.search(text):
            return found[1], source
    return "", ""


def _published(seen: ReadResults) -> str:
    """Return the version that Trainer tells everybody in a config map."""
    maps = (seen[f"public {place}"].value for place in _PUBLIC_PLACES)
    text = next((str((one.get("data") or {}).get("kubeflow_trainer_version", "")) for one in maps if one), "")
    found = _VERSION.search(text)
    return found[1] if found else ""


def _told_to_all(seen: ReadResults) -> tuple[str, str]:
    """Return Trainer's version as any user can tell it: published, or at least by what its schema has."""
    if published := _published(seen):
        return published, "config map"
    return _PATCHES.get(seen["schema"].value or "", ""), "schema"


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


def _silent(api: Api, configurations: Iterable[Document]) -> tuple[str, ...]:
    """Return the engines' webhook services that must be asked for every job and have nobody behind them."""
    services = sorted({one for configuration in configurations for one in _services(configuration)})
    answers = concurrent.together({f"{place}/{name}": _slices(api, place, name) for place, name in services})
    return tuple(key for key, answer in answers.items() if answer.value is not None and not _ready(answer))


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
        if service and ours and webhook.get("failurePolicy", "Fail") == "Fail":
            yield service["namespace"], service["name"]


def _slices(api: Api, place: str, name: str) -> Any:
    return lambda: api.list(_SLICE.path(place), labels=f"kubernetes.io/service-name={name}")


def _ready(answer: ReadResult) -> bool:
    endpoints = [end for one in answer.items for end in one.get("endpoints") or ()]
    return any((end.get("conditions") or {}).get("ready") is not False for end in endpoints)


def report(settings: Settings, asked: Api | None = None) -> Iterator[Finding]:
    """Yield what was found, by an API client that is there already or as the settings' user.

    Raise when the cluster cannot be asked at all.
    """
    own = Api(kubeconfig.load(path=settings.kubeconfig, context=settings.context)) if asked is None else asked
    with own if asked is None else nullcontext(own) as api:
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
        lacks = {one.value: may.lacking(permissions.TO_CREATE[one]) for one in engines}
        yield from installation.permission_findings(
            namespace, lacks, may.lacking((permissions.LOGS, permissions.EXEC))
        )
