"""Keys, certificates and kubeconfig files: one authority, one certificate per component and per user."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import places
from testbed.shell import run

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
_DAYS = ("-days", "3650")
_API_NAMES = (
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "DNS:localhost",
    "IP:127.0.0.1",
    f"IP:{places.NODE_IP}",
    f"IP:{places.API_SERVICE_IP}",
)


@dataclass(frozen=True)
class Certificate:
    """What a certificate says: the common name, the group, the names it serves, and who signs it."""

    name: str
    common_name: str
    group: str = ""
    serves: tuple[str, ...] = ()
    authority: str = "ca"


@dataclass(frozen=True)
class TokenUser:
    """A user who is known by a token."""

    name: str
    uid: int
    group: str


_NODE_USER = f"system:node:{places.NODE}"
CERTIFICATES = (
    Certificate("apiserver", "kube-apiserver", serves=_API_NAMES),
    # the group that may read logs and run commands through the kubelet
    Certificate("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "kubeadm:cluster-admins"),
    Certificate("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
    Certificate(
        "kubelet-serving",
        _NODE_USER,
        "system:nodes",
        serves=(f"DNS:{places.NODE}", f"IP:{places.NODE_IP}"),
    ),
)
COMPONENTS = (
    Certificate("kubelet", _NODE_USER, "system:nodes"),
    Certificate("controller-manager", "system:kube-controller-manager"),
    Certificate("scheduler", "system:kube-scheduler"),
    Certificate("proxy", "system:kube-proxy"),
    Certificate("kube-router", "kube-router"),
)
USERS = (
    Certificate("admin", "admin", "system:masters"),
    Certificate("alice", "alice", "team-a"),
    Certificate("bob", "bob", "team-b"),
)
TOKEN_USERS = (
    TokenUser("carol", 1001, "team-a"),
    TokenUser("dave", 1002, "team-b"),
    TokenUser("auditor", 1003, "auditors"),
)


def make() -> None:
    """Make everything, with a kubeconfig for each component and each user."""
    places.pki().mkdir(parents=True, mode=0o700)
    places.kubeconfig().parent.mkdir(mode=0o700)
    for authority in ("ca", "front-proxy-ca"):
        _make_authority(authority)
    _make_service_account_key()
    for certificate in (*CERTIFICATES, *COMPONENTS, *USERS):
        _make_certificate(certificate)
    for certificate in COMPONENTS:
        _write_kubeconfig(
            component_config(certificate.name), certificate.name, _with_certificate(certificate)
        )
    for certificate in USERS:
        _write_kubeconfig(
            places.kubeconfig(certificate.name), certificate.name, _with_certificate(certificate)
        )
    _make_tokens()


def component_config(name: str) -> Path:
    """Return the kubeconfig of a component."""
    return places.pki() / f"{name}.kubeconfig"


def _make_authority(name: str) -> None:
    run(
        *("openssl", "req", "-x509", *_CURVE, "-nodes", *_DAYS, "-subj", f"/CN={places.NAME}-{name}"),
        *("-keyout", places.pki() / f"{name}.key", "-out", places.pki() / f"{name}.crt"),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
    )


def _make_service_account_key() -> None:
    key = places.pki() / "sa.key"
    run("openssl", "genrsa", "-out", key, "2048")
    run("openssl", "rsa", "-in", key, "-pubout", "-out", places.pki() / "sa.pub")


def _make_certificate(certificate: Certificate) -> None:
    folder, name = places.pki(), certificate.name
    group = f"/O={certificate.group}" if certificate.group else ""
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(_extensions(certificate))
    run(
        *("openssl", "req", "-new", *_CURVE, "-nodes", "-subj", f"{group}/CN={certificate.common_name}"),
        *("-keyout", folder / f"{name}.key", "-out", request),
    )
    signed_by = folder / f"{certificate.authority}.crt", folder / f"{certificate.authority}.key"
    run(
        *("openssl", "x509", "-req", "-in", request, "-CA", signed_by[0], "-CAkey", signed_by[1]),
        *("-set_serial", f"0x{secrets.token_hex(8)}", *_DAYS, "-extfile", extensions),
        *("-out", folder / f"{name}.crt"),
    )
    request.unlink()
    extensions.unlink()


def _extensions(certificate: Certificate) -> str:
    lines = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature,keyEncipherment"]
    lines.append(f"extendedKeyUsage={'serverAuth' if certificate.serves else 'clientAuth'}")
    if certificate.serves:
        lines.append(f"subjectAltName={','.join(certificate.serves)}")
    return "\n".join(lines) + "\n"


def _make_tokens() -> None:
    lines = []
    for user in TOKEN_USERS:
        token = secrets.token_urlsafe(24)
        lines.append(f'{token},{user.name},{user.uid},"{user.group}"\n')
        _write_kubeconfig(places.kubeconfig(user.name), user.name, {"token": token})
    _write_private(places.pki() / "tokens.csv", "".join(lines))


def _with_certificate(certificate: Certificate) -> dict[str, str]:
    return {
        "client-certificate-data": _base64(places.pki() / f"{certificate.name}.crt"),
        "client-key-data": _base64(places.pki() / f"{certificate.name}.key"),
    }


def _write_kubeconfig(path: Path, user: str, credentials: dict[str, str]) -> None:
    namespace = {"alice": "team-a", "carol": "team-a", "bob": "team-b", "dave": "team-b"}.get(user, "default")
    context = {"cluster": places.NAME, "user": user, "namespace": namespace}
    cluster = {"server": places.API, "certificate-authority-data": _base64(places.pki() / "ca.crt")}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": places.NAME, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": places.NAME, "context": context}],
        "current-context": places.NAME,
    }
    _write_private(path, json.dumps(config, indent=2))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
