"""etcd, the API server, the controller manager and the scheduler, as processes of the node."""

from __future__ import annotations

from pathlib import Path

from testbed import build, pki, places, processes
from testbed.kubectl import apply_ours, is_ready
from testbed.shell import wait_for

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
_ETCD = "http://127.0.0.1:2379"
_ETCD_PEER = "http://127.0.0.1:2380"
_VERBOSITY = "--v=1"
_AUDIT_POLICY = places.SOURCES.parent / "deploy" / "base" / "audit" / "policy.yaml"


def audit_log() -> Path:
    """Return the file of the API server's own audit."""
    return places.run_state() / "audit.log"


def component(name: str) -> Path:
    """Return the program of a component: a link with its name to the program that is all of them."""
    return places.run_state() / "bin" / name


def link_components() -> None:
    """Make the links."""
    component("etcd").parent.mkdir()
    for name in COMPONENTS:
        component(name).symlink_to(build.binary("kube"))


def start_etcd() -> None:
    """Start etcd, on the data that is there."""
    processes.start("etcd", component("etcd"), *_etcd_flags())


def start_api_server() -> None:
    """Start the API server; `finish` waits for it."""
    processes.start("kube-apiserver", component("kube-apiserver"), *_api_flags())


def finish() -> None:
    """Wait for the API server, then start the controllers and the scheduler."""
    wait_for("an answer of the API server", _api_answers, seconds=120)
    apply_ours("node")
    processes.start(
        "kube-controller-manager",
        component("kube-controller-manager"),
        *_client_flags("controller-manager"),
        *_controller_flags(),
    )
    processes.start("kube-scheduler", component("kube-scheduler"), *_client_flags("scheduler"), _VERBOSITY)


def _api_answers() -> bool:
    for name in ("etcd", "kube-apiserver"):
        processes.check(name)
    return is_ready()


def _etcd_flags() -> tuple[str, ...]:
    return (
        "--name=testbed",
        f"--data-dir={places.run_state() / 'etcd'}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={_ETCD_PEER}",
        f"--initial-advertise-peer-urls={_ETCD_PEER}",
        f"--initial-cluster=testbed={_ETCD_PEER}",
        "--unsafe-no-fsync",  # nothing here outlives a crash of the machine
        "--log-level=warn",
    )


def _api_flags() -> tuple[str, ...]:
    folder = places.pki()
    return (
        f"--etcd-servers={_ETCD}",
        f"--bind-address={places.NODE_IP}",
        f"--advertise-address={places.NODE_IP}",
        f"--secure-port={places.API_PORT}",
        f"--service-cluster-ip-range={places.SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={folder}/ca.crt",
        f"--token-auth-file={folder}/tokens.csv",
        f"--tls-cert-file={folder}/apiserver.crt",
        f"--tls-private-key-file={folder}/apiserver.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={folder}/ca.crt",
        f"--kubelet-client-certificate={folder}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={folder}/apiserver-kubelet-client.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder}/sa.pub",
        f"--service-account-signing-key-file={folder}/sa.key",
        f"--proxy-client-cert-file={folder}/front-proxy-client.crt",
        f"--proxy-client-key-file={folder}/front-proxy-client.key",
        f"--requestheader-client-ca-file={folder}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--audit-policy-file={_AUDIT_POLICY}",
        f"--audit-log-path={audit_log()}",
        "--audit-log-maxage=90",
        "--audit-log-maxsize=100",
        _VERBOSITY,
    )


def _client_flags(name: str) -> tuple[str, ...]:
    config = pki.component_config(name)
    return (
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--kube-api-qps=200",  # hundreds of jobs at once are to be limited by the machine, not by politeness
        "--kube-api-burst=400",
    )


def _controller_flags() -> tuple[str, ...]:
    folder = places.pki()
    return (
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={places.POD_CIDR}",
        f"--service-cluster-ip-range={places.SERVICE_CIDR}",
        "--use-service-account-credentials=true",
        f"--flex-volume-plugin-dir={places.run_state()}/volume-plugins",  # else a folder in /usr
        f"--service-account-private-key-file={folder}/sa.key",
        f"--root-ca-file={folder}/ca.crt",
        f"--cluster-signing-cert-file={folder}/ca.crt",
        f"--cluster-signing-key-file={folder}/ca.key",
        _VERBOSITY,
    )
