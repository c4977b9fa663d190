"""The verbs that only look: get, list, watch, wait, logs, events, metrics, why, compare, export."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Unpack

from mpijob.client.base import BaseClient, log_query
from mpijob.client.observe import logs, wait

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.client.base import Format, LogOptions, Target
    from mpijob.client.job import Job
    from mpijob.client.observe.compare import Comparison
    from mpijob.diagnosis.report import Diagnosis
    from mpijob.errors import Finding
    from mpijob.history.records import Record
    from mpijob.model import (
        Artifact,
        Event,
        Facts,
        Identity,
        JobRef,
        JobState,
        LogLine,
        MPIJob,
        Page,
        Phase,
        Sample,
    )


@contextmanager
def _goes_on(ref: JobRef) -> Iterator[None]:
    """Let an interrupted caller know that the job goes on, and how it is ended."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(wait.goes_on(ref))
        raise


class Reading(BaseClient):
    """The half of the client that changes nothing."""

    def get(self, name: Target, namespace: str | None = None) -> Job:
        """Return the newest job of that name; raise NotFound."""
        return self._job(self.ref(name, namespace))

    def state(self, name: Target, namespace: str | None = None) -> JobState:
        """Return where the job stands now."""
        return self._records.get(self.ref(name, namespace))

    def spec(self, name: Target, namespace: str | None = None) -> MPIJob:
        """Return what was asked for."""
        return self._records.spec(self.ref(name, namespace))

    def whoami(self) -> Identity:
        """Return the user as the engine knows them."""
        return self.backend.whoami()

    def facts(self, job: MPIJob | None = None) -> Facts:
        """Return what the place has, what is free and what the namespace may use."""
        who = self.backend.whoami()
        from mpijob.model import MPIJob  # a list needs none: start-up is a feature

        about = MPIJob(name="facts", namespace=self.namespace) if job is None else self.localized(job)
        return self.backend.preflight(about, who).facts

    def artifacts(self, name: Target, *, namespace: str | None = None) -> tuple[Artifact, ...]:
        """Return the files that the job left."""
        return self.backend.artifacts(self.ref(name, namespace))

    def fetch(
        self,
        name: Target,
        directory: str | Path,
        paths: Iterable[str] = (),
        *,
        overwrite: bool = False,
        namespace: str | None = None,
    ) -> tuple[Path, ...]:
        """Copy files that the job left into a directory, all of them by default; return where they are now.

        Raise Conflict, and write nothing, where the directory has other files of these names, unless told to overwrite.
        """
        from mpijob.client.observe import artifacts

        ref = self.ref(name, namespace)
        return artifacts.fetch(self._audited, ref, directory, tuple(paths), overwrite=overwrite)

    def fetch_file(self, name: Target, path: str, target: Path) -> None:
        """Copy one file that the job left to a path, which may be a pipe."""
        self._audited.fetch(self.ref(name), path, target)

    def list(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        owner: str = "",
        queue: str = "",
        text: str = "",
        limit: int = 100,
        after: str = "",
    ) -> Page:
        """Return one page of jobs, newest first; `page.after` asks for the next one."""
        scope = self.scope(
            namespace=namespace,
            all_namespaces=all_namespaces,
            selector=selector,
            phases=phases,
            owner=owner,
            queue=queue,
            text=text,
            limit=limit,
            after=after,
        )
        return self.backend.list(scope)

    def jobs(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        owner: str = "",
        queue: str = "",
        text: str = "",
    ) -> Iterator[JobState]:
        """Yield the jobs of all pages, newest first."""
        from mpijob.client import paging

        scope = self.scope(
            namespace=namespace,
            all_namespaces=all_namespaces,
            selector=selector,
            phases=phases,
            owner=owner,
            queue=queue,
            text=text,
        )
        return paging.pages(scope, self.backend)

    def watch(
        self,
        *,
        names: Iterable[str] = (),
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        phases: Iterable[Phase | str] = (),
        owner: str = "",
        queue: str = "",
    ) -> Iterator[JobState]:
        """Yield every job's state once, then each change, until the caller stops."""
        scope = self.scope(
            names=names,
            namespace=namespace,
            all_namespaces=all_namespaces,
            selector=selector,
            phases=phases,
            owner=owner,
            queue=queue,
        )
        return self.backend.watch(scope)

    def wait(
        self,
        name: Target,
        timeout: float | None = None,
        for_phases: Collection[Phase] | None = None,
        *,
        namespace: str | None = None,
    ) -> JobState:
        """Return the state once the job is in one of the phases; without any, once it has ended.

        Raise WaitTimeout when time is up, JobFailed when the job ended otherwise than wanted.
        """
        ref = self.ref(name, namespace)
        with _goes_on(ref):
            return wait.wait(ref, self._audited, seconds=timeout, phases=for_phases)

    def wait_for_completion(
        self, name: Target, timeout: float | None = None, *, namespace: str | None = None
    ) -> JobState:
        """Return the state once the job has succeeded; raise JobFailed with the findings, or WaitTimeout."""
        ref = self.ref(name, namespace)
        with _goes_on(ref):
            return wait.completion(ref, self._audited, seconds=timeout)

    def logs(
        self, name: Target, *, namespace: str | None = None, **options: Unpack[LogOptions]
    ) -> Iterator[LogLine]:
        """Yield the merged lines in time order; with follow, until the job has ended and all is said.

        The options are the fields of `LogQuery`. Raise NotFound for a rank, a worker or an attempt that the
        job does not have.
        """
        return logs.lines(self.ref(name, namespace), self._records, log_query(**options))

    def download_logs(
        self,
        name: Target,
        target: str | Path | IO[bytes],
        *,
        namespace: str | None = None,
        merged: bool = False,
        compress: bool = False,
        **options: Unpack[LogOptions],
    ) -> tuple[Path, ...]:
        """Write the log byte for byte, a file for each stream into a directory, or all merged into one file.

        Return the files. `compress` packs them with gzip.
        """
        from mpijob.client.observe import download

        query, ref = log_query(**options), self.ref(name, namespace)
        return download.download(ref, self._records, query, target, merged=merged, compress=compress)

    def masked_values(self, name: Target, *, namespace: str | None = None) -> tuple[str, ...]:
        """Return the secrets of a job that a face must not show in its log, as far as they can be known."""
        return logs.secrets(self.ref(name, namespace), self._records)

    def events(self, name: Target, follow: bool = False, *, namespace: str | None = None) -> Iterator[Event]:
        """Yield what happened, in order; with follow, until the job has ended."""
        return self._records.events(self.ref(name, namespace), follow=follow)

    def metrics(self, name: Target, *, namespace: str | None = None) -> tuple[Sample, ...]:
        """Return the usage measured so far."""
        return self._records.samples(self.ref(name, namespace))

    def why(self, name: Target, *, namespace: str | None = None) -> tuple[Finding, ...]:
        """Return why the job stands where it stands, the first cause first."""
        return self.state(name, namespace).findings

    def diagnose(self, name: Target, *, namespace: str | None = None) -> Diagnosis:
        """Return why the job stands where it stands: causes, timeline, checklist, numbered fixes."""
        from mpijob.client.observe import diagnose  # the rules are loaded only when they are asked for

        return diagnose.of_job(self.ref(name, namespace), self._records, self.settings)

    def deleted(
        self, /, *, namespace: str | None = None, all_namespaces: bool = False, **chosen: Any
    ) -> Page:
        """Return one page of the jobs that were deleted and are remembered, the last one deleted first.

        They are chosen as in `list`. `state`, `spec`, `logs`, `events`, `metrics` and `why` answer for them.
        """
        from mpijob.client.history import fallback

        scope = self.scope(namespace=namespace, all_namespaces=all_namespaces, **chosen)
        return fallback.deleted(self.backend, scope)

    @property
    def remembered(self) -> JobState | None:
        """The deleted job for whose questions the record has answered last; None while all were asked of live ones."""
        from mpijob.client.history.fallback import told

        return told(self._records) if "_records" in self.__dict__ else None

    def record(self, name: Target, *, namespace: str | None = None) -> Record:
        """Return what was written down of a job: where it stood over time, facts of pods and nodes, what is missing."""
        from mpijob.client.history import fallback

        return fallback.record(self.backend, self.ref(name, namespace))

    def compare(self, *names: Target, namespace: str | None = None) -> Comparison:
        """Return how two or more jobs differ: configuration, phase, duration, result, what they used."""
        from mpijob.client.history import accounts
        from mpijob.client.observe import compare

        pairs = [(self.spec(name, namespace), self.state(name, namespace)) for name in names]
        used = accounts.of(self.backend, [state.ref for _, state in pairs])
        return compare.compare(pairs, used)

    def export(self, name: Target, format: Format = "yaml", *, namespace: str | None = None) -> str:
        """Return the job as a job file, ready to be submitted again."""
        from mpijob.formats.jobfile import jobfile_reader

        return jobfile_reader.write(self.spec(name, namespace), format=format)
