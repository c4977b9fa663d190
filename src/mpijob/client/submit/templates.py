"""Job templates: personal ones, shared ones of a namespace, and built-in ones.

A template is a job file. Personal ones are beside the settings file, readable by their owner only. Shared
ones are stored by the engine: on a cluster in a config map of the namespace, with the user's own permissions;
on one machine in the directory of the setting `templates` (or MPIJOB_TEMPLATES). A personal template hides a
shared one of the same name, and that one hides a built-in one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import atomic_write
from mpijob.backends import code_upload
from mpijob.backends.capabilities import SupportsTeamTemplates
from mpijob.client.submit import resubmit
from mpijob.errors import BackendError, Conflict, InvalidJob, NotAllowed, NotFound, Unsupported
from mpijob.model import MPIJob
from mpijob.model.team_template import LARGEST, TeamTemplate
from mpijob.settings import config_path, load, own_places

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LIBRARY = Path(__file__).parent / "library"
_UNREADABLE = "(cannot be read)"


class Origin(StrEnum):
    """Where a template comes from."""

    OWN = "own"
    SHARED = "shared"
    LIBRARY = "library"


class Template(msgspec.Struct, frozen=True):
    """One line of the list of templates.

    Of a shared one `namespace` shares it, `owner` saved it last, at `changed` (seconds since the epoch);
    `writable` says whether this user may change or delete it.
    """

    name: str
    origin: Origin
    description: str = ""
    namespace: str = ""
    owner: str = ""
    changed: float = 0.0
    writable: bool = False


class TemplateShelf(msgspec.Struct, frozen=True):
    """The templates that a user sees in a namespace; `notice` says why shared ones may be missing."""

    items: tuple[Template, ...]
    may_share: bool = False
    notice: str = ""


class Templates:
    """All templates that a user can see. Methods without a namespace use the client's own."""

    def __init__(
        self,
        own: Path | None,
        team: SupportsTeamTemplates | None = None,
        *,
        namespace: str = "default",
        user: Callable[[], str] | None = None,
    ) -> None:
        """Store personal templates in a directory (None: nowhere), and shared ones in `team`."""
        self._own, self._team, self._namespace, self._user = own, team, namespace, user

    @classmethod
    def of(cls, backend: Backend, namespace: str) -> Templates:
        """Return the templates of a client."""
        place = Path(config_path(os.environ)).parent / "templates"
        team = backend.capability(SupportsTeamTemplates)
        return cls(place, team, namespace=namespace, user=lambda: backend.whoami().user)

    def shared_alone(self) -> Templates:
        """Return the same without personal templates, for users of a server."""
        return Templates(None, self._team, namespace=self._namespace, user=self._user)

    # -- read --------------------------------------------------------------------------------------
    def list(self, namespace: str | None = None) -> tuple[Template, ...]:
        """Return the templates by name, without hidden ones."""
        return self.shelf(namespace).items

    def shelf(self, namespace: str | None = None) -> TemplateShelf:
        """Return the templates by name, whether the user may share templates, and what may be missing."""
        found = {
            name: Template(name, Origin.LIBRARY, _described(_read(path))) for name, path in _files(_LIBRARY)
        }
        where, notice, writable = namespace or self._namespace, "", False
        if self._team is not None:
            try:
                writable = self._team.may_save_team_templates(where)
                found |= {one.name: _shared(one, writable) for one in self._shared(where)}
            except NotAllowed as error:
                notice = error.message
        for name, path in _files(self._own) if self._own is not None else ():
            found[name] = Template(name, Origin.OWN, _described(_read(path)), writable=True)
        return TemplateShelf(tuple(found[name] for name in sorted(found)), writable, notice)

    def show(self, name: str, namespace: str | None = None, *, shared: bool = False) -> MPIJob:
        """Return the job of a template; `shared` selects the shared one, even if a personal one hides it."""
        from mpijob.formats.jobfile import jobfile_reader

        text, source = self._text(_checked(name), namespace or self._namespace, shared=shared)
        return jobfile_reader.read(text, file=source)

    def use(self, name: str, changed: Mapping[str, Any] | None = None, /, **fields: Any) -> MPIJob:
        """Return a template's job with changes, by name (`workers=8`) or path (`{"env.LR": 0.1}`)."""
        return resubmit.apply(self.show(name), {**(changed or {}), **fields})

    def _text(self, name: str, namespace: str, *, shared: bool) -> tuple[bytes, str]:
        own = None if self._own is None or shared else _read(self._own / f"{name}.yaml")
        if own is not None:
            return own, str(self._own)
        for one in self._shared(namespace) if self._team is not None else ():
            if one.name == name:
                return one.text.encode(), f"{namespace}/{name}"
        library = None if shared else _read(_LIBRARY / f"{name}.yaml")
        if library is None:
            raise NotFound(f"there is no template '{name}'", hint="`mpijob template list` shows them")
        return library, f"library/{name}"

    def _shared(self, namespace: str) -> tuple[TeamTemplate, ...]:
        if self._team is None:
            return ()
        return tuple(one for one in self._team.team_templates(namespace) if _NAME.fullmatch(one.name))

    # -- write -------------------------------------------------------------------------------------
    def save(
        self,
        name: str,
        job: MPIJob,
        *,
        overwrite: bool = False,
        share: bool = False,
        namespace: str | None = None,
    ) -> Template:
        """Save a job as a personal template, or with `share` as a shared one.

        Raise Conflict for a name in use, InvalidJob where a shared one would show what looks like a secret.
        """
        from mpijob.formats.jobfile import jobfile_reader

        text = jobfile_reader.write(job)
        if share:
            return self._save_shared(_checked(name), job, text, namespace or self._namespace, overwrite)
        if self._own is None:
            raise Unsupported(
                "own templates are kept on your own machine, not on this server",
                hint="share it with the namespace, or run: mpijob template save NAME --file job.yaml",
            )
        path = self._own / f"{_checked(name)}.yaml"
        if path.exists() and not overwrite:
            raise Conflict(
                f"there is a template '{name}' already", hint="choose another name, or overwrite it"
            )
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write.write(path, text.encode(), 0o600)
        except OSError as error:
            raise _refused(f"template '{name}' cannot be written", error) from error
        return Template(name, Origin.OWN, job.description, writable=True)

    def share(self, name: str, *, overwrite: bool = False, namespace: str | None = None) -> Template:
        """Share a personal template with the namespace; the personal one stays."""
        own = None if self._own is None else _read(self._own / f"{_checked(name)}.yaml")
        if own is None:
            raise NotFound(f"you have no template '{name}'")
        from mpijob.formats.jobfile import jobfile_reader

        job = jobfile_reader.read(own, file=str(self._own))
        return self.save(name, job, overwrite=overwrite, share=True, namespace=namespace)

    def delete(self, name: str, *, shared: bool = False, namespace: str | None = None) -> None:
        """Delete a personal template, or with `shared` a shared one; built-in ones cannot be deleted."""
        own = None if self._own is None else self._own / f"{_checked(name)}.yaml"
        if own is not None and own.is_file() and not shared:
            try:
                own.unlink()
            except OSError as error:
                raise _refused(f"template '{name}' cannot be deleted", error) from error
            return
        where = namespace or self._namespace
        if self._team is not None and any(one.name == _checked(name) for one in self._shared(where)):
            if not shared:
                raise NotAllowed(
                    f"template '{name}' is shared by namespace '{where}'",
                    hint="to select the shared one, add --shared",
                )
            self._team.delete_team_template(where, name)
            return
        if not shared and _read(_LIBRARY / f"{name}.yaml") is not None:
            raise NotAllowed(
                f"template '{name}' belongs to the library", hint="save one of that name to hide it"
            )
        raise NotFound(f"there is no template '{name}'", hint="`mpijob template list` shows them")

    def _save_shared(self, name: str, job: MPIJob, text: str, namespace: str, overwrite: bool) -> Template:
        if self._team is None:
            raise Unsupported("this engine does not support shared templates")
        _refuse_secrets(name, job)
        if len(text.encode()) > LARGEST:
            raise InvalidJob(
                f"template '{name}' is {len(text.encode())} bytes; shared templates can have {LARGEST}"
            )
        made = TeamTemplate(namespace, name, text, self._user() if self._user else "", time.time())
        self._team.save_team_template(made, overwrite=overwrite)
        return Template(
            name, Origin.SHARED, job.description, namespace, made.owner, made.changed, writable=True
        )


