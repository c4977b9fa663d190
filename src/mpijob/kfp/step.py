"""What the container of a pipeline step does: submit the job, forward its output, wait, fetch its artifacts.

A step that is retried or restarted finds the job it submitted before by its name and continues to wait for
it. A step that is stopped (with its run) cancels the job. An error contains the first cause, its evidence and
its fixes.
"""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mpijob.client.client import Client
from mpijob.client.submit import resubmit
from mpijob.errors import JobFailed, MpiJobError, NotAllowed, NotFound, Unsupported
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model import VolumeKind
from mpijob.observation.logs.escape import visible
from mpijob.observation.redaction import masking

if TYPE_CHECKING:
    from mpijob.client.job import Job
    from mpijob.model import JobState, MPIJob

RUN_LABEL = "mpijob/pipeline-run"
_MAX_LABEL_LENGTH = 63


class StepResult(NamedTuple):
    """The outputs of the step."""

    name: str
    namespace: str
    phase: str
    metrics: dict[str, float]


# A BaseException, so that no handler of errors delays the end.
class Stopped(BaseException):
    """Kubernetes has sent SIGTERM: the pipeline run was stopped."""


def run(
    text: str,
    changes: Mapping[str, Any],
    run: str,
    timeout: float,
    logs: str,
    files: str,
    connection: Client | None = None,
) -> StepResult:
    """Run the job of a job file to its end; raise JobFailed if it does not succeed.

    `run` is the id of the pipeline run, "" if unknown; `logs` is the file and `files` the directory of artifacts;
    a `timeout` of 0 seconds means none.
    """
    with connection or Client() as client:
        job = client.localized(job_of_run(text, changes, run))
        handle = _find_or_submit(client, job, run)
        _print(f"job {handle.ref.name} in namespace {handle.ref.namespace}: {handle.last.phase.value}")
        with _cancel_on_stop(handle):
            _forward_output(client, handle, Path(logs))
            state = handle.wait(timeout or None)
        if state.phase.value != "Succeeded":
            raise JobFailed(failure_text(handle, state), findings=state.findings)
        _fetch_artifacts(client, handle, Path(files))
        return StepResult(
            handle.name, handle.namespace, state.phase.value, dict(_metrics(client, handle, state))
        )


def job_of_run(text: str, changes: Mapping[str, Any], run: str) -> MPIJob:
    """Return the job of this run: with the changes, and a unique name if the run is known."""
    job = resubmit.apply(jobfile_reader.read(text), changes)
    if not run:
        return job
    # The name identifies the run, so a repeated step finds its job instead of submitting a second one.
    digest = hashlib.sha256(run.encode()).hexdigest()[:8]
    return job.replace(name=f"{job.name}-{digest}", labels={**job.labels, RUN_LABEL: _label(run)})


def _label(run: str) -> str:
    cleaned = "".join(char if char.isalnum() or char in "-_." else "-" for char in run)
    return cleaned[:_MAX_LABEL_LENGTH].strip("-_.")


def _find_or_submit(client: Client, job: MPIJob, run: str) -> Job:
    """Return the job that an earlier attempt of this step submitted, or submit it now."""
    if run:
        with suppress(NotFound):
            existing = client.get(job.name, namespace=job.namespace)
            # A job that failed is submitted again: that is why the step is retried.
            if not existing.last.phase.final or existing.last.phase.value == "Succeeded":
                return existing
    return client.submit(job)


@contextmanager
def _cancel_on_stop(handle: Job) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    old_handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (Stopped, KeyboardInterrupt):
        _print(f"the step was stopped: cancelling job {handle.name}")
        handle.cancel()
        raise
    finally:
        signal.signal(signal.SIGTERM, old_handler)


def _forward_output(client: Client, handle: Job, target: Path) -> None:
    """Print the job's output while it runs, and store it as the step's artifact, with secrets masked."""
    secrets = client.masked_values(handle.ref)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as file:
        for line in handle.logs(follow=True, tidy=True):
            text = f"[{line.source}] {masking.masked_text(visible(line.text), secrets)}"
            file.write(text + "\n")
            _print(text)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def failure_text(handle: Job, state: JobState) -> str:
    """Return the cause of a failure as text: the message, the evidence, the fixes."""
    report = handle.diagnose()
    lines = [f"job '{handle.name}' is {state.phase.value}: {report.summary}"]
    for finding in report.findings:
        lines += [f"cause: {finding.message} [{finding.code}]", *(f"    {item}" for item in finding.evidence)]
    lines += [f"fix {item.number}: {item.text}" for item in report.fixes]
    return "\n".join(lines)


def _fetch_artifacts(client: Client, handle: Job, target: Path) -> None:
    """Fetch the job's artifacts, if its engine keeps them."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        fetched = client.fetch(handle.ref, target)
    except (NotAllowed, Unsupported) as error:
        # Files on a claim can be mounted by a later step, so it is no failure that this one may not read them.
        if isinstance(error, NotAllowed) and not _writes_to_claim(handle):
            raise
        _print(f"no artifacts fetched: {error.message}")
        return
    _print(f"fetched {len(fetched)} files of the job")


def _writes_to_claim(handle: Job) -> bool:
    return any(volume.kind is VolumeKind.CLAIM and not volume.read_only for volume in handle.spec.volumes)


def _metrics(client: Client, handle: Job, state: JobState) -> Iterator[tuple[str, float]]:
    yield "ranks", float(state.world)
    yield "attempts", float(state.attempt)
    if state.running is not None and state.finished is not None:
        yield "seconds", round(state.finished - state.running, 3)
    try:
        curves = client.curves(handle.ref)
    except MpiJobError:
        # An engine that stores no log lines: the job succeeded anyway.
        return
    for series in curves.series:
        if series.last is not None:
            yield series.name, series.last
