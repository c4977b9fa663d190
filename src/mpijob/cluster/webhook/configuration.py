"""What makes an API server ask us: the webhook configurations, and rules that it judges by itself.

The webhooks fail closed: who a job belongs to, which Secrets its pods get and what its namespace allows is never
left unjudged because a service of ours is away. A namespace labelled `mpijob.dev/admission: open` fails open, one
labelled `strict` also refuses jobs that could only fail, one labelled `off` is left alone, and system namespaces are
never matched. What engines and queues change of a job does not reach us (`trust`). Static rules are
ValidatingAdmissionPolicies: they hold without any service of ours.
`deploy/base/admission` is written from here (`python -m tools.deploy`).
"""

from __future__ import annotations

from collections.abc import Iterable

from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.cluster import trust
from mpijob.cluster.trust import Account
from mpijob.cluster.webhook.validating_policies import NAMESPACE, policies
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document

__all__ = ["LABEL", "MUTATING", "NAME", "SYSTEM_NAMESPACES", "VALIDATING", "configurations", "policies"]

NAME = "mpijob-webhook"
LABEL = f"{well_known.DOMAIN}/admission"
API = "admissionregistration.k8s.io/v1"
MUTATING = Kind(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)
VALIDATING = Kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
)
# Asked one after the other; an open namespace waits 3 s at most for a service that does not answer.
TIMEOUT_SECONDS = {
    "defaults": 5,
    "restricted": 5,
    "judge": 5,
    "strict": 5,
    "open-defaults": 1,
    "open-restricted": 1,
    "open": 2,
}
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", NAMESPACE)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_PRODUCTS = (
    ("trainer.kubeflow.org", ["v1alpha1"], ["trainjobs", "trainingruntimes"]),
    ("kubeflow.org", ["v2beta1"], ["mpijobs"]),
)


def configurations(
    namespace: str = NAMESPACE, *, name: str = NAME, engines: Iterable[Account] = trust.ENGINES
) -> tuple[Document, ...]:
    """Return both configurations, of which the service of this name is asked; `engines` are not asked about."""
    service = {"name": name, "namespace": namespace}
    spared = [
        {
            "name": "engines",
            "expression": f"request.operation != 'UPDATE' || !({trust.expression(engines)})",
        }
    ]
    mutating = [
        _webhook(f"{opened}{word}", f"/{word}", service, failure, ["CREATE"], [*selector, _level(operator)])
        for word, operator in (("defaults", "NotIn"), ("restricted", "In"))
        for opened, failure, selector in (("", "Fail", _CLOSED), ("open-", "Ignore", [_labelled("open")]))
    ]
    both = ["CREATE", "UPDATE"]
    validating = [
        _webhook("judge", "/judge", service, "Fail", both, [*_CLOSED, _unlabelled("strict")], spared),
        _webhook("strict", "/strict", service, "Fail", both, [_labelled("strict")], spared),
        _webhook("open", "/open", service, "Ignore", both, [_labelled("open")], spared),
    ]
    return tuple(
        {
            "apiVersion": API,
            "kind": kind,
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "mpijob"}},
            "webhooks": webhooks,
        }
        for kind, webhooks in (
            ("MutatingWebhookConfiguration", mutating),
            ("ValidatingWebhookConfiguration", validating),
        )
    )


def _labelled(word: str) -> Document:
    return {"key": LABEL, "operator": "In", "values": [word]}


def _unlabelled(word: str) -> Document:
    return {"key": LABEL, "operator": "NotIn", "values": [word]}


def _level(operator: str) -> Document:
    """Return the selector of namespaces whose pods must be restricted, or need not be."""
    return {"key": "pod-security.kubernetes.io/enforce", "operator": operator, "values": ["restricted"]}


_CLOSED = [_unlabelled("open")]


def _webhook(
    word: str,
    path: str,
    service: Document,
    failure: str,
    operations: list[str],
    selectors: list[Document],
    conditions: Iterable[Document] = (),
) -> Document:
    system = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": list(SYSTEM_NAMESPACES)}
    asked = {
        "name": f"{word}.{well_known.DOMAIN}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS[word],
        "failurePolicy": failure,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [system, _unlabelled("off"), *selectors]},
        "clientConfig": {"service": service | {"path": path}},
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": versions,
                "resources": resources,
                "operations": operations,
                "scope": "Namespaced",
            }
            for group, versions, resources in _PRODUCTS
        ],
    }
    return asked | ({"matchConditions": list(conditions)} if conditions else {})
