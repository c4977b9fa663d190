"""Reads the facts in the evidence, by name: `memory-exceeded`, `rank-killed`, `reason:Cancelled` …

Only the first process that failed by itself is a fact; what the launcher or the engine ended afterwards
follows from it. Rules refer to these names and define meaning and remedies.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import msgspec

from mpijob.diagnosis import mpi_error_classes
from mpijob.diagnosis.evidence import ActiveWarning, Evidence, Memory
from mpijob.diagnosis.logs.log_index import Stream, last_words, streams
from mpijob.diagnosis.template_fields import duration_text, lowered, subject, worker_at
from mpijob.model import Exit, Family, Role
from mpijob.model.spec.command import SHELLS, unwrapped

CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT})
TOGETHER_SECONDS = 0.25
NEAR_LIMIT = 0.9
SIDECARS = ("istio-proxy", "linkerd-proxy")
# The most workers and ranks in one sentence.
MOST_ADDRESSES = 8
MOST_NAMED = 4
ENDED_BY_ENGINE = ("DeadlineExceeded", "StartTimeout", "Cancelled", "Suspended", "Preempted")
# The most specific first.
STALLS = ("RANK_IDLE", "ALL_IDLE", "RANK_SILENT", "JOB_SILENT")
# A shorter silence of all ranks before a deadline proves nothing.
QUIET_SECONDS = 10.0
# A program may exit with the same number itself.
DOUBTED_CODE = 0.8
# It is uncertain that the time limit alone was too short.
DOUBTED = 0.5
# Below this, a worker does not compute.
IDLE_CORES = 0.1
_KILLED = ("rank-killed", "rank-killed-by-system")
# MPI ends the other ranks with these when one has failed.
_BY_MPI = (signal.SIGKILL, signal.SIGTERM)
# Open MPI's launcher names the rank that failed first.
_NAMED_FIRST = re.compile(
    rb"The first process to do so was:\s+Process name: \[[^\n]*,(\d{1,7})\]|noticed that process rank (\d{1,7})"
    rb"|has exited due to process rank (\d{1,7}) with PID"
)
_LOST_PEER = re.compile(
    rb"(?i)socket closed|connection (?:reset|closed)|broken pipe|lost (?:the )?connection|peer"
)
_LOST_DAEMON = re.compile(rb"ORTE has lost communication with a remote daemon")
# Open MPI 4 dropped the report of a rank.
_LOST_TEXT = re.compile(rb"ORTE_ERROR_LOG: Out of resource in file \S*show_help\.c")
_ALONE = re.compile(rb"(?i)\brank 0 (?:of|out of) 1\b")
_REFUSED = re.compile(rb"connect to host (\S{1,253}) port (\d{1,5}): Connection refused")
_CUT = re.compile(rb"(?:kex|ssh)_exchange_identification")
# A phrase of the engine's message.
_NESTED = "starts mpirun itself"
_WANTED_MPI = re.compile(r"world of one; set mpi: (\w+)")
_ASTRAY = re.compile(r"rank \d+ ran on (\S{1,253}), none of the job's workers")
_ONE_MACHINE = re.compile(rb"Unable to find hostfile, will proceed with training with local")
# Open MPI where its help texts are not found, asked for the plugin by which a rank of MPICH is kept from it.
_OPEN_MPI_REFUSED = re.compile(rb"find-available:not-valid\n[^\n]*\n[^\n]*help-pmix-mca-base")
_TOGETHER = re.compile(rb"(?i)\brank \d+ (?:of|out of) (?:[2-9]|\d\d)")


class Fact(msgspec.Struct, frozen=True):
    """One sign that is not text."""

    name: str
    time: float = 0.0
    worker: int | None = None
    rank: int | None = None
    values: dict[str, Any] = {}
    confidence: float | None = None


def facts(seen: Evidence) -> Iterator[Fact]:
    """Yield the facts of an attempt, with the values for messages."""
    if seen.reason:
        values = {
            "message": seen.message or None,
            "addresses": _addresses(seen),
            "left_well": _ended_well(seen),
            "quiet": (quiet := quiet_at_deadline(seen)),
            **_as_script(seen),
            "wanted_mpi": found[1] if (found := _WANTED_MPI.search(seen.message)) else None,
        }
        doubted = DOUBTED if quiet else None
        yield Fact(f"reason:{seen.reason}", worker=seen.worker, values=values, confidence=doubted)
    for memory in seen.memory:
        yield from _memory(memory)
    outputs = streams(seen)
    yield from _exits(seen)
    yield from _failed_call(seen)
    yield from _bound_daemon(seen, outputs)
    yield from _world(seen, outputs)
    yield from _other_mpi(seen, outputs)
    yield from _silence(seen)
    yield from _stalled(seen)
    yield from _refused_though_ready(seen, outputs)
    yield from _ran_elsewhere(seen)
    yield from _sidecars(seen, outputs)
    yield from _lost_nodes(seen)
    yield from _one_machine(seen, outputs)


def _addresses(seen: Evidence) -> str | None:
    # By index, name and address, as users look for them.
    pods = sorted((pod.worker, pod.name, pod.address) for pod in seen.pods if pod.worker is not None)
    planned = seen.plan.workers if seen.plan is not None else ()
    places = pods or [(worker.index, worker.name, "") for worker in planned]
    entries = [
        f"{index} {name} {address or '(no address)' * bool(pods)}".rstrip() for index, name, address in places
    ]
    more = f" and {len(entries) - MOST_ADDRESSES} more" if len(entries) > MOST_ADDRESSES else ""
    return ", ".join(entries[:MOST_ADDRESSES]) + more if entries else None


def _ended_well(seen: Evidence) -> str | None:
    # Which ranks ended with 0 although the engine ended the job: all of them, and the launcher did.
    ended_well = seen.launcher is not None and seen.launcher.good and all(exit.good for exit in seen.ranks)
    if not ended_well or len(seen.ranks) < seen.spec.world:
        return None
    return f"{len(seen.ranks)} ranks" if len(seen.ranks) > 1 else "its rank"


def first_exit(exits: tuple[Exit, ...]) -> Exit | None:
    """Return the first exit; among exits at nearly the same time, a crash is the cause."""
    bad = sorted((exit for exit in exits if not exit.good and not exit.by_us), key=lambda exit: exit.time)
    if not bad:
        return None
    together = [exit for exit in bad if exit.time - bad[0].time <= TOGETHER_SECONDS]
    return next((exit for exit in together if exit.killer in CRASHES), bad[0])


def first_rank_exit(seen: Evidence) -> Exit | None:
    """Return the exit of the rank that failed first by itself; None if none did."""
    # MPI ends the others with SIGTERM and SIGKILL, and such an end may be observed before the failed rank's
    # own. Then the rank that the launcher names is the first, or one that exited with its own code no later:
    # mpirun exits with the code of the first. The launcher may also name a rank that ended with 0 too early,
    # which is no failure.
    first = first_exit(seen.ranks)
    if first is None or first.killer not in _BY_MPI:
        return first
    output = b"\n".join(line.text for line in seen.logs if line.role is Role.LAUNCHER)
    named = [match[match.lastindex or 0] for match in _NAMED_FIRST.finditer(output)]
    if not named:
        return next(_failed_before(seen, first, output), first)
    exit = next((exit for exit in seen.ranks if exit.index == int(named[-1])), first)
    return None if exit.good else exit


def _failed_before(seen: Evidence, killed: Exit, output: bytes) -> Iterator[Exit]:
    # Ranks that had failed by themselves when MPI killed one, the first one first.
    lost = {line.rank for line in seen.logs if _LOST_PEER.search(line.text)}
    of_launcher = seen.launcher.code if seen.launcher is not None else None
    by_kill = killed.killer is not None and of_launcher == 128 + killed.killer
    if by_kill or seen.reason in ENDED_BY_ENGINE or _LOST_PEER.search(output):
        return
    for exit in sorted(seen.ranks, key=lambda exit: exit.time):
        own = exit.code and not (seen.family is Family.OPENMPI and exit.code == mpi_error_classes.UNKNOWN)
        if own and exit.index not in lost and exit.time <= killed.time:
            yield exit


def _memory(memory: Memory) -> Iterator[Fact]:
    values = {"peak_bytes": memory.peak_bytes, "limit_bytes": memory.limit_bytes}
    if memory.exceeded:
        yield Fact("memory-exceeded", memory.time, memory.worker, values=values)
    elif memory.oom_kills:
        yield Fact("oom-killed", memory.time, memory.worker, values=values, confidence=0.95)


def _exits(seen: Evidence) -> Iterator[Fact]:
    rank, worker = first_rank_exit(seen), first_exit(seen.workers)
    if rank is not None:
        worker_index = rank.worker if rank.worker is not None else seen.worker_of(rank.index)
        how = _rank_ended(rank, seen.memory_of(worker_index))
        # A killed process cannot report why.
        silent = seen.veiled or how in _KILLED
        last_lines = None if silent else last_words(seen, rank.index, rank.time)
        yield Fact(how, rank.time, worker_index, rank.index, _how(rank) | {"said": last_lines})
    if worker is not None:
        yield Fact("worker-ended", worker.time, worker.index, values=_how(worker))
    launcher = seen.launcher
    if launcher is not None and not launcher.by_us and not launcher.good:
        # A code of 137 would be the launcher's report about a rank.
        outside = launcher.signal or -(launcher.code or 0)
        if outside in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            yield Fact("launcher-killed", launcher.time, values=_how(launcher))


def _failed_call(seen: Evidence) -> Iterator[Fact]:
    # By the exit code alone: Open MPI 4 sometimes drops the report of a rank that it ends.
    rank = first_rank_exit(seen)
    code = rank.code if rank is not None and any(_LOST_TEXT.search(line.text) for line in seen.logs) else None
    if rank is not None and code and (error := mpi_error_classes.name(code)) is not None:
        of_rule = code in (mpi_error_classes.RANK, mpi_error_classes.TRUNCATE)
        name = f"mpi-error:{code}" if of_rule else "mpi-error"
        yield Fact(
            name, rank.time, rank.worker, rank.index, {"error_class": error, "code": code}, DOUBTED_CODE
        )


def _bound_daemon(seen: Evidence, outputs: list[Stream]) -> Iterator[Fact]:
    # A daemon of Open MPI 4 that ended before any rank started, in a job that binds ranks: it does not report
    # why.
    launch, began = seen.spec.launch, seen.ranks or seen.census
    asked = [
        f"{name}: {value}"
        for name, value in (("bind_to", launch.bind_to), ("map_by", launch.map_by))
        if value
    ]
    for stream in outputs if asked and not began and not seen.bare else ():
        if (match := _LOST_DAEMON.search(stream.text)) is not None:
            time = stream.time(stream.at(match.start()))
            yield Fact(
                "daemon-lost-binding", time, values={"asked_binding": ", ".join(asked)}, confidence=DOUBTED
            )
            return


def _rank_ended(exit: Exit, memory: Memory | None) -> str:
    if exit.killer in CRASHES:
        return f"rank-signal:{int(exit.killer)}"
    if exit.killer == signal.SIGKILL:
        far = memory is not None and (memory.enough or _far_below(memory))
        return "rank-killed" if far else "rank-killed-by-system"
    return "rank-signalled" if exit.killer else "rank-exited"


def _far_below(memory: Memory) -> bool:
    return memory.limit_bytes > 0 and memory.peak_bytes < NEAR_LIMIT * memory.limit_bytes


def _how(exit: Exit) -> dict[str, Any]:
    killer = exit.killer
    pipe = "broken" if killer == signal.SIGPIPE else None
    return {
        "code": exit.code,
        "signal": killer,
        "signal_name": signal_name(killer) if killer else None,
        "pipe": pipe,
    }


def signal_name(number: int) -> str:
    """Return a signal's name: `SIGSEGV`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _world(seen: Evidence, outputs: list[Stream]) -> Iterator[Fact]:
    world = seen.world
    values = {"planned": world.planned, "proved": world.proved, "library": world.library or None}
    if world.singletons or (world.proved == 1 and world.planned > 1) or _reports_single_ranks(seen, outputs):
        yield Fact("world-of-singletons", values=values)
    elif world.proved is not None and world.proved != world.planned:
        yield Fact("world-differs", values=values)


