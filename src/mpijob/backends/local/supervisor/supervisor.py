"""The supervisor of one attempt of one job.

It starts the workers and the launcher, lets the ranks through the gate once the world is proved,
keeps its own watch over every process (mpirun's exit code alone is never believed), ends everything
when something has gone wrong, and writes the truth into the store as it changes. Where namespaces
are allowed it is PID 1 of the job.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

from mpijob.backends.attempts.clock import Clock
from mpijob.backends.local.logs.log_writer import LogFile, PipeReader
from mpijob.backends.local.logs.step_output import StepOutput
from mpijob.backends.local.planning.machine import node_name
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.supervisor import shutdown
from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.backends.local.supervisor.deadlines import Deadlines
from mpijob.backends.local.supervisor.fault_injection import Faults
from mpijob.backends.local.supervisor.health_monitor import HealthMonitor
from mpijob.backends.local.supervisor.report_pipe import Reports
from mpijob.backends.local.supervisor.staging import Staging
from mpijob.backends.local.supervisor.status_writer import StatusWriter
from mpijob.backends.local.supervisor.usage import Meter
from mpijob.backends.local.worker import process_tree, syscalls, worker
from mpijob.backends.local.worker.event_loop import EventLoop
from mpijob.backends.local.worker.isolation import Isolation
from mpijob.backends.local.worker.world_proof import WorldProof
from mpijob.errors import Conflict, UnsafePath
from mpijob.model import Family, JobState, Phase
from mpijob.model.spec.quantity import ranks_on
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import Reason

SETTLE_SECONDS = 0.25  # after the first failure: time for MPI's own last words
LINGER_SECONDS = 5.0  # after the launcher's end: time for daemons and ranks to follow
TICK_SECONDS = 0.25
_UNREACHED_REASONS = {"missing": "No such file or directory", "refused": "Connection refused"}


class Supervisor:
    """The loop over one attempt."""

    def __init__(self, store: Store, spec: AttemptSpec, state: JobState) -> None:
        self._store = store
        self._spec = spec
        self._job = spec.plan.job
        self._clock = Clock(state.started or 0.0)
        self._attempt = AttemptState(spec.plan, self._clock.now())
        self._status = StatusWriter(store, spec, self._attempt, state, self._clock)
        self._staging = Staging(spec, self._attempt, self._status)
        self._loop = EventLoop()
        self._workers: dict[int, int] = {}
        self._watched_programs: set[int] = set()
        self._proof = WorldProof(spec.plan)
        self._step_proofs: dict[int, WorldProof] = {}
        self._census_runs = False
        self._mpi_ready = False
        self._has_failed = False
        self._released = False
        self._log: LogFile
        self._output: LogFile | StepOutput
        self._pumps: dict[int, PipeReader] = {}
        limit = min(part.job.resources.memory_bytes for part in self._job.parts)
        self._meter = Meter(store, state.ref.uid, spec.attempt, limit, self._clock.now, spec.worker_gpus)
        self._deadlines = Deadlines(spec.plan, self._attempt)
        self._health_monitor = HealthMonitor(spec, self._attempt, _retries(store, state))
        self._faults = Faults(self._job.labels, self._deadlines.began)
        self._has_request = True  # look once at the start: a wish may be older than we are
        self._grace: float | None = None
        self._node = node_name()

    def run(self, prepare: Callable[[], None] | None = None) -> JobState:
        """Run the attempt to its end and return the last state; the store has it too.

        `prepare` is done first; what it cannot do is the attempt's own failure.
        """
        syscalls.become_subreaper()
        process_tree.disable_core_dumps()
        with self._stop_on_refusal():
            if prepare is not None:
                prepare()
            self._open()
            self._staging.fetch(self._end_if_requested)
            self._deadlines = Deadlines(
                self._spec.plan, self._attempt
            )  # what is fetched takes none of the job's time
            if not (self._attempt.stopped or self._attempt.cancelled or self._attempt.suspended):
                self._start_workers()
        self._watch_until_over()
        if self._proof.without_mpi(time.monotonic()):
            self._status.add_event("NoMPI", "no rank has loaded an MPI library: each rank ran alone")
        self._end_everything()
        self._staging.store_and_register()
        return self._status.finish()

    @contextlib.contextmanager
    def _stop_on_refusal(self) -> Iterator[None]:
        """A start that this machine refuses ends the attempt with the reason."""
        try:
            yield
        except OSError as error:
            what = f"this machine refused: {error.strerror} ({error.filename or 'fork'})"
            self._attempt.stop(_refusal_reason(error), what)
        except UnsafePath as error:
            self._attempt.stop(Reason.START_REFUSED, error.message)

    def _end_if_requested(self) -> None:
        """Leave what is fetched for the job when somebody wants it ended."""
        self._read_requests()
        if self._attempt.cancelled or self._attempt.suspended:
            raise Conflict("the job was stopped while its data was downloaded")

    # -- beginning --------------------------------------------------------------------------------
    def _open(self) -> None:
        ignored = dict.fromkeys((signal.SIGINT, signal.SIGHUP, signal.SIGTERM))
        self._loop.handle_signals({signal.SIGUSR1: self._on_request, **ignored})
        self._spec.prepare()
        logs = self._spec.logs
        log_file = partial(LogFile, now_ns=self._clock.now_ns, masked_values=self._spec.masked_values)
        self._log = self._output = log_file(logs / "launcher.log")
        if self._job.script:
            current = self._attempt.current_step
            self._output = StepOutput(self._log, log_file, logs, self._spec.plan, current)
        self._reports = Reports(self._spec.pipes / "report")
        self._loop.watch(self._reports.fd, self._read_reports)
        self._gate = os.open(self._spec.pipes / "gate", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _start_workers(self) -> None:
        for order in self._spec.workers():
            pid = process_tree.fork_child(partial(worker.main, order, self._clock))
            self._workers[pid] = order.index
        self._faults.inject(self._workers, self._attempt, self._spec)

    def _start_launcher(self) -> None:
        self._attempt.launcher_started = True
        self._status.add_event("WorkersReady", f"Launcher discovered {len(self._attempt.ready)} workers")
        self._census_runs = bool(self._spec.census_launch)
        self._launch(self._spec.census_launch or self._spec.launch)

    def _launch(self, argv: tuple[str, ...]) -> None:
        self._spec.private.check()
        out, out_end = os.pipe2(os.O_CLOEXEC)
        err, err_end = os.pipe2(os.O_CLOEXEC)
        stdin = os.open(self._spec.launcher_stdin, os.O_RDONLY | os.O_CLOEXEC)
        pid = self._spawn(argv, (stdin, out_end, err_end))
        self._attempt.launcher_spawned(pid, counting=self._census_runs)
        for fd in (stdin, out_end, err_end):
            os.close(fd)
        for fd, stream in ((out, "stdout"), (err, "stderr")):
            self._pumps[fd] = PipeReader(fd, self._output, stream)
            self._loop.watch(fd, partial(self._pull, fd))

    def _spawn(self, argv: tuple[str, ...], fds: tuple[int, int, int]) -> int:
        environ, directory = self._spec.environ(), str(self._spec.work)
        if self._spec.isolation is Isolation.NAMESPACES:
            os.chdir(directory)
            return process_tree.spawn_without_fork(argv, environ, fds)
        return process_tree.spawn(argv, environ, directory, fds)

    # -- the loop ---------------------------------------------------------------------------------
    def _watch_until_over(self) -> None:
        over_at: float | None = None
        while over_at is None or time.monotonic() < over_at:
            pause = TICK_SECONDS if over_at is None else min(TICK_SECONDS, over_at - time.monotonic())
            self._run_once(max(0.0, pause))
            if over_at is None:
                over_at = self._watch_until()
            elif self._attempt.quiet():
                return

    def _run_once(self, seconds: float) -> None:
        """Wait for something to happen, at most so long, and take note of it."""
        pauses = [one.pause(time.monotonic()) for one in (self._proof, *self._step_proofs.values())]
        self._listen(min([seconds, *(pause for pause in pauses if pause is not None)]))
        self._check_worlds()
        if self._proof.mpi_ready and not self._mpi_ready:
            self._mpi_ready = True
            self._status.add_event(
                "MPIReady", f"MPI initialization completed after {self._deadlines.elapsed:.2f} s"
            )
        if self._meter.is_due():
            self._measure()
            self._kill_silent_workers()
            self._watch_programs()
        self._faults.inject(self._workers, self._attempt, self._spec)
        self._check_deadlines()

    def _check_worlds(self) -> None:
        if wrong := self._proof.check(time.monotonic()):
            self._attempt.stop(Reason.WRONG_WORLD, wrong)
        for number, proof in self._step_proofs.items():
            if wrong := proof.check(time.monotonic()):
                self._attempt.stop(Reason.WRONG_WORLD, f"step {number}: {wrong}")

    def _watch_until(self) -> float | None:
        """Return when to stop watching, or None while all is well."""
        attempt_state = self._attempt
        if attempt_state.cancelled or attempt_state.suspended:
            return time.monotonic()
        if self._status.failure():
            return time.monotonic() + (0 if attempt_state.stopped else SETTLE_SECONDS)
        if attempt_state.launcher is not None and not self._census_continues():
            return time.monotonic() + (0 if attempt_state.quiet() else LINGER_SECONDS)
        return None

    def _census_continues(self) -> bool:
        """Whether it was only the counting launch that ended, and the job itself comes next."""
        return self._census_runs and (self._attempt.proved is not None or not self._attempt.quiet())

    def _read_reports(self) -> None:
        for verb, words in self._reports.read():
            getattr(self, f"_on_{verb}")(*words)

    def _on_alive(self, index: str) -> None:
        self._deadlines.worker_is_alive(int(index))

    def _on_ready(self, index: str) -> None:
        self._on_alive(index)
        self._attempt.ready.add(int(index))
        if len(self._attempt.ready) == self._job.workers:
            with self._stop_on_refusal():
                self._start_launcher()
            self._status.update()

    def _on_unsafe(self, _index: str) -> None:
        """A worker found a private directory changed. A rank can say so too, so we look; a cleaner may remove one."""
        with self._stop_on_refusal():
            self._spec.private.check(missing_ok=True)

    def _on_daemon(self, index: str, _pid: str) -> None:
        if self._attempt.daemon_began(int(index)):
            self._status.update()

    def _on_done(self, index: str, code: str) -> None:
        self._attempt.daemon_done(int(index), int(code))

    def _on_hello(self, rank: str, size: str, index: str, slot: str, pid: str, gpus: str = "") -> None:
        reached = self._attempt.hello(
            int(rank), int(size or 0), int(index), int(slot), int(pid), gpus, self._node
        )
        if not self._loop.watch_exit(int(pid), lambda: self._rank_gone(int(rank))):
            self._rank_gone(int(rank))
        if self._attempt.take_census() and self._attempt.stopped is None:
            self._open_gate()
        elif reached:
            self._status.update()

    def _on_step(self, number: str, what: str, count: str = "") -> None:
        """A launcher in the job's script has started or ended, or the script wants its job cancelled."""
        if not self._job.script:
            return
        if what == "begin":
            file = self._spec.steps / number / "command"
            with contextlib.suppress(OSError):
                self._attempt.step_began(int(number), file.read_text(errors="replace").strip(), int(count))
        elif what == "end":
            self._attempt.step_ended(int(number), int(count))
            if (proof := self._step_proofs.pop(int(number), None)) is not None:
                proof.close()
        else:
            self._attempt.cancelled = True
        self._status.update()

    def _on_inside(
        self, step: str, rank: str, size: str, index: str, _slot: str, pid: str, _gpus: str = ""
    ) -> None:
        if self._attempt.step_hello(int(step), int(rank), int(size or 0), int(index or 0), int(pid)):
            ranks = {one.rank: one.pid for one in self._attempt.step_ranks[int(step)].values()}
            proof = self._step_proofs[int(step)] = WorldProof(self._spec.plan, len(ranks))
            environ, work = self._spec.environ(), str(self._spec.work)
            if (fd := proof.watch(ranks, time.monotonic(), environ, work)) >= 0:
                self._loop.watch(fd, partial(self._library_opened, proof, fd))

    def _on_outside(self, step: str, rank: str, code: str) -> None:
        self._attempt.step_bye(int(step), int(rank), int(code))

    def _on_guest(self, index: str, pid: str) -> None:
        """Somebody looks at the worker: what he uses is not the job's. Only a child of the worker is believed."""
        seen = process_tree.read_process(int(pid))
        if seen is not None and self._workers.get(seen.parent) == int(index):
            self._meter.exec_pids.add(seen.pid)

    def _on_bye(self, rank: str, code: str) -> None:
        self._attempt.bye(int(rank), int(code))

    def _on_left(self, rank: str, code: str) -> None:
        self._attempt.left(int(rank), int(code))

    def _on_unreached(self, worker: str, why: str) -> None:
        """The agent cannot reach a worker; once the world is there, only somebody else would say so."""
        if self._attempt.proved is None or self._spec.plan.own_launcher:
            self._attempt.unreached.add(worker)
            self._log.write_line(f"mpijob-agent: cannot reach worker {worker}: {_UNREACHED_REASONS[why]}")

    def _rank_gone(self, rank: int) -> None:
        self._read_reports()  # its last word, if it had one, is there by now
        self._attempt.rank_vanished(rank)

    def _watch_programs(self) -> None:
        """Watch the programs themselves too: a shim tells how one ended, but on a busy machine tells it late."""
        for rank, state in self._attempt.ranks.items():
            if rank not in self._watched_programs and rank not in self._attempt.rank_exits:
                for pid in process_tree.children(state.pid):
                    self._watched_programs.add(rank)
                    self._loop.watch_exit(pid, partial(self._attempt.program_gone, rank))

    def _open_gate(self) -> None:
        if self._job.census:
            os.write(self._gate, b"\n" * self._spec.plan.world)
        if self._spec.ranks_report and self._spec.plan.family is not Family.CUSTOM:
            ranks = {rank: one.pid for rank, one in self._attempt.ranks.items()}
            environ, work = self._spec.environ(), str(self._spec.work)
            if (fd := self._proof.watch(ranks, time.monotonic(), environ, work)) >= 0:
                self._loop.watch(fd, partial(self._library_opened, self._proof, fd))
        self._status.update(
            self._status.event("WorldProved", self._census_message()),
            self._status.event("Running", f"all ranks running after {self._deadlines.elapsed:.2f} s"),
        )

    def _library_opened(self, proof: WorldProof, fd: int) -> None:
        if not proof.file_opened(fd, time.monotonic()):
            self._loop.unwatch(fd)

    def _census_message(self) -> str:
        counts = [
            len([r for r in self._attempt.ranks.values() if r.worker == w]) for w in range(self._job.workers)
        ]
        return f"{ranks_on(len(self._attempt.ranks), self._job.workers)}, as planned: {counts}"

    def _pull(self, fd: int) -> None:
        self._pumps[fd].read_some()
        if self._pumps[fd].ended:
            del self._pumps[fd]
            self._loop.unwatch(fd)

    def _listen(self, seconds: float) -> None:
        """Wait for news, at most so long, and note it: what was killed comes before what followed from it."""
        ready = self._loop.wait(seconds)
        self._attempt.now = self._clock.now()
        ended = process_tree.reap()
        for pid in self._workers.keys() & ended.keys():
            self._attempt.worker_lost(self._workers.pop(pid), ended[pid])
        launcher = ended.get(self._attempt.launcher_pid)
        if launcher is not None and launcher < 0:
            self._attempt.launcher_ended(launcher)
        for act in ready:
            act()
        if launcher is not None and launcher >= 0:
            self._attempt.launcher_ended(launcher)
        if self._census_runs and self._attempt.quiet() and self._attempt.proved and not self._attempt.ending:
            self._launch_after_census()
        if self._has_request:
            self._read_requests()

    def _launch_after_census(self) -> None:
        """The counting launch went well: now the command that brings its own launcher."""
        if self._status.failure() is None:
            self._census_runs = False
            self._attempt.begin_after_census()
            with self._stop_on_refusal():
                self._launch(self._spec.launch)

    def _kill_silent_workers(self) -> None:
        quiet = self._deadlines.find_silent(self._workers)
        for pid, index in self._workers.items():
            if index in quiet:
                process_tree.send_signal(pid, signal.SIGKILL)

    def _read_requests(self) -> None:
        self._has_request = False
        row = self._store.find(self._status.state.ref)
        if self._has_failed:  # it has failed: a wish to end it now ends only the look at it
            self._released = row is None or bool(row.desired)
            return
        if row is None or row.desired in ("cancel", "delete"):
            self._attempt.cancelled = True
        elif row.desired == "suspend":
            self._attempt.suspended = True
        if row is not None and row.grace is not None:
            self._grace = row.grace

    def _measure(self) -> None:
        apart = () if self._spec.plan.nodes else self._attempt.ranks.values()
        memory = self._meter.measure(self._workers, apart)
        used = self._meter.launcher_memory(self._attempt.launcher_pid)
        self._attempt.launcher_peak_bytes = max(self._attempt.launcher_peak_bytes, used)
        if self._health_monitor.is_due():
            self._health_monitor.sample(self._attempt.now, memory, self._meter.table)
            self._status.set_warnings(
                self._health_monitor.find_warnings(self._status.state, self._attempt.now)
            )
        self._attempt.step_used(memory)
        for index, used in memory.items():
            self._attempt.peak_bytes[index] = max(self._attempt.peak_bytes.get(index, 0), used)
            limit = self._job.part_of(index).job.resources
            if used > limit.memory_bytes:
                text = f"worker {index} used {used >> 20} MiB, its limit is {limit.memory}"
                self._attempt.stop(Reason.MEMORY_EXCEEDED, text)
                self._attempt.silent(index)

    def _check_deadlines(self) -> None:
        self._deadlines.check()
        if self._deadlines.warning_due():
            shutdown.signal_ranks(self._spec, self._workers, self._attempt)
            wish = self._job.signal
            text = f"{wish.name} sent to every rank, {wish.seconds_before:g} s before the deadline"
            self._status.add_event("Signalled", text)

    # -- the end ----------------------------------------------------------------------------------
    def _end_everything(self) -> None:
        attempt_state = self._attempt
        gentle = attempt_state.cancelled or attempt_state.suspended or attempt_state.deadline_passed
        if gentle and attempt_state.ranks and attempt_state.launcher is None:
            self._end_gracefully()
        self._has_failed = not gentle
        attempt_state.ending = True
        self._keep_for_inspection()
        shutdown.kill_ranks_and_launcher(self._workers, attempt_state)
        for pid in self._workers:
            process_tree.send_signal(pid, signal.SIGTERM)
        self._wait_until(self._all_reaped, 3.0)
        process_tree.kill_descendants(os.getpid())
        shutdown.end_cgroups(self._spec, attempt_state)
        self._drain()

    def _all_reaped(self) -> bool:
        """Whether every worker has ended, and the launcher: what is reaped later has no exit code."""
        return not self._workers and (not self._attempt.launcher_pid or self._attempt.launcher is not None)

    def _end_gracefully(self) -> None:
        """Send the job's signal and give the ranks the grace time to write what they must keep."""
        self._attempt.ending = True
        shutdown.signal_ranks(self._spec, self._workers, self._attempt, warned=self._deadlines.warned)
        grace = self._job.grace_seconds if self._grace is None else self._grace
        self._wait_until(self._attempt.quiet, grace)

    def _keep_for_inspection(self) -> None:
        seconds = self._job.keep_on_failure_seconds
        standing = self._status.phase_result(ended=True)
        if seconds <= 0 or standing.phase is not Phase.FAILED or not self._workers:
            return
        kept = self._status.event("Kept", f"the workers are kept {seconds:g} s for inspection (exec)")
        self._status.update(kept, standing=standing)
        self._wait_until(lambda: self._released, seconds)

    def _wait_until(self, reached: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not reached() and time.monotonic() < deadline:
            self._listen(min(0.05, max(0.0, deadline - time.monotonic())))

    def _drain(self) -> None:
        for pump in self._pumps.values():
            pump.drain()
        if hasattr(self, "_log"):
            self._output.close()
        self._meter.flush()

    def _on_request(self) -> None:
        self._has_request = True


def _retries(store: Store, state: JobState) -> int:
    """Return how often the job was tried again because it had failed; being resumed is no failure."""
    if state.attempt == 1:
        return 0
    return sum(event.reason == "Retrying" for event in store.events(state.ref.uid, 0))


def _refusal_reason(error: OSError) -> Reason:
    return Reason.DISK_FULL if error.errno == errno.ENOSPC else Reason.START_REFUSED
