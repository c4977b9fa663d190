"""A worker process: on one machine, what a worker pod is on a cluster.

It has its own session, directory, limits and (for Open MPI) host name, starts the MPI daemon that the launcher requests
through the agent (`scripts/agent.sh`), and writes the logs of its ranks. It decides nothing: events go to the
supervisor as lines of the attempt's report pipe.
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
_SHELL_CHARACTERS = frozenset(";&|<>()$`\n=")


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a worker process gets from its supervisor; `masked_values` are values of secrets."""

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
    masked_values: tuple[str, ...] = ()

    @property
    def directory(self) -> Path:
        """The directory of the worker's pipes and requests."""
        return Path(self.pipes) / "workers" / self.name

    @property
    def exec_socket(self) -> Path:
        """The socket for `mpijob exec`."""
        return Path(self.attempt_dir) / f"door-{self.index}"


def main(spec: WorkerSpec, clock: Clock) -> None:
    """Run a worker; call it in a new fork of the supervisor, whose clock it shares."""
    os.setsid()
    syscalls.name_process("mpijob-worker")
    syscalls.set_parent_death_signal()
    syscalls.become_subreaper()
    process_tree.reset_signals()
    # A client of `mpijob exec` that is gone must not end the worker.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    process_tree.disable_core_dumps()
    os.chdir(spec.work_dir)
    if spec.cgroup:
        cgroups.enter(Path(spec.cgroup))
    if spec.own_host_name:
        isolation.set_host_name(spec.name, f"{spec.pipes}/{isolation.WORKER_HOSTS}")
    Worker(spec, clock).run()


