"""The handle of one job: the client's methods without the name.

A handle refers to one run: after a retry, the old handle still shows the old run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, Unpack

from mpijob.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.client.base import Format, LogOptions
    from mpijob.client.client import Client
    from mpijob.client.observe.bundle import Bundle
    from mpijob.diagnosis.report import Diagnosis
    from mpijob.errors import Finding
    from mpijob.model import Event, JobRef, JobState, LogLine, MPIJob, Phase, Sample, StackReport
    from mpijob.model.status.mpi_profile import MpiProfile


class Job:
    """Handle of one job, with blocking calls.

    >>> from mpijob import Client, JobFailed, MPIJob
    >>> from mpijob.backends.memory import MemoryBackend
    >>> client = Client(MemoryBackend())
    >>> job = client.submit(MPIJob(name="hello", workers=2, command=["echo", "hello"]))
    >>> job.wait_for_completion(timeout=60).phase.value
    'Succeeded'
    >>> [(line.source, line.text.decode()) for line in job.logs(ranks=[1])]
    [('Rank-1', 'hello')]
    >>> broken = job.clone("broken", command=("false",))
    >>> try:
    ...     broken.wait_for_completion()
    ... except JobFailed as error:
    ...     print(error.findings[0].worker, error.message)
    0 job 'broken' failed: worker 0 failed: rank 0 ended with exit code 1
    """

    def __init__(self, client: Client, state: JobState) -> None:
        self.client = client
        self.last = state

    @property
    def ref(self) -> JobRef:
        """Namespace, name and UID of the job."""
        return self.last.ref

    @property
    def name(self) -> str:
        """The job's name."""
        return self.ref.name

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return self.ref.namespace

    @property
    def phase(self) -> Phase:
        """Current state of the job."""
        return self.state().phase

    @property
    def spec(self) -> MPIJob:
        """Spec of the job."""
        return self.client.spec(self.ref)

    def state(self) -> JobState:
        """Return the current state of the job."""
        self.last = self.client.state(self.ref)
        return self.last

    def attempts(self) -> tuple[JobState, ...]:
        """Return the final state of each attempt, oldest first; the last is the current state."""
        return self.client.attempts(self.ref)

    def runs(self) -> tuple[JobState, ...]:
        """Return every job that has or had the name, newest first, with its number."""
        return self.client.runs(self.name, namespace=self.namespace)

    def wait(self, timeout: float | None = None, for_phases: Collection[Phase] | None = None) -> JobState:
        """Wait until the job is in one of the phases (default: until it ends), and return its state."""
        self.last = self.client.wait(self.ref, timeout, for_phases)
        return self.last

    def wait_for_completion(self, timeout: float | None = None) -> JobState:
        """Wait until the job succeeds, and return its state; raise JobFailed with the findings, or WaitTimeout."""
        self.last = self.client.wait_for_completion(self.ref, timeout)
        return self.last

    def logs(self, **wanted: Unpack[LogOptions]) -> Iterator[LogLine]:
        """Yield the merged lines; the options are those of `Client.logs`."""
        return self.client.logs(self.ref, **wanted)

    def download_logs(
        self,
        target: str | Path | IO[bytes],
        *,
        merged: bool = False,
        compress: bool = False,
        **wanted: Unpack[LogOptions],
    ) -> tuple[Path, ...]:
        """Write the log byte for byte into a directory, or merged into one file; return the files."""
        return self.client.download_logs(self.ref, target, merged=merged, compress=compress, **wanted)

    def events(self, follow: bool = False) -> Iterator[Event]:
        """Yield the events, oldest first."""
        return self.client.events(self.ref, follow)

    def metrics(self) -> tuple[Sample, ...]:
        """Return the usage measured so far."""
        return self.client.metrics(self.ref)

    def why(self) -> tuple[Finding, ...]:
        """Return why the job is in its phase, the first cause first."""
        return self.client.why(self.ref)

    def diagnose(self) -> Diagnosis:
        """Return the diagnosis of the job: causes, timeline, checklist, numbered fixes."""
        return self.client.diagnose(self.ref)

    def bundle(self, file: str | Path | None = None, *, stacks: bool = False) -> Bundle:
        """Create a support bundle of the job, with secrets masked."""
        return self.client.bundle(self.ref, file, stacks=stacks)

    def warnings(self) -> tuple[Finding, ...]:
        """Return the early warnings of the running job."""
        return self.client.warnings(self.ref)

    def stacks(self, ranks: Iterable[int] = (), *, bring: bool = False) -> StackReport:
        """Return the call stacks of ranks, grouped; of all ranks, or of those given."""
        return self.client.stacks(self.ref, ranks, bring=bring)

    def profile(self, *, step: int | None = None) -> MpiProfile:
        """Return the MPI profile of the job (`profile_mpi`)."""
        return self.client.profile(self.ref, step=step)

    def result(self) -> Any:
        """Return what the job's function returned on rank 0 (see `client.function`)."""
        from mpijob.client.submit import function

        return function.result(self.name, self.logs(ranks=(0,)))

    def cancel(self, grace_period: float | None = None) -> JobState:
        """Cancel the job."""
        self.last = self.client.cancel(self.ref, grace_period)
        return self.last

    def suspend(self) -> JobState:
        """Suspend the job; it can be resumed."""
        self.last = self.client.suspend(self.ref)
        return self.last

    def resume(self) -> JobState:
        """Queue the suspended job again."""
        self.last = self.client.resume(self.ref)
        return self.last

    def scale(self, workers: int) -> JobState:
        """Change the number of workers of the job, which must be elastic."""
        self.last = self.client.scale(self.ref, workers)
        return self.last

    def delete(self, grace_period: float | None = None, *, forget: bool = False) -> None:
        """Delete the job; its record stays for its retention time, unless `forget` is set."""
        self.client.delete(self.ref, grace_period, forget=forget)

    def retry(self, *, with_fix: int | None = None) -> Job:
        """Submit the same configuration again, optionally with a fix of `diagnose`, and return the new job."""
        return self.client.retry(self.ref, with_fix=with_fix)

    def clone(
        self,
        /,
        new_name: str | None = None,
        *,
        replace: bool = False,
        with_fix: int | None = None,
        **fields: Any,
    ) -> Job:
        """Submit a copy with changes and return the new job."""
        return self.client.clone(self.ref, new_name, replace=replace, with_fix=with_fix, **fields)

    def then(self, job: MPIJob, on: Literal["succeeded", "any", "failed"] = "succeeded") -> Job:
        """Submit a job that starts when this one has succeeded, ended or failed, and return its handle."""
        from mpijob.model.spec.dependencies import After, End

        entry = str(After(self.name, End(on)))
        wanted = job.replace(namespace=self.namespace, after=(*job.after, entry))
        return self.client.submit(wanted)

    def export(self, format: Format = "yaml") -> str:
        """Return the job as a job file."""
        return self.client.export(self.ref, format)

    def execute(self, argv: Sequence[str], worker: int | None = None, rank: int | None = None) -> int:
        """Run a command with this terminal inside the job."""
        return self.client.execute(self.ref, argv, worker, rank)

    def widget(self) -> Any:
        """Return a live view for a notebook, or plain text without ipywidgets."""
        from mpijob.client.observe import notebook

        return notebook.widget(self)

    def _shown(self) -> JobState:
        """Return the state to display; a deleted job is shown as it was last seen."""
        try:
            return self.state()
        except NotFound:
            return self.last

    def _repr_html_(self) -> str:
        from mpijob.client.observe import notebook

        return notebook.html(self._shown())

    def __repr__(self) -> str:
        return f"<Job {self.ref}: {self.last.phase.value}>"
