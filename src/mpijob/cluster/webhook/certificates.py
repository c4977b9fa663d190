"""Certificates of our services (the webhook's, and those that users talk to): made here, renewed here.

A small authority of our own signs one certificate for the service's names. When the authority is renewed, the
old one stays in the bundle until it expires, so that no moment exists in which its readers trust nobody who
serves. Keeping them (a Secret) and handing out the bundle is the business of `tls_secret`.
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
_EARLIER = timedelta(hours=1)  # clocks of nodes differ


class Keys(NamedTuple):
    """The bundle of authorities (the newest first), the newest one's key, and the pair that is served; all PEM."""

    bundle: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def renewed(names: Iterable[str], before: Keys | None = None, *, now: datetime | None = None) -> Keys:
    """Return keys that are good for a while: what is still fresh stays, what is due is made anew."""
    now = now or datetime.now(UTC)
    kept = _authorities(before, now)
    if before is None or not kept or is_due(kept[0], now):
        key = ec.generate_private_key(ec.SECP256R1())
        kept = [_authority(key, now), *kept]
    else:
        key = _read_key(before.authority_key)
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = _serving(own, key, kept[0], tuple(names), now)
    return Keys(b"".join(_pem(one) for one in kept), _key_pem(key), _pem(certificate), _key_pem(own))


def needs_renewal(keys: Keys, names: Iterable[str], now: datetime | None = None) -> bool:
    """Return whether two thirds of a certificate's life are over, or it is not for these names."""
    now = now or datetime.now(UTC)
    try:
        serving = x509.load_pem_x509_certificate(keys.certificate)
        newest = x509.load_pem_x509_certificates(keys.bundle)[0]
    except (ValueError, IndexError):
        return True
    return is_due(serving, now) or is_due(newest, now) or not set(names) <= _names(serving)


def expiry(keys: Keys) -> datetime:
    """Return until when the served certificate is good."""
    return x509.load_pem_x509_certificate(keys.certificate).not_valid_after_utc


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Return whether two thirds of a certificate's life are over."""
    begun, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begun + (ends - begun) * 2 / 3


def _authorities(before: Keys | None, now: datetime) -> list[x509.Certificate]:
    try:
        known = x509.load_pem_x509_certificates(before.bundle) if before is not None else []
    except ValueError:
        return []
    return [one for one in known if one.not_valid_after_utc > now]


def _names(certificate: x509.Certificate) -> set[str]:
    told = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*told.get_values_for_type(x509.DNSName), *map(str, told.get_values_for_type(x509.IPAddress))}


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    made = _begun(name, name, key.public_key(), now, AUTHORITY_DAYS)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return made.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256())


def _serving(
    own: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: tuple[str, ...],
    now: datetime,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    made = _begun(subject, authority.subject, own.public_key(), now, SERVING_DAYS)
    made = made.add_extension(
        x509.SubjectAlternativeName([_alternative(one) for one in names]), critical=False
    )
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    made = made.add_extension(_usage(signs=False), critical=True)
    return made.sign(authority_key, hashes.SHA256())


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternative(name: str) -> x509.GeneralName:
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