def _other_mpi(seen: Evidence, outputs: list[Stream]) -> Iterator[Fact]:
    # A program that uses Open MPI, started by MPICH or Intel MPI, which ended before its processes could be
    # inspected.
    for stream in outputs if seen.family in (Family.MPICH, Family.INTEL) else ():
        if match := _OPEN_MPI_REFUSED.search(stream.text):
            time = stream.time(stream.at(match.start()))
            yield Fact("refused-open-mpi", time, stream.worker, stream.rank, {"starter": seen.family.value})
            return


def _reports_single_ranks(seen: Evidence, outputs: list[Stream]) -> bool:
    # Several ranks of a larger world each reported that they are rank 0 of 1.
    if seen.spec.world < 2 or any(_TOGETHER.search(stream.text) for stream in outputs):
        return False
    speakers = [stream.rank for stream in outputs for _ in _ALONE.finditer(stream.text)]
    return len(set(speakers)) > 1 or speakers.count(None) > 1


def _refused_though_ready(seen: Evidence, outputs: list[Stream]) -> Iterator[Fact]:
    # A worker's server answers on its own machine but refuses its port from another: a network policy does
    # that.
    for stream in outputs if seen.ready else ():
        for match in _REFUSED.finditer(stream.text):
            host = match[1].decode(errors="replace")
            if (worker := worker_at(seen, host)) in seen.ready:
                values = {"host": host, "refused_port": match[2].decode()}
                time = stream.time(stream.at(match.start()))
                yield Fact("refused-though-ready", time, worker, values=values)
                return


