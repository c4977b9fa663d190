"""The client's methods for diagnosis: stacks, profile, warnings, patterns, audit, curves, bundle."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpijob.client.base import BaseClient

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.client.base import Target
    from mpijob.client.observe.bundle import Bundle
    from mpijob.diagnosis.patterns import Fleet
    from mpijob.errors import Finding
    from mpijob.history.audit.verify_chain import ChainResult
    from mpijob.model import StackReport
    from mpijob.model.status.audit import AuditEvent, AuditQuery
    from mpijob.model.status.mpi_profile import MpiProfile
    from mpijob.model.status.records import NodePlace
    from mpijob.observation.metrics.event_files import EventScalars
    from mpijob.observation.metrics.training import Curves, Point


class Inspecting(BaseClient):
    """The diagnosing methods of the client."""

    def stacks(
        self,
        name: Target,
        ranks: Iterable[int] = (),
        *,
        bring: bool = False,
        namespace: str | None = None,
    ) -> StackReport:
        """Return the call stacks of ranks of a running job, grouped; of all ranks, or of those given.

        `bring` carries this machine's py-spy into pods that have none.
        """
        from mpijob.client.observe import logs

        return logs.stacks(self.ref(name, namespace), self._audited, ranks, bring)

    def profile(self, name: Target, *, step: int | None = None, namespace: str | None = None) -> MpiProfile:
        """Return the MPI profile of the job: time in MPI, traffic between ranks, and waits.

        Only of a job with `profile_mpi`; of a script's the last step, or that of the number given.
        """
        from mpijob.client.observe import mpi_profile

        return mpi_profile.read(self._records, self.ref(name, namespace), step)

    def warnings(self, name: Target, *, namespace: str | None = None) -> tuple[Finding, ...]:
        """Return the early warnings of a running job: memory, silent or idle ranks, restarts, a full disk."""
        return self.backend.warnings(self.ref(name, namespace))

    def patterns(
        self,
        since: float = 3600.0,
        *,
        until: float | None = None,
        least: int = 2,
        namespace: str | None = None,
        all_namespaces: bool = False,
    ) -> Fleet:
        """Return the causes of failed jobs in the last `since` seconds, with at least `least` jobs each."""
        from mpijob.client.observe import diagnose

        scope = self.scope(namespace=namespace, all_namespaces=all_namespaces, phases=diagnose.ENDED)
        until = time.time() if until is None else until
        return diagnose.find_patterns(scope, self.backend, since=until - since, until=until, least=least)

    def audit(self, query: AuditQuery | None = None) -> tuple[AuditEvent, ...]:
        """Return audit log entries, oldest first; see `AuditQuery` for the filters."""
        from mpijob.client.audit import read_log

        return read_log.entries(self.backend, self.settings, query)

    def verify_audit(self, anchor: str = "") -> ChainResult:
        """Verify the hash chain of the audit log; `anchor` is a `number:hash` that was stored elsewhere."""
        from mpijob.client.audit import read_log

        return read_log.verify(self.backend, self.settings, anchor)

    def curves(
        self,
        name: Target,
        patterns: Iterable[str] = (),
        *,
        rank: int | None = None,
        points: int = 720,
        since: float | None = None,
        tail: int | None = None,
        namespace: str | None = None,
        attempt: int | None = None,
    ) -> Curves:
        """Return the metrics, progress and estimated end of a training, from its log.

        Lines of `mpijob.report` are exact; others are searched for the usual words, or for the named groups of
        `patterns`. Of several ranks that tell a metric the lowest counts, unless a rank is named. With `tail` only
        so many of the last lines are read.
        """
        from mpijob.client.observe import training_metrics

        ref = self.ref(name, namespace)
        return training_metrics.read(
            self.backend,
            ref,
            self.settings,
            tuple(patterns),
            rank=rank,
            points=points,
            since=since,
            tail=tail,
            attempt=attempt,
        )

    def points(
        self,
        name: Target,
        *,
        since: float | None = None,
        namespace: str | None = None,
        attempt: int | None = None,
    ) -> tuple[Point, ...]:
        """Return each reported training metric, in log order."""
        from mpijob.client.observe import training_metrics

        ref = self.ref(name, namespace)
        work = training_metrics.points_of(self.backend, ref, self.settings, since=since, attempt=attempt)
        return tuple(work[1])

    def scalars(
        self,
        name: Target,
        *,
        points: int = 720,
        namespace: str | None = None,
        attempt: int | None = None,
    ) -> EventScalars:
        """Return the scalars in the TensorBoard event files that a job wrote into its working directory.

        One series for each tag of each run, which is a directory; damaged and oversized files are named in the notes.
        """
        from mpijob.client.observe import event_files

        return event_files.read(self._records, self.ref(name, namespace), points=points, attempt=attempt)

    def nodes(self, name: Target, *, namespace: str | None = None) -> tuple[NodePlace, ...]:
        """Return the zone and rack of each node of the job, from node labels."""
        from mpijob.client.observe import node_places

        return node_places.read(self._records, self.ref(name, namespace))

    def links(self, name: Target, *, namespace: str | None = None) -> dict[str, str]:
        """Return links to the training metrics of the job: `mlflow`, `wandb`, `tensorboard`."""
        from mpijob.client.integrations import tracking, wandb

        reads = self._records
        state = reads.get(self.ref(name, namespace))
        said = wandb.links(reads, state, self.settings)
        return tracking.links(self.settings, state) | said

    def bundle(
        self,
        name: Target,
        file: str | Path | None = None,
        *,
        stacks: bool = False,
        most_bytes: int = 32 << 20,
        namespace: str | None = None,
    ) -> Bundle:
        """Create a support bundle of the job, with secrets masked; return its path and contents."""
        # Imported here because `list` must start quickly.
        from pathlib import Path

        from mpijob.client.observe import bundle

        ref, where = self.ref(name, namespace), None if file is None else Path(file)
        return bundle.write(ref, self._audited, self.settings, where, stacks=stacks, most_bytes=most_bytes)
