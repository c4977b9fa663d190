"""The model of a cluster's job, written down in the model registry by the controller once the job has succeeded.

A registry that is away leaves the job Succeeded with a warning, and is asked again. What was written stands on the
job, so that no controller asks twice.
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

_AGAIN_SECONDS = 60.0


class ModelRegistration:
    """Writes models down, one job after the other; a registry that did not answer is left in peace for a while."""

    def __init__(self, api: Api, reader: JobReader, settings: Settings) -> None:
        self._api, self._reader, self._settings = api, reader, settings
        self._not_before = 0.0

    def register_model_of(self, look: JobSnapshot) -> None:
        """Write the job's model down, if it has one and it was not written down yet."""
        state, found = look.state, look.found
        if not self._settings.model_registry or state.phase is not Phase.SUCCEEDED:
            return
        if (
            controller_notes.noted(found.job, well_known.MODEL_ANNOTATION)
            or time.monotonic() < self._not_before
        ):
            return
        job = self._reader.spec(found, look.seen.runtime)
        if job.model is None:
            return
        try:
            made = register_model.register(self._api, state, job, job.model, self._settings)
        except MpiJobError as error:
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            status_publisher.say_finding(self._api, found.job, model_registry.registration_failed(error))
            return
        status_publisher.say(
            self._api, found.job, "ModelRegistered", model_registry.format_registered(made), made.version,
            warning=False, when=self._api.now(),
        )  # fmt: skip
        note = {well_known.MODEL_ANNOTATION: f"{made.model}/{made.version}"}
        self._api.patch(found.path, {"metadata": {"annotations": note}}, accept=PARTIAL)
