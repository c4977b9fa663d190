"""The webhook as a server: its certificates, its answers, and what makes an API server ask it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.incoming_support import (
    Knowing,
    a_job,
    a_review,
    documents,
    limited,
)
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Listing
from mpijob.cluster import trust
from mpijob.cluster.webhook import certificates, configuration, tls_secret
from mpijob.cluster.webhook import server as webhook
from mpijob.cluster.webhook.cache import WebhookCache
from mpijob.cluster.webhook.server import Options, Server

# -- certificates ------------------------------------------------------------------------------------
NAMES = ("mpijob-webhook.mpijob-system.svc",)


def test_keys_are_good_for_a_while_then_renewed_under_the_same_authority() -> None:
    now = datetime.now(UTC)
    first = certificates.renew(NAMES, now=now)
    assert not certificates.needs_renewal(first, NAMES, now)
    later = now + timedelta(days=21)
    assert certificates.needs_renewal(first, NAMES, later)
    second = certificates.renew(NAMES, first, now=later)
    assert second.bundle == first.bundle
    assert second.certificate != first.certificate
    assert certificates.expiry(second) > later + timedelta(days=29)


def test_a_new_authority_stands_beside_the_old_one_until_that_expires() -> None:
    now = datetime.now(UTC)
    first = certificates.renew(NAMES, now=now)
    second = certificates.renew(NAMES, first, now=now + timedelta(days=600))
    assert second.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert second.bundle.endswith(first.bundle)
    third = certificates.renew(NAMES, second, now=now + timedelta(days=1200))
    assert third.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert first.bundle not in third.bundle


def test_other_names_and_broken_keys_are_reasons_to_renew() -> None:
    keys = certificates.renew(NAMES)
    assert certificates.needs_renewal(keys, ("10.0.0.1",))
    assert certificates.needs_renewal(keys._replace(certificate=b"x"), NAMES)
    assert certificates.renew(NAMES, keys._replace(bundle=b"x"))


def test_keys_are_kept_in_a_secret_that_all_share_and_the_bundle_is_published() -> None:
    store = Store()
    for document in configuration.configurations():
        kind = configuration.MUTATING if document["kind"].startswith("Mut") else configuration.VALIDATING
        store.create(kind.path(), document)
    first = tls_secret.ensure_keys(store, "mpijob-system", NAMES)
    assert tls_secret.ensure_keys(store, "mpijob-system", NAMES) == first
    tls_secret.publish_bundle(store, first.bundle)
    for kind in (configuration.MUTATING, configuration.VALIDATING):
        for one in store.objects[kind.path("", configuration.NAME)]["webhooks"]:
            assert base64.b64decode(one["clientConfig"]["caBundle"]) == first.bundle
    later = tls_secret.ensure_keys(store, "mpijob-system", NAMES, datetime.now(UTC) + timedelta(days=40))
    assert later.certificate != first.certificate
    secret = store.objects[resources.SECRET.path("mpijob-system", "mpijob-webhook-keys")]
    assert base64.b64decode(secret["data"]["tls.crt"]) == later.certificate


# -- the server --------------------------------------------------------------------------------------
@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(Options(host="127.0.0.1", port=0))
    made.use_keys(certificates.renew(("127.0.0.1",)))
    with made:
        yield made


def ask(server: Server, path: str, body: bytes | None = None, bundle: bytes = b"") -> tuple[int, bytes]:
    context = (
        ssl.create_default_context(cadata=bundle.decode()) if bundle else ssl._create_unverified_context()
    )
    line = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=5)
    line.request("POST" if body is not None else "GET", path, body)
    answer = line.getresponse()
    read = answer.read()
    line.close()
    return answer.status, read


def test_the_server_is_ready_when_everything_is_known_and_answers_reviews(server: Server) -> None:
    assert (ask(server, "/healthz")[0], ask(server, "/readyz")[0]) == (200, 503)
    *runtime, document = documents(a_job(workers=9))
    body = msgspec.json.encode(a_review(document))
    assert ask(server, "/judge", body)[0] == 503
    server.cluster = Knowing(limited(max_workers=8), *runtime)
    assert ask(server, "/readyz")[0] == 200
    status, answer = ask(server, "/judge", body)
    assert (status, json.loads(answer)["response"]["allowed"]) == (200, False)
    status, answer = ask(server, "/defaults", body)
    assert json.loads(base64.b64decode(json.loads(answer)["response"]["patch"]))


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        *(("/judge", body, 400) for body in (b"", b"{", b"[]", b"{}", b"[" * 100_000)),
        ("/other", b"{}", 404),
        ("/judge", b"[" + b"{}," * 100_001 + b"{}]", 413),
    ],
)
def test_nonsense_is_answered_and_harms_nobody(server: Server, path: str, body: bytes, status: int) -> None:
    server.cluster = Knowing()
    assert ask(server, path, body)[0] == status
    assert ask(server, "/healthz")[0] == 200


@pytest.mark.thorough
def test_new_keys_are_served_without_a_restart(server: Server) -> None:
    first = certificates.renew(("127.0.0.1",))
    second = certificates.renew(("127.0.0.1",))
    for keys, other in ((first, second), (second, first)):
        server.use_keys(keys)
        assert ask(server, "/healthz", bundle=keys.bundle)[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server, "/healthz", bundle=other.bundle)


def test_its_names_are_those_of_the_service() -> None:
    assert webhook.names(Options())[0] == "mpijob-webhook.mpijob-system.svc"
    assert webhook.names(Options(address="10.0.0.1")) == ("10.0.0.1",)


# -- what makes an API server ask us -----------------------------------------------------------------
@pytest.mark.req("E-webhook", "C-ha")
@pytest.mark.security
def test_what_nobody_judges_is_refused_except_where_an_administrator_says_so_and_never_in_the_system() -> (
    None
):
    webhooks = [one for document in configuration.configurations() for one in document["webhooks"]]
    assert {one["name"]: one["failurePolicy"] for one in webhooks} == {
        "defaults.mpijob.dev": "Fail",
        "restricted.mpijob.dev": "Fail",
        "judge.mpijob.dev": "Fail",
        "strict.mpijob.dev": "Fail",
        "open-defaults.mpijob.dev": "Ignore",
        "open-restricted.mpijob.dev": "Ignore",
        "open.mpijob.dev": "Ignore",
    }
    for one in webhooks:
        assert one["timeoutSeconds"] <= 5
        names = one["namespaceSelector"]["matchExpressions"][0]
        assert (names["operator"], set(names["values"]) >= {"kube-system", "mpijob-system"}) == (
            "NotIn",
            True,
        )
        assert {group for rule in one["rules"] for group in rule["apiGroups"]} == {
            "trainer.kubeflow.org",
            "kubeflow.org",
        }


def test_every_rule_is_bound_and_spares_the_system() -> None:
    documents = configuration.policies()
    named = {one["metadata"]["name"] for one in documents if one["kind"] == "ValidatingAdmissionPolicy"}
    bound = {one["spec"]["policyName"] for one in documents if one["kind"].endswith("Binding")}
    assert named == bound
    for one in documents[::2]:
        spared = "kube-system" in str(one["spec"]["matchConstraints"]["namespaceSelector"])
        assert spared == (one["metadata"]["name"] != "mpijob-controller"), (
            "what it may write holds everywhere"
        )
        assert one["spec"]["failurePolicy"] == "Fail"


@pytest.mark.security
def test_trust_is_in_exact_accounts_that_hold_an_engines_own_right_and_never_in_a_namespace() -> None:
    told = trust.trust_expression()
    assert "system:serviceaccounts" not in told
    assert "groups" not in told
    for one in trust.ENGINES:
        assert f"'{one.user}': ['{one.group}', '{one.plural}']" in told
    assert ".subresource('status').check('update').allowed()" in told
    assert trust.trust_expression(()) == f"request.userInfo.username in {list(trust.CONTROL_PLANE)}"


class Unreadable:
    """An API server that cannot tell the limits, for one reason or another."""

    access = SimpleNamespace(server="https://cluster")

    def __init__(self, status: int) -> None:
        self._status = status

    def list(self, path: str, **more: Any) -> Listing:
        if "mpijoblimits" in path:
            raise ApiError("no", status=self._status)
        return Listing([], "1")

    def lines(self, *path: Any, **more: Any) -> Any:
        raise ApiError("no watch", status=500)


@pytest.mark.security
@pytest.mark.parametrize(("status", "governed"), [(500, False), (503, False), (403, True), (404, True)])
def test_limits_that_cannot_be_read_for_a_moment_are_waited_for(status: int, governed: bool) -> None:
    with WebhookCache(Unreadable(status)) as known:  # type: ignore[arg-type]  # a stand-in
        assert known.wait_synced(10.0)
        assert known.limits_known() is governed


@pytest.mark.security
def test_the_rule_on_privileges_looks_at_what_runs_first_too_where_there_is_any() -> None:
    rule = next(one for one in configuration.policies() if one["metadata"]["name"] == "mpijob-privileges")
    (test,) = (one["expression"] for one in rule["spec"]["validations"] if "privileged" in one["expression"])
    for field in ("containers", "initContainers"):
        assert f"(has(pod.spec.{field}) && pod.spec.{field}.exists(container, " in test
