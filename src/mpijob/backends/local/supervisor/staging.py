"""What is done for an attempt before its workers start and after all has ended: files of buckets, its model.

What cannot be fetched fails the attempt. What cannot be stored or registered afterwards is told, and changes nothing
about how the attempt ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mpijob import codec
from mpijob.backends import s3_volumes
from mpijob.backends.local.planning.volumes import Bind
from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.supervisor.attempt_state import AttemptState
from mpijob.backends.local.supervisor.status_writer import StatusWriter
from mpijob.backends.s3_volumes import Bucket, Connection, Moved
from mpijob.errors import BackendError, Finding, InvalidJob, MpiJobError, Severity
from mpijob.model import Phase, Plan, Volume, VolumeKind
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


class S3Staging:
    """The S3 volumes of one attempt."""

    def __init__(self, plan: Plan, connections: dict[str, Connection]) -> None:
        places = {bind.target: Path(bind.source) for bind in _binds(plan)}
        self._volumes = [(one, places[one.mount]) for one in plan.job.volumes if one.kind is VolumeKind.S3]
        self._connections = connections
        self._known: dict[str, s3_volumes.Known] = {}

    def __bool__(self) -> bool:
        return bool(self._volumes)

    def fetch(self, pulse: Callable[[], object]) -> Iterator[str]:
        """Fetch every volume; yield a sentence about each; raise BackendError where one cannot be had."""
        for volume, place in self._volumes:
            _empty(place)
            moved = s3_volumes.fetch(self._bucket(volume), place, pulse)
            self._known[volume.mount] = s3_volumes.seen(place)
            yield f"{volume.mount}: {moved} fetched from {volume.source}"

    def store(self, *, everything: bool = False) -> Iterator[str | Finding]:
        """Store what changed, or all of it; yield a sentence, or a finding where something cannot be stored."""
        for volume, place in self._volumes:
            if volume.read_only or not place.is_dir():
                continue
            known = {} if everything else self._known.get(volume.mount, {})
            try:
                moved, _ = s3_volumes.store(self._bucket(volume), place, known)
            except (BackendError, InvalidJob, OSError) as error:
                yield _not_stored(volume, str(getattr(error, "message", error)))
            else:
                yield _stored(volume, moved)

    def _bucket(self, volume: Volume) -> Bucket:
        if volume.source not in self._connections:
            raise BackendError(f"the data connection of {volume.source} is not known any more")
        return Bucket(self._connections[volume.source], s3_volumes.parted(volume.source)[1])


def _empty(place: Path) -> None:
    """Take everything out of a directory; it stays itself, because the job sees it at another place already."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in place.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


def _binds(plan: Plan) -> list[Bind]:
    return [codec.convert(volume, Bind) for volume in plan.volumes]


def _stored(volume: Volume, moved: Moved) -> str:
    return f"{volume.mount}: {moved} stored in {volume.source}"


def _not_stored(volume: Volume, why: str) -> Finding:
    return Finding(
        code="DATA_NOT_STORED",
        field="volumes",
        message=f"what the job wrote to {volume.mount} could not be stored in {volume.source}: {why}",
        hint="the files are kept; when the store answers: mpijob artifacts store JOB",
        severity=Severity.WARNING,
    )