def _ran_elsewhere(seen: Evidence) -> Iterator[Fact]:
    # The census found a rank on a machine that is none of the workers: the hostfile was not read.
    if (found := _ASTRAY.search(seen.message)) is not None:
        yield Fact("ran-on-launcher", values={"elsewhere": found[1]})


def _sidecars(seen: Evidence, outputs: list[Stream]) -> Iterator[Fact]:
    # A connection to a pod with a proxy container was cut: the proxy did it.
    proxied = {pod.worker: name for pod in seen.pods for name in pod.containers if name in SIDECARS}
    for stream in outputs if proxied else ():
        for match in _CUT.finditer(stream.text):
            worker = next(iter(proxied))
            values = {"sidecar": proxied[worker], "host": seen.spec.name}
            yield Fact("cut-by-sidecar", stream.time(stream.at(match.start())), worker, values=values)
            return


def _one_machine(seen: Evidence, outputs: list[Stream]) -> Iterator[Fact]:
    # DeepSpeed found no hostfile. It reports that on every single machine; only a job of several workers is
    # affected.
    for stream in outputs if seen.spec.workers > 1 and not seen.bare else ():
        if match := _ONE_MACHINE.search(stream.text):
            yield Fact("deepspeed-alone", stream.time(stream.at(match.start())), stream.worker, stream.rank)
            return


