"""A manifest as a list of fields, each as large as users think of it: a volume, a variable, a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mpijob.formats.convert.header.units import listed
from mpijob.formats.kubernetes.metadata.well_known import CONTAINER, container_of

_WHOLE = listed(
    "env volumes volumeMounts tolerations imagePullSecrets initContainers ports envFrom topologySpreadConstraints"
)
_BLOCKS = listed(
    "nodeSelector affinity securityContext lifecycle livenessProbe readinessProbe startupProbe dnsConfig"
)
_KEYS = {"env": "name", "volumes": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name"}
_SHOWN = 120


class Leaf(msgspec.Struct, frozen=True):
    """One field: its path and its value."""

    path: str
    value: Any

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].partition("[")[0]

    @property
    def shown(self) -> str:
        """The value as reports show it."""
        if isinstance(self.value, str):
            return self.value
        text = msgspec.json.encode(self.value).decode()
        return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def leaves(value: Any, path: str = "", *, ours: bool = False) -> Iterator[Leaf]:
    """Yield the fields of a document in order; the main container is called `container`.

    In documents of `ours` it is the one with our name; in others the first one may be it.
    """
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _field(value, str(key), item, path, ours)
    else:
        yield Leaf(path, value)


def _field(holder: Mapping[str, Any], key: str, item: Any, path: str, ours: bool) -> Iterator[Leaf]:
    here = f"{path}.{key}" if path else key
    if key == "containers" and isinstance(item, list):
        yield from _containers(holder, item, path, ours)
    elif key in _BLOCKS or (key in _WHOLE and not isinstance(item, list)):
        yield Leaf(here, item)
    elif key in _WHOLE:
        for at, one in enumerate(item):
            label = one.get(_KEYS.get(key, ""), at) if isinstance(one, Mapping) else at
            yield Leaf(f"{here}[{label}]", one)
    elif key in ("replicatedJobs", "runtimePatches") and isinstance(item, list):
        for at, one in enumerate(item):
            label = one.get("name", at) if isinstance(one, Mapping) else at
            # A patch names its containers, but does not decide which one is the main container.
            yield from leaves(one, f"{here}[{label}]", ours=ours or key == "runtimePatches")
    else:
        yield from leaves(item, here, ours=ours)


def _containers(pod: Mapping[str, Any], items: list[Any], path: str, ours: bool) -> Iterator[Leaf]:
    main = container_of(pod) if all(isinstance(item, Mapping) for item in items) and items else None
    if ours and main is not None and main.get("name") != CONTAINER:
        main = None
    for at, one in enumerate(items):
        if main is not None and one is main:
            rest = {key: value for key, value in one.items() if key != "name" or not ours}
            if rest:
                yield from leaves(rest, f"{path}.container" if path else "container", ours=ours)
        else:
            label = one.get("name", at) if isinstance(one, Mapping) else at
            yield Leaf(f"{path}.containers[{label}]", one)


def paths(documents: tuple[Mapping[str, Any], ...], kind: str) -> frozenset[str]:
    return frozenset(
        leaf.path
        for document in documents
        if document.get("kind") == kind
        for leaf in leaves(document, ours=True)
    )
