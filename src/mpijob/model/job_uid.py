"""The uid of a cluster job: random, and bound to its namespace and owner, so that nobody else can claim it.

Anybody who may list a namespace's objects sees a job's uid while the job is still being created. A uid is
therefore no secret and no "first come, first served": its second half is a hash of the first half, the namespace
and the user name, and admission recomputes it from the authenticated user of each request. Whoever copies a uid
onto an object of their own is refused, however early they are.
"""

from __future__ import annotations

import hashlib
import hmac
import os

# Hexadecimal digits: 64 bits of randomness, 64 bits of proof.
_HALF = 16


def issue(namespace: str, user: str) -> str:
    """Return a new uid for a job of this user in this namespace; of a user whom nobody knows, one without a proof."""
    nonce = os.urandom(_HALF // 2).hex()
    return nonce + (_proof(nonce, namespace, user) if user else "")


def is_bound(uid: str) -> bool:
    """Return whether a uid says for whom it was issued; those of earlier releases do not."""
    return len(uid) == 2 * _HALF


def belongs_to(uid: str, namespace: str, user: str) -> bool:
    """Return whether a uid was issued for this user in this namespace."""
    nonce, proof = uid[:_HALF], uid[_HALF:]
    return (
        is_bound(uid)
        and bool(user)
        and hmac.compare_digest(proof.encode(), _proof(nonce, namespace, user).encode())
    )


def _proof(nonce: str, namespace: str, user: str) -> str:
    text = "\0".join(("mpijob-uid-1", nonce, namespace, user))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HALF]