def _lost_nodes(seen: Evidence) -> Iterator[Fact]:
    for node in seen.nodes:
        if node.ready is False:
            worker = next((pod.worker for pod in seen.pods if pod.node == node.name), None)
            yield Fact("node-lost", worker=worker, values={"node": node.name, "message": node.reason or None})


def _silence(seen: Evidence) -> Iterator[Fact]:
    silent = seen.silent_seconds
    # An engine that watches ranks has already reported a hang.
    overdue = _silent_for_most(seen, 30.0) and not seen.ranks_watched
    if seen.reason == "Silent" or overdue or (seen.going and silent):
        yield Fact("silent", values={"silent": _rounded(silent), **_load(seen)})


def _as_script(seen: Evidence) -> dict[str, object]:
    # The script of a command that starts mpirun itself, although a job runs its command on every rank.
    words = unwrapped(seen.spec.argv)
    if _NESTED not in seen.message or not words:
        return {}
    if words[0].rpartition("/")[2] in SHELLS:
        words = words[1:]
    if not words or words[0].startswith(("-", "/")):
        return {}
    return {"as_script": words[0].removeprefix("./"), "script_args": [*words[1:]]}


def _silent_for_most(seen: Evidence, least: float) -> bool:
    # For at least half of the time that the deadline left.
    silent, elapsed = seen.silent_seconds or 0.0, seen.elapsed_seconds or 0.0
    return seen.reason == "DeadlineExceeded" and elapsed > 0.0 and silent >= max(least, elapsed / 2)


def quiet_at_deadline(seen: Evidence) -> str | None:
    """Return how long the ranks had been silent when the deadline ended them, if they may have waited for
    each other.

    Ranks that wait in MPI are busy, so nothing else distinguishes them from ranks that compute silently.
    """
    has_warning = any(warning.code in STALLS for warning in seen.active_warnings)
    if seen.spec.world < 2 or has_warning or _ended_well(seen) or not _silent_for_most(seen, QUIET_SECONDS):
        return None
    return duration_text(seen.silent_seconds or 0.0)


def _stalled(seen: Evidence) -> Iterator[Fact]:
    # Warnings about stalled ranks before the deadline ended them came first, so they are the cause.
    for code in STALLS if seen.reason == "DeadlineExceeded" else ():
        if warnings := [warning for warning in seen.active_warnings if warning.code == code]:
            values = {code.lower(): _who_stalled(seen, warnings), "message": _warning_text(seen, warnings[0])}
            yield Fact("stalled", values=values, confidence=warnings[0].confidence)
            return


def _who_stalled(seen: Evidence, warnings: list[ActiveWarning]) -> str:
    named = [warning for warning in warnings if warning.rank is not None or warning.worker is not None]
    if not named:
        return f"all {seen.spec.world} ranks" if seen.spec.world > 1 else "the only rank"
    names = ", ".join(lowered(subject(warning.worker, warning.rank)) for warning in named[:MOST_NAMED])
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return names + more


def _warning_text(seen: Evidence, warning: ActiveWarning) -> str:
    known = seen.started is not None and warning.time
    when = (
        f"{duration_text(max(0.0, warning.time - (seen.started or 0.0)))} after the start"
        if known
        else "while it ran"
    )
    return f"warned {when}: {warning.message} [{warning.code}]"


def _load(seen: Evidence) -> dict[str, Any]:
    # Idle workers wait; busy ones compute or poll.
    last = {sample.worker: sample.cpu_cores for sample in seen.samples if sample.attempt == seen.attempt}
    if not last:
        return {}
    total = sum(last.values())
    return {"idle" if total < IDLE_CORES * len(last) else "busy": f"{total:.2g}"}


def _rounded(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
