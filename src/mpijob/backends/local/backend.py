"""The local engine as a backend: real MPI, real processes, no root, no container engine, no daemon.

Calls write their wish into the store, nudge the process concerned, and read the truth back. Every
call begins by looking for jobs whose processes are gone (`recovery`).
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from mpijob import admission
from mpijob.backends import code
from mpijob.backends.local import (
    artifacts,
    listing,
    machine,
    orders,
    planner,
    recovery,
    runner,
    scheduler,
    visits,
)
from mpijob.backends.local.paths import Home
from mpijob.backends.local.processes import send
from mpijob.backends.local.store import Row, Store
from mpijob.errors import Conflict, InvalidJob, NotFound, WaitTimeout
from mpijob.model import (
    Amounts,
    Artifact,
    Event,
    Facts,
    Identity,
    JobRef,
    JobState,
    LogLine,
    LogQuery,
    MPIJob,
    Page,
    Phase,
    Plan,
    Quota,
    Sample,
    Scope,
    quantity,
)
from mpijob.settings import Settings

_POLL_SECONDS = 0.03
_END_SECONDS = 15.0


LogPlaces = tuple[list[tuple[Path, int]], dict[int, int], bool]


class LocalBackend:
    """Jobs on this machine."""

    name = "local"
    plain = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = Home(settings.home)
        self._of_thread = threading.local()  # a database connection belongs to one thread

    @property
    def _store(self) -> Store:
        store: Store | None = getattr(self._of_thread, "store", None)
        if store is None:
            self._of_thread.store = store = Store(self._home)
            recovery.recover(store)
        return store

    # -- before ------------------------------------------------------------------------------------
    async def whoami(self) -> Identity:
        """Return the user who runs this process."""
        try:
            user = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            user = str(os.geteuid())
        return Identity(user=user, administrator=os.geteuid() == 0)

    async def facts(self, job: MPIJob, who: Identity) -> Facts:
        """Return what this machine has and what of it is free."""
        capacity = machine.capacity(self._settings)
        row = self._store.find(JobRef(job.namespace, job.name))
        return Facts(
            place="this machine",
            capacity=capacity,
            free=capacity.minus(scheduler.held(self._store)),
            oversubscribe=self._settings.oversubscribe,
            quota=self._quota(job.namespace),
            max_workers=self._settings.max_workers,
            taken_names=frozenset({job.name} if row is not None and not row.phase.final else ()),
            waiting_jobs=listing.count(self._store, Phase.QUEUED),
            wait_estimate_seconds=listing.wait_estimate(self._store, self._clock(), admission.needs(job)),
        )

    def _clock(self) -> listing.Clock:
        return listing.Clock(machine.capacity(self._settings), time.time())

    def _quota(self, namespace: str) -> Quota | None:
        setting = self._settings.quotas.get(namespace)
        if setting is None:
            return None
        cores, memory, gpus, running = self._store.read(
            "SELECT total(cores), sum(memory), sum(gpus), count(*) FROM jobs WHERE namespace=? AND holds=1",
            namespace,
        )[0]
        return Quota(
            namespace=namespace,
            cores=setting.cpu,
            memory_bytes=int(quantity.parse(setting.memory)) if setting.memory else None,
            gpus=setting.gpu,
            jobs=setting.jobs,
            used=Amounts(cores, memory or 0, gpus or 0),
            jobs_running=running,
            request_url=self._settings.quota_request_url,
        )

    async def plan(self, job: MPIJob, facts: Facts) -> Plan:
        """Return exactly what would run."""
        return planner.plan(job, facts, self._settings, self._home, Path.cwd())

    # -- submit ------------------------------------------------------------------------------------
    async def submit(self, plan: Plan, who: Identity) -> JobRef:
        """Queue the job as one transaction and see to it that somebody runs it."""
        job = plan.job
        ref = JobRef(job.namespace, job.name, plan.uid)
        row = self._store.find(ref)
        if row is None:
            secrets = _secret_values(job)
            self._lay_out(plan, secrets)
            try:
                self._store.add(plan, _first_state(plan, who), _labels(job), job.priority_number)
            except Conflict:
                shutil.rmtree(self._home.job(plan.uid), ignore_errors=True)
                raise
            now = time.time()
            self._store.add_events(plan.uid, Event(now, "Submitted", f"submitted by {who.user}"))
        self._wake()
        return ref

    def _lay_out(self, plan: Plan, secrets: dict[str, str]) -> None:
        work = self._home.work(plan.uid)
        try:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            from mpijob.backends.local.paths import cannot_write

            raise cannot_write(work, str(error.strerror)) from error
        orders.provide_agent(self._home)
        code.lay_out(plan.job.code, work)
        orders.write_secrets(self._home, plan.uid, secrets)

    def _wake(self) -> None:
        """Start a runner if one is needed: something is queued, and it may fit."""
        free = machine.capacity(self._settings).minus(scheduler.held(self._store))
        queued = self._store.read("SELECT min(cores) FROM jobs WHERE phase='Queued' AND desired=''")[0][0]
        if queued is not None and queued <= free.cores + 1e-9:
            runner.start(self._home, self._settings)

    # -- read --------------------------------------------------------------------------------------
    async def spec(self, ref: JobRef) -> MPIJob:
        """Return what was asked for."""
        return self._store.plan(self._row(ref).uid).job

    async def get(self, ref: JobRef) -> JobState:
        """Return the job's present state."""
        row = self._row(ref)
        if row.holds:
            recovery.recover(self._store)
            row = self._row(ref)
        return listing.live(self._store, row, self._clock())

    async def list(self, scope: Scope) -> Page:
        """Return one page of states, newest first."""
        return listing.page(self._store, scope)

    async def watch(self, scope: Scope) -> AsyncIterator[JobState]:
        """Yield every job's state once, then each change."""
        seen: dict[str, JobState] = {}
        while True:
            for state in listing.page(self._store, scope).items:
                if seen.get(state.ref.uid) != state:
                    seen[state.ref.uid] = state
                    yield state
            recovery.recover(self._store)
            await self._change()

    async def _change(self) -> None:
        """Wait until another process has written something, at most a second."""
        version = self._store.data_version
        deadline = time.monotonic() + 1.0
        while self._store.data_version == version and time.monotonic() < deadline:
            await self.pause(_POLL_SECONDS)

    async def logs(self, ref: JobRef, query: LogQuery) -> AsyncIterator[LogLine]:
        """Yield the job's merged log lines."""
        from mpijob.backends.local import logs

        row = self._row(ref)
        if query.follow:
            async for line in logs.followed(lambda: self._log_places(row.uid, query), query, self.pause):
                yield line
            return
        places, worker_of, _ = self._log_places(row.uid, query)
        for line in logs.stored(places, worker_of, query):
            yield line

    def _log_places(self, uid: str, query: LogQuery) -> LogPlaces:
        row = next(iter(self._store.rows("uid=?", uid)), None)
        if row is None:
            return [], {}, True
        wanted = range(1, row.attempt + 1) if query.attempt is None else (query.attempt,)
        if row.holds:
            recovery.recover(self._store)
        over = (row.phase.final or row.phase is Phase.SUSPENDED) and not row.holds
        workers = {state.rank: state.worker for state in row.state.ranks}
        return [(self._home.logs(uid, attempt), attempt) for attempt in wanted], workers, over

    async def events(self, ref: JobRef, *, follow: bool = False) -> AsyncIterator[Event]:
        """Yield what happened."""
        row = self._row(ref)
        last = 0
        while True:
            current = next(iter(self._store.rows("uid=?", row.uid)), None)
            for event in self._store.events(row.uid, last):
                last = event.sequence
                yield event
            if not follow or current is None or (current.phase.final and not current.holds):
                return
            recovery.recover(self._store)
            await self._change()

    async def samples(self, ref: JobRef) -> tuple[Sample, ...]:
        """Return the usage measured so far."""
        return self._store.samples(self._row(ref).uid)

    def _row(self, ref: JobRef) -> Row:
        row = self._store.find(ref)
        if row is None:
            raise NotFound(
                f"no job '{ref.name}' in namespace '{ref.namespace}'",
                hint="mpijob list --all-namespaces shows every job",
            )
        return row

    # -- act ---------------------------------------------------------------------------------------
    async def cancel(self, ref: JobRef, *, grace_seconds: float | None = None) -> JobState:
        """End the job and return its last state."""
        return await self._end(ref, "cancel", Phase.CANCELLED, grace_seconds)

    async def suspend(self, ref: JobRef) -> JobState:
        """End the processes, keep the job."""
        row = self._row(ref)
        if row.phase.final:
            raise Conflict(f"job '{ref.name}' is {row.phase.value}: there is nothing to suspend")
        return await self._end(ref, "suspend", Phase.SUSPENDED, None)

    async def resume(self, ref: JobRef) -> JobState:
        """Queue a suspended job again."""
        row = self._row(ref)
        if row.phase is not Phase.SUSPENDED:
            raise Conflict(f"job '{ref.name}' is {row.phase.value}, not Suspended")
        state = recovery.fresh(row.state, "WaitingForResources", "waiting for its turn")
        started = row.state.started is not None
        state = state if started else msgspec.structs.replace(state, attempt=row.attempt)
        self._store.put(
            state, Event(time.time(), "Resumed", "queued again", attempt=state.attempt), desired=""
        )
        self._wake()
        return state

    async def _end(self, ref: JobRef, wish: str, phase: Phase, grace_seconds: float | None) -> JobState:
        row = self._row(ref)
        if row.phase.final and not row.holds:
            return row.state
        self._store.ask(row.uid, wish, grace_seconds)
        if self._ended_unstarted(row.uid, phase):
            return self._row(msgspec.structs.replace(ref, uid=row.uid)).state
        self._nudge(row)
        grace = store_grace(self._store, row.uid, grace_seconds)
        return await self._await_end(msgspec.structs.replace(ref, uid=row.uid), grace + _END_SECONDS)

    def _ended_unstarted(self, uid: str, phase: Phase) -> bool:
        """End a job that nobody runs, in one transaction, so that no runner takes it meanwhile."""
        with self._store.transaction() as db:
            held, state = db.execute("SELECT holds, state FROM jobs WHERE uid=?", (uid,)).fetchone()
            if held:
                return False
            now = time.time()
            old = msgspec.json.decode(state, type=JobState)
            text = f"the job was {phase.value.lower()} before it had started"
            finished = now if phase.final else None
            new = msgspec.structs.replace(
                old, phase=phase, reason=phase.value, message=text, finished=finished
            )
            db.execute(
                "UPDATE jobs SET phase=?, state=?, desired='', version=version+1 WHERE uid=?",
                (phase.value, msgspec.json.encode(new), uid),
            )
            event = Event(now, phase.value, text, attempt=old.attempt)
            db.execute("INSERT INTO events (uid, event) VALUES (?,?)", (uid, msgspec.json.encode(event)))
        return True

    def _nudge(self, row: Row) -> None:
        fresh = next(iter(self._store.rows("uid=?", row.uid)), row)
        if machine.alive(fresh.supervisor):
            send(machine.pid_of(fresh.supervisor), signal.SIGUSR1)

    async def _await_end(self, ref: JobRef, seconds: float) -> JobState:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            row = self._row(ref)
            if not row.holds:
                return row.state
            self._nudge(row)
            recovery.recover(self._store)
            await self.pause(_POLL_SECONDS)
        raise WaitTimeout(f"job '{ref.name}' has not ended within {seconds:g} s; it will be ended")

    async def delete(self, ref: JobRef, *, grace_seconds: float | None = None) -> None:
        """End the job if needed and remove all that is known of it, and of earlier ones of that name."""
        row = self._row(ref)
        if row.holds or not row.phase.final:
            await self._end(ref, "delete", Phase.CANCELLED, grace_seconds)
        older = (
            []
            if ref.uid
            else self._store.rows("namespace=? AND name=? AND newest=0", ref.namespace, ref.name)
        )
        for gone in (*older, row):
            self._store.remove(gone.uid)
            shutil.rmtree(self._home.job(gone.uid), ignore_errors=True)

    async def execute(
        self, ref: JobRef, argv: tuple[str, ...], *, worker: int | None, rank: int | None
    ) -> int:
        """Run a command inside a worker, with this terminal."""
        row = self._row(ref)
        place = visits.place(row.state, worker, rank)
        plan = self._store.plan(row.uid)
        directory = self._home.attempt(row.uid, row.attempt) / "workers" / plan.workers[place].name
        return visits.run(directory, argv)

    async def artifacts(self, ref: JobRef) -> tuple[Artifact, ...]:
        """Return the files that the job left in its working directory."""
        row = self._row(ref)
        return artifacts.left(self._home.work(row.uid), self._store.plan(row.uid).job.code)

    async def fetch(self, ref: JobRef, path: str, target: Path) -> None:
        """Copy one of those files to this place."""
        artifacts.fetch(self._home.work(self._row(ref).uid), path, target)

    async def pause(self, seconds: float) -> None:
        """Sleep: this backend's calls block, shortly."""
        time.sleep(seconds)  # noqa: ASYNC251 - plain: see backends.base


