"""Identifies the users behind tokens, and checks what they may read, for our services in the cluster.

Like kube-rbac-proxy: a TokenReview and a SubjectAccessReview. Results are cached for seconds; tokens are
neither logged nor stored.
"""

from __future__ import annotations

import threading
import time
from hashlib import sha256

from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import BackendError, MpiJobError
from mpijob.model import Identity

TOKEN_REVIEW = Kind("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False)
SUBJECT_REVIEW = Kind(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
# How long a deleted token still works here; a scrape or a page sends many requests with one token.
_SAME_USER_SECONDS = 10.0
_MOST_USERS = 1000


class Unauthenticated(BackendError):
    """The cluster rejected the token."""


class Tokens:
    """Identifies users by their tokens; safe to use from several threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._users: BoundedDict[bytes, tuple[float, Identity]] = BoundedDict(_MOST_USERS)
        self._lock = threading.Lock()

    def user(self, token: str) -> Identity:
        """Return the user of a token, as identified at most 10 s ago; raise Unauthenticated."""
        # Hashed: the cache must not contain tokens.
        key, now = sha256(token.encode(errors="surrogateescape")).digest(), time.monotonic()
        with self._lock:
            when, known = self._users.get(key, (0.0, None))
        if known is not None and now - when < _SAME_USER_SECONDS:
            return known
        found = self._review(token)
        with self._lock:
            self._users[key] = now, found
        return found

    def _review(self, token: str) -> Identity:
        body = {"apiVersion": TOKEN_REVIEW.api, "kind": TOKEN_REVIEW.name, "spec": {"token": token}}
        with translated("identify the user"):
            status = self._api.create(TOKEN_REVIEW.path(), body).get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            raise Unauthenticated("the cluster rejected this token (401)", hint="log in again")
        return Identity(user=str(user["username"]), groups=tuple(user.get("groups") or ()))

    def may(self, who: Identity, **attributes: dict[str, str]) -> bool:
        """Return whether a user has the permission in the attributes of a SubjectAccessReview."""
        spec = {"user": who.user, "groups": list(who.groups), **attributes}
        body = {"apiVersion": SUBJECT_REVIEW.api, "kind": SUBJECT_REVIEW.name, "spec": spec}
        with translated("check their permissions"):
            review = self._api.create(SUBJECT_REVIEW.path(), body)
        return bool((review.get("status") or {}).get("allowed"))

    def reads(self, path: str, token: str) -> bool:
        """Return whether the holder of a token may GET a path (nonResourceURLs); False also if the cluster
        does not respond.
        """
        try:
            return bool(token) and self.may(
                self.user(token), nonResourceAttributes={"path": path, "verb": "get"}
            )
        except MpiJobError:
            return False
