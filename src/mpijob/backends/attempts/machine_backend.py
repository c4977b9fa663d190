"""What the engines have in common whose jobs are processes of this user: on this machine, or on a Slurm cluster.

Their archive, their team's templates and their jobs' files are on file systems of this machine.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpijob.backends import cancellable_sleep
from mpijob.backends.capabilities import (
    CapableBackend,
    SupportsSecretValues,
    SupportsTeamTemplates,
    SupportsWorkingDirectory,
)
from mpijob.backends.outage_tolerance import OutageTolerance
from mpijob.errors import BackendError, Unsupported
from mpijob.settings import history_directory

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.backends.team_templates import TemplateDirectory
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import JobRef, JobState, MPIJob, Page, Scope, Secret
    from mpijob.model.status.mpi_profile import RankProfiles
    from mpijob.model.team_template import TeamTemplate
    from mpijob.settings import Settings


class MachineBackend(CapableBackend, SupportsSecretValues, SupportsTeamTemplates, SupportsWorkingDirectory):
    """The calls that such engines answer in the same way."""

    name: str
    namespace = "default"
    _settings: Settings

    @abstractmethod
    def list(self, scope: Scope) -> Page:
        """Return one page of states, newest first."""

    def _page(self, scope: Scope) -> Page:
        """Return one page of states, as they are looked at again and again."""
        return self.list(scope)

    @abstractmethod
    def _await_change(self, scope: Scope) -> None:
        """Pause until something may have changed."""

    def watch(self, scope: Scope) -> Iterator[JobState]:
        """Yield every job's state once, then each change."""
        seen: dict[str, JobState] = {}
        patience = OutageTolerance()
        while True:
            try:
                page = self._page(scope)
                patience.reset()
            except BackendError as error:
                self.pause(patience.tolerate(error))
                continue
            for state in page.items:
                if seen.get(state.ref.uid) != state:
                    seen[state.ref.uid] = state
                    yield state
            self._await_change(scope)

    @abstractmethod
    def _newest_attempt(self, ref: JobRef) -> tuple[Path, JobState] | None:
        """Return the directory of a job's newest attempt, and the state in it; None where it has no directory."""

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        """Return what the ranks of the newest attempt have counted so far."""
        from mpijob.backends.attempts import mpi_profiles
        from mpijob.model.status.mpi_profile import RankProfiles

        newest = self._newest_attempt(ref)
        return RankProfiles(mpi_profiles.read(*newest, time.time())) if newest else RankProfiles()

    def reconcile(self, state: JobState) -> None:
        """What runs a job sees to its next attempt, too."""

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        """Return the values of a job's secrets, by their sources on this machine."""
        from mpijob.backends.secrets import read_available

        return read_available(secrets)

    def history(self) -> ArchiveReader | None:
        """Return what is remembered of jobs that were deleted."""
        from mpijob.history.archive_reader import open_archive

        return open_archive(history_directory(self._settings, self.name))

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy a file out of the job's working directory to this place."""
        from mpijob.backends.attempts import artifacts

        artifacts.fetch(self.working_directory(ref), path, target)

    def pause(self, seconds: float) -> None:
        """Sleep: this backend's calls block, shortly."""
        cancellable_sleep.sleep(seconds)

    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        """Return the templates that a namespace shares, from the directory that the settings name."""
        return self._templates().all(namespace)

    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        """Write a template into that directory."""
        self._templates().save(template, overwrite=overwrite)

    def delete_team_template(self, namespace: str, name: str) -> None:
        """Remove a template from that directory."""
        self._templates().delete(namespace, name)

    def may_save_team_templates(self, namespace: str) -> bool:
        """Return whether this user may write to that directory."""
        return self._templates().may_save(namespace)

    def _templates(self) -> TemplateDirectory:
        from mpijob.backends.team_templates import TemplateDirectory

        return TemplateDirectory(self._settings.templates)


def login_name() -> str:
    """Return the name of the user who runs this process; the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def current_directory() -> Path:
    """Return the current directory, also one that was deleted meanwhile: then nothing is found in it."""
    from pathlib import Path  # a list needs none: start-up is a feature

    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/proc/self/cwd")


def not_scalable(ref: JobRef, workers: int, place: str) -> Unsupported:
    """Return the error for a job whose world is what it was when it began."""
    return Unsupported(
        f"job '{ref.name}' runs {place}, where jobs cannot be scaled",
        hint=f"mpijob clone {ref.name} --workers {workers} creates one of that size; elastic jobs scale on Kubernetes",
    )


def unused_fields(job: MPIJob, where: str, whose: str) -> Iterator[tuple[str, str]]:
    """Yield what a job asks for that such engines do not have, each field with a sentence for its plan."""
    if job.image:
        yield "image", f"image '{job.image}' is not used here: the command runs {where}"
    if job.network != type(job.network)():
        yield "network", f"network is not used here: ranks share {whose} network"
    if job.elastic is not None:
        yield "elastic", f"elastic is not used here: {job.workers} workers run from the beginning to the end"
