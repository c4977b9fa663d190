"""GPUs that a running job holds and does not use: the warning, and the action of the namespace's rule.

The action is noted on the job, so that another controller can continue: a job that this rule suspended in
order to queue it again is resumed at the next snapshot.
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

_MAX_SAMPLES = 2000
# Then the controller that noted the action was killed before it finished.
_FREEING_SECONDS = 40.0
BY = "the idle GPU rule of this namespace"


class IdleGpus:
    """Measures running jobs with GPUs, warns, and frees the GPUs if the namespace's rule says so."""

    def __init__(self, api: Api, reader: JobReader) -> None:
        self._api, self._reader = api, reader
        self._samples: dict[JobRef, list[Sample]] = {}

    def forget(self, ref: JobRef) -> None:
        self._samples.pop(ref, None)

    def of(self, snapshot: JobSnapshot, job: MPIJob, idle: Idle) -> Finding | None:
        gpus = job.asked.minus(job.launcher.asked).gpus
        if not gpus:
            return None
        past = self._samples.setdefault(snapshot.state.ref, [])
        past += pod_usage.samples(self._api, snapshot.found, self._reader.served)
        del past[:-_MAX_SAMPLES]
        return limits_policy.idle_alarm(snapshot.state, gpus, past, idle, self._api.now())

    def free(self, snapshot: JobSnapshot, job: MPIJob, action: IdleAction) -> None:
        """Take its idle GPUs from a job, once; its program gets SIGTERM and the job's grace time first."""
        acts = user_actions.read(snapshot.found.job)
        if acts and acts[-1].message.endswith(BY) and self._api.now() - acts[-1].time < _FREEING_SECONDS:
            return
        if action in (IdleAction.SUSPEND, IdleAction.REQUEUE):
            patches.suspend(self._api, snapshot.found, snapshot.seen, BY)
        elif action is IdleAction.CANCEL:
            patches.cancel(self._api, snapshot.found, snapshot.seen, job.grace_seconds, BY)

    def queue_again(self, snapshot: JobSnapshot) -> None:
        """Resume a job that this rule suspended, once its pods are gone."""
        acts = user_actions.read(snapshot.found.job)
        if snapshot.state.phase is Phase.SUSPENDED and acts and acts[-1].message == f"suspended by {BY}":
            patches.resume(self._api, snapshot.found, snapshot.seen, BY)
