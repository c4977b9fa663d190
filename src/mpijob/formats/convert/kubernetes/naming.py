"""The name of a manifest's job, also for `generateName`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpijob.errors import InvalidJob
from mpijob.formats.convert.report import Notes

FIELD = "metadata.generateName"


def named(document: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the document with a name; one from `generateName` is reported."""
    metadata = dict(document.get("metadata") or {})
    prefix = str(metadata.pop("generateName", None) or "")
    if not metadata.get("name"):
        name = prefix.rstrip("-.")
        if not name:
            raise InvalidJob(f"the {document.get('kind')} has no name", hint="set metadata.name")
        metadata = {"name": name} | metadata
        note = "Kubernetes generates a new name at every create; in mpijob the name is fixed"
        notes.changed(FIELD, prefix, f"name: {name}", note, "nothing, or set another name for the next run")
    elif prefix:
        notes.dropped(
            FIELD, prefix, "the name is set, so Kubernetes ignores it", "nothing; you can remove it"
        )
    return dict(document) | {"metadata": metadata}
