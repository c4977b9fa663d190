"""One worker: the process that plays the pod.

It has a session, a directory, limits and (for Open MPI) a host name of its own; it starts the MPI
daemon that the launcher asks for through the agent, reads the output of its ranks, and adopts
whatever they leave behind. It decides nothing: what it sees goes to the supervisor as lines on the
attempt's report pipe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from mpijob.backends.attempts.clock import Clock
from mpijob.backends.local.logs.log_writer import LogFile, PipeReader
from mpijob.backends.local.storage.private_dirs import PrivateDirs
from mpijob.backends.local.worker import cgroups, isolation, process_tree, syscalls
from mpijob.backends.local.worker.event_loop import EventLoop
from mpijob.backends.local.worker.exec_server import ExecSession, listen
from mpijob.errors import UnsafePath

HEARTBEAT_SECONDS = 1.0
_SHELL_WORDS = frozenset(";&|<>()$`\n=")


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a worker gets at its start."""

    index: int
    name: str
    attempt_dir: str
    pipes: str
    work_dir: str
    environ: Mapping[str, str]
    private: PrivateDirs
    in_namespaces: bool = False
    own_host_name: bool = False
    cgroup: str = ""
    masked_values: tuple[str, ...] = ()  # what its log must not hold

    @property
    def directory(self) -> Path:
        """The directory of the worker's own pipes."""
        return Path(self.pipes) / "workers" / self.name

    @property
    def exec_socket(self) -> Path:
        """The socket at which guests are let in."""
        return Path(self.attempt_dir) / f"door-{self.index}"


def main(spec: WorkerSpec, clock: Clock) -> None:
    """Be the worker; called in a fresh fork of the supervisor, whose clock it shares."""
    os.setsid()
    syscalls.name_process("mpijob-worker")
    syscalls.set_parent_death_signal()
    syscalls.become_subreaper()
    process_tree.reset_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a guest who has gone must not take the worker along
    process_tree.disable_core_dumps()
    os.chdir(spec.work_dir)
    if spec.cgroup:
        cgroups.enter(Path(spec.cgroup))
    if spec.own_host_name:
        isolation.set_host_name(spec.name, f"{spec.pipes}/{isolation.WORKER_HOSTS}")
    Worker(spec, clock).run()


