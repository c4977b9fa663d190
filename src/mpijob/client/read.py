"""The client's methods that change nothing: get, list, watch, wait, logs, events, metrics, why, compare, export."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Unpack

from mpijob.client.base import BaseClient, log_query
from mpijob.client.observe import logs, wait

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.client.base import Choice, Format, ListOptions, LogOptions, Target
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
def _note_running_job(ref: JobRef) -> Iterator[None]:
    """Add a note to KeyboardInterrupt: the job keeps running, and how to cancel it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(wait.goes_on(ref))
        raise


class Reading(BaseClient):
    """The reading methods of the client."""

    def get(self, name: Target, namespace: str | None = None) -> Job:
        """Return the newest job of that name; raise NotFound."""
        return self._job(self.ref(name, namespace))

    def state(self, name: Target, namespace: str | None = None, *, attempt: int | None = None) -> JobState:
        """Return the current state of the job, or the final state of an earlier attempt; raise NotFound."""
        return self._reads(attempt).get(self.ref(name, namespace))

    def attempts(self, name: Target, *, namespace: str | None = None) -> tuple[JobState, ...]:
        """Return the final state of each attempt, oldest first; the last is the current state."""
        return self._records.attempts(self.ref(name, namespace))

    def runs(self, name: Target, *, namespace: str | None = None) -> tuple[JobState, ...]:
        """Return every job that has or had the name, newest first, with its number: `NAME@1` was the first.

        A retry and every submission under the same name make a new one. Deleted jobs are among them while they
        are remembered; raise NotFound where no job has or had the name.
        """
        from mpijob.client import runs

        return runs.of_name(self.ref(name, namespace), self._records)

    def spec(self, name: Target, namespace: str | None = None) -> MPIJob:
        """Return the spec of the job."""
        return self._records.spec(self.ref(name, namespace))

    def whoami(self) -> Identity:
        """Return the user as the engine knows them."""
        return self.backend.whoami()

    def facts(self, job: MPIJob | None = None) -> Facts:
        """Return capacity, free resources and quota of the namespace."""
        who = self.backend.whoami()
        # Imported here because `list` must start quickly.
        from mpijob.model import MPIJob

        about = MPIJob(name="facts", namespace=self.namespace) if job is None else self.localized(job)
        return self.backend.preflight(about, who).facts

    def artifacts(
        self,
        name: Target,
        *,
        namespace: str | None = None,
        attempt: int | None = None,
        at_hand: bool = False,
    ) -> tuple[Artifact, ...]:
        """Return the output files of the job, of one attempt or of all.

        On a cluster files of volume claims are listed by a short-lived pod; `at_hand` leaves them out.
        """
        from mpijob.client.observe import artifacts

        ref = self.ref(name, namespace)
        reads = self._audited if attempt is None else self._reads(attempt)
        if at_hand:
            return reads.artifacts(ref)
        if attempt is not None:
            # Raises NotFound for an attempt that does not exist.
            reads.get(ref)
        return artifacts.listed(reads, ref)

    def fetch(
        self,
        name: Target,
        directory: str | Path,
        paths: Iterable[str] = (),
        *,
        overwrite: bool = False,
        namespace: str | None = None,
        attempt: int | None = None,
    ) -> tuple[Path, ...]:
        """Download output files of the job into a directory, all by default; return their paths.

        Raise Conflict, and write nothing, where the directory has other files of these names, unless told to overwrite.
        """
        from mpijob.client.observe import artifacts

        ref = self.ref(name, namespace)
        reads = self._audited if attempt is None else self._reads(attempt)
        return artifacts.fetch(reads, ref, directory, tuple(paths), overwrite=overwrite)

    def fetch_file(self, name: Target, path: str, target: Path) -> None:
        """Download one output file of the job to a path, which may be a pipe."""
        self._audited.fetch(self.ref(name), path, target)

    def list(self, **chosen: Unpack[ListOptions]) -> Page:
        """Return one page of jobs, newest first; `page.after` is the cursor of the next page.

        The options choose among jobs: `namespace`, `all_namespaces`, `selector`, `phases`, `owner`, `queue`, `text`,
        `kinds`, `since` and `until` (submitted between them, in seconds since the epoch); `runs` adds the earlier jobs
        of each name. `limit` and `after` page through them.
        """
        return self.backend.list(self.scope(**chosen))

    def jobs(self, **chosen: Unpack[Choice]) -> Iterator[JobState]:
        """Yield the jobs of all pages, newest first, with the filters of `list`."""
        from mpijob.client import paging

        return paging.pages(self.scope(**chosen), self.backend)

    def watch(self, *, names: Iterable[str] = (), **chosen: Unpack[Choice]) -> Iterator[JobState]:
        """Yield every job's state once, then each change, until the caller stops; with the filters of `list`."""
        return self.backend.watch(self.scope(names=names, **chosen))

    def wait(
        self,
        name: Target,
        timeout: float | None = None,
        for_phases: Collection[Phase] | None = None,
        *,
        namespace: str | None = None,
    ) -> JobState:
        """Wait until the job is in one of the phases (default: until it ends), and return its state.

        Raise WaitTimeout when time is up, JobFailed when the job ended otherwise than wanted.
        """
        ref = self.ref(name, namespace)
        with _note_running_job(ref):
            return wait.wait(ref, self._audited, seconds=timeout, phases=for_phases)

    def wait_for_completion(
        self, name: Target, timeout: float | None = None, *, namespace: str | None = None
    ) -> JobState:
        """Wait until the job succeeds, and return its state; raise JobFailed with the findings, or WaitTimeout."""
        ref = self.ref(name, namespace)
        with _note_running_job(ref):
            return wait.completion(ref, self._audited, seconds=timeout)

    def logs(
        self, name: Target, *, namespace: str | None = None, **options: Unpack[LogOptions]
    ) -> Iterator[LogLine]:
        """Yield the merged log lines in time order; with `follow`, until the job has ended.

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
        """Write the log unchanged: one file per stream into a directory, or merged into one file.

        Return the files. `compress` packs them with gzip.
        """
        from mpijob.client.observe import download

        query, ref = log_query(**options), self.ref(name, namespace)
        return download.download(ref, self._records, query, target, merged=merged, compress=compress)

    def masked_values(self, name: Target, *, namespace: str | None = None) -> tuple[str, ...]:
        """Return the known secrets of a job that must be masked in its log."""
        return logs.secrets(self.ref(name, namespace), self._records)

    def events(
        self,
        name: Target,
        follow: bool = False,
        *,
        namespace: str | None = None,
        attempt: int | None = None,
    ) -> Iterator[Event]:
        """Yield the events of all attempts or of one, oldest first; with `follow`, until the job has ended."""
        return self._reads(attempt).events(self.ref(name, namespace), follow=follow)

    def metrics(
        self, name: Target, *, namespace: str | None = None, attempt: int | None = None
    ) -> tuple[Sample, ...]:
        """Return the usage measured so far, in all attempts or in one."""
        return self._reads(attempt).samples(self.ref(name, namespace))

    def why(
        self, name: Target, *, namespace: str | None = None, attempt: int | None = None
    ) -> tuple[Finding, ...]:
        """Return why the job, or an attempt, is in its phase, the first cause first."""
        return self.state(name, namespace, attempt=attempt).findings

    def diagnose(
        self, name: Target, *, namespace: str | None = None, attempt: int | None = None
    ) -> Diagnosis:
        """Return the diagnosis of the job, or of one attempt: causes, timeline, checklist, numbered fixes."""
        # Imported here because the rules take long to load.
        from mpijob.client.observe import diagnose

        return diagnose.of_job(self.ref(name, namespace), self._reads(attempt), self.settings)

    def deleted(self, /, **chosen: Unpack[ListOptions]) -> Page:
        """Return one page of deleted jobs that have a record, most recently deleted first.

        They are chosen as in `list`. `state`, `spec`, `logs`, `events`, `metrics` and `why` answer for them.
        """
        from mpijob.client.history import fallback

        return fallback.deleted(self.backend, self.scope(**chosen))

    @property
    def remembered(self) -> JobState | None:
        """The deleted job whose record answered the last call, or None."""
        from mpijob.client.history.fallback import recalled_job

        return recalled_job(self._records) if "_records" in self.__dict__ else None

    def record(self, name: Target, *, namespace: str | None = None) -> Record:
        """Return the record of a job: its phases over time, facts of pods and nodes, and gaps."""
        from mpijob.client.history import fallback

        return fallback.record(self.backend, self.ref(name, namespace))

    def compare(
        self, *names: Target, namespace: str | None = None, attempts: Iterable[int] = ()
    ) -> Comparison:
        """Compare two or more jobs: configuration, phase, duration, result and usage.

        Earlier runs are named `NAME@1`. With `attempts` one job is named, and those attempts of it are compared.
        """
        from mpijob.client.history import accounts
        from mpijob.client.observe import compare

        if wanted := tuple(attempts):
            return compare.attempts([self.ref(name, namespace) for name in names], wanted, self._records)
        refs = [self.ref(name, namespace) for name in names]
        pairs = [(self.spec(ref), self.state(ref)) for ref in refs]
        used = accounts.of(self.backend, [state.ref for _, state in pairs])
        return compare.compare(pairs, used)

    def export(
        self,
        name: Target,
        format: Format = "yaml",
        *,
        namespace: str | None = None,
        attempt: int | None = None,
    ) -> str:
        """Return the job as a job file that can be submitted again; all attempts have the same."""
        from mpijob.formats.jobfile import jobfile_reader

        return jobfile_reader.write(self._reads(attempt).spec(self.ref(name, namespace)), format=format)
