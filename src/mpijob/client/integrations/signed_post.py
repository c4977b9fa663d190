"""One POST to an address that somebody wrote down: only to where it may go, signed, without following redirects.

Where it may go is `outbound`'s policy: a name is resolved once, every address of it must be public, and the connection
goes to an address that was checked.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import urlsplit

from mpijob.errors import BackendError, InvalidJob
from mpijob.outbound import guard, http
from mpijob.outbound.policy import ANYWHERE, PUBLIC, is_public

__all__ = ["DELIVERY", "SIGNATURE", "is_public", "post", "resolved", "signature", "verified"]

SIGNATURE, DELIVERY = "X-MPIJob-Signature", "X-MPIJob-Delivery"
_SECONDS = 10.0
_PRIVATE = "an administrator may set allow_private for a callback to an address of their own"


def signature(secret: bytes, moment: int, body: bytes) -> str:
    """Return the signature of a body at a moment, as `t=…,v1=…`; the moment is signed too, against replays."""
    return f"t={moment},v1={hmac.new(secret, f'{moment}.'.encode() + body, hashlib.sha256).hexdigest()}"


def verified(secret: bytes, header: str, body: bytes, now: float, tolerance_seconds: float = 300.0) -> bool:
    """Return whether a signature is right and young: for receivers."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    if not parts.get("t", "").isdecimal() or abs(now - int(parts["t"])) > tolerance_seconds:
        return False
    return hmac.compare_digest(signature(secret, int(parts["t"]), body), header)


def post(url: str, body: bytes, headers: dict[str, str], *, allow_private: bool = False) -> int:
    """Send a body and return the status; raise InvalidJob for an address that may not be called."""
    try:
        parts, _ = urlsplit(url), urlsplit(url).port  # a port that cannot be one raises
    except ValueError as error:
        raise InvalidJob(f"{url!r} is no address: {error}", hint="write https://HOST/PATH") from error
    _refuse(url, parts, allow_private)
    sent = {"content-type": "application/json", "user-agent": "mpijob", **headers}
    policy = ANYWHERE if allow_private else PUBLIC
    try:
        return http.request("POST", url, body, sent, seconds=_SECONDS, most_bytes=0, policy=policy).status
    except guard.Forbidden as error:
        raise InvalidJob(error.why, hint=_PRIVATE) from error
    except (OSError, ValueError) as error:
        raise BackendError(f"{parts.scheme}://{parts.netloc} did not take a callback: {error}") from error


def _refuse(url: str, parts: Any, allow_private: bool) -> None:
    if parts.scheme not in ("https", *(("http",) if allow_private else ())) or not parts.hostname:
        raise InvalidJob(
            f"{url!r} may not be called",
            hint="write https://…; http only with allow_private, for addresses of your own",
        )
    if parts.username or parts.password:
        raise InvalidJob(
            f"{parts.hostname}: names and passwords do not belong into an address", hint="use secret_file"
        )


def resolved(host: str, port: int, *, allow_private: bool = False) -> str:
    """Return the address of a host; refuse one of which any address is not public."""
    try:
        found = guard.resolved(host, port)
    except OSError as error:
        raise BackendError(f"{host} is not known: {error}") from error
    if refused := guard.refused(ANYWHERE if allow_private else PUBLIC, host, port, found):
        raise InvalidJob(f"{host} is at {refused}, which is no public address", hint=_PRIVATE)
    return str(found[0][4][0])
