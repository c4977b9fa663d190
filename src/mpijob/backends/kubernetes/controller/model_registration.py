"""Registers the models of succeeded jobs in the model registry.

If the registry is unavailable, the job stays Succeeded with a warning, and registering is tried again. The
result is noted on the job, so that it is registered once.
"""

from __future__ import annotations

import time

from mpijob.backends import model_registry
from mpijob.backends.kubernetes.actions import register_model
from mpijob.backends.kubernetes.client.api import PARTIAL, Api
from mpijob.backends.kubernetes.controller import status_publisher
from mpijob.backends.kubernetes.status.job_reader import JobReader, JobSnapshot
from mpijob.errors import MpiJobError
from mpijob.formats.kubernetes.metadata import controller_notes, well_known
from mpijob.model import Phase
from mpijob.settings import Settings

_RETRY_SECONDS = 60.0


class ModelRegistration:
    """Registers models one after the other; pauses after an error, so that a registry that is down does not
    delay jobs.
    """

    def __init__(self, api: Api, reader: JobReader, settings: Settings) -> None:
        self._api, self._reader, self._settings = api, reader, settings
        self._not_before = 0.0

    def register_model_of(self, snapshot: JobSnapshot) -> None:
        """Register the job's model, if it has one that is not registered yet."""
        state, found = snapshot.state, snapshot.found
        if not self._settings.model_registry or state.phase is not Phase.SUCCEEDED:
            return
        if (
            controller_notes.annotation_of(found.job, well_known.MODEL_ANNOTATION)
            or time.monotonic() < self._not_before
        ):
            return
        job = self._reader.spec(found, snapshot.seen.runtime)
        if job.model is None:
            return
        try:
            registered = register_model.register(self._api, state, job, job.model, self._settings)
        except MpiJobError as error:
            self._not_before = time.monotonic() + _RETRY_SECONDS
            status_publisher.write_finding_event(
                self._api, found.job, model_registry.registration_failed(error)
            )
            return
        status_publisher.write_event(
            self._api, found.job, "ModelRegistered", model_registry.format_registered(registered), registered.version,
            warning=False, when=self._api.now(),
        )  # fmt: skip
        note = {well_known.MODEL_ANNOTATION: f"{registered.model}/{registered.version}"}
        self._api.patch(found.path, {"metadata": {"annotations": note}}, accept=PARTIAL)
