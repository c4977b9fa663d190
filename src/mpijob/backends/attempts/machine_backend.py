"""What the engines share whose jobs are processes of this user: on this machine, or on a Slurm cluster.

Their archive, their shared templates and their jobs' files are on file systems of this machine.
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


# Most imports are within the methods: `mpijob list` loads this module and must start quickly.
class MachineBackend(CapableBackend, SupportsSecretValues, SupportsTeamTemplates, SupportsWorkingDirectory):
    """The methods of `Backend` that such engines implement in the same way."""

    name: str
    namespace = "default"
    _settings: Settings

    @abstractmethod
    def list(self, scope: Scope) -> Page: ...

    def _page(self, scope: Scope) -> Page:
        """Return one page of states for `watch`; an engine may answer from a cache."""
        return self.list(scope)

    @abstractmethod
    def _await_change(self, scope: Scope) -> None:
        """Sleep until something may have changed."""

    def watch(self, scope: Scope) -> Iterator[JobState]:
        states: dict[str, JobState] = {}
        outage = OutageTolerance()
        while True:
            try:
                page = self._page(scope)
                outage.reset()
            except BackendError as error:
                self.pause(outage.tolerate(error))
                continue
            for state in page.items:
                if states.get(state.ref.uid) != state:
                    states[state.ref.uid] = state
                    yield state
            self._await_change(scope)

    @abstractmethod
    def _newest_attempt(self, ref: JobRef) -> tuple[Path, JobState] | None:
        """Return the directory of a job's newest attempt and its state; None if it has no directory."""

    def mpi_profile(self, ref: JobRef) -> RankProfiles:
        from mpijob.backends.attempts import mpi_profiles
        from mpijob.model.status.mpi_profile import RankProfiles

        newest = self._newest_attempt(ref)
        return RankProfiles(mpi_profiles.read(*newest, time.time())) if newest else RankProfiles()

    def reconcile(self, state: JobState) -> None:
        """Do nothing: the job's supervisor or batch script starts its next attempt."""

    def secret_values(self, ref: JobRef, secrets: tuple[Secret, ...]) -> tuple[str, ...]:
        from mpijob.backends.secrets import read_available

        return read_available(secrets)

    def history(self) -> ArchiveReader | None:
        from mpijob.history.archive_reader import open_archive

        return open_archive(history_directory(self._settings, self.name))

    def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        from mpijob.backends.attempts import artifacts

        artifacts.fetch(self.working_directory(ref), path, target)

    def pause(self, seconds: float) -> None:
        cancellable_sleep.sleep(seconds)

    def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
        return self._templates().all(namespace)

    def save_team_template(self, template: TeamTemplate, *, overwrite: bool) -> None:
        self._templates().save(template, overwrite=overwrite)

    def delete_team_template(self, namespace: str, name: str) -> None:
        self._templates().delete(namespace, name)

    def may_save_team_templates(self, namespace: str) -> bool:
        return self._templates().may_save(namespace)

    def _templates(self) -> TemplateDirectory:
        from mpijob.backends.team_templates import TemplateDirectory

        return TemplateDirectory(self._settings.templates)


def login_name() -> str:
    """Return the name of the user who runs this process; the number of a user without a name."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def current_directory() -> Path:
    """Return the current directory; if it was deleted, a path in which nothing is found."""
    from pathlib import Path

    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/proc/self/cwd")


def not_scalable(ref: JobRef, workers: int, location: str) -> Unsupported:
    return Unsupported(
        f"job '{ref.name}' runs {location}, where jobs cannot be scaled",
        hint=f"mpijob clone {ref.name} --workers {workers} creates one of that size; elastic jobs scale on Kubernetes",
    )


def unused_fields(job: MPIJob, where: str, whose: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a job that such engines do not use, each with a message for its plan."""
    if job.image:
        yield "image", f"image '{job.image}' is not used here: the command runs {where}"
    if job.network != type(job.network)():
        yield "network", f"network is not used here: ranks share {whose} network"
    if job.elastic is not None:
        yield "elastic", f"elastic is not used here: {job.workers} workers run from the beginning to the end"
