"""What the doctor finds on a real cluster: engines, versions, webhooks, rights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed import versions as installed

from mpijob.admission import installation
from mpijob.backends.kubernetes.admin import versions
from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import discovery
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.client.admin import doctor
from mpijob.errors import Severity
from mpijob.model.platform.installation import Answering, Product
from mpijob.settings import CLUSTER, Settings

WEBHOOKS = Kind(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
)


@pytest.fixture(scope="module")
def api(kubeconfig: Path) -> Iterator[Api]:
    """Return the administrator's connection."""
    with Api(load(path=str(kubeconfig))) as api:
        yield api


def _as(kubeconfig_of: Callable[[str], Path], user: str) -> Api:
    return Api(load(path=str(kubeconfig_of(user))))


@pytest.mark.testbed
def test_the_doctor_finds_the_engines_and_their_versions(api: Api) -> None:
    found = versions.matrix(api, discovery.served(api))
    told_ = {one.product: one.version for one in found.components}
    wanted = {
        Product.KUBERNETES: installed.KUBERNETES,
        Product.TRAINER: installed.TRAINER,
        Product.JOBSET: installed.JOBSET,
        Product.KUEUE: installed.KUEUE,
        Product.MPI_OPERATOR: installed.MPI_OPERATOR,
    }
    assert {product: told_[product] for product in wanted} == {
        product: version.removeprefix("v") for product, version in wanted.items()
    }
    assert found.patches == "runtimePatches"
    assert found.visibility is Answering.YES
    assert found.silent_webhooks == ()
    assert not [one for one in installation.examine(found) if one.severity is Severity.ERROR]


@pytest.mark.testbed
@pytest.mark.req("E-fips")
def test_the_doctor_tells_the_whole_story(kubeconfig_of: Callable[[str], Path]) -> None:
    settings = Settings(engine=CLUSTER, kubeconfig=str(kubeconfig_of("alice")), namespace="team-a")
    said = [one.message for one in doctor.report(settings)]
    assert any("responds at https://" in one for one in said)
    assert any(one.startswith("you may create jobs in namespace 'team-a'") for one in said)
    assert any("ECDSA P-521" in one for one in said)
    other = doctor.report(
        Settings(engine=CLUSTER, kubeconfig=str(kubeconfig_of("alice")), namespace="team-b")
    )
    assert {one.code for one in other if one.severity is Severity.ERROR} == {"DOCTOR_RIGHTS"}


@pytest.mark.testbed
def test_a_plain_users_doctor_says_what_it_may_not_read(kubeconfig_of: Callable[[str], Path]) -> None:
    with _as(kubeconfig_of, "alice") as api:
        found = versions.matrix(api, discovery.served(api))
    trainer = found.find(Product.TRAINER)
    assert trainer is not None
    assert (trainer.version, trainer.source) == (installed.TRAINER.removeprefix("v"), "config map")
    assert {one.what for one in found.unread} >= {"deployments of all namespaces"}


@pytest.mark.alone
def test_a_webhook_without_anybody_behind_it_is_found(api: Api) -> None:
    """It is asked for no object at all (its selector fits no namespace), so nobody is harmed."""
    name = f"preflight-{os.urandom(3).hex()}.mpijob.dev"
    rule = {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["*"],
        "resources": ["trainjobs"],
        "operations": ["CREATE"],
    }
    webhook = {
        "name": name,
        "clientConfig": {"service": {"namespace": "default", "name": "nobody"}},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"preflight": "never"}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    api.create(
        WEBHOOKS.path(),
        {
            "apiVersion": WEBHOOKS.api,
            "kind": WEBHOOKS.name,
            "metadata": {"name": name},
            "webhooks": [webhook],
        },
    )
    try:
        found = versions.matrix(api, discovery.served(api))
    finally:
        api.delete(WEBHOOKS.path("", name))
    assert "default/nobody" in found.silent_webhooks
