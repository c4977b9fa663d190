"""Transfers before and after an attempt: S3 volumes (by `storage.s3_staging`), and the model's registration.

A download that fails fails the attempt. An upload or a registration that fails is reported, and does not change how
the attempt ended.
"""

from __future__ import annotations

from collections.abc import Callable

from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.supervisor.status_writer import StatusWriter
from mpijob.errors import Finding, MpiJobError
from mpijob.model import Phase
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import Reason


class Staging:
    """The transfers of one attempt."""

    def __init__(self, spec: AttemptSpec, attempt_state: AttemptState, status: StatusWriter) -> None:
        self._spec = spec
        self._attempt = attempt_state
        self._status = status

    def fetch(self, before_file: Callable[[], None]) -> None:
        """Download the job's S3 volumes; `before_file` may raise an MpiJobError to end that."""
        s3_staging = self._spec.s3_staging()
        if s3_staging is None:
            return
        try:
            for message in s3_staging.fetch(before_file):
                self._status.add_event("DataFetched", message)
        except MpiJobError as error:
            if not (self._attempt.cancelled or self._attempt.suspended):
                text = f"the job's data could not be fetched: {error.message}"
                self._attempt.stop(Reason.DATA_NOT_FETCHED, text)

    def store_and_register(self) -> None:
        """Upload what the job changed, however it ended; register its model if it succeeded."""
        s3_staging = self._spec.s3_staging()
        if s3_staging is not None and self._attempt.proved is not None:
            for result in s3_staging.store():
                self._report("DataStored", result)
        if self._spec.plan.job.model is not None:
            self._register()

    def _register(self) -> None:
        if self._status.phase_result(ended=True).phase is not Phase.SUCCEEDED:
            return
        from mpijob.backends.local.supervisor import model_registry

        spec, owner = self._spec, self._status.state.owner
        try:
            entry = model_registry.entry(spec.plan, spec.work, spec.connections(), owner)
        except MpiJobError as error:
            self._status.add_event("ModelNotRegistered", error.message)
            return
        self._report(
            "ModelRegistered",
            model_registry.register_or_finding(
                entry, spec.settings.model_registry, spec.settings.model_registry_token_file
            ),
        )

    def _report(self, reason: str, result: str | Finding) -> None:
        if isinstance(result, str):
            self._status.add_event(reason, result)
        else:
            self._status.add_finding(result)
