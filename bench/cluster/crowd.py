"""Thousands of jobs that are there and do nothing, to be listed.

They are TrainJobs as this package writes them, with the status of a job that has ended. Trainer makes a JobSet
for every TrainJob as soon as it sees it, also for a suspended one; a quota of none keeps it from that, and the
status, which follows at once, from trying again. So nothing runs, and the lists are of real objects.
"""

from __future__ import annotations

import threading
import time

import msgspec

from bench.cluster.places import Place
from bench.line import Unmeasured
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import ApiError, Document
from mpijob.backends.kubernetes.submit.create_objects import kind_of
from mpijob.formats.kubernetes.metadata import well_known

HANDS = 4
_NONE = {"hard": {"count/jobsets.jobset.x-k8s.io": "0"}}


def fill(there: Place, jobs: int) -> None:
    """Put so many finished jobs into the namespace."""
    plan = there.client.plan(there.small_job("job", 2, "true"))
    *companions, job = (msgspec.to_builtins(document) for document in plan.documents)
    there.api.create(resources.RESOURCE_QUOTA.path(there.namespace), _quota())
    for companion in companions:
        there.api.create(kind_of(companion).path(there.namespace), companion)
    until_known(there, job)
    _by_several(there, job, jobs)


def until_known(there: Place, job: Document) -> None:
    """Wait until Trainer's webhook has heard of the runtime."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            there.api.create(resources.TRAINJOB.path(there.namespace), job, dry_run=True)
            return
        except ApiError:
            time.sleep(0.1)
    raise Unmeasured("Trainer does not accept the jobs")


def _quota() -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-jobsets"},
        "spec": _NONE,
    }


def _by_several(there: Place, job: Document, jobs: int) -> None:
    troubles: list[Exception] = []

    def work(first: int) -> None:
        try:
            for number in range(first, jobs, HANDS):
                _add(there, job, number)
        except Exception as error:
            troubles.append(error)

    hands = [threading.Thread(target=work, args=(first,)) for first in range(HANDS)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    if troubles:
        raise Unmeasured(f"the jobs to be listed could not be made: {troubles[0]}")


def _add(there: Place, job: Document, number: int) -> None:
    name = f"job-{number}"
    labels = job["metadata"]["labels"] | {well_known.JOB_LABEL: name, well_known.UID_LABEL: f"{number:016x}"}
    there.api.create(
        resources.TRAINJOB.path(there.namespace),
        job | {"metadata": job["metadata"] | {"name": name, "labels": labels}},
    )
    status = {"status": {"conditions": [_COMPLETE], "jobsStatus": _COUNTS}}
    there.api.patch(resources.TRAINJOB.path(there.namespace, name, "status"), status)


_COMPLETE = {
    "type": "Complete",
    "status": "True",
    "reason": "AllJobsCompleted",
    "message": "jobset completed successfully",
    "lastTransitionTime": "2025-01-01T00:00:00Z",
}
_COUNTS = [
    {"name": name, "active": 0, "failed": 0, "ready": 0, "succeeded": done, "suspended": 0}
    for name, done in (("node", 0), ("launcher", 1))
]
