"""What is installed and released is what was looked at: manifests by digest, files by signature."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from tools import signing

from mpijob.cluster import manifests
from mpijob.errors import NotAllowed

pytestmark = pytest.mark.security
MANIFEST = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def test_manifests_that_are_not_what_was_looked_at_are_not_installed(tmp_path: Path) -> None:
    (tmp_path / "trainer.yaml").write_bytes(MANIFEST)
    assert len(manifests.manifests(str(tmp_path), "trainer", "", DIGEST)) == 1
    (tmp_path / "trainer.yaml").write_bytes(MANIFEST + b"---\napiVersion: v1\nkind: Secret\n")
    with pytest.raises(NotAllowed, match="digest mismatch"):
        manifests.manifests(str(tmp_path), "trainer", "", DIGEST)


def test_what_comes_from_an_address_needs_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_download", lambda address: MANIFEST)
    with pytest.raises(NotAllowed, match="without a digest"):
        manifests.manifests("https://mirror.example.org", "trainer", "v2")
    assert len(manifests.manifests("https://mirror.example.org", "trainer", "v2", DIGEST)) == 1
    with pytest.raises(NotAllowed):
        manifests.manifests("https://mirror.example.org", "trainer", "v2", f"sha256:{'0' * 64}")


@pytest.mark.parametrize("kind", ["ecdsa", "ed25519"])
def test_a_signature_holds_for_the_file_that_was_signed_and_no_other(tmp_path: Path, kind: str) -> None:
    private: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey = (
        ec.generate_private_key(ec.SECP256R1()) if kind == "ecdsa" else ed25519.Ed25519PrivateKey.generate()
    )
    key, public, file = tmp_path / "key.pem", tmp_path / "public.pem", tmp_path / "sbom.json"
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    file.write_text("{}")
    assert signing.unsigned(public, file) == ["sbom.json"]
    signing.sign(key, file)
    assert signing.unsigned(public, file) == []
    if kind == "ecdsa":  # as others read it
        raw = tmp_path / "raw"
        decode = ["openssl", "base64", "-d", "-A", "-in", f"{file}.sig", "-out", str(raw)]
        subprocess.run(decode, check=True, timeout=30)
        verify = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", str(raw), str(file)]
        assert b"Verified OK" in subprocess.run(verify, capture_output=True, check=True, timeout=30).stdout
    file.write_text("{ }")
    assert signing.unsigned(public, file) == ["sbom.json"]
