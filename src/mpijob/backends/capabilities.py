"""The optional abilities of engines, each a small abstract class that an engine with the ability inherits from.

What every engine can do is in `protocol`. A caller uses `backend.capability(SupportsRates)` and gets an object
with these methods, or None. A wrapper around an engine (audit, history) returns the ability of the engine that
it wraps, audited where `client/audit/verbs.py` requires it. The cluster's API client is in
`kubernetes/capabilities.py`: no other engine may import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.model_registry import Registered
    from mpijob.errors import Finding
    from mpijob.model import Artifact, JobRef, LogQuery, Model, Secret
    from mpijob.model.platform.form_options import Choices, Option
    from mpijob.model.platform.permission import Question
    from mpijob.model.status.job_change import Overseen
    from mpijob.model.status.metric_line import Progress
    from mpijob.model.status.records import NodePlace
    from mpijob.model.team_template import TeamTemplate
    from mpijob.settings import RateSetting


class Capability(ABC):  # noqa: B024 - the root of those that have methods
    """One optional ability; its abstract methods are what a caller may use."""


C = TypeVar("C", bound=Capability)


class CapableBackend:
    """The implementation of `Backend.capability` for engines: an ability is one of their base classes."""

    def capability(self, kind: type[C]) -> C | None:
        # mypy would take the check for always false: this class itself is no capability.
        engine: object = self
        return engine if isinstance(engine, kind) else None


class SupportsAccessReview(Capability):
    """Checks what its user may do."""

    @abstractmethod
    def check_access(self, questions: Sequence[Question]) -> tuple[bool, ...]:
        """Return the answers, in the order of the questions."""


class SupportsArtifactStore(Capability):
    """Uploads what a job wrote to its S3 volumes."""

    @abstractmethod
    def store(self, ref: JobRef) -> tuple[str | Finding, ...]:
        """Upload all of it again; return what was stored and what failed."""


class SupportsClose(Capability):
    """Holds connections or files until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Close them; jobs keep running."""


class SupportsDefaultImage(Capability):
    """Runs jobs in containers, with an image for jobs that set none."""

    @property
    @abstractmethod
    def default_image(self) -> str: ...


class SupportsDoctor(Capability):
    """Examines the machine or cluster where its jobs run."""

    @abstractmethod
    def doctor(self) -> tuple[Finding, ...]:
        """Return whether the engine is ready for jobs, as this user sees it."""


class SupportsFormOptions(Capability):
    """Lists the options of a form for a job."""

    @abstractmethod
    def form_options(self, namespace: str) -> Choices:
        """Return what a namespace offers: queues, storage classes, secrets by name."""


class SupportsMergedLogs(Capability):
    """Writes the logs of a whole job faster than line by line."""

    @abstractmethod
    def merge_logs(self, ref: JobRef, query: LogQuery, target: IO[bytes], *, compress: bool = False) -> bool:
        """Write all lines in time order; return False, with nothing written, if lines must be selected one by one."""


class SupportsModelRegistry(Capability):
    """Registers the model that a job wrote."""

    @abstractmethod
    def register(self, ref: JobRef, model: Model) -> Registered:
        """Register the model; repeating it does no harm."""


class SupportsNodePlaces(Capability):
    """Knows zone and rack of its nodes."""

    @abstractmethod
    def node_places(self, names: Sequence[str]) -> tuple[NodePlace, ...]:
        """Return the places of those nodes that this user may read."""


class SupportsProgress(Capability):
    """Reads the progress of a training from its operator, in addition to the job's log lines."""

    @abstractmethod
    def progress(self, ref: JobRef) -> Progress | None:
        """Return the progress, or None if nothing is reported."""


class SupportsProjects(Capability):
    """Has several namespaces and lists those of a user."""

    @abstractmethod
    def projects(self) -> tuple[Option, ...]:
        """Return the namespaces that this user may list, with their display names."""


class SupportsRates(Capability):
    """Has prices that its administrators set."""

    @abstractmethod
    def rates(self) -> Mapping[str, RateSetting]:
        """Return the prices per hour, by namespace."""


class SupportsRemoteArtifacts(Capability):
    """Has output files that take long to reach, as through a pod; `Backend.artifacts` lists only the others."""

    @abstractmethod
    def list_artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return all output files of the job."""

    @abstractmethod
    def fetch_many(self, ref: JobRef, paths: Sequence[str], directory: Path) -> tuple[str, ...]:
        """Copy files and folders, or everything without paths, below a directory; return the copied files.

        Raise NotFound for a path that is not an output file of the job.
        """


class SupportsSecretValues(Capability):
    """Reads the values of a job's secrets, so that they can be masked."""

    @abstractmethod
    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values that this user may read."""


class SupportsTeamTemplates(Capability):
    """Stores job templates that the users of a namespace share."""

    @abstractmethod
    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates of a namespace by name; raise NotAllowed if this user may not read them."""

    @abstractmethod
    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        """Store a template; raise Conflict if the name exists, NotAllowed if this user may not write."""

    @abstractmethod
    def delete_team_template(self, namespace: str, name: str) -> None:
        """Remove a template; raise NotFound if there is none, NotAllowed if this user may not write."""

    @abstractmethod
    def may_save_team_templates(self, namespace: str) -> bool:
        """Return whether this user may save and delete templates of a namespace."""


class SupportsWatchAll(Capability):
    """Watches all its jobs at once."""

    @abstractmethod
    def watch_all(self, namespace: str) -> Iterator[Overseen]:
        """Yield the state of every job of a namespace (or of all, ""), then each change."""


class SupportsWorkingDirectory(Capability):
    """Runs jobs in a directory of this machine."""

    @abstractmethod
    def working_directory(self, ref: JobRef) -> Path:
        """Return the directory of a job; its files are there while it runs."""
