"""Acting as the owner of a job: what a controller starts for somebody is judged as if they did it themselves.

Who a job's owner is, and in which groups, was written by admission when the job was created, and cannot be changed
since (the policy `mpijob-identity`). The controller holds no right to create jobs of its own: it may impersonate the
owners of jobs that may need a further attempt, and nobody else (`cluster.owners`).
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
    """Return whom to act as for a job; None where that is nobody, or one of the cluster's own components.

    Groups that the API server gives by itself (`system:authenticated`, those of service accounts) are left out.
    """
    user = str((metadata.get("annotations") or {}).get(well_known.OWNER_LABEL) or "")
    if not user or (user.startswith(_SYSTEM) and not user.startswith(_ACCOUNT)):
        return None
    return Impersonation(user, groups=tuple(one for one in _groups(metadata) if not one.startswith(_SYSTEM)))


def _groups(metadata: Mapping[str, Any]) -> list[str]:
    told = str((metadata.get("annotations") or {}).get(well_known.OWNER_GROUPS) or "")
    return [one for one in told.split("\n") if one]


class Owners:
    """Gives a client that acts as the owner of a job."""

    def __init__(self, api: Api) -> None:
        self._api, self._myself = api, WhoAmI(api)

    @contextmanager
    def acting_for(self, job: Mapping[str, Any]) -> Iterator[Api]:
        """Yield a client with the identity of a job's owner; raise NotAllowed where there is none to take on.

        A person who runs a controller for their own jobs needs no other identity than theirs.
        """
        metadata = job["metadata"]
        who = owner(metadata)
        if who is None:
            raise NotAllowed(
                f"{metadata['name']} is not retried: its owner is unknown",
                hint="its owner can start it: mpijob retry; the admission webhook records the owner of new jobs",
            )
        if self._is_a_person() and who.user == identity.owner_of(metadata) == self._myself.name():
            yield self._api
            return
        with Api(msgspec.structs.replace(self._api.access, impersonate=who)) as api:
            yield api

    def _is_a_person(self) -> bool:
        return bool(self._api.access.source)  # a kubeconfig; a pod's service account has none
