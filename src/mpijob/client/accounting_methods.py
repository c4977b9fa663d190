"""The verbs that ask what was used and what it cost: accounts, usage_report, budgets, estimate."""

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
    """The part of the client that keeps accounts."""

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
        from mpijob.client.history import accounts  # a list needs none: start-up is a feature

        where = "" if all_namespaces else namespace or self.namespace
        plain, runs = self._named(names, where)
        wanted = accounts.query(
            where, names=plain, uids=(*runs, *uids), owners=owners, phases=phases, selector=selector,
            since=since, until=until, limit=limit, after=after, **chosen,
        )  # fmt: skip
        return accounts.page(self.backend, wanted)

    def _named(self, names: Iterable[str], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return which of the names are those of jobs, and the uids that the others mean."""
        refs = {name: self.ref(name, where or None) for name in names}
        plain = tuple(name for name, ref in refs.items() if not ref.uid)
        return plain, tuple(ref.uid for ref in refs.values() if ref.uid)

    def attempt_accounts(
        self, name: Target, attempts: Iterable[int] = (), *, namespace: str | None = None
    ) -> tuple[Account, ...]:
        """Return an account for each attempt of a job, or for those named, the first first."""
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
        """Return what jobs that ended in a time used and cost, by user, namespace, month, label:KEY …"""
        from mpijob.client.history import accounts

        where = "" if all_namespaces else namespace or self.namespace
        wanted = accounts.query(where, since=since, until=until, **chosen)
        return accounts.report(self.backend, self.settings, wanted, tuple(by))

    def wait_accuracy(
        self, since: float = 30 * 86400.0, *, namespace: str | None = None, all_namespaces: bool = False
    ) -> AccuracyReport:
        """Return how good estimates of waiting were in the last `since` seconds.

        As they were told when jobs were submitted, and as today's way would have told them then.
        """
        import time

        from mpijob.client.history import wait_accuracy

        where = "" if all_namespaces else namespace or self.namespace
        return wait_accuracy.report(self.backend, self.settings, where, time.time() - since)

    def rates(self) -> Mapping[str, RateSetting]:
        """Return what hours cost by namespace, "*" for all others: the cluster's own rates, else the settings'."""
        from mpijob.client.history import accounts

        return accounts.rates(self.backend, self.settings)

    def budgets(self) -> tuple[Budget, ...]:
        """Return how the namespaces that have a budget stand this month, with the forecast for its end."""
        from mpijob.client.history import accounts

        return accounts.budgets(self.backend, self.settings)

    def estimate(self, job: MPIJob) -> Estimate | None:
        """Return what a job will take and cost, from earlier runs of its program; None where there were none."""
        from mpijob.client.history import accounts

        return accounts.estimate(self.backend, self.settings, self._sound(job))

    def advise(self, job: MPIJob) -> SizingReport:
        """Return what earlier runs of a job's program say about the next one: what to ask for, and how it scales."""
        from mpijob.client.history import accounts

        return accounts.advise(self.backend, self._sound(job))

    def backup_record(self, file: str | Path) -> int:
        """Write the whole record of jobs into one file, while it is in use; return how many jobs are in it."""
        from mpijob.client.history import maintenance

        return maintenance.backup(self._audited, self.settings, str(file))

    def restore_record(self, file: str | Path) -> int:
        """Put a backup back where no record is; return how many jobs are remembered again."""
        from mpijob.client.history import maintenance

        return maintenance.restore(self._audited, self.settings, str(file))

    def erase_user(self, user: str) -> tuple[JobRef, ...]:
        """Erase what is remembered of a user's deleted jobs; the audit log records it. Return which."""
        from mpijob.client.audit import recorder
        from mpijob.client.history import maintenance
        from mpijob.model.status.audit import Verb

        gone = maintenance.erase_user(self._audited, self.settings, user)
        for ref in gone:
            recorder.tell(self._audited, Verb.FORGET, ref)
        return gone
