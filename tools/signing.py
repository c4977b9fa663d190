"""`python -m tools.signing sign KEY FILE…`, `… verify PUBLIC FILE…`: sign what is released, where a key is given.

FILE.sig beside each file holds the signature in base64: ECDSA over SHA-256, as `cosign verify-blob --key PUBLIC
--signature FILE.sig FILE` and openssl read it, or Ed25519. The key is a PEM file that never enters the tree.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519


def sign(key: Path, *files: Path) -> list[Path]:
    """Write the signature of each file beside it, and return where."""
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    written = []
    for file in files:
        if isinstance(private, ec.EllipticCurvePrivateKey):
            signature = private.sign(file.read_bytes(), ec.ECDSA(hashes.SHA256()))
        elif isinstance(private, ed25519.Ed25519PrivateKey):
            signature = private.sign(file.read_bytes())
        else:
            sys.exit(f"{key} is no ECDSA or Ed25519 key")
        target = file.with_name(f"{file.name}.sig")
        target.write_bytes(base64.b64encode(signature) + b"\n")
        written.append(target)
    return written


def unsigned(public: Path, *files: Path) -> list[str]:
    """Return the files whose signature is missing or wrong."""
    key = serialization.load_pem_public_key(public.read_bytes())
    return [file.name for file in files if not _is_signed(key, file)]


def _is_signed(key: object, file: Path) -> bool:
    try:
        signature = base64.b64decode(file.with_name(f"{file.name}.sig").read_bytes(), validate=False)
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, file.read_bytes(), ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, file.read_bytes())
        else:
            return False
    except (FileNotFoundError, InvalidSignature, ValueError):
        return False
    return True


def main(verb: str, key: str, *files: str) -> None:
    """Sign or verify."""
    paths = [Path(one) for one in files]
    if verb == "sign":
        for one in sign(Path(key), *paths):
            sys.stdout.write(f"{one}\n")
    elif wrong := unsigned(Path(key), *paths):
        sys.exit(f"not signed by {key}: {', '.join(wrong)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
