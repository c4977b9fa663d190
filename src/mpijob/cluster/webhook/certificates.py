"""Create and renew the certificates of our services (the webhook, and services that users connect to).

A small CA of ours signs one certificate for the service's names. When the CA is renewed, the old one stays in
the bundle until it expires, so that readers trust the serving certificate at all times. Storing them (a
Secret) and publishing the bundle is done in `tls_secret`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS, SERVING_DAYS = 730.0, 30.0
_NAME = "mpijob admission"
# Tolerance for clock differences between nodes.
_CLOCK_TOLERANCE = timedelta(hours=1)


class Keys(NamedTuple):
    """The CA bundle (newest first), the newest CA's key, and the serving certificate with its key; all PEM."""

    bundle: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def renew(names: Iterable[str], old_keys: Keys | None = None, *, now: datetime | None = None) -> Keys:
    """Return new keys for the service; the CA stays while it is not due."""
    now = now or datetime.now(UTC)
    authorities = _authorities(old_keys, now)
    if old_keys is None or not authorities or is_due(authorities[0], now):
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authorities = [_authority(authority_key, now), *authorities]
    else:
        authority_key = _read_key(old_keys.authority_key)
    serving_key = ec.generate_private_key(ec.SECP256R1())
    certificate = _serving(serving_key, authority_key, authorities[0], tuple(names), now)
    return Keys(
        b"".join(_pem(authority) for authority in authorities),
        _key_pem(authority_key),
        _pem(certificate),
        _key_pem(serving_key),
    )


def needs_renewal(keys: Keys, names: Iterable[str], now: datetime | None = None) -> bool:
    """Return whether two thirds of a certificate's lifetime are over, or it is not for these names."""
    now = now or datetime.now(UTC)
    try:
        serving = x509.load_pem_x509_certificate(keys.certificate)
        newest = x509.load_pem_x509_certificates(keys.bundle)[0]
    except (ValueError, IndexError):
        return True
    return is_due(serving, now) or is_due(newest, now) or not set(names) <= _names(serving)


def expiry(keys: Keys) -> datetime:
    return x509.load_pem_x509_certificate(keys.certificate).not_valid_after_utc


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether two thirds of a certificate's lifetime are over."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= start + (end - start) * 2 / 3


def _authorities(old_keys: Keys | None, now: datetime) -> list[x509.Certificate]:
    """Return the CA certificates that have not expired, the newest first."""
    try:
        certificates = x509.load_pem_x509_certificates(old_keys.bundle) if old_keys is not None else []
    except ValueError:
        return []
    return [certificate for certificate in certificates if certificate.not_valid_after_utc > now]


def _names(certificate: x509.Certificate) -> set[str]:
    alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {
        *alternative_names.get_values_for_type(x509.DNSName),
        *map(str, alternative_names.get_values_for_type(x509.IPAddress)),
    }


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    builder = _builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(_key_usage(signs=True), critical=True).sign(key, hashes.SHA256())


def _serving(
    serving_key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: tuple[str, ...],
    now: datetime,
) -> x509.Certificate:
    # A common name has at most 64 characters (RFC 5280); clients check the alternative names.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = _builder(subject, authority.subject, serving_key.public_key(), now, SERVING_DAYS)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
    )
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(_key_usage(signs=False), critical=True)
    return builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_TOLERANCE)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _read_key(text: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