class OutputBatcher:
    """Lets lines gather when many come one by one: each wake-up costs more than the line, on cores that ranks need.

    A pipe that fills is never kept waiting, nor is anybody as long as little is said.
    """

    _SECONDS, _WINDOW_SECONDS, _MANY, _FEW = 0.004, 0.05, 20, 5

    def __init__(
        self, now: Callable[[], float] = time.monotonic, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._now, self._wait = now, wait
        self._since = now()
        self._heard = 0
        self._many = self._flows = self._spoken = False

    def record_read(self, *, flows: bool) -> None:
        """Note that a pipe had something to say."""
        self._heard += 1
        self._spoken = True
        self._flows |= flows

    def pause_if_busy(self) -> None:
        """Wait a moment, if what was heard lately is worth it."""
        now = self._now()
        if now - self._since >= self._WINDOW_SECONDS:
            enough = self._FEW if self._many else self._MANY  # what gathers wakes us less often
            self._many = self._heard >= enough and now - self._since < 2 * self._WINDOW_SECONDS
            self._since, self._heard = now, 0
        if self._many and self._spoken and not self._flows:
            self._wait(self._SECONDS)
        self._flows = self._spoken = False


class Worker:
    """The worker's loop."""

    def __init__(self, spec: WorkerSpec, clock: Clock) -> None:
        self._spec = spec
        self._clock = clock
        self._directory = spec.directory
        self._logs = Path(spec.attempt_dir) / "logs"
        self._loop = EventLoop()
        self._daemons: dict[int, str] = {}
        self._commands: dict[int, str] = {}  # what came by the job's own `ssh`
        self._exec_sessions: dict[int, ExecSession] = {}
        self._pumps: dict[int, PipeReader] = {}
        self._files: dict[str, LogFile] = {}
        self._ending = False
        self._report_fd = os.open(f"{spec.pipes}/report", os.O_WRONLY | os.O_CLOEXEC)
        self._requests = bytearray()
        self._last_heartbeat = time.monotonic()
        self._batcher = OutputBatcher()

    def run(self) -> None:
        """Serve until told to end."""
        self._loop.handle_signals({signal.SIGTERM: self._end, signal.SIGINT: None})
        ask = os.open(self._directory / "ask", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.watch(ask, lambda: self._read_requests(ask))
        door = listen(self._spec.exec_socket)
        self._loop.watch(door.fileno(), lambda: self._accept(ExecSession.accept(door)))
        self._report(f"ready {self._spec.index}")
        while not self._ending:
            for act in self._loop.wait(HEARTBEAT_SECONDS):
                act()
            self._collect()
            self._send_heartbeat()
            self._batcher.pause_if_busy()
        self._finish()

    def _send_heartbeat(self) -> None:
        """Let the supervisor know that we are not stuck."""
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = time.monotonic()
            self._report(f"alive {self._spec.index}")

    # -- requests ---------------------------------------------------------------------------------
    def _read_requests(self, fd: int) -> None:
        self._requests += os.read(fd, 65536)
        while b"\n" in self._requests:
            line, _, self._requests = self._requests.partition(b"\n")
            verb, _, what = line.decode(errors="replace").partition(" ")
            if what.isdigit():
                {"start": self._start_daemon, "run": self._run_command}.get(verb, self._open_rank)(what)

    def _start_daemon(self, request: str) -> None:
        if not self._has_safe_directories():
            return self._daemon_ended(request, 255)
        command = (self._directory / f"request.{request}").read_text()
        log = self._log(f"worker-{self._spec.index}")
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        # As sshd does: the line was made by mpirun for a shell. No word of it is the user's.
        simple = not set(command) & _SHELL_WORDS
        argv = ("/bin/sh", "-c", f"exec {command}" if simple else command)
        pid = self._spawn(argv, (null, out_end, err_end))
        for fd in (null, out_end, err_end):
            os.close(fd)
        self._daemons[pid] = request
        self._pump(out, log, "stdout")
        self._pump(err, log, "stderr")
        return self._report(f"daemon {self._spec.index} {pid}")

    def _run_command(self, request: str) -> None:
        """Run what somebody in the job has asked for by `ssh`: its end is that one's business, not the job's."""
        if not self._has_safe_directories():
            return self._reply(request, 255)
        command = (self._directory / f"request.{request}").read_text()
        null = os.open(os.devnull, os.O_RDWR)
        pid = self._spawn(("/bin/sh", "-c", command), (null, null, null))
        os.close(null)
        self._commands[pid] = request
        return None

    def _has_safe_directories(self) -> bool:
        """Whether nobody took the attempt's private directories away; the supervisor is told where somebody did."""
        try:
            self._spec.private.check()
        except UnsafePath:
            self._report(f"unsafe {self._spec.index}")
            return False
        return True

    def _spawn(self, argv: tuple[str, ...], fds: tuple[int, int, int]) -> int:
        if self._spec.in_namespaces:
            return process_tree.spawn_without_fork(argv, self._spec.environ, fds)
        return process_tree.spawn(argv, self._spec.environ, self._spec.work_dir, fds)

    def _open_rank(self, rank: str) -> None:
        log = self._log(f"rank-{rank}")
        for suffix, stream in (("out", "stdout"), ("err", "stderr")):
            path = f"{self._spec.pipes}/ranks/{rank}.{suffix}"
            self._pump(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), log, stream)

    def _accept(self, guest: ExecSession | None) -> None:
        if guest is not None and not self._has_safe_directories():
            guest.send_exit_status(255)
        elif guest is not None:
            environ = {**self._spec.environ, **guest.environ}
            pid = guest.start(environ, self._spec.work_dir)
            self._exec_sessions[pid] = guest
            self._report(f"guest {self._spec.index} {pid}")

    # -- what goes on below us --------------------------------------------------------------------
    def _collect(self) -> None:
        for pid, code in process_tree.reap().items():
            if pid in self._daemons:
                self._daemon_ended(self._daemons.pop(pid), code)
            elif pid in self._commands:
                self._reply(self._commands.pop(pid), code)
            elif pid in self._exec_sessions:
                self._exec_sessions.pop(pid).send_exit_status(code)

    def _daemon_ended(self, request: str, code: int) -> None:
        self._report(f"done {self._spec.index} {code}")
        self._reply(request, code)

    def _reply(self, request: str, code: int) -> None:
        try:
            fd = os.open(self._directory / f"answer.{request}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):
                raise
            return  # the agent is gone: nobody waits for the answer
        with contextlib.suppress(BrokenPipeError):  # gone since
            os.write(fd, b"%d\n" % (code if code >= 0 else 128 - code))
        os.close(fd)

    # -- output -----------------------------------------------------------------------------------
    def _log(self, source: str) -> LogFile:
        if source not in self._files:
            path = self._logs / f"{source}.log"
            self._files[source] = LogFile(path, self._clock.now_ns, self._spec.masked_values)
        return self._files[source]

    def _pump(self, fd: int, log: LogFile, stream: str) -> None:
        pump = PipeReader(fd, log, stream)
        self._pumps[fd] = pump
        self._loop.watch(fd, lambda: self._pull(pump))

    def _pull(self, pump: PipeReader) -> None:
        pump.read_some()
        self._batcher.record_read(flows=pump.has_more)
        if pump.ended:
            self._loop.unwatch(pump.fd)
            del self._pumps[pump.fd]

    # -- housekeeping -----------------------------------------------------------------------------
    def _report(self, line: str) -> None:
        os.write(self._report_fd, line.encode() + b"\n")

    def _end(self) -> None:
        self._ending = True

    def _finish(self) -> None:
        """Everything below is dead or dying by order of the supervisor: take the last words and go."""
        process_tree.kill_descendants(os.getpid(), seconds=2.0)
        for pump in self._pumps.values():
            pump.drain()
        for log in self._files.values():
            log.close()
