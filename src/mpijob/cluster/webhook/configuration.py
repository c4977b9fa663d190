"""The webhook configurations of the API server, and the policies that it evaluates itself.

The webhooks fail closed: a job's owner, the Secrets of its pods and the namespace's limits are never left
unchecked because a service of ours is down. A namespace labelled `mpijob.dev/admission: open` fails open,
`strict` also rejects jobs that are certain to fail, `off` is ignored, and system namespaces never match.
Changes by engines and queues are not sent to the webhook (`trust`). Static rules are
ValidatingAdmissionPolicies, which work without any service of ours. `deploy/base/admission` is generated from
here (`python -m tools.deploy`).
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
MUTATING = Kind(API, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False)
VALIDATING = Kind(API, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False)
# Called one after the other; a namespace with `open` waits at most 3 s for a service that does not respond.
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
_JOB_KINDS = (
    ("trainer.kubeflow.org", ["v1alpha1"], ["trainjobs", "trainingruntimes"]),
    ("kubeflow.org", ["v2beta1"], ["mpijobs"]),
)


def configurations(
    namespace: str = NAMESPACE, *, name: str = NAME, engines: Iterable[Account] = trust.ENGINES
) -> tuple[Document, ...]:
    """Return both configurations for the service of this name; requests of `engines` are exempt."""
    service = {"name": name, "namespace": namespace}
    # The API server evaluates it before it calls the webhook: engines update the status of their jobs often.
    match_conditions = [
        {
            "name": "engines",
            "expression": f"request.operation != 'UPDATE' || !({trust.trust_expression(engines)})",
        }
    ]
    mutating = [
        _webhook(
            f"{prefix}{operation}",
            f"/{operation}",
            service,
            failure,
            ["CREATE"],
            [*selector, _pod_security(operator)],
        )
        for operation, operator in (("defaults", "NotIn"), ("restricted", "In"))
        for prefix, failure, selector in (
            ("", "Fail", _FAIL_CLOSED),
            ("open-", "Ignore", [_with_label("open")]),
        )
    ]
    operations = ["CREATE", "UPDATE"]
    validating = [
        _webhook(
            "judge",
            "/judge",
            service,
            "Fail",
            operations,
            [*_FAIL_CLOSED, _without_label("strict")],
            match_conditions,
        ),
        _webhook("strict", "/strict", service, "Fail", operations, [_with_label("strict")], match_conditions),
        _webhook("open", "/open", service, "Ignore", operations, [_with_label("open")], match_conditions),
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


def _with_label(value: str) -> Document:
    return {"key": LABEL, "operator": "In", "values": [value]}


def _without_label(value: str) -> Document:
    return {"key": LABEL, "operator": "NotIn", "values": [value]}


def _pod_security(operator: str) -> Document:
    """Return the selector of namespaces that enforce restricted pods, or do not."""
    return {"key": "pod-security.kubernetes.io/enforce", "operator": operator, "values": ["restricted"]}


_FAIL_CLOSED = [_without_label("open")]


def _webhook(
    operation: str,
    path: str,
    service: Document,
    failure: str,
    operations: list[str],
    selectors: list[Document],
    conditions: Iterable[Document] = (),
) -> Document:
    system = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": list(SYSTEM_NAMESPACES)}
    webhook = {
        "name": f"{operation}.{well_known.DOMAIN}",
        "admissionReviewVersions": ["v1"],
        # Required for server-side dry runs.
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS[operation],
        "failurePolicy": failure,
        # Also for requests in another version of the same API.
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [system, _without_label("off"), *selectors]},
        "clientConfig": {"service": service | {"path": path}},
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": versions,
                "resources": resources,
                "operations": operations,
                "scope": "Namespaced",
            }
            for group, versions, resources in _JOB_KINDS
        ],
    }
    return webhook | ({"matchConditions": list(conditions)} if conditions else {})
