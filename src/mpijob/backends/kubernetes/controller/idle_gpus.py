"""GPUs that a running job holds and does not use: the warning, and what the rule of its namespace does then.

What was done is noted on the job itself, so a controller that takes over goes on from there: a job that this rule
suspended in order to queue it again is resumed by whoever looks at it next.
"""

from __future__ import annotations

from mpijob.backends.kubernetes.actions import patches
from mpijob.backends.kubernetes.client.api import Api
from mpijob.backends.kubernetes.metrics import pod_usage
from mpijob.backends.kubernetes.status.job_reader import JobReader, JobSnapshot
from mpijob.errors import Finding
from mpijob.formats.kubernetes.metadata import user_actions
from mpijob.model import JobRef, Phase, Sample
from mpijob.model.platform.governance import Idle, IdleAction
from mpijob.model.spec.job import MPIJob
from mpijob.observation.state import limits_policy

_MOST_SAMPLES = 2000
_FREEING_SECONDS = 40.0  # after that whoever noted that the job gives its GPUs back was killed before it did
BY = "the idle GPU rule of this namespace"


class IdleGpus:
    """Measures the running jobs that have GPUs, warns, and frees the GPUs where a namespace's rule says so."""

    def __init__(self, api: Api, reader: JobReader) -> None:
        self._api, self._reader = api, reader
        self._samples: dict[JobRef, list[Sample]] = {}

    def forget(self, ref: JobRef) -> None:
        """Drop what was measured of a job."""
        self._samples.pop(ref, None)

    def of(self, look: JobSnapshot, job: MPIJob, idle: Idle) -> Finding | None:
        """Return the warning for a job whose GPUs are idle."""
        gpus = job.asked.minus(job.launcher.asked).gpus
        if not gpus:
            return None
        past = self._samples.setdefault(look.state.ref, [])
        past += pod_usage.samples(self._api, look.found, self._reader.served)
        del past[:-_MOST_SAMPLES]
        return limits_policy.idle_alarm(look.state, gpus, past, idle, self._api.now())

    def free(self, look: JobSnapshot, job: MPIJob, action: IdleAction) -> None:
        """Take its idle GPUs from a job, once; its program gets SIGTERM and the job's grace time first."""
        acts = user_actions.read(look.found.job)
        if acts and acts[-1].message.endswith(BY) and self._api.now() - acts[-1].time < _FREEING_SECONDS:
            return
        if action in (IdleAction.SUSPEND, IdleAction.REQUEUE):
            patches.suspend(self._api, look.found, look.seen, BY)
        elif action is IdleAction.CANCEL:
            patches.cancel(self._api, look.found, look.seen, job.grace_seconds, BY)

    def queue_again(self, look: JobSnapshot) -> None:
        """Resume a job that this rule suspended, now that its pods are gone."""
        acts = user_actions.read(look.found.job)
        if look.state.phase is Phase.SUSPENDED and acts and acts[-1].message == f"suspended by {BY}":
            patches.resume(self._api, look.found, look.seen, BY)
