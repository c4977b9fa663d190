"""Acts as the owner of a job, so that what the controller starts is checked as if the owner had started it.

Admission writes a job's owner and groups when the job is created, and they cannot be changed since (policy
`mpijob-identity`). The controller may not create jobs itself: it may impersonate the owners of jobs that may
need a further attempt, and no other user (`cluster.owners`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from mpijob.backends.kubernetes.auth.access import Impersonation
from mpijob.backends.kubernetes.auth.whoami import WhoAmI
from mpijob.backends.kubernetes.client.api import Api
from mpijob.errors import NotAllowed
from mpijob.formats.kubernetes.metadata import identity, well_known

_ACCOUNT = "system:serviceaccount:"
_SYSTEM = "system:"


def owner(metadata: Mapping[str, Any]) -> Impersonation | None:
    """Return the user to act as for a job; None without one, or for a component of the cluster."""
    user = str((metadata.get("annotations") or {}).get(well_known.OWNER_LABEL) or "")
    if not user or (user.startswith(_SYSTEM) and not user.startswith(_ACCOUNT)):
        return None
    # The API server adds `system:authenticated` and the groups of service accounts itself.
    return Impersonation(
        user, groups=tuple(group for group in _groups(metadata) if not group.startswith(_SYSTEM))
    )


def _groups(metadata: Mapping[str, Any]) -> list[str]:
    groups = str((metadata.get("annotations") or {}).get(well_known.OWNER_GROUPS) or "")
    return [group for group in groups.split("\n") if group]


class Owners:
    """Provides clients that act as the owner of a job."""

    def __init__(self, api: Api) -> None:
        self._api, self._myself = api, WhoAmI(api)

    @contextmanager
    def acting_for(self, job: Mapping[str, Any]) -> Iterator[Api]:
        """Yield a client with the identity of a job's owner; raise NotAllowed if the owner is unknown."""
        metadata = job["metadata"]
        who = owner(metadata)
        if who is None:
            raise NotAllowed(
                f"{metadata['name']} is not retried: its owner is unknown",
                hint="its owner can start it: mpijob retry; the admission webhook records the owner of new jobs",
            )
        # A user who runs a controller for their own jobs needs no right to impersonate.
        if self._is_a_user() and who.user == identity.owner_of(metadata) == self._myself.name():
            yield self._api
            return
        with Api(msgspec.structs.replace(self._api.access, impersonate=who)) as api:
            yield api

    def _is_a_user(self) -> bool:
        # A kubeconfig was used; a pod's service account has none.
        return bool(self._api.access.source)
