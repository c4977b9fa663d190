"""The choices of a form for a namespace: projects with display names, queues, claims, data connections.

Everything is read as the user. Of Secrets only the metadata is read, never the contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api import METADATA
from mpijob.model.platform.form_options import Choices, Option

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api, Listing
    from mpijob.formats.kubernetes.metadata.well_known import Document

_DISPLAY = "openshift.io/display-name"
_CONNECTION = "opendatahub.io/connection-type"
_OFFERED = "opendatahub.io/dashboard=true"
_NAMES = {
    "projects": "projects",
    "queues": "queues",
    "priorities": "priority classes",
    "claims": "volume claims",
    "connections": "data connections",
}


def projects(api: Api, served: frozenset[str]) -> tuple[Option, ...]:
    """Return the projects that this user may list, with their display names; raise ApiError."""
    return _options(_list_projects(api, served).items, _project)


def _list_projects(api: Api, served: frozenset[str]) -> Listing:
    # On OpenShift, users may list their projects, but not namespaces.
    kind = resources.PROJECT if resources.PROJECT.api in served else resources.NAMESPACE
    return api.list(kind.path(), accept=METADATA)


def read_choices(api: Api, namespace: str, served: frozenset[str]) -> Choices:
    """Return what a namespace offers to this user."""
    calls = {
        "projects": lambda: _list_projects(api, served),
        "priorities": lambda: api.list(resources.PRIORITY_CLASS.path(), accept=METADATA),
        "claims": lambda: api.list(resources.CLAIM.path(namespace)),
        "connections": lambda: api.list(resources.SECRET.path(namespace), labels=_OFFERED, accept=METADATA),
    }
    if resources.KUEUE_API in served:
        calls["queues"] = lambda: api.list(resources.LOCAL_QUEUE.path(namespace))
    found = concurrent.together(calls)
    return Choices(
        namespace=namespace,
        projects=_options(found["projects"].items, _project) or (Option(namespace),),
        queues=_options(found["queues"].items, _queue),
        priorities=_options(
            [item for item in found["priorities"].items if not _is_system(item)], lambda item: ""
        ),
        claims=_options(found["claims"].items, _claim),
        connections=_options(
            [item for item in found["connections"].items if _CONNECTION in _annotations(item)], _connection
        ),
        unread=tuple(_NAMES[key] for key, result in found.items() if result.refused),
    )


def _options(items: list[Document], text: object) -> tuple[Option, ...]:
    assert callable(text)
    return tuple(
        sorted(
            (Option(item["metadata"]["name"], text(item)) for item in items), key=lambda option: option.name
        )
    )


def _annotations(item: Document) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def _project(item: Document) -> str:
    return _annotations(item).get(_DISPLAY, "")


def _queue(item: Document) -> str:
    status = item.get("status") or {}
    return f"{status.get('pendingWorkloads') or 0} waiting, {status.get('admittedWorkloads') or 0} admitted"


def _claim(item: Document) -> str:
    modes = ", ".join((item.get("spec") or {}).get("accessModes") or ())
    size = ((item.get("status") or {}).get("capacity") or {}).get("storage", "")
    return " ".join(part for part in (_annotations(item).get(_DISPLAY, ""), size, modes) if part)


def _connection(item: Document) -> str:
    annotations = _annotations(item)
    return " ".join(part for part in (annotations.get(_DISPLAY, ""), f"({annotations[_CONNECTION]})") if part)


def _is_system(item: Document) -> bool:
    return str(item["metadata"]["name"]).startswith("system-")