def _refuse_secrets(name: str, job: MPIJob) -> None:
    """Refuse to share values that look like secrets with a namespace."""
    from mpijob.observation.redaction import masking

    if hidden := masking.masked_names(job):
        raise InvalidJob(
            f"template '{name}' would expose to the whole namespace the values of {', '.join(hidden)}",
            hint="pass them as secrets: --secret NAME=SECRET/KEY",
        )


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidJob(
            f"{name!r} is not a name for a template", hint="use a-z, 0-9 and -, at most 63 characters"
        )
    return name


def _files(place: Path) -> list[tuple[str, Path]]:
    if not place.is_dir():
        return []
    return [(path.stem, path) for path in sorted(place.glob("*.yaml")) if _NAME.fullmatch(path.stem)]


def _read(path: Path) -> bytes | None:
    """Return the content of a file, None if it does not exist."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refused(f"template '{path.stem}' cannot be read", error) from error


def _shared(one: TeamTemplate, writable: bool) -> Template:
    described = _described(one.text.encode())
    return Template(one.name, Origin.SHARED, described, one.namespace, one.owner, one.changed, writable)


def _described(text: bytes | None) -> str:
    from mpijob.formats.jobfile import jobfile_reader

    try:
        return jobfile_reader.read(text or b"").description
    except InvalidJob:
        return _UNREADABLE


def _refused(what: str, error: OSError) -> NotAllowed:
    return NotAllowed(f"{what}: {error.strerror}", hint=f"check {error.filename}" if error.filename else "")


def beside(job: MPIJob, file: str) -> MPIJob:
    """Return the job with `code` resolved relative to its file."""
    return code_upload.resolve(job, Path(file).parent, own_places(load()))


def load_job(path: str | Path) -> MPIJob:
    """Read a job file; `code` is resolved relative to it."""
    from mpijob.client.submit.validate import read_job

    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise BackendError(f"cannot read {path}: {error.strerror}") from error
    return beside(read_job(text, str(path)), str(path))
