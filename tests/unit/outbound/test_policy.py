"""Who is restricted in where the page's server connects, and what an administrator's words for it mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cluster_support import a_job
from tests.unit.visitor_support import REF, SERVER, VISITOR, cluster, listening, seen_by, tell

from mpijob.backends.kubernetes.auth import kubeconfig
from mpijob.backends.kubernetes.backend import KubernetesBackend
from mpijob.client.multiuser.sessions import cluster_sessions
from mpijob.errors import InvalidJob, NotAllowed
from mpijob.outbound.policy import Policy, server_policy
from mpijob.settings import OutboundSetting, Settings

pytestmark = pytest.mark.security


def allowing(*entries: str, **more: Any) -> Policy:
    return server_policy(OutboundSetting(allow=entries, **more), [])


def test_the_pages_server_opens_the_cluster_for_its_visitors_with_a_restricted_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubeconfig, "load", lambda **_: VISITOR)
    setting = OutboundSetting(allow=("10.1.0.0/16", "minio.data.svc"), download_bytes="1Gi")
    settings = Settings(home="/nowhere", outbound=setting, prometheus="https://prometheus.example.org")
    backend = cluster_sessions(settings)._open("token")
    assert isinstance(backend, KubernetesBackend)
    policy = backend._outbound
    assert (policy.restricted, policy.allow, policy.download_bytes) == (True, setting.allow, 1 << 30)
    assert policy.internal == ("192.0.2.1", "prometheus.example.org:443")
    assert SERVER.startswith("https://192.0.2.1")


@pytest.mark.req("FR-INT-005")
def test_the_pages_server_asks_no_registry_that_a_visitors_image_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kubeconfig, "load", lambda **_: VISITOR)
    backend = cluster_sessions(Settings(home="/nowhere"))._open("token")
    assert isinstance(backend, KubernetesBackend)
    with listening() as service:
        answer = backend._submission._image_lookup.start(
            a_job(image=f"127.0.0.1:{service.port}/x:1"), lambda _: None
        )()
        assert service.connections == 0
    assert answer is None


def test_a_visitor_without_a_policy_is_restricted_and_a_user_of_their_own_is_not(tmp_path: Path) -> None:
    assert seen_by(cluster("http://127.0.0.1"))._outbound.restricted
    config = tmp_path / "config"
    config.write_text('{"clusters": [{"name": "a", "cluster": {"server": "https://192.0.2.1"}}], "contexts": '
                      '[{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}')  # fmt: skip
    assert not KubernetesBackend(Settings(kubeconfig=str(config)))._outbound.restricted


@pytest.mark.thorough
def test_a_user_of_their_own_reaches_their_own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(tell(b"<ListBucketResult></ListBucketResult>")) as service:
        backend = seen_by(cluster(service.url), Policy())
        assert backend.artifacts(REF) == ()
        assert service.connections == 1


@pytest.mark.parametrize("entry", ["", "a b", "10.0.0.0/33", "user@host", "host:99999", "a/b", "*"])
def test_an_entry_that_means_nothing_is_refused(entry: str) -> None:
    with pytest.raises(InvalidJob):
        allowing(entry)
    with pytest.raises(InvalidJob):
        allowing(download_bytes="much")


@pytest.mark.parametrize(
    ("entry", "host", "port", "address", "allowed"),
    [
        ("10.1.0.0/16", "x.svc", 9000, "10.1.2.3", True),
        ("10.1.0.0/16", "x.svc", 9000, "10.2.2.3", False),
        ("10.1.0.0/16:9000", "x.svc", 9000, "10.1.2.3", True),
        ("10.1.0.0/16:9000", "x.svc", 22, "10.1.2.3", False),
        ("minio.data.svc", "minio.data.svc", 9000, "10.9.9.9", True),
        ("minio.data.svc", "MINIO.data.svc.", 9000, "10.9.9.9", True),
        ("minio.data.svc", "xminio.data.svc", 9000, "10.9.9.9", False),
        ("minio.data.svc:9000", "minio.data.svc", 22, "10.9.9.9", False),
        ("*.data.svc", "minio.data.svc", 22, "10.9.9.9", True),
        ("*.data.svc", "data.svc", 22, "10.9.9.9", False),
        ("*.data.svc", "evildata.svc", 22, "10.9.9.9", False),
        (
            "minio.data.svc",
            "minio.data.svc",
            9000,
            "169.254.169.254",
            False,
        ),  # a name opens no metadata service
        ("minio.data.svc", "minio.data.svc", 9000, "127.0.0.1", False),
        ("minio.data.svc", "minio.data.svc", 9000, "fd00:ec2::254", False),
        ("fd00:1::/64", "x.svc", 9000, "fd00:1::5", True),
        ("127.0.0.1", "localhost", 9000, "127.0.0.1", True),
        ("127.0.0.1", "localhost", 9000, "::ffff:127.0.0.1", True),
        ("[::1]:9000", "localhost", 9000, "::1", True),
        ("", "s3.example.org", 443, "93.184.216.34", True),
    ],
)
def test_what_an_administrator_names_is_reached(
    entry: str, host: str, port: int, address: str, allowed: bool
) -> None:
    policy = allowing(*filter(None, [entry]))
    assert policy.permits(host, port, address) is allowed


@pytest.mark.thorough
def test_a_refusal_is_of_the_kind_that_the_page_answers_with_403() -> None:
    with pytest.raises(NotAllowed):
        seen_by(cluster("http://127.0.0.1")).artifacts(REF)
