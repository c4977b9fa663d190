"""What the container of a pipeline's step does: submit the job, pass its output on, wait, bring back what it left.

A step that is tried again, or restarted, finds the job that it submitted before by its name and goes on waiting for
it. A step that is told to end (the run was stopped) cancels the job. What goes wrong is told as everywhere else: the
first cause, its evidence and what would mend it are the text of the error.
"""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mpijob.client.client import Client
from mpijob.client.submit import resubmit
from mpijob.errors import JobFailed, MpiJobError, NotFound, Unsupported
from mpijob.formats.jobfile import jobfile_reader
from mpijob.observation.logs.escape import visible
from mpijob.observation.redaction import masking

if TYPE_CHECKING:
    from mpijob.client.job import Job
    from mpijob.model import JobState, MPIJob

RUN_LABEL = "mpijob/pipeline-run"
_LONGEST_RUN = 63


class Done(NamedTuple):
    """What the step tells the pipeline."""

    name: str
    namespace: str
    phase: str
    metrics: dict[str, float]


class Stopped(BaseException):
    """The step was told to end; nothing that catches errors shall hold that up."""


def run(
    text: str,
    changes: Mapping[str, Any],
    run: str,
    timeout: float,
    logs: str,
    files: str,
    client: Client | None = None,
) -> Done:
    """Run the job of a job file to its end; raise JobFailed when it does not succeed."""
    with client or Client() as place:
        job = place.localized(wanted(text, changes, run))
        handle = _handle(place, job, run)
        _say(f"job {handle.ref.name} in namespace {handle.ref.namespace}: {handle.last.phase.value}")
        with _stoppable(handle):
            _pass_on(place, handle, Path(logs))
            state = handle.wait(timeout or None)
        if state.phase.value != "Succeeded":
            raise JobFailed(why(handle, state), findings=state.findings)
        _bring(place, handle, Path(files))
        return Done(handle.name, handle.namespace, state.phase.value, dict(_metrics(place, handle, state)))


def wanted(text: str, changes: Mapping[str, Any], run: str) -> MPIJob:
    """Return the job of this run: with the changes, and a name of its own where the run is known."""
    job = resubmit.apply(jobfile_reader.read(text), changes)
    if not run:
        return job
    mark = hashlib.sha256(run.encode()).hexdigest()[:8]
    return job.replace(name=f"{job.name}-{mark}", labels={**job.labels, RUN_LABEL: _label(run)})


def _label(run: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in run)
    return kept[:_LONGEST_RUN].strip("-_.")


def _handle(place: Client, job: MPIJob, run: str) -> Job:
    """Return the job that this step submitted before it was tried again, or submit it now."""
    if run:
        try:
            known = place.get(job.name, namespace=job.namespace)
        except NotFound:
            return place.submit(job)
        if not known.last.phase.final or known.last.phase.value == "Succeeded":
            return known
    return place.submit(job)


@contextmanager
def _stoppable(handle: Job) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except (Stopped, KeyboardInterrupt):
        _say(f"the step was told to end: job {handle.name} is cancelled")
        handle.cancel()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _pass_on(place: Client, handle: Job, target: Path) -> None:
    """Say what the job says while it runs, and keep it as the step's artifact; secrets stay out of both."""
    secrets = place.masked_values(handle.ref)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as file:
        for line in handle.logs(follow=True, tidy=True):
            said = f"[{line.source}] {masking.masked_text(visible(line.text), secrets)}"
            file.write(said + "\n")
            _say(said)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def why(handle: Job, state: JobState) -> str:
    """Return what went wrong in a few lines: the sentence, the evidence, the fixes."""
    told = handle.diagnose()
    lines = [f"job '{handle.name}' is {state.phase.value}: {told.summary}"]
    for finding in told.findings:
        lines += [f"cause: {finding.message} [{finding.code}]", *(f"    {one}" for one in finding.evidence)]
    lines += [f"fix {one.number}: {one.text}" for one in told.fixes]
    return "\n".join(lines)


def _bring(place: Client, handle: Job, target: Path) -> None:
    """Fetch what the job left, where its engine keeps it."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        fetched = place.fetch(handle.ref, target)
    except Unsupported as error:
        _say(f"no files are brought back: {error.message}")
        return
    _say(f"{len(fetched)} files of the job are in the step's output")


def _metrics(place: Client, handle: Job, state: JobState) -> Iterator[tuple[str, float]]:
    yield "ranks", float(state.world)
    yield "attempts", float(state.attempt)
    if state.running is not None and state.finished is not None:
        yield "seconds", round(state.finished - state.running, 3)
    try:
        curves = place.curves(handle.ref)
    except MpiJobError:
        return  # an engine that keeps no lines: the job succeeded all the same
    for series in curves.series:
        if series.last is not None:
            yield series.name, series.last
