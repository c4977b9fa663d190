"""What is done for an attempt before its workers start and after all has ended: files of buckets, its model.

`storage/s3_staging` moves the files.

What cannot be fetched fails the attempt. What cannot be stored or registered afterwards is told, and changes nothing
about how the attempt ended.
"""

from __future__ import annotations

from collections.abc import Callable

from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.supervisor.attempt_state import AttemptState
from mpijob.backends.local.supervisor.status_writer import StatusWriter
from mpijob.errors import Finding, MpiJobError
from mpijob.model import Phase
from mpijob.observation.state.phase import Reason


class Staging:
    """The errands of one attempt."""

    def __init__(self, orders: AttemptSpec, ledger: AttemptState, teller: StatusWriter) -> None:
        self._orders = orders
        self._ledger = ledger
        self._teller = teller

    def before(self, pulse: Callable[[], None]) -> None:
        """Fetch what the job's S3 volumes hold; `pulse` is called before each file and may end it."""
        cargo = self._orders.cargo()
        if cargo is None:
            return
        try:
            for told in cargo.fetch(pulse):
                self._teller.tell("DataFetched", told)
        except MpiJobError as error:
            if not (self._ledger.cancelled or self._ledger.suspended):
                text = f"the job's data could not be fetched: {error.message}"
                self._ledger.stop(Reason.DATA_NOT_FETCHED, text)

    def after(self) -> None:
        """Store what the job changed, however it ended; write its model down when it has succeeded."""
        cargo = self._orders.cargo()
        if cargo is not None and self._ledger.proved is not None:
            for told in cargo.store():
                self._tell("DataStored", told)
        if self._orders.plan.job.model is not None:
            self._register()

    def _register(self) -> None:
        if self._teller.standing(ended=True).phase is not Phase.SUCCEEDED:
            return
        from mpijob.backends.local.supervisor import model_registry

        orders, owner = self._orders, self._teller.state.owner
        try:
            entry = model_registry.entry(orders.plan, orders.work, orders.connections(), owner)
        except MpiJobError as error:
            self._teller.tell("ModelNotRegistered", error.message)
            return
        self._tell("ModelRegistered", model_registry.tried(entry, *orders.registry))

    def _tell(self, reason: str, told: str | Finding) -> None:
        if isinstance(told, str):
            self._teller.tell(reason, told)
        else:
            self._teller.remark(told)
