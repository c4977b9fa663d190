"""Several contexts at once: a list over all of them, a comparison across two, moving a job to another one.

A context is what `--context` accepts: `local`, a context of the kubeconfig, a Slurm cluster. The setting
`contexts` lists them; without it, this machine, the kubeconfig's current context, and Slurm if `sbatch` is
installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.client.client import Client
from mpijob.errors import Finding, InvalidJob, MpiJobError, Severity
from mpijob.formats.convert.report import FieldEntry
from mpijob.model import JobKey, JobState, MPIJob, Plan
from mpijob.settings import CLUSTER, LOCAL, SLURM, Settings, at, is_slurm, load

if TYPE_CHECKING:
    from mpijob.client.job import Job
    from mpijob.client.observe.compare import Comparison
    from mpijob.model.status.accounts import Account


class PlacedState(msgspec.Struct, frozen=True):
    """A job's state, and the context that it is in."""

    context: str
    state: JobState


class Everywhere(msgspec.Struct, frozen=True):
    """Jobs of several contexts, newest first; `notices` name those that did not answer."""

    items: tuple[PlacedState, ...]
    notices: tuple[Finding, ...] = ()


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A job planned for another context: every difference, and the plan, or the reason of its refusal."""

    job: MPIJob
    source: str
    target: str
    entries: tuple[FieldEntry, ...]
    plan: Plan | None = None
    refused: str = ""
    hint: str = ""

    @property
    def runs(self) -> bool:
        """Whether the job would run there as it is."""
        return self.plan is not None and not any(entry.blocks for entry in self.entries)


class Contexts:
    """The places of one user.

    >>> from mpijob.settings import Settings
    >>> Contexts(Settings(contexts=("local", "slurm:gpu"))).names()
    ('local', 'slurm:gpu')
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = load() if settings is None else settings

    def names(self) -> tuple[str, ...]:
        """Return the contexts."""
        if self.settings.contexts:
            return self.settings.contexts
        kubeconfig = (
            self.settings.kubeconfig or os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
        )
        there = any(os.path.exists(one) for one in kubeconfig.split(os.pathsep))
        found = [
            LOCAL,
            *([self.settings.context] if there else []),
            *([SLURM] if shutil.which("sbatch") else []),
        ]
        return tuple(dict.fromkeys(found))

    def client(self, context: str) -> Client:
        """Return a client of one context."""
        settings = self.settings if context else msgspec.structs.replace(self.settings, engine="")
        return Client(settings=at(settings, context))

    def list(self, **chosen: Any) -> Everywhere:
        """Return the jobs of all contexts, chosen as in `Client.list`; a place that does not answer is named."""
        names = self.names()
        limit = chosen.get("limit", 100)

        def ask(name: str) -> tuple[str, tuple[JobState, ...], MpiJobError | None]:
            try:
                with self.client(name) as client:
                    return name, client.list(**chosen).items, None
            except MpiJobError as error:
                return name, (), error

        with ThreadPoolExecutor(max(1, len(names))) as pool:
            answers = list(pool.map(ask, names))
        items = [PlacedState(name or CLUSTER, state) for name, states, _ in answers for state in states]
        items.sort(key=lambda one: one.state.created, reverse=True)
        notices = tuple(
            Finding(
                "CONTEXT_SILENT", f"{name or CLUSTER}: {error.message}", error.hint, severity=Severity.WARNING
            )
            for name, _, error in answers
            if error is not None
        )
        return Everywhere(tuple(items[:limit]), notices)

    def compare(self, names: Iterable[str], usual: str | None = None) -> Comparison:
        """Return how jobs of several contexts differ, each named NAME@CONTEXT; the `usual` context needs no name."""
        from mpijob.client.history import accounts
        from mpijob.client.observe import compare

        pairs: list[tuple[MPIJob, JobState]] = []
        used: dict[JobKey, Account] = {}
        for name, context in map(split_name, names):
            with self.client(context if context is not None else usual or LOCAL) as client:
                state = client.state(name)
                pairs.append((client.spec(state.ref), state))
                used |= accounts.of(client.backend, [state.ref])
        return compare.compare(pairs, used)

    def move(self, name: str, target: str, source: str | None = None, **fields: Any) -> Move:
        """Return a job as another context would run it, with every difference; nothing is started.

        `fields` are changed first, as in `Client.clone`.
        """
        from mpijob.formats.convert import moves

        name, context = split_name(name)
        here = context if context is not None else source or LOCAL
        with self.client(here) as client:
            job = client.spec(name).replace(**fields)
        entries = moves.differences(job, kind(here), kind(target))
        try:
            with self.client(target) as there:
                plan = there.plan(job)
        except MpiJobError as error:
            return Move(
                job=job, source=here, target=target, entries=entries, refused=error.message, hint=error.hint
            )
        return Move(job=job, source=here, target=target, entries=entries, plan=plan)

    def submit(self, move: Move) -> Job:
        """Submit a job that was planned for another context; refuse one that would not run there."""
        if not move.runs:
            blocked = "; ".join(f"{one.field}: {one.note}" for one in move.entries if one.blocks)
            raise InvalidJob(
                f"{move.job.name} does not run on {move.target}: {move.refused or blocked}", hint=move.hint
            )
        return self.client(move.target).submit(move.job)


def split_name(name: str) -> tuple[str, str | None]:
    """Return the name of a job and its context; None where it names none.

    >>> split_name("relax@slurm"), split_name("relax@2"), split_name("relax@2@slurm")
    (('relax', 'slurm'), ('relax@2', None), ('relax@2', 'slurm'))
    """
    first, sign, context = name.rpartition("@")
    # a number is a run of that name
    return (name, None) if not sign or context.isdigit() else (first, context)


def kind(context: str) -> str:
    """Return what kind of engine a context has."""
    return LOCAL if context == LOCAL else SLURM if is_slurm(context) else CLUSTER
