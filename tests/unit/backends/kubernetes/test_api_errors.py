"""What the API server refuses, told so that a data scientist knows what happened and what to do.

The server's sentences are real ones, taken from Kubernetes 1.34 with the operators of the test bed.
"""

from __future__ import annotations

from typing import Any

import pytest

from mpijob.backends.kubernetes.client import api_errors, resources
from mpijob.backends.kubernetes.client.api_errors import ApiError, translate
from mpijob.errors import (
    BackendError,
    Conflict,
    InvalidJob,
    MpiJobError,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    Unsupported,
)

SERVER = "https://api.lab.test:6443"
TRAINJOBS = resources.TRAINJOB.path("team-a")


def told(status: int, message: str = "", doing: str = "create the job", **fields: Any) -> MpiJobError:
    error = ApiError(message, status=status, server=SERVER, **{"path": TRAINJOBS, **fields})
    return translate(error, doing=doing)


@pytest.mark.req("A-edge-403")
def test_a_missing_right_names_user_verb_kind_namespace_and_role() -> None:
    error = told(
        403,
        'trainjobs.trainer.kubeflow.org is forbidden: User "bob" cannot list resource "trainjobs" '
        'in API group "trainer.kubeflow.org" in the namespace "team-a"',
        doing="list jobs",
    )
    assert isinstance(error, NotAllowed)
    assert error.message == (
        "cannot list jobs: User 'bob' lacks 'list' permission for TrainJobs in namespace 'team-a'"
    )
    assert error.hint == (
        "ask an administrator of namespace 'team-a' for the role 'view': kubectl create rolebinding "
        "mpijob-view --clusterrole=view --user=bob --namespace=team-a"
    )


@pytest.mark.req("A-edge-403")
@pytest.mark.parametrize(
    ("verb", "resource", "group", "what", "role"),
    [
        ("create", "trainjobs", "trainer.kubeflow.org", "TrainJobs", "edit"),
        ("get", "pods/log", "", "log of Pods", "view"),
        ("get", "pods/exec", "", "exec of Pods", "edit"),
        ("get", "secrets", "", "Secrets", "edit"),
        ("list", "networkpolicies", "networking.k8s.io", "NetworkPolicies", "view"),
        ("watch", "widgets", "acme.test", "widgets.acme.test", "view"),
    ],
)
def test_the_role_is_the_least_that_would_help(
    verb: str, resource: str, group: str, what: str, role: str
) -> None:
    error = told(
        403,
        f'{resource} is forbidden: User "system:serviceaccount:team-a:runner" cannot {verb} resource '
        f'"{resource}" in API group "{group}" in the namespace "team-a"',
    )
    assert f"lacks '{verb}' permission for {what} in namespace 'team-a'" in error.message
    assert f"--clusterrole={role} --serviceaccount=team-a:runner" in error.hint


