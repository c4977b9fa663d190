"""Ending, suspending and deleting jobs: Slurm is called, the action is noted, and the result is awaited."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from mpijob.backends.attempts import archive
from mpijob.backends.attempts.archive import EndedJob
from mpijob.backends.common_errors import refuse_resuming, refuse_suspending
from mpijob.backends.slurm.jobs import events
from mpijob.backends.slurm.jobs.job_files import JobFiles
from mpijob.backends.slurm.jobs.job_reader import JobReader
from mpijob.errors import Conflict, InvalidJob, WaitTimeout
from mpijob.model import JobRef, JobState, Phase
from mpijob.settings import Settings

# Beyond the grace time, for Slurm's own steps.
_END_SECONDS = 20.0
_POLL_SECONDS = 0.05
Pause = Callable[[float], None]


class Actions:
    """The actions on jobs that mpijob submitted."""

    def __init__(self, reader: JobReader, pause: Pause) -> None:
        self._reader, self._client, self._pause = reader, reader.client, pause

    def cancel(self, files: JobFiles, grace_seconds: float | None) -> JobState:
        """End a job with its signal and its grace time, or the given one; return its last state."""
        state = self._reader.state(files, findings=False)
        if state.phase.final or not files.number:
            return self._reader.state(files)
        grace = self._signal_first(files, state, grace_seconds)
        self._client.cancel(files.number)
        files.act("cancelled")
        return self._wait_until(files, _ended, grace + _END_SECONDS)

    def _signal_first(self, files: JobFiles, state: JobState, grace_seconds: float | None) -> float:
        # scancel sends SIGTERM itself; only another signal of the job must be sent before.
        job = files.plan.job
        grace = job.grace_seconds if grace_seconds is None else grace_seconds
        (files.path / "grace").write_text(f"{grace:g}\n")
        files.host.push(files.place.folder)
        if grace > 0 and job.signal.name.removeprefix("SIG") != "TERM" and state.phase is Phase.RUNNING:
            self._client.cancel(files.number, f"--signal={job.signal.name}")
            self._wait_until(files, _ended, grace)
            (files.path / "grace").write_text("0\n")
        return grace

    def suspend(self, files: JobFiles) -> JobState:
        """Requeue the job and hold it; Slurm's own suspend would keep its nodes."""
        state = self._reader.state(files, findings=False)
        refuse_suspending(state)
        if state.phase is Phase.SUSPENDED:
            return state
        number = files.number
        if state.phase is Phase.QUEUED:
            self._client.run(("scontrol", "hold", number))
            files.act("suspended")
            return self._current(files)
        grace = self._signal_first(files, state, None)
        try:
            # requeuehold is refused for jobs that were submitted with --no-requeue.
            self._client.run(("scontrol", "update", f"JobId={number}", "Requeue=1"))
            self._client.run(("scontrol", "requeuehold", number))
        except InvalidJob as error:
            raise Conflict(
                f"{state.ref} cannot be suspended: {error.message}", hint="cancel it, and retry it later"
            ) from error
        files.act("suspended")
        return self._wait_until(
            files, lambda found: found.phase is Phase.SUSPENDED or _ended(found), grace + _END_SECONDS
        )

    def resume(self, files: JobFiles) -> JobState:
        """Release a held job."""
        refuse_resuming(self._reader.state(files, findings=False))
        end = time.monotonic() + _END_SECONDS
        while True:
            try:
                self._client.run(("scontrol", "release", files.number))
                break
            except InvalidJob:
                if time.monotonic() > end:
                    raise
                # Slurm is still completing the requeued job.
                self._pause(0.5)
        if not files.plan.job.requeue_on_lost_worker:
            # As before the suspension: a lost node must fail the job.
            self._client.run(("scontrol", "update", f"JobId={files.number}", "Requeue=0"))
        files.act("resumed")
        return self._current(files)

    def _wait_until(self, files: JobFiles, reached: Callable[[JobState], bool], seconds: float) -> JobState:
        end = time.monotonic() + seconds
        while not reached(state := self._current(files)) and time.monotonic() < end:
            self._pause(_POLL_SECONDS)
        return state

    def _current(self, files: JobFiles) -> JobState:
        return self._reader.state(self._reader.jobs.files(files.place), findings=False)

    def remove(self, ref: JobRef, grace_seconds: float | None, settings: Settings, name: str) -> None:
        """End a job if needed, archive it and delete its files; by name, the earlier ones with that name, too."""
        newest = self._reader.find(ref)
        state = self.cancel(self._reader.jobs.files(newest), grace_seconds)
        if not state.phase.final:
            raise WaitTimeout(
                f"{newest.ref} is still {state.phase.value}", hint="delete it again in a minute"
            )
        named = (newest.namespace, newest.name)
        same_name = [place for place in self._reader.jobs.all() if (place.namespace, place.name) == named]
        for place in [newest] if ref.uid else same_name:
            files = self._reader.jobs.files(place)
            archive.archive_job(place.ref, partial(self._record, files), settings, name)
            self._reader.jobs.remove(place)

    def _record(self, files: JobFiles) -> EndedJob:
        state = self._reader.state(files)
        return EndedJob(
            state=state,
            plan=files.plan,
            newest=files.attempt_directory(state.attempt),
            logs=[(files.logs(number), number) for number in files.attempts()],
            events=events.of(files, state),
            samples=files.samples(),
            attempts=self._reader.attempts(state.ref)[:-1],
        )


def _ended(state: JobState) -> bool:
    return state.phase.final
