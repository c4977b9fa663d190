"""The client's methods for usage and cost: accounts, reports, budgets, estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mpijob.client.base import BaseClient

if TYPE_CHECKING:
    from pathlib import Path

    from mpijob.accounting.costs import Budget
    from mpijob.accounting.estimates import Estimate
    from mpijob.accounting.reports import Report
    from mpijob.accounting.right_sizing import SizingReport
    from mpijob.client.base import Target
    from mpijob.model import JobRef, MPIJob, Phase
    from mpijob.model.status.accounts import Account, AccountPage
    from mpijob.model.status.forecast import AccuracyReport
    from mpijob.settings import RateSetting


class Accounting(BaseClient):
    """The accounting methods of the client."""

    def accounts(
        self,
        /,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        names: Iterable[str] = (),
        uids: Iterable[str] = (),
        owners: Iterable[str] = (),
        phases: Iterable[Phase | str] = (),
        selector: str = "",
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
        after: str = "",
        **chosen: Any,
    ) -> AccountPage:
        """Return one page of accounts, newest first, of jobs that are there and of those that were deleted.

        `names` may be `NAME@RUN` or uids, too.
        `since` and `until` (seconds since the epoch) choose jobs that were there at some time between them.
        """
        # Imported here and below because commands such as `list` must start quickly.
        from mpijob.client.history import accounts

        where = "" if all_namespaces else namespace or self.namespace
        plain, runs = self._named(names, where)
        wanted = accounts.query(
            where, names=plain, uids=(*runs, *uids), owners=owners, phases=phases, selector=selector,
            since=since, until=until, limit=limit, after=after, **chosen,
        )  # fmt: skip
        return accounts.page(self.backend, wanted)

    def _named(self, names: Iterable[str], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Split names into job names, and uids of the runs that `NAME@RUN` and uids address."""
        refs = {name: self.ref(name, where or None) for name in names}
        plain = tuple(name for name, ref in refs.items() if not ref.uid)
        return plain, tuple(ref.uid for ref in refs.values() if ref.uid)

    def attempt_accounts(
        self, name: Target, attempts: Iterable[int] = (), *, namespace: str | None = None
    ) -> tuple[Account, ...]:
        """Return the accounting record of each attempt of the job, or of those given, oldest first."""
        from mpijob.client.history import accounts

        return accounts.of_attempts(self.ref(name, namespace), self._records, tuple(attempts))

    def usage_report(
        self,
        /,
        by: Iterable[str] = ("user",),
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        since: float | None = None,
        until: float | None = None,
        **chosen: Any,
    ) -> Report:
        """Return usage and cost of jobs that ended in a period, by user, namespace, month, label:KEY …"""
        from mpijob.client.history import accounts

        where = "" if all_namespaces else namespace or self.namespace
        wanted = accounts.query(where, since=since, until=until, **chosen)
        return accounts.report(self.backend, self.settings, wanted, tuple(by))

    def wait_accuracy(
        self, since: float = 30 * 86400.0, *, namespace: str | None = None, all_namespaces: bool = False
    ) -> AccuracyReport:
        """Return the accuracy of queue time estimates in the last `since` seconds.

        Both of the estimates that were shown, and of those that the current algorithm would have made.
        """
        import time

        from mpijob.client.history import wait_accuracy

        where = "" if all_namespaces else namespace or self.namespace
        return wait_accuracy.report(self.backend, self.settings, where, time.time() - since)

    def rates(self) -> Mapping[str, RateSetting]:
        """Return the cost rates by namespace, "*" for all others: those of the cluster, or of the settings."""
        from mpijob.client.history import accounts

        return accounts.rates(self.backend, self.settings)

    def budgets(self) -> tuple[Budget, ...]:
        """Return the budgets of namespaces: spending this month, and the forecast for its end."""
        from mpijob.client.history import accounts

        return accounts.budgets(self.backend, self.settings)

    def estimate(self, job: MPIJob) -> Estimate | None:
        """Estimate duration and cost of a job from earlier runs of its program; None without earlier runs."""
        from mpijob.client.history import accounts

        return accounts.estimate(self.backend, self.settings, self._sound(job))

    def advise(self, job: MPIJob) -> SizingReport:
        """Recommend resources from earlier runs of the job's program, and return how it scales."""
        from mpijob.client.history import accounts

        return accounts.advise(self.backend, self._sound(job))

    def backup_record(self, file: str | Path) -> int:
        """Back up the job history to one file, also while it is in use; return the number of jobs."""
        from mpijob.client.history import maintenance

        return maintenance.backup(self._audited, self.settings, str(file))

    def restore_record(self, file: str | Path) -> int:
        """Restore a backup into an empty history; return the number of jobs."""
        from mpijob.client.history import maintenance

        return maintenance.restore(self._audited, self.settings, str(file))

    def erase_user(self, user: str) -> tuple[JobRef, ...]:
        """Erase the records of a user's deleted jobs, and return them; the audit log notes it."""
        from mpijob.client.audit import recorder
        from mpijob.client.history import maintenance
        from mpijob.model.status.audit import Verb

        gone = maintenance.erase_user(self._audited, self.settings, user)
        for ref in gone:
            recorder.record_event(self._audited, Verb.FORGET, ref)
        return gone
