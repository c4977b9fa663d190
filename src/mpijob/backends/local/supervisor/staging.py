"""What is done for an attempt before its workers start and after all has ended: files of buckets, its model.

`storage/s3_staging` moves the files.

What cannot be fetched fails the attempt. What cannot be stored or registered afterwards is told, and changes nothing
about how the attempt ended.
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
    """The errands of one attempt."""

    def __init__(self, spec: AttemptSpec, attempt_state: AttemptState, teller: StatusWriter) -> None:
        self._spec = spec
        self._attempt = attempt_state
        self._status = teller

    def fetch(self, pulse: Callable[[], None]) -> None:
        """Fetch what the job's S3 volumes hold; `pulse` is called before each file and may end it."""
        s3_staging = self._spec.s3_staging()
        if s3_staging is None:
            return
        try:
            for told in s3_staging.fetch(pulse):
                self._status.add_event("DataFetched", told)
        except MpiJobError as error:
            if not (self._attempt.cancelled or self._attempt.suspended):
                text = f"the job's data could not be fetched: {error.message}"
                self._attempt.stop(Reason.DATA_NOT_FETCHED, text)

    def store_and_register(self) -> None:
        """Store what the job changed, however it ended; write its model down when it has succeeded."""
        s3_staging = self._spec.s3_staging()
        if s3_staging is not None and self._attempt.proved is not None:
            for told in s3_staging.store():
                self._report("DataStored", told)
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

    def _report(self, reason: str, told: str | Finding) -> None:
        if isinstance(told, str):
            self._status.add_event(reason, told)
        else:
            self._status.add_finding(told)
