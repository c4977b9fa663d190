"""Who this user is, as the cluster knows them: asked of the API server, and believed for a moment."""

from __future__ import annotations

import time

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.client.api_errors import telling
from mpijob.errors import MpiJobError
from mpijob.model import Identity

_SAME_USER_SECONDS = 5.0
_SOMEBODY = "the user"


class WhoAmI:
    """The user of one API client."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: tuple[float, Identity] | None = None

    def identity(self) -> Identity:
        """Return the user as the cluster knows them, or knew them a moment ago."""
        if self._known is None or time.monotonic() - self._known[0] > _SAME_USER_SECONDS:
            self._known = time.monotonic(), self._asked()
        return self._known[1]

    def _asked(self) -> Identity:
        """Return the user as the cluster knows them now."""
        body = {"apiVersion": resources.SELF_REVIEW.api, "kind": resources.SELF_REVIEW.name}
        with telling("identify the user"):
            review = self._api.create(resources.SELF_REVIEW.path(), body)
        info = (review.get("status") or {}).get("userInfo") or {}
        groups = tuple(info.get("groups") or ())
        return Identity(
            user=info.get("username", ""), groups=groups, administrator="system:masters" in groups
        )

    def name(self) -> str:
        """Return whose will something is, for the note of it on the job."""
        try:
            return self.identity().user or _SOMEBODY
        except MpiJobError:  # a cluster that does not tell users who they are
            return _SOMEBODY
