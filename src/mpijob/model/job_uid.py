"""The uid of a cluster job: random, and bound to its namespace and owner, so that nobody else can use it."""

from __future__ import annotations

import hashlib
import hmac
import os

# A uid is no secret: everybody who may list a namespace's objects sees it while the job is still being created. So its
# second half is a hash of the first half, the namespace and the user name, and admission computes it again from the
# authenticated user of each request. Somebody who copies a uid onto another object is refused, however early they are.
# In hexadecimal digits: 64 bits of randomness, 64 bits of proof.
_HALF = 16


def issue(namespace: str, user: str) -> str:
    """Return a new uid for a user's job; without a user (unknown), one without a proof."""
    nonce = os.urandom(_HALF // 2).hex()
    return nonce + (_proof(nonce, namespace, user) if user else "")


def is_bound(uid: str) -> bool:
    """Return whether a uid has a proof; those of earlier releases do not."""
    return len(uid) == 2 * _HALF


def belongs_to(uid: str, namespace: str, user: str) -> bool:
    nonce, proof = uid[:_HALF], uid[_HALF:]
    return (
        is_bound(uid)
        and bool(user)
        and hmac.compare_digest(proof.encode(), _proof(nonce, namespace, user).encode())
    )


def _proof(nonce: str, namespace: str, user: str) -> str:
    text = "\0".join(("mpijob-uid-1", nonce, namespace, user))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HALF]
