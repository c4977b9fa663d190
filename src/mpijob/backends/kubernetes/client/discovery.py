"""The API groups and versions that a cluster serves, read with one request."""

from __future__ import annotations

from mpijob.backends.kubernetes.client.api import Api


def served(api: Api) -> frozenset[str]:
    # /apis lists all groups with their versions; the resources of each group would be a request per group.
    groups = api.get("/apis").get("groups") or ()
    return frozenset(version["groupVersion"] for group in groups for version in group.get("versions") or ())
