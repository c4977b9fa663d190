"""Recurring jobs of a cluster: CronJobs, so that Kubernetes keeps the time (`formats/kubernetes/cronjob`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from mpijob.backends import code_upload
from mpijob.backends.common_errors import no_such_schedule
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.api_errors import translated
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.status.derive_state import Document
from mpijob.errors import Finding, InvalidJob, NotAllowed
from mpijob.formats.kubernetes import cronjob
from mpijob.formats.status.nested_fields import time_of
from mpijob.model import MPIJob
from mpijob.model.spec.schedule import Recurrence
from mpijob.observation.state import cron
from mpijob.settings import Settings, own_places

_RIGHTS = (resources.SERVICE_ACCOUNT, resources.ROLE, resources.ROLE_BINDING)


class ClusterSchedules:
    """The schedules that are CronJobs created by mpijob."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._settings = settings

    def resolve(self, job: MPIJob, directory: Path) -> MPIJob:
        """Return the job as a pod can start it: with its files inline, and without anything of this machine."""
        if local := [secret.env for secret in job.secrets if secret.source.startswith(("env:", "file:"))]:
            raise _refused("secrets", f"{', '.join(local)}: schedules on a cluster cannot read values of this machine",
                           "keep the value in a Secret of the cluster and write source: NAME/KEY")  # fmt: skip
        job = job.replace(image=job.image or self._settings.image)
        whole = code_upload.resolve(job, directory, own_places(self._settings))
        return whole.replace(code=code_upload.inline(whole.code))

    def lock(self) -> AbstractContextManager[None]:
        """Return a context without effect: a cluster needs no lock."""
        return nullcontext()

    def put(self, recurrence: Recurrence) -> None:
        """Create or change the CronJob, after the permissions of its pods."""
        schedule = recurrence.schedule
        if not self._settings.service_image:
            raise InvalidJob(
                "schedules on a cluster require the image of the mpijob services, which is not set",
                hint="set service_image in the settings, or MPIJOB_SERVICE_IMAGE; ask your administrator for it",
            )
        expression = cron.expression(schedule)
        document = cronjob.write(schedule, self._settings.service_image, expression, recurrence.since)
        path = resources.CRON_JOB.path(schedule.namespace, schedule.name)
        with translated(f"save schedule {schedule.name}"):
            existing = self._api.find(path)
            if existing is not None and cronjob.read(existing) is None:
                raise _refused("name", f"CronJob '{schedule.name}' exists and was not created by mpijob",
                               "choose another name")  # fmt: skip
            self._grant(schedule.namespace)
            if existing is None:
                self._api.create(resources.CRON_JOB.path(schedule.namespace), document)
            else:
                self._api.patch(path, {"spec": document["spec"]})

    def _grant(self, namespace: str) -> None:
        for kind, document in zip(_RIGHTS, cronjob.rights(namespace), strict=True):
            existing = self._exists(kind, namespace)
            if existing:
                continue
            try:
                self._api.create(kind.path(namespace), document)
            except ApiError as error:
                if error.status == 409 or (error.status == 403 and existing is None):
                    # Created by another client meanwhile; or whether it exists cannot be read here.
                    continue
                if error.status != 403:
                    raise
                raise _no_rights(namespace, kind) from error

    def _exists(self, kind: Kind, namespace: str) -> bool | None:
        """Return whether the object exists; None if the user may not read it."""
        try:
            return self._api.find(kind.path(namespace, cronjob.ACCOUNT)) is not None
        except ApiError as error:
            if error.status != 403:
                raise
            return None

    def get(self, namespace: str, name: str) -> Recurrence:
        """Return a schedule; raise NotFound."""
        with translated(f"read schedule {name}"):
            document = self._api.find(resources.CRON_JOB.path(namespace, name))
        found = document and _recurrence(document, self._api.now())
        if not found:
            raise no_such_schedule(namespace, name)
        return found

    def all(self, namespace: str = "") -> tuple[Recurrence, ...]:
        """Return the schedules of a namespace, or of all."""
        with translated("list schedules"):
            found = self._api.list(resources.CRON_JOB.path(namespace), labels=cronjob.SCHEDULE_LABEL).items
        known = (_recurrence(document, self._api.now()) for document in found)
        return tuple(recurrence for recurrence in known if recurrence is not None)

    def remove(self, namespace: str, name: str) -> None:
        """Delete the CronJob; with the last one of the namespace also the permissions of the pods."""
        self.get(namespace, name)
        with translated(f"delete schedule {name}"):
            self._api.delete(resources.CRON_JOB.path(namespace, name))
            if not [other for other in self.all(namespace) if other.schedule.name != name]:
                self._revoke(namespace)

    def _revoke(self, namespace: str) -> None:
        for kind in reversed(_RIGHTS):
            try:
                self._api.delete(kind.path(namespace, cronjob.ACCOUNT))
            except ApiError as error:
                # Created by an administrator, and useful for the next schedule.
                if error.status != 403:
                    raise

    def ensure_scheduler(self) -> None:
        """Do nothing: the cluster keeps the time itself."""


def _recurrence(document: Document, now: float) -> Recurrence | None:
    schedule = cronjob.read(document)
    if schedule is None:
        return None
    last = time_of((document.get("status") or {}).get("lastScheduleTime") or "")
    created = time_of(document["metadata"]["creationTimestamp"]) or now
    return Recurrence(schedule, created, last)


def _refused(field: str, message: str, hint: str) -> InvalidJob:
    return InvalidJob.of(
        (Finding(code="NOT_ON_A_CLUSTER", field=field, message=message, hint=hint),), "the schedule"
    )


def _no_rights(namespace: str, kind: Kind) -> NotAllowed:
    return NotAllowed(
        f"the pods that start scheduled jobs need the {kind.name} '{cronjob.ACCOUNT}' in namespace '{namespace}', "
        "and you may not create it",
        hint=f"ask an administrator of the namespace to apply the output of: mpijob schedule rights -n {namespace}",
    )
