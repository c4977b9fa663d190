"""The name and groups of this user as the cluster knows them, cached for seconds."""

from __future__ import annotations

import time

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.errors import MpiJobError
from mpijob.model import Identity

# A command asks several times; a server that acts for users must notice a new login soon.
_SAME_USER_SECONDS = 5.0
_SOMEBODY = "the user"


class WhoAmI:
    """The user of an API client."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: tuple[float, Identity] | None = None

    def identity(self) -> Identity:
        """Return the user as the cluster identified them, at most 5 s ago."""
        if self._known is None or time.monotonic() - self._known[0] > _SAME_USER_SECONDS:
            self._known = time.monotonic(), self._review()
        return self._known[1]

    def _review(self) -> Identity:
        body = {"apiVersion": resources.SELF_REVIEW.api, "kind": resources.SELF_REVIEW.name}
        with translated("identify the user"):
            review = self._api.create(resources.SELF_REVIEW.path(), body)
        info = (review.get("status") or {}).get("userInfo") or {}
        groups = tuple(info.get("groups") or ())
        return Identity(
            user=info.get("username", ""), groups=groups, administrator="system:masters" in groups
        )

    def name(self) -> str:
        """Return the user's name for notes on jobs."""
        try:
            return self.identity().user or _SOMEBODY
        except MpiJobError:
            # SelfSubjectReview exists since Kubernetes 1.28, and may be forbidden.
            return _SOMEBODY
