"""The supervisor process of one attempt of one job; where namespaces are allowed it is PID 1 of the job.

It starts the workers and the launcher, opens the gate for the ranks when the world is proved, watches every process,
ends all of them after a failure, and stores each change of the state. The facts it collects are in `AttemptState`;
`observation.state.phase` derives the phase from them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from mpijob.model import Family, JobState, Phase, RankState
from mpijob.model.spec.quantity import ranks_on
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import Reason

# From the first failure until everything is killed: MPI prints its own error message in this time.
SETTLE_SECONDS = 0.25
# From the launcher's end until daemons and ranks count as left behind.
LINGER_SECONDS = 5.0
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
        self._is_decided = False
        self._released = False
        self._log: LogFile
        self._output: LogFile | StepOutput
        self._pipe_readers: dict[int, PipeReader] = {}
        limit = min(part.job.resources.memory_bytes for part in self._job.parts)
        self._meter = Meter(store, state.ref.uid, spec.attempt, limit, self._clock.now, spec.worker_gpus)
        self._deadlines = Deadlines(spec.plan, self._attempt)
        self._health_monitor = HealthMonitor(spec, self._attempt, _retries(store, state))
        self._faults = Faults(self._job.labels, self._deadlines.began)
        # A cancellation may be older than this process, which then missed its signal.
        self._has_request = True
        self._grace: float | None = None
        self._node = node_name()

    def run(self, prepare: Callable[[], None] | None = None) -> JobState:
        """Run the attempt to its end and return the last state, which is also stored.

        `prepare` is called first; an OSError in it fails the attempt.
        """
        syscalls.become_subreaper()
        process_tree.disable_core_dumps()
        with self._stop_on_refusal():
            if prepare is not None:
                prepare()
            self._open()
            self._staging.fetch(self._end_if_requested)
            # Again: downloads do not count against the job's deadline.
            self._deadlines = Deadlines(self._spec.plan, self._attempt)
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
        """Turn errors of this machine into a failure of the attempt."""
        try:
            yield
        except OSError as error:
            what = f"this machine refused: {error.strerror} ({error.filename or 'fork'})"
            self._attempt.stop(_refusal_reason(error), what)
        except UnsafePath as error:
            self._attempt.stop(Reason.START_REFUSED, error.message)

    def _end_if_requested(self) -> None:
        self._read_requests()
        if self._attempt.cancelled or self._attempt.suspended:
            raise Conflict("the job was stopped while its data was downloaded")

    # -- start ------------------------------------------------------------------------------------
    def _open(self) -> None:
        # Jobs end by `mpijob cancel` only, not with a terminal or by a signal to the process group.
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
        # O_RDWR: opening a FIFO for writing alone waits for (or, non-blocking, fails without) a reader.
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
        # mpirun executes the agent in there: another user must not have replaced it (docs/decisions/0046).
        self._spec.private.check()
        out, out_end = os.pipe2(os.O_CLOEXEC)
        err, err_end = os.pipe2(os.O_CLOEXEC)
        stdin = os.open(self._spec.launcher_stdin, os.O_RDONLY | os.O_CLOEXEC)
        pid = self._spawn(argv, (stdin, out_end, err_end))
        self._attempt.launcher_spawned(pid, counting=self._census_runs)
        # The pipes end only when nobody has their writing ends open, this process included.
        for fd in (stdin, out_end, err_end):
            os.close(fd)
        for fd, stream in ((out, "stdout"), (err, "stderr")):
            self._pipe_readers[fd] = PipeReader(fd, self._output, stream)
            self._loop.watch(fd, partial(self._read_output, fd))

    def _spawn(self, argv: tuple[str, ...], fds: tuple[int, int, int]) -> int:
        environ, directory = self._spec.environ(), str(self._spec.work)
        # Without copying this process's memory, which takes longer the more it has (docs/decisions/0014).
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
            # Everything has ended by itself: there is nothing to wait for.
            elif self._attempt.all_ended():
                return

    def _run_once(self, seconds: float) -> None:
        pauses = [proof.pause(time.monotonic()) for proof in (self._proof, *self._step_proofs.values())]
        self._handle_events(min([seconds, *(pause for pause in pauses if pause is not None)]))
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
        """Return the monotonic time at which to stop watching, None while nothing has ended or failed."""
        attempt_state = self._attempt
        if attempt_state.cancelled or attempt_state.suspended:
            return time.monotonic()
        # mpirun's exit code is not enough: Open MPI's was 0 in 4 of 4 runs whose daemon was killed, and MPICH's did
        # not end at all. So every process counts.
        if self._status.failure():
            return time.monotonic() + (0 if attempt_state.stopped else SETTLE_SECONDS)
        if attempt_state.launcher is not None and not self._census_continues():
            return time.monotonic() + (0 if attempt_state.all_ended() else LINGER_SECONDS)
        return None

    def _census_continues(self) -> bool:
        """Whether the launcher that ended only counted ranks, and the job's own command follows."""
        return self._census_runs and (self._attempt.proved is not None or not self._attempt.all_ended())

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
        # Checked again: a rank can write this line as well. A missing directory is no attack: cleaners of /tmp exist.
        with self._stop_on_refusal():
            self._spec.private.check(missing_ok=True)

    def _on_daemon(self, index: str, _pid: str) -> None:
        if self._attempt.daemon_started(int(index)):
            self._status.update()

    def _on_done(self, index: str, code: str) -> None:
        self._attempt.daemon_ended(int(index), int(code))

    def _on_hello(self, rank: str, size: str, index: str, slot: str, pid: str, gpus: str = "") -> None:
        reached = self._attempt.rank_started(
            int(rank), int(size or 0), int(index), int(slot), int(pid), gpus, self._node
        )
        # The wrapper reports its exit, unless it is killed: then the kernel's notice is all there is.
        if not self._loop.watch_exit(int(pid), lambda: self._rank_gone(int(rank))):
            self._rank_gone(int(rank))
        if self._attempt.take_census() and self._attempt.stopped is None:
            self._open_gate()
        elif reached:
            self._status.update()

    def _on_step(self, number: str, what: str, count: str = "") -> None:
        """Handle the start or end of a launcher in the job's script, or the script's `scancel` of its own job."""
        if not self._job.script:
            return
        if what == "begin":
            file = self._spec.steps / number / "command"
            with contextlib.suppress(OSError):
                self._attempt.step_started(int(number), file.read_text(errors="replace").strip(), int(count))
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
        if self._attempt.step_rank_started(int(step), int(rank), int(size or 0), int(index or 0), int(pid)):
            ranks = self._attempt.step_ranks[int(step)].values()
            proof = self._step_proofs[int(step)] = WorldProof(self._spec.plan, len(ranks))
            self._start_proof(proof, ranks)

    def _on_outside(self, step: str, rank: str, code: str) -> None:
        self._attempt.step_rank_exited(int(step), int(rank), int(code))

    def _on_guest(self, index: str, pid: str) -> None:
        # What an `mpijob exec` uses is not the job's. A rank could exempt itself by this line: hence the check.
        process = process_tree.read_process(int(pid))
        if process is not None and self._workers.get(process.parent) == int(index):
            self._meter.exec_pids.add(process.pid)

    def _on_bye(self, rank: str, code: str) -> None:
        self._attempt.rank_exited(int(rank), int(code))

    def _on_left(self, rank: str, code: str) -> None:
        self._attempt.rank_aborting(int(rank), int(code))

    def _on_unreached(self, worker: str, why: str) -> None:
        # When the world is proved, all agents have done their work: the line comes from elsewhere.
        if self._attempt.proved is None or self._spec.plan.own_launcher:
            self._attempt.unreached.add(worker)
            self._log.write_line(f"mpijob-agent: cannot reach worker {worker}: {_UNREACHED_REASONS[why]}")

    def _rank_gone(self, rank: int) -> None:
        # Its report of the exit may be in the pipe already; it has the exit code, which the kernel's notice lacks.
        self._read_reports()
        self._attempt.rank_lost(rank)

    def _watch_programs(self) -> None:
        # The wrapper reports a program's end, but late on a busy machine: MPI's abort may then look like the cause.
        for rank, state in self._attempt.ranks.items():
            if rank not in self._watched_programs and rank not in self._attempt.rank_exits:
                for pid in process_tree.children(state.pid):
                    self._watched_programs.add(rank)
                    self._loop.watch_exit(pid, partial(self._attempt.program_ended, rank))

    def _open_gate(self) -> None:
        if self._job.census:
            os.write(self._gate, b"\n" * self._spec.plan.world)
        # Nothing is known of how a custom launcher's library shows itself.
        if self._spec.ranks_report and self._spec.plan.family is not Family.CUSTOM:
            self._start_proof(self._proof, self._attempt.ranks.values())
        self._status.update(
            self._status.event("WorldProved", self._census_message()),
            self._status.event("Running", f"all ranks running after {self._deadlines.elapsed:.2f} s"),
        )

    def _start_proof(self, proof: WorldProof, ranks: Iterable[RankState]) -> None:
        pids = {rank.rank: rank.pid for rank in ranks}
        fd = proof.watch(pids, time.monotonic(), self._spec.environ(), str(self._spec.work))
        if fd >= 0:
            self._loop.watch(fd, partial(self._library_opened, proof, fd))

    def _library_opened(self, proof: WorldProof, fd: int) -> None:
        if not proof.file_opened(fd, time.monotonic()):
            self._loop.unwatch(fd)

    def _census_message(self) -> str:
        per_worker = Counter(rank.worker for rank in self._attempt.ranks.values())
        counts = [per_worker[worker] for worker in range(self._job.workers)]
        return f"{ranks_on(len(self._attempt.ranks), self._job.workers)}, as planned: {counts}"

    def _read_output(self, fd: int) -> None:
        self._pipe_readers[fd].read_some()
        if self._pipe_readers[fd].ended:
            del self._pipe_readers[fd]
            self._loop.unwatch(fd)

    def _handle_events(self, seconds: float) -> None:
        """Wait for events, at most so long, and handle them, causes before consequences."""
        # Ranks report errors when a worker or the launcher was killed. So a kill is noted before their reports (in
        # `ready`), which would count as the cause otherwise; a normal exit of the launcher after them.
        ready = self._loop.wait(seconds)
        self._attempt.now = self._clock.now()
        ended = process_tree.reap()
        for pid in self._workers.keys() & ended.keys():
            self._attempt.worker_lost(self._workers.pop(pid), ended[pid])
        launcher = ended.get(self._attempt.launcher_pid)
        if launcher is not None and launcher < 0:
            self._attempt.launcher_ended(launcher)
        for callback in ready:
            callback()
        if launcher is not None and launcher >= 0:
            self._attempt.launcher_ended(launcher)
        if (
            self._census_runs
            and self._attempt.all_ended()
            and self._attempt.proved
            and not self._attempt.ending
        ):
            self._launch_after_census()
        if self._has_request:
            self._read_requests()

    def _launch_after_census(self) -> None:
        if self._status.failure() is None:
            self._census_runs = False
            self._attempt.reset_after_census()
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
        # The attempt has succeeded or failed, and stays so: only the inspection of a failed one
        # (`keep_on_failure_seconds`) can be ended.
        if self._is_decided:
            self._released = row is None or bool(row.desired)
            return
        if row is None or row.desired in ("cancel", "delete"):
            self._attempt.cancelled = True
        elif row.desired == "suspend":
            self._attempt.suspended = True
        if row is not None and row.grace is not None:
            self._grace = row.grace

    def _measure(self) -> None:
        # Where workers are nodes, their ranks are their descendants; else all are below one daemon of the launcher.
        ranks = () if self._spec.plan.nodes else self._attempt.ranks.values()
        memory = self._meter.measure(self._workers, ranks)
        used = self._meter.launcher_memory(self._attempt.launcher_pid)
        self._attempt.launcher_peak_bytes = max(self._attempt.launcher_peak_bytes, used)
        if self._health_monitor.is_due():
            self._health_monitor.sample(self._attempt.now, memory, self._meter.table)
            self._status.set_warnings(
                self._health_monitor.find_warnings(self._status.state, self._attempt.now)
            )
        self._attempt.record_step_memory(memory)
        for index, used in memory.items():
            self._attempt.peak_bytes[index] = max(self._attempt.peak_bytes.get(index, 0), used)
            limit = self._job.part_of(index).job.resources
            if used > limit.memory_bytes:
                text = f"worker {index} used {used >> 20} MiB, its limit is {limit.memory}"
                self._attempt.stop(Reason.MEMORY_EXCEEDED, text)
                self._attempt.worker_stopped(index)

    def _check_deadlines(self) -> None:
        self._deadlines.check()
        if self._deadlines.warning_due():
            shutdown.signal_ranks(self._spec, self._workers, self._attempt)
            warning = self._job.signal
            text = f"{warning.name} sent to every rank, {warning.seconds_before:g} s before the deadline"
            self._status.add_event("Signalled", text)

    # -- the end ----------------------------------------------------------------------------------
    def _end_everything(self) -> None:
        attempt_state = self._attempt
        gentle = attempt_state.cancelled or attempt_state.suspended or attempt_state.deadline_passed
        if gentle and attempt_state.ranks and attempt_state.launcher is None:
            self._end_gracefully()
        self._is_decided = not gentle
        attempt_state.ending = True
        self._keep_for_inspection()
        shutdown.kill_ranks_and_launcher(self._workers, attempt_state)
        # Workers are asked, not killed: they write what is left in the pipes of their ranks.
        for pid in self._workers:
            process_tree.send_signal(pid, signal.SIGTERM)
        self._wait_until(self._all_reaped, 3.0)
        process_tree.kill_descendants(os.getpid())
        shutdown.end_cgroups(self._spec, attempt_state)
        self._drain()

    def _all_reaped(self) -> bool:
        # The launcher too: `kill_descendants` would reap it, and lose its exit code.
        return not self._workers and (not self._attempt.launcher_pid or self._attempt.launcher is not None)

    def _end_gracefully(self) -> None:
        """Send the job's signal and wait for the grace time."""
        self._attempt.ending = True
        shutdown.signal_ranks(self._spec, self._workers, self._attempt, warned=self._deadlines.warned)
        grace = self._job.grace_seconds if self._grace is None else self._grace
        self._wait_until(self._attempt.all_ended, grace)

    def _keep_for_inspection(self) -> None:
        seconds = self._job.keep_on_failure_seconds
        standing = self._status.phase_result(ended=True)
        if seconds <= 0 or standing.phase is not Phase.FAILED or not self._workers:
            return
        event = self._status.event("Kept", f"the workers are kept {seconds:g} s for inspection (exec)")
        self._status.update(event, standing=standing)
        self._wait_until(lambda: self._released, seconds)

    def _wait_until(self, reached: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not reached() and time.monotonic() < deadline:
            self._handle_events(min(0.05, max(0.0, deadline - time.monotonic())))

    def _drain(self) -> None:
        for reader in self._pipe_readers.values():
            reader.drain()
        # The start may have failed before there was a log.
        if hasattr(self, "_log"):
            self._output.close()
        self._meter.flush()

    def _on_request(self) -> None:
        self._has_request = True


def _retries(store: Store, state: JobState) -> int:
    # Not the number of the attempt: a resumed job starts a new one without a failure.
    if state.attempt == 1:
        return 0
    return sum(event.reason == "Retrying" for event in store.events(state.ref.uid, 0))


def _refusal_reason(error: OSError) -> Reason:
    return Reason.DISK_FULL if error.errno == errno.ENOSPC else Reason.START_REFUSED