class OutputBatcher:
    """Delays reading while many short lines arrive one by one, so that one wake-up reads several.

    There is no delay while pipes are nearly full, or while there is little output.
    """

    # Each wake-up takes more time than its line, on cores that the ranks need.

    _SECONDS, _WINDOW_SECONDS, _MANY, _FEW = 0.004, 0.05, 20, 5

    def __init__(
        self, now: Callable[[], float] = time.monotonic, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._now, self._wait = now, wait
        self._since = now()
        self._reads = 0
        self._busy = self._has_more = self._was_read = False

    def record_read(self, *, has_more: bool) -> None:
        self._reads += 1
        self._was_read = True
        self._has_more |= has_more

    def pause_if_busy(self) -> None:
        """Wait a moment if there were many reads lately; call it once after each round of reads."""
        now = self._now()
        if now - self._since >= self._WINDOW_SECONDS:
            # The delay itself makes reads fewer: without hysteresis it would switch itself off.
            enough = self._FEW if self._busy else self._MANY
            self._busy = self._reads >= enough and now - self._since < 2 * self._WINDOW_SECONDS
            self._since, self._reads = now, 0
        if self._busy and self._was_read and not self._has_more:
            self._wait(self._SECONDS)
        self._has_more = self._was_read = False


class Worker:
    """The event loop of a worker process."""

    def __init__(self, spec: WorkerSpec, clock: Clock) -> None:
        self._spec = spec
        self._clock = clock
        self._directory = spec.directory
        self._logs = Path(spec.attempt_dir) / "logs"
        self._loop = EventLoop()
        self._daemons: dict[int, str] = {}
        # Requests of the job's own `ssh` and `pdsh`, by pid.
        self._commands: dict[int, str] = {}
        self._exec_sessions: dict[int, ExecSession] = {}
        self._pipe_readers: dict[int, PipeReader] = {}
        self._files: dict[str, LogFile] = {}
        self._ending = False
        self._report_fd = os.open(f"{spec.pipes}/report", os.O_WRONLY | os.O_CLOEXEC)
        self._requests = bytearray()
        self._last_heartbeat = time.monotonic()
        self._batcher = OutputBatcher()

    def run(self) -> None:
        """Serve until SIGTERM."""
        self._loop.handle_signals({signal.SIGTERM: self._end, signal.SIGINT: None})
        # O_RDWR: the pipe must not end when an agent closes it.
        ask = os.open(self._directory / "ask", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.watch(ask, lambda: self._read_requests(ask))
        listener = listen(self._spec.exec_socket)
        self._loop.watch(listener.fileno(), lambda: self._accept(ExecSession.accept(listener)))
        self._report(f"ready {self._spec.index}")
        while not self._ending:
            for callback in self._loop.wait(HEARTBEAT_SECONDS):
                callback()
            self._collect()
            self._send_heartbeat()
            self._batcher.pause_if_busy()
        self._finish()

    def _send_heartbeat(self) -> None:
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = time.monotonic()
            self._report(f"alive {self._spec.index}")

    # -- requests ---------------------------------------------------------------------------------
    def _read_requests(self, fd: int) -> None:
        self._requests += os.read(fd, 65536)
        while b"\n" in self._requests:
            line, _, self._requests = self._requests.partition(b"\n")
            verb, _, number = line.decode(errors="replace").partition(" ")
            # Ranks can write to this pipe; a digit string is safe in a path.
            if number.isdigit():
                {"start": self._start_daemon, "run": self._run_command}.get(verb, self._open_rank)(number)

    def _start_daemon(self, request: str) -> None:
        if not self._has_safe_directories():
            return self._daemon_ended(request, 255)
        command = (self._directory / f"request.{request}").read_text()
        log = self._log(f"worker-{self._spec.index}")
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        # mpirun wrote the command for a remote shell, as for sshd. None of its words come from the user. `exec` spares
        # a shell that waits, where the command is one program without assignments before it.
        simple = not set(command) & _SHELL_CHARACTERS
        argv = ("/bin/sh", "-c", f"exec {command}" if simple else command)
        pid = self._spawn(argv, (null, out_end, err_end))
        for fd in (null, out_end, err_end):
            os.close(fd)
        self._daemons[pid] = request
        self._watch_output(out, log, "stdout")
        self._watch_output(err, log, "stderr")
        return self._report(f"daemon {self._spec.index} {pid}")

    def _run_command(self, request: str) -> None:
        """Run a command of the job's own `ssh`; its exit status is for that `ssh`, and is not reported."""
        if not self._has_safe_directories():
            return self._reply(request, 255)
        command = (self._directory / f"request.{request}").read_text()
        null = os.open(os.devnull, os.O_RDWR)
        pid = self._spawn(("/bin/sh", "-c", command), (null, null, null))
        os.close(null)
        self._commands[pid] = request
        return None

    def _has_safe_directories(self) -> bool:
        """Return whether the attempt's private directories are unchanged; report to the supervisor if not."""
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
            # Non-blocking: the rank opens its ends only after this request.
            self._watch_output(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), log, stream)

    def _accept(self, session: ExecSession | None) -> None:
        if session is not None and not self._has_safe_directories():
            session.send_exit_status(255)
        elif session is not None:
            environ = {**self._spec.environ, **session.environ}
            pid = session.start(environ, self._spec.work_dir)
            self._exec_sessions[pid] = session
            self._report(f"guest {self._spec.index} {pid}")

    # -- ends of processes ------------------------------------------------------------------------
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
            # ENXIO: nobody reads. The agent was killed, so there is nobody to answer.
            if error.errno not in (errno.ENXIO, errno.ENOENT):
                raise
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, b"%d\n" % (code if code >= 0 else 128 - code))
        os.close(fd)

    # -- output -----------------------------------------------------------------------------------
    def _log(self, source: str) -> LogFile:
        if source not in self._files:
            path = self._logs / f"{source}.log"
            self._files[source] = LogFile(path, self._clock.now_ns, self._spec.masked_values)
        return self._files[source]

    def _watch_output(self, fd: int, log: LogFile, stream: str) -> None:
        reader = PipeReader(fd, log, stream)
        self._pipe_readers[fd] = reader
        self._loop.watch(fd, lambda: self._read_output(reader))

    def _read_output(self, reader: PipeReader) -> None:
        reader.read_some()
        self._batcher.record_read(has_more=reader.has_more)
        if reader.ended:
            self._loop.unwatch(reader.fd)
            del self._pipe_readers[reader.fd]

    # -- reports and the end ----------------------------------------------------------------------
    def _report(self, line: str) -> None:
        # One write of less than PIPE_BUF bytes, so that lines of several processes do not mix (pipe(7)).
        os.write(self._report_fd, line.encode() + b"\n")

    def _end(self) -> None:
        self._ending = True

    def _finish(self) -> None:
        # Killed first: a program that still writes would keep `drain` busy.
        process_tree.kill_descendants(os.getpid(), seconds=2.0)
        for reader in self._pipe_readers.values():
            reader.drain()
        for log in self._files.values():
            log.close()
