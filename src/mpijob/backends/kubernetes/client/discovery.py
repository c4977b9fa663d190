"""Which APIs a cluster serves, asked once, in one round of the groups' own list."""

from __future__ import annotations

from mpijob.backends.kubernetes.client.api import Api


def served(api: Api) -> frozenset[str]:
    """Return every `group/version` that the API server has."""
    groups = api.get("/apis").get("groups") or ()
    return frozenset(version["groupVersion"] for group in groups for version in group.get("versions") or ())
