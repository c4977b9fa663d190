"""Templates that a namespace shares: keys of one ConfigMap, read and written with the user's own token.

It is one object with a fixed name, so that a role can allow exactly it: `get` on the config map
`mpijob-templates` reads the templates, `patch` saves and deletes them (the first one needs `create` on config
maps, like jobs with files).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.backends.common_errors import no_such_template, template_exists
from mpijob.backends.kubernetes.auth import delegated
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError, translated
from mpijob.errors import InvalidJob, NotAllowed
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model.platform.permission import Question
from mpijob.model.team_template import TeamTemplate

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api

NAME = "mpijob-templates"
_SUFFIX = ".yaml"
# The annotation with who saved a template last, and when.
_NOTE = f"template.{well_known.DOMAIN}/"
# Of all templates of a namespace: a config map holds 1 MiB.
_MAX_BYTES = 900_000


class _Saved(msgspec.Struct, frozen=True):
    """Who saved a template, and when."""

    owner: str = ""
    changed: float = 0.0


class SharedTemplates:
    """The templates of namespaces, as one user may read and write them."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def all(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates of a namespace by name; raise NotAllowed."""
        found = self._read(namespace)
        if found is None:
            return ()
        notes = found["metadata"].get("annotations") or {}
        return tuple(
            _template(namespace, key, str(text), notes)
            for key, text in sorted((found.get("data") or {}).items())
            if key.endswith(_SUFFIX)
        )

    def save(self, template: TeamTemplate, *, overwrite: bool) -> None:
        """Save a template; a merge patch of one key, so that users can save different ones at once."""
        existing = self._read(template.namespace)
        key = template.name + _SUFFIX
        known = (existing or {}).get("data") or {}
        if key in known and not overwrite:
            raise template_exists(template.namespace, template.name)
        _refuse_full(template, known)
        saved = msgspec.json.encode(_Saved(template.owner, round(time.time(), 3))).decode()
        change: Document = {
            "metadata": {"annotations": {_NOTE + template.name: saved}},
            "data": {key: template.text},
        }
        with translated(f"save template {template.name}"):
            if existing is None and self._create(template.namespace, change):
                return
            self._api.patch(resources.CONFIG_MAP.path(template.namespace, NAME), change)

    def _create(self, namespace: str, change: Document) -> bool:
        """Create the config map with its first template; False if another client was faster."""
        labels = {well_known.MANAGED_LABEL: well_known.MANAGED_BY}
        metadata = {"name": NAME, "namespace": namespace, "labels": labels, **change["metadata"]}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": change["data"]}
        try:
            self._api.create(resources.CONFIG_MAP.path(namespace), body)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    def delete(self, namespace: str, name: str) -> None:
        existing = self._read(namespace)
        if existing is None or name + _SUFFIX not in (existing.get("data") or {}):
            raise no_such_template(namespace, name)
        change = {"metadata": {"annotations": {_NOTE + name: None}}, "data": {name + _SUFFIX: None}}
        with translated(f"delete template {name}"):
            self._api.patch(resources.CONFIG_MAP.path(namespace, NAME), change)

    def may_save(self, namespace: str) -> bool:
        with translated("check your permissions"):
            return delegated.check_access(self._api, (Question("patch", "configmaps", namespace, NAME),))[0]

    def _read(self, namespace: str) -> Document | None:
        try:
            return self._api.find(resources.CONFIG_MAP.path(namespace, NAME))
        except ApiError as error:
            if error.status != 403:
                with translated("read the templates"):
                    raise
            raise NotAllowed(
                f"you may not read the templates of namespace '{namespace}'",
                hint=f"ask for `get` on the config map {NAME}; the role mpijob-viewer has it",
            ) from error


def _template(namespace: str, key: str, text: str, notes: Mapping[str, Any]) -> TeamTemplate:
    name = key.removesuffix(_SUFFIX)
    try:
        saved = codec.decode(str(notes.get(_NOTE + name, "{}")), _Saved)
    except (msgspec.ValidationError, msgspec.DecodeError):
        # A user has edited the annotation.
        saved = _Saved()
    return TeamTemplate(namespace, name, text, saved.owner, saved.changed)


def _refuse_full(template: TeamTemplate, known: Mapping[str, str]) -> None:
    others = sum(len(text.encode()) for key, text in known.items() if key != template.name + _SUFFIX)
    if others + len(template.text.encode()) > _MAX_BYTES:
        raise InvalidJob(
            f"the templates of namespace '{template.namespace}' would exceed {_MAX_BYTES} bytes in total",
            hint="delete templates that you no longer need, or move long scripts into uploaded files (code.path)",
        )