def test_a_right_for_the_whole_cluster_is_not_promised_by_a_namespace() -> None:
    message = (
        'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    error = told(403, message)
    assert "lacks 'list' permission for Nodes in the whole cluster" in error.message
    assert "rolebinding" not in error.hint


def test_a_quota_is_no_matter_of_rights() -> None:
    error = told(
        403,
        'pods "x" is forbidden: exceeded quota: team, requested: requests.cpu=4, used: requests.cpu=6, '
        "limited: requests.cpu=8",
    )
    assert isinstance(error, QuotaExceeded)
    assert "quota 'team'" in error.message
    assert "requested requests.cpu=4, used requests.cpu=6, limit requests.cpu=8" in error.message


def test_a_namespace_that_is_being_deleted_is_told() -> None:
    details = {
        "causes": [{"reason": "NamespaceTerminating", "message": "namespace team-a is being terminated"}]
    }
    error = told(403, "unable to create new content in namespace team-a", details=details)
    assert isinstance(error, Conflict)
    assert "the namespace is being deleted" in error.message


def test_a_rule_of_the_cluster_is_quoted() -> None:
    error = told(403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true')
    assert isinstance(error, NotAllowed)
    assert 'violates PodSecurity "restricted:latest"' in error.message


def test_an_expired_login_says_how_to_log_in() -> None:
    error = told(401, "Unauthorized", login="log in again: oc login --server=https://api.lab.test:6443")
    assert isinstance(error, NotAllowed)
    assert SERVER in error.message
    assert "oc login" in error.hint


@pytest.mark.parametrize(
    ("path", "product"),
    [
        (resources.TRAINJOB.path("team-a"), "Kubeflow Trainer"),
        (resources.MPIJOB.path("team-a", "x"), "the MPI Operator"),
        (resources.JOBSET.path("team-a"), "JobSet"),
        (resources.WORKLOAD.path("team-a"), "Kueue"),
        (resources.CLUSTER_RUNTIME.path("", "x"), "Kubeflow Trainer"),
    ],
)
def test_a_missing_engine_is_named(path: str, product: str) -> None:
    error = told(404, "404 page not found", path=path)
    assert isinstance(error, Unsupported)
    assert f"{product} is not installed there: {SERVER} does not serve " in error.message


def test_a_missing_object_is_named_in_its_namespace() -> None:
    details = {"name": "x", "group": "trainer.kubeflow.org", "kind": "trainjobs"}
    error = told(404, 'trainjobs.trainer.kubeflow.org "x" not found', details=details, doing="read the job")
    assert isinstance(error, NotFound)
    assert error.message == "cannot read the job: no TrainJob 'x' in namespace 'team-a'"


def test_a_missing_namespace_is_named() -> None:
    error = told(404, 'namespaces "nope" not found', details={"name": "nope", "kind": "namespaces"})
    assert isinstance(error, NotFound)
    assert "there is no namespace 'nope'" in error.message


def test_a_name_in_use_and_a_change_by_others_are_conflicts() -> None:
    used = told(409, "exists", reason="AlreadyExists", details={"name": "x", "kind": "trainjobs"})
    changed = told(409, "the object has been modified", reason="Conflict")
    assert isinstance(used, Conflict)
    assert isinstance(changed, Conflict)
    assert "the name 'x' is already used by one of the TrainJobs in namespace 'team-a'" in used.message
    assert "changed concurrently" in changed.message


@pytest.mark.parametrize("status", [400, 422])
def test_every_cause_of_an_invalid_document_is_a_finding(status: int) -> None:
    causes = [
        {"reason": "FieldValueInvalid", "field": "spec.trainer.numNodes", "message": "Invalid value: -1"},
        {"reason": "FieldValueRequired", "field": "metadata.name", "message": "Required value"},
    ]
    error = told(status, "is invalid", details={"causes": causes})
    assert isinstance(error, InvalidJob)
    assert [(finding.field, finding.message) for finding in error.findings] == [
        ("spec.trainer.numNodes", "Invalid value: -1"),
        ("metadata.name", "Required value"),
    ]
    assert "\n  spec.trainer.numNodes: Invalid value: -1\n" in error.message


def test_a_webhook_that_refuses_is_quoted() -> None:
    error = told(
        400, 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: no runtime'
    )
    assert isinstance(error, InvalidJob)
    assert "denied the request: no runtime" in error.message


def test_a_webhook_that_is_down_names_its_engine() -> None:
    message = (
        'Internal error occurred: failed calling webhook "validator.trainjob.trainer.kubeflow.org": failed to call '
        'webhook: Post "https://kubeflow-trainer-controller-manager.kubeflow-system.svc:443/x": connection refused'
    )
    error = told(500, message)
    assert isinstance(error, BackendError)
    assert "the webhook of Kubeflow Trainer does not answer" in error.message


@pytest.mark.parametrize(
    ("status", "message"),
    [(413, "Request entity too large: limit is 3145728"), (500, "etcdserver: request is too large")],
)
def test_what_is_too_large_says_where_large_things_belong(status: int, message: str) -> None:
    error = told(status, message)
    assert isinstance(error, InvalidJob)
    assert "volume" in error.hint


def test_an_ambiguous_failure_says_so() -> None:
    assert "look before you repeat it" in told(504, "timeout", ambiguous=True).message
    assert "look before you repeat it" not in told(504, "timeout").message


def test_a_busy_server_and_one_that_is_away_are_told_with_its_address() -> None:
    busy = told(429, "too many")
    away = told(0, f"{SERVER} cannot be reached: Connection refused", reason=api_errors.REFUSED, hint="VPN?")
    for error in (busy, away):
        assert isinstance(error, BackendError)
        assert SERVER in error.message
        assert error.message.startswith("cannot create the job: ")
    assert away.hint == "VPN?"


def test_every_kind_has_a_name_for_many_of_it() -> None:
    assert [resources.TRAINJOB.many, resources.NETWORK_POLICY.many, resources.PRIORITY_CLASS.many] == [
        "TrainJobs",
        "NetworkPolicies",
        "PriorityClasses",
    ]
    assert resources.named("trainjobs", "trainer.kubeflow.org") is resources.TRAINJOB
    assert resources.named("trainjobs") is None
