"""Parse users' documents: `python -m mpijob.api.parsing.process FD`, started by `pool`.

Parsing can take any time and memory that the author of a document wants. So each document is parsed in a
forked child with small limits, which can be killed. This process loads everything that parsing needs and then
only forks: a child starts within milliseconds, and shares no state with the next one. It has one thread,
keeps no state, and ends when the server's end of the socket is closed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import shlex
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from mpijob import codec
from mpijob.api import errors
from mpijob.api.schemas.draft_schemas import Conversions, Edit, Edited, ToConvert
from mpijob.api.schemas.job_schemas import Draft, Reading
from mpijob.client.convert import convert_jobs
from mpijob.client.submit import drafts
from mpijob.client.submit.validate import read_job
from mpijob.errors import Finding, InvalidJob, MpiJobError
from mpijob.model import MPIJob

# Of a child, in addition to what this process has loaded.
MEMORY_BYTES = 128 << 20
# Sent before the result by a child that has used more CPU time than it should.
SLOW = b"\xff" * 4
# Niceness: the server comes first, and slow documents after everything else.
_NICE, _NICE_SLOW = 5, 14
_MESSAGE_BYTES = 4096


class Work(msgspec.Struct, frozen=True, array_like=True):
    """A message of the server: parse the document of the attached socket, or, if `seconds` is 0, kill that
    child.

    A child reports that it is slow after `soon` seconds of CPU time.
    """

    number: int
    seconds: float = 0.0
    soon: float = 0.0


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What a child does with a request body, and the worker limit of the server."""

    what: str
    max_workers: int
    body: bytes


class Result(msgspec.Struct, frozen=True, array_like=True):
    """The result of a child: JSON, or an error (a status other than 200, and a Problem as JSON)."""

    status: int
    body: bytes


# -- documents --------------------------------------------------------------------------------------
def drafted(draft: Draft) -> MPIJob:
    """Return the job of a draft; raise InvalidJob with all errors in it."""
    if (draft.job is None) is (not draft.yaml):
        raise InvalidJob("the body needs either `yaml` or `job`", hint="send one of them")
    if draft.job is None:
        return read_job(draft.yaml)
    command = {"command": _words(draft.command_line)} if draft.command_line else {}
    return read_job(msgspec.json.encode({**draft.job, **command}).decode())


def _words(line: str) -> list[str]:
    """Split a command line as a shell does."""
    try:
        return shlex.split(line)
    except ValueError as error:
        found = Finding("BAD_COMMAND", f"{line!r} cannot be split into words: {error}", field="command")
        raise InvalidJob.of((found,)) from error


def _reading(body: bytes, _most: int) -> Reading:
    job = drafted(_decoded(body, Draft))
    return Reading(job, drafts.write(job), shlex.join(job.command))


def _edited(body: bytes, most: int) -> Edited:
    asked = _decoded(body, Edit)
    text = asked.yaml
    try:
        if asked.job is not None:
            text = drafts.rewrite(text, asked.job)
        if asked.changes:
            text = drafts.change(text, asked.changes)
    except InvalidJob as error:
        seen = drafts.parse(text, max_workers=most)
        findings = tuple(dict.fromkeys((*error.findings, *seen.findings)))
        return _edited_of(
            drafts.DraftResult(text=text, job=seen.job, findings=findings, unknown=seen.unknown)
        )
    return _edited_of(drafts.parse(text, max_workers=most))


def _edited_of(result: drafts.DraftResult) -> Edited:
    return Edited(
        yaml=result.text,
        job=result.job,
        command_line=shlex.join(result.job.command) if result.job else "",
        findings=result.findings,
        unknown=result.unknown,
    )


def _converted(body: bytes, _most: int) -> Conversions:
    asked = _decoded(body, ToConvert)
    return Conversions(convert_jobs.convert(asked.text, to=asked.to, image=asked.image, moved=None))


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return codec.decode(body, kind)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.misread("the body", error) from error  # type: ignore[arg-type]  # told the same way
    except RecursionError as error:
        raise InvalidJob("the body is nested too deeply") from error


WORKS: dict[str, Callable[[bytes, int], Any]] = {
    "job": lambda body, _: drafted(_decoded(body, Draft)),
    "reading": _reading,
    "edit": _edited,
    "convert": _converted,
}


