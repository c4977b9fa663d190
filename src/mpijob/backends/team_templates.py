"""Templates that a team shares on this machine: job files in a directory that the setting `templates` names.

DIRECTORY/NAMESPACE/NAME.yaml     what one namespace shares
DIRECTORY/NAME.yaml               what all namespaces share (only read here)

Permissions are those of the directory: give it to a group, with the setgid bit. Other users write these files,
so links are not followed, and the size that is read is bounded. Templates of a cluster are objects there
(`kubernetes/actions/team_templates`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mpijob import atomic_write, ownership
from mpijob.backends.common_errors import no_such_template, template_exists
from mpijob.errors import NotAllowed
from mpijob.model.team_template import LARGEST, TeamTemplate

_SUFFIX = ".yaml"
_MAX_TEMPLATES = 1000


class TemplateDirectory:
    """The templates below one directory; "" for none."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory) if directory else None

    def all(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates of a namespace and of all namespaces, by name; raise NotAllowed."""
        if self._root is None:
            return ()
        # The namespace comes last: its template hides one of the same name for all namespaces.
        found = {
            template.name: template
            for directory in (self._root, self._root / namespace)
            for template in _read_directory(directory, namespace)
        }
        return tuple(found[name] for name in sorted(found))

    def save(self, template: TeamTemplate, *, overwrite: bool) -> None:
        path = self._path(template.namespace, template.name)
        if os.path.lexists(path) and not overwrite:
            raise template_exists(template.namespace, template.name)
        with _translate_errors(f"template '{template.name}' cannot be saved in {path.parent}"):
            path.parent.mkdir(mode=0o775, parents=True, exist_ok=True)
            atomic_write.write(path, template.text.encode(), 0o644)

    def delete(self, namespace: str, name: str) -> None:
        path = self._path(namespace, name)
        with _translate_errors(f"template '{name}' cannot be deleted"):
            try:
                path.unlink()
            except FileNotFoundError:
                raise no_such_template(namespace, name) from None

    def may_save(self, namespace: str) -> bool:
        """Return whether this user may write to the namespace's directory, or create it."""
        if self._root is None:
            return False
        directories = (self._root / namespace, self._root)
        existing = next((path for path in directories if path.exists()), self._root.parent)
        return os.access(existing, os.W_OK | os.X_OK)

    def _path(self, namespace: str, name: str) -> Path:
        if self._root is None:
            raise NotAllowed(
                "no directory for shared templates is set", hint="set `templates` or MPIJOB_TEMPLATES"
            )
        return self._root / namespace / f"{name}{_SUFFIX}"


def _read_directory(directory: Path, namespace: str) -> Iterator[TeamTemplate]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_SUFFIX))[:_MAX_TEMPLATES]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise NotAllowed(f"the templates in {directory} cannot be read: {error.strerror}") from error
    for name in names:
        if (template := _read(directory / name, namespace)) is not None:
            yield template


def _read(path: Path, namespace: str) -> TeamTemplate | None:
    """Return a template; None for a file that is not regular or not readable."""
    # Non-blocking, because opening a named pipe would wait for a writer.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        text = file.read(LARGEST + 1)[:LARGEST].decode(errors="replace")
    owner = ownership.name(status.st_uid).removeprefix("user ")
    return TeamTemplate(namespace, path.name.removesuffix(_SUFFIX), text, owner, status.st_mtime)


@contextlib.contextmanager
def _translate_errors(summary: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space" if full else "ask the owner of the directory for write permission"
        raise NotAllowed(f"{summary}: {error.strerror}", hint=hint) from error