def store_grace(store: Store, uid: str, asked: float | None) -> float:
    """Return the grace time that holds: the caller's, or the job's."""
    return store.plan(uid).job.grace_seconds if asked is None else asked


def _first_state(plan: Plan, who: Identity) -> JobState:
    job, now = plan.job, time.time()
    return JobState(
        ref=JobRef(job.namespace, job.name, plan.uid),
        phase=Phase.QUEUED,
        engine=plan.engine,
        mpi=f"{plan.family.value} {plan.family_version}".strip(),
        owner=job.owner or who.user,
        labels=dict(job.labels),
        description=job.description,
        image=job.image,
        queue=job.queue,
        priority=job.priority_number,
        reason="WaitingForResources",
        message="waiting for its turn",
        attempts_allowed=job.retry.limit + 1,
        world=plan.world,
        workers_wanted=job.workers,
        created=now,
        queued=now,
    )


def _labels(job: MPIJob) -> str:
    return msgspec.json.encode(dict(job.labels)).decode()


def _secret_values(job: MPIJob) -> dict[str, str]:
    return dict(_read_secrets(job))


def _read_secrets(job: MPIJob) -> Iterator[tuple[str, str]]:
    for secret in job.secrets:
        kind, _, where = secret.source.partition(":")
        try:
            if kind == "file":
                yield secret.env, Path(where).read_text().rstrip("\n")
            else:
                yield secret.env, os.environ[where if kind == "env" else secret.env]
        except (OSError, KeyError) as error:
            raise InvalidJob(
                f"secret '{secret.env}': its source {secret.source} is not there",
                hint=f"set the variable, or write source: env:{secret.env} or file:/path",
            ) from error