def done(order: Order) -> Result:
    """Parse a body; return its result or its error."""
    try:
        return Result(200, msgspec.json.encode(WORKS[order.what](order.body, order.max_workers)))
    except (MpiJobError, errors.Refused) as error:
        status, problem = errors.describe(error)
        return Result(status, msgspec.json.encode(problem))
    except RecursionError:
        problem = errors.problem("TOO_DEEP", "the document is nested too deeply", "flatten it")
        return Result(422, msgspec.json.encode(problem))


# -- a child ----------------------------------------------------------------------------------------
def _child(line: socket.socket, work: Work) -> None:
    """Parse one document within the limits; the kernel kills a child that exceeds them."""
    # The handlers and the wakeup pipe are the parent's: a child must not write to that pipe.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGPROF, lambda *_: _report_slow(line))
    # Three limits: time on the clock against waiting, CPU time against loops, address space against bombs.
    signal.setitimer(signal.ITIMER_REAL, work.seconds)
    signal.setitimer(signal.ITIMER_PROF, work.soon)
    whole = int(work.seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _address_space() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    os.nice(_NICE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # If the machine runs out of memory, the kernel kills a parser and not the server.
        file.write("1000")
    with line.makefile("rwb") as stream:
        order = msgspec.msgpack.decode(stream.read(int.from_bytes(stream.read(4), "big")), type=Order)
        # The only setting that the parsers read.
        os.environ["MPIJOB_MAX_WORKERS"] = str(order.max_workers)
        result = msgspec.msgpack.encode(done(order))
        # The slow message must not be written between the parts of the result.
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        stream.write(len(result).to_bytes(4, "big") + result)


def _report_slow(line: socket.socket) -> None:
    os.nice(_NICE_SLOW)
    line.sendall(SLOW)


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _forked(line: socket.socket, work: Work, others: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid:
        return pid
    # `_exit` in every case: a child must never return into the loop of its parent.
    code = 1
    try:
        for fd in others:
            os.close(fd)
        _child(line, work)
        code = 0
    except (MemoryError, OSError):
        # The server sees a closed socket without a result.
        pass
    finally:
        os._exit(code)


# -- the parent of all ------------------------------------------------------------------------------
def serve(control: socket.socket) -> None:
    """Fork a child for each document until the server closes its socket."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(ended, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Child number of the server to pid, until the child was waited for: its pid cannot be reused before.
    children: dict[int, int] = {}
    # The collector would write to every object, and so copy the pages that children share with this process.
    gc.freeze()
    while True:
        ready, _, _ = select.select([control.fileno(), ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
            _reap(children)
        if control.fileno() not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 1)
        if not message:
            break
        work = msgspec.msgpack.decode(message, type=Work)
        if fds:
            # `fork` fails when the machine has no memory or too many processes: the server sees a closed
            # socket.
            with socket.socket(fileno=fds[0]) as line, contextlib.suppress(OSError):
                children[work.number] = _forked(line, work, (control.fileno(), ended, wake))
        elif work.number in children:
            os.kill(children[work.number], signal.SIGKILL)
    for pid in children.values():
        os.kill(pid, signal.SIGKILL)


def _reap(children: dict[int, int]) -> None:
    for number, pid in [*children.items()]:
        if os.waitpid(pid, os.WNOHANG)[0]:
            del children[number]


def main() -> None:
    """Load what parsing needs, report ready, and serve."""
    # Ctrl-C goes to the whole foreground process group; this process ends with the server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for what, body in _WARM.items():
        done(Order(what, 100, msgspec.json.encode(body)))
    with socket.socket(fileno=int(sys.argv[1])) as control:
        control.send(b"ready")
        serve(control)


# Parsed once at the start: it imports the modules and builds msgspec's decoders before the first fork.
_WARM: dict[str, Any] = {
    "job": {"yaml": "name: a\nfield: x\n"},
    "reading": {"yaml": "name: a\ncommand: [true]\n"},
    "edit": {"yaml": "name: a\ncommand: [true]\n", "changes": {"env.A": "1"}},
    "convert": {"text": "#!/bin/bash\n#SBATCH -N 2\nsrun ./a\n"},
}

if __name__ == "__main__":
    main()
