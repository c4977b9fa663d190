"""Whom the controller may act as: exactly the owners of jobs that it may have to start again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.cluster import owners, trust
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import job_uid

pytestmark = pytest.mark.security
SYSTEM = "mpijob-system"


def a_job(api: Store, name: str, owner: str, *groups: str, namespace: str = "team-a", **rest: Any) -> None:
    notes = {well_known.OWNER_LABEL: owner, well_known.OWNER_GROUPS: "\n".join(groups)}
    notes[well_known.REST_ANNOTATION] = json.dumps(rest, separators=(",", ":"))
    uid = job_uid.issue(namespace, owner)
    labels = {
        well_known.MANAGED_LABEL: well_known.MANAGED_BY,
        well_known.UID_LABEL: uid,
        well_known.JOB_LABEL: name,
    }
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": notes}
    api.objects[resources.TRAINJOB.path(namespace, name)] = {"metadata": metadata}


def granted(api: Store) -> dict[str, list[str]]:
    """Return what may be impersonated, by kind and, for service accounts, by namespace."""
    found: dict[str, list[str]] = {}
    for one in owners.rbac_documents(owners.jobs_to_recreate(api), SYSTEM):
        for rule in one.get("rules") or ():
            assert rule["verbs"] == ["impersonate"]
            home = one["metadata"].get("namespace")
            (plural,) = rule["resources"]
            found[f"{home}/{plural}" if home else plural] = rule["resourceNames"]
    return found


def test_owners_of_jobs_with_retries_are_named_and_nobody_else() -> None:
    api = Store()
    a_job(api, "again", "alice", "team-a", "system:authenticated", retry={"limit": 2})
    a_job(api, "once", "bob", "team-b")
    assert granted(api) == {"users": ["alice"], "groups": ["team-a"]}


def test_a_service_account_is_named_in_its_own_namespace() -> None:
    api = Store()
    a_job(api, "ci", "system:serviceaccount:ci:default", "system:serviceaccounts", retry={"limit": 1})
    assert granted(api) == {"ci/serviceaccounts": ["default"]}


@pytest.mark.hostile
@pytest.mark.parametrize(
    "owner",
    [
        "system:masters",
        "system:kube-controller-manager",
        "system:serviceaccount:kube-system:clusterrole-aggregation-controller",
        "system:serviceaccount:mpijob-system:mpijob-operator",
    ],
)
def test_nobody_of_the_cluster_itself_is_ever_named(owner: str) -> None:
    api = Store()
    a_job(api, "x", owner, "system:masters", retry={"limit": 1})
    assert granted(api) == {}


@pytest.mark.hostile
def test_an_owner_that_the_uid_was_not_issued_for_is_not_named() -> None:
    api = Store()
    a_job(api, "x", "mallory", "team-a", retry={"limit": 1})
    job = api.objects[resources.TRAINJOB.path("team-a", "x")]
    job["metadata"]["annotations"][well_known.OWNER_LABEL] = "admin"
    assert granted(api) == {}


def test_the_roles_are_given_to_the_controller_alone() -> None:
    api = Store()
    a_job(api, "x", "alice", retry={"limit": 1})
    bindings = [
        one for one in owners.rbac_documents(owners.jobs_to_recreate(api), SYSTEM) if "subjects" in one
    ]
    subject = {"kind": "ServiceAccount", "name": "mpijob-controller", "namespace": SYSTEM}
    assert [one["subjects"] for one in bindings] == [[subject]] * len(bindings)


def test_the_accounts_of_engines_are_those_of_their_deployments() -> None:
    def deployment(name: str, namespace: str, account: str = "") -> Document:
        pod = {"serviceAccountName": account} if account else {}
        return {"metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": pod}}}

    found = trust.accounts_of(
        [
            deployment("kueue-controller-manager", "elsewhere", "kueue"),
            deployment("somebody-elses", "elsewhere", "mighty"),
        ]
    )
    assert [(one.user, one.plural) for one in found] == [
        ("system:serviceaccount:elsewhere:kueue", "workloads")
    ]
