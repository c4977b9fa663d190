"""What makes an API server ask us: the webhook configurations, and rules that it judges by itself.

The webhooks fail open (`Ignore`): without us jobs are created as they always were. A namespace labelled
`mpijob.dev/admission: strict` fails closed, one labelled `off` is left alone, and system namespaces are never
matched. Static rules are ValidatingAdmissionPolicies: they hold without any service of ours.
`deploy/base/admission` is written from here (`python -m tools.deploy`).
"""

from __future__ import annotations

from mpijob.backends.kubernetes.kinds import Kind
from mpijob.cluster.webhook_policies import policies
from mpijob.dialects import terms
from mpijob.dialects.terms import Document

__all__ = ["LABEL", "MUTATING", "NAME", "SYSTEM_NAMESPACES", "VALIDATING", "configurations", "policies"]

NAME = "mpijob-webhook"
NAMESPACE = "mpijob-system"
LABEL = f"{terms.DOMAIN}/admission"
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
TIMEOUT_SECONDS = {
    "defaults": 1,
    "restricted": 1,
    "judge": 2,
    "strict": 2,
}  # asked one after the other: at most 3 s in all
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", NAMESPACE)
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_PRODUCTS = (
    ("trainer.kubeflow.org", ["v1alpha1"], ["trainjobs", "trainingruntimes"]),
    ("kubeflow.org", ["v2beta1"], ["mpijobs"]),
)


def configurations(namespace: str = NAMESPACE, *, name: str = NAME) -> tuple[Document, ...]:
    """Return both configurations, of which the service of this name is asked."""
    service = {"name": name, "namespace": namespace}
    level = "pod-security.kubernetes.io/enforce"
    mutating = [
        _webhook(
            word,
            service,
            "Ignore",
            ["CREATE"],
            _open({"key": level, "operator": operator, "values": ["restricted"]}),
        )
        for word, operator in (("defaults", "NotIn"), ("restricted", "In"))
    ]
    both = ["CREATE", "UPDATE"]
    validating = [
        _webhook(
            "judge", service, "Ignore", both, _open({"key": LABEL, "operator": "NotIn", "values": ["strict"]})
        ),
        _webhook("strict", service, "Fail", both, _strict()),
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


def _webhook(
    word: str, service: Document, failure: str, operations: list[str], selector: Document
) -> Document:
    return {
        "name": f"{word}.{terms.DOMAIN}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS[word],
        "failurePolicy": failure,
        "matchPolicy": "Equivalent",
        "namespaceSelector": selector,
        "clientConfig": {"service": service | {"path": f"/{word}"}},
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


def _open(more: Document) -> Document:
    return {
        "matchExpressions": [
            {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": list(SYSTEM_NAMESPACES)},
            {"key": LABEL, "operator": "NotIn", "values": ["off"]},
            more,
        ]
    }


def _strict() -> Document:
    return _open({"key": LABEL, "operator": "In", "values": ["strict"]})
