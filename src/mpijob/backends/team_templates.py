"""Templates that a team shares on this machine: job files in a directory that the setting `templates` names.

DIRECTORY/NAMESPACE/NAME.yaml     what one namespace shares
DIRECTORY/NAME.yaml               what all namespaces share (only read here)

Who may read and write them is what the directory says: give it to a group, with the setgid bit. Others write these
files, so links are not followed and only so much of a file is read.
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

_ENDING = ".yaml"
_MOST = 1000


class TemplateDirectory:
    """The templates below one directory; "" for none."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory) if directory else None

    def all(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates of a namespace, and those of all namespaces that it does not hide, by name."""
        if self._root is None:
            return ()
        found = {
            one.name: one
            for place in (self._root, self._root / namespace)
            for one in _within(place, namespace)
        }
        return tuple(found[name] for name in sorted(found))

    def save(self, template: TeamTemplate, *, overwrite: bool) -> None:
        """Write a template."""
        path = self._path(template.namespace, template.name)
        if os.path.lexists(path) and not overwrite:
            raise template_exists(template.namespace, template.name)
        with _told(f"template '{template.name}' cannot be saved in {path.parent}"):
            path.parent.mkdir(mode=0o775, parents=True, exist_ok=True)
            atomic_write.write(path, template.text.encode(), 0o644)

    def delete(self, namespace: str, name: str) -> None:
        """Remove a template."""
        path = self._path(namespace, name)
        with _told(f"template '{name}' cannot be deleted"):
            try:
                path.unlink()
            except FileNotFoundError:
                raise no_such_template(namespace, name) from None

    def may_save(self, namespace: str) -> bool:
        """Return whether this user may write there, or make the directory."""
        if self._root is None:
            return False
        there = next((one for one in (self._root / namespace, self._root) if one.exists()), self._root.parent)
        return os.access(there, os.W_OK | os.X_OK)

    def _path(self, namespace: str, name: str) -> Path:
        if self._root is None:
            raise NotAllowed(
                "no directory for shared templates is set", hint="set `templates` or MPIJOB_TEMPLATES"
            )
        return self._root / namespace / f"{name}{_ENDING}"


def _within(place: Path, namespace: str) -> Iterator[TeamTemplate]:
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_ENDING))[:_MOST]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise NotAllowed(f"the templates in {place} cannot be read: {error.strerror}") from error
    for file in names:
        if (found := _read(place / file, namespace)) is not None:
            yield found


def _read(path: Path, namespace: str) -> TeamTemplate | None:
    """Return a template; None for what is no plain file, or may not be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        text = file.read(LARGEST + 1)[:LARGEST].decode(errors="replace")
    owner = ownership.name(about.st_uid).removeprefix("user ")
    return TeamTemplate(namespace, path.name.removesuffix(_ENDING), text, owner, about.st_mtime)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space" if full else "ask the owner of the directory for write permission"
        raise NotAllowed(f"{what}: {error.strerror}", hint=hint) from error
