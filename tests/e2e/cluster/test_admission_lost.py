"""What an admission webhook costs that is lost, killed, slow or expired: all wait but namespaces that are open."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.e2e.cluster.admission_support import (
    REFUSED_SECONDS,
    Governed,
    asked,
    by_hand,
    create,
    judged,
    refusal,
)
from tests.e2e.cluster.support import Place, eventually, own_place

from mpijob.backends.kubernetes.client import resources
from mpijob.cluster.webhook import certificates, tls_secret

pytestmark = [pytest.mark.testbed, pytest.mark.security]
webhook = pytest.fixture(scope="module")(asked)
place = pytest.fixture(scope="module")(judged)


@pytest.fixture
def opened(kubeconfig: Path, webhook: Governed) -> Iterator[Place]:
    labels = webhook.labels | {"mpijob.dev/admission": "open"}
    with own_place(kubeconfig, "adm-open", labels) as made:
        yield made


def timed(place: Place, name: str) -> tuple[int, str, float]:
    begun = time.monotonic()
    status, text = create(place, by_hand(name))
    taken = time.monotonic() - begun
    if status == 0:
        place.kubectl("delete", "mpijobs.kubeflow.org", name)
    return status, text, taken


@pytest.mark.req("E-webhook", "C-ha")
def test_without_it_nothing_is_created_that_nobody_judged_but_in_open_namespaces(
    webhook: Governed, place: Place, opened: Place
) -> None:
    assert timed(place, "well")[0] == 0
    webhook.scale(0)
    try:
        assert timed(opened, "alone")[0] == 0
        first = {"name": "first", "image": "none", "securityContext": {"privileged": True}}
        assert "a privileged container" in refusal(opened, by_hand("raw", initContainers=[first]))
        status, text, taken = timed(place, "alone")
        assert status != 0
        assert ".mpijob.dev" in text
        print(f"without the webhook a create is refused in {taken:.2f} s")
        assert "alone" not in place.kubectl("get", "mpijobs.kubeflow.org")
    finally:
        webhook.scale(1)
    eventually(lambda: timed(place, "back")[0] == 0, "jobs are created again")


@pytest.mark.req("E-webhook", "C-ha")
def test_a_webhook_that_is_killed_comes_back_by_itself(webhook: Governed, opened: Place) -> None:
    found = webhook.processes()
    assert found
    for process in found:
        os.kill(process, signal.SIGKILL)
    assert timed(opened, "meanwhile")[0] == 0
    eventually(lambda: webhook.ready() == 1 and webhook.processes(), "it is back")
    eventually(webhook.acts, "it is asked again")


@pytest.mark.req("E-webhook")
def test_a_slow_webhook_costs_an_open_namespace_three_seconds_and_no_job(
    webhook: Governed, place: Place, opened: Place
) -> None:
    def costs_little() -> bool:
        status, text, taken = timed(opened, "slow")
        assert status == 0, text
        print(f"with a webhook that does not answer a create takes {taken:.2f} s")
        return taken < 3.0 + REFUSED_SECONDS

    found = webhook.processes()
    assert found
    for process in found:
        os.kill(process, signal.SIGSTOP)
    try:
        eventually(costs_little, "a create takes three seconds", 20)  # its node ends it after thirty
        assert timed(place, "slow")[0] != 0
    finally:
        for process in found:
            os.kill(process, signal.SIGCONT)
    eventually(lambda: webhook.ready() == 1 and webhook.acts(), "it is ready")


@pytest.mark.req("E-webhook", "C-ha")
def test_an_expired_certificate_is_renewed_by_itself(webhook: Governed, place: Place, opened: Place) -> None:
    names = (f"{webhook.name}.{webhook.namespace}.svc",)
    old = certificates.renew(names, now=datetime.now(UTC) - timedelta(days=60))
    path = resources.SECRET.path(webhook.namespace, f"{webhook.name}-keys")
    before = webhook.api.get(path)["data"]["tls.crt"]
    found = webhook.api.get(path)
    tls_secret._write(webhook.api, path, old, found)
    tls_secret.publish_bundle(webhook.api, b"", name=webhook.name)
    assert timed(opened, "expired")[0] == 0  # nothing waits for it
    eventually(lambda: webhook.api.get(path)["data"]["tls.crt"] != before, "new keys are made")
    eventually(lambda: timed(place, "renewed")[0] == 0, "and trusted")
