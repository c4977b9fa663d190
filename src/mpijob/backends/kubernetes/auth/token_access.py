"""Whose a token is that somebody shows to one of our services, and what they may read: asked of the API server.

The same questions as kube-rbac-proxy asks: a TokenReview, and a SubjectAccessReview. Answers are believed for a moment;
tokens are neither logged nor kept.
"""

from __future__ import annotations

import threading
import time
from hashlib import sha256

from mpijob.backends.bounded_dict import BoundedDict
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import telling
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import BackendError, MpiJobError
from mpijob.model import Identity

TOKEN_REVIEW = Kind("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False)
SUBJECT_REVIEW = Kind(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
_SAME_USER_SECONDS = 10.0
_MOST_USERS = 1000


class Unauthenticated(BackendError):
    """Nobody stands behind the token."""


class Tokens:
    """Knows who stands behind tokens; safe to use from several threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._users: BoundedDict[bytes, tuple[float, Identity]] = BoundedDict(_MOST_USERS)
        self._lock = threading.Lock()

    def user(self, token: str) -> Identity:
        """Return who stands behind a token, as the cluster knows them or knew them a moment ago."""
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
        with telling("identify the user"):
            status = self._api.create(TOKEN_REVIEW.path(), body).get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            raise Unauthenticated("the cluster rejected this token (401)", hint="log in again")
        return Identity(user=str(user["username"]), groups=tuple(user.get("groups") or ()))

    def may(self, who: Identity, **attributes: dict[str, str]) -> bool:
        """Return whether somebody may do what a review's attributes say."""
        spec = {"user": who.user, "groups": list(who.groups), **attributes}
        body = {"apiVersion": SUBJECT_REVIEW.api, "kind": SUBJECT_REVIEW.name, "spec": spec}
        with telling("check their permissions"):
            made = self._api.create(SUBJECT_REVIEW.path(), body)
        return bool((made.get("status") or {}).get("allowed"))

    def reads(self, path: str, token: str) -> bool:
        """Return whether the holder of a token may read a path of a service; without an answer nobody may."""
        try:
            return bool(token) and self.may(
                self.user(token), nonResourceAttributes={"path": path, "verb": "get"}
            )
        except MpiJobError:
            return False
