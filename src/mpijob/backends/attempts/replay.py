"""Replay the journals of an attempt: the state of launcher and ranks, from entries in the order of time.

The journals are written inside a batch system's allocation; their format is in `formats/launch/allocation`. What
the batch system itself reports is added by its engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mpijob.formats.convert.header import units
from mpijob.formats.launch import allocation, wrong_world
from mpijob.formats.launch.allocation import NOT_SHARED, NOT_WRITABLE, Entry
from mpijob.model import Family, Plan
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import Reason


class Attempt(NamedTuple):
    """An attempt from its journals; `ended` is set once the launcher has written how it ended."""

    number: int
    entries: tuple[Entry, ...]
    started: float
    proved: float | None
    ended: float | None
    code: int | None
    stop_requested_at: float | None
    # Why the launcher ended it: `term` if the batch system requested that, `deadline`, or "".
    stop_reason: str
    retry_seconds: float | None
    hosts: tuple[str, ...]
    places: tuple[str, ...]
    state: AttemptState

    @property
    def ended_by_itself(self) -> bool:
        """Whether it ended without a request of the batch system: then its journals are authoritative."""
        return self.ended is not None and self.stop_reason != "term"


def read(number: int, plan: Plan, directory: Path) -> Attempt:
    """Return an attempt from the journals in its directory: the launcher's, and one of each node."""
    journals = [("", directory / "journal")]
    journals += [(path.name.removeprefix("node-"), path) for path in sorted(directory.glob("node-*"))]
    entries = (entry for host, path in journals for entry in allocation.entries(read_text(path), host))
    return replay(number, plan, entries)


def read_text(path: Path) -> str:
    """Return the text of a file in a job's directory; "" if it does not exist (yet)."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def replay(number: int, plan: Plan, found: Iterable[Entry]) -> Attempt:
    """Return the attempt after all entries, whose order is that of their times."""
    ordered = sorted(found, key=lambda entry: entry.time)
    state = AttemptState(plan, ordered[0].time if ordered else 0.0)
    start = next((entry for entry in ordered if entry.verb == "start"), None)
    places = _places(plan, start.words.get("nodes", "") if start else "")
    hosts = tuple(dict.fromkeys(places))
    stopped, stop_at, code, ended, proved, retry = "", None, None, None, None, None
    for entry in ordered:
        state.now = entry.time
        match entry.verb:
            case "start":
                state.ready.update(range(plan.job.workers))
            case "launch":
                state.launcher_started = True
                state.launcher_spawned(0, counting=False)
            case "hello":
                _hello(state, entry, plan, places)
                if proved is None and state.take_census():
                    proved = entry.time
            case "exit" if _is_number(entry, "code"):
                rank = _number(entry, "rank")
                state.rank_exited(rank, _number(entry, "code"))
                if kills := _number(entry, "oom"):
                    worker = state.ranks[rank].worker if rank in state.ranks else 0
                    state.oom_kills[worker] = state.oom_kills.get(worker, 0) + kills
            case "differs":
                state.stop(Reason.WORLD_DIFFERS, entry.text)
            case "wrong":
                state.stop(Reason.WRONG_WORLD, _wrong(entry, plan))
            case "deadline":
                state.deadline_passed = state.ending = True
                stopped, stop_at = "deadline", entry.time
            case "term":
                state.ending, stopped, stop_at = True, "term", entry.time
            case "end" if _is_number(entry, "code"):
                code, ended = _number(entry, "code"), entry.time
                _end(state, code)
            case "retry":
                retry = _seconds(entry, "in")
    began = start.time if start else state.now
    return Attempt(
        number, tuple(ordered), began, proved, ended, code, stop_at, stopped, retry, hosts, places, state
    )


def _places(plan: Plan, nodes: str) -> tuple[str, ...]:
    """Return the node of each worker; where workers are in groups, the nodes of each have a `+` between."""
    found: list[str] = []
    for part, listed in zip(plan.job.parts, nodes.split("+"), strict=False):
        hosts = units.hosts(listed) or ()
        each = -(-part.job.workers // max(1, len(hosts)))
        found += [hosts[worker // each] for worker in range(part.job.workers) if worker // each < len(hosts)]
    return tuple(found)


# Journals are files that the job can write to, too: every word is checked.
def _is_number(entry: Entry, name: str) -> bool:
    text = entry.words.get(name, "")
    return text.isdecimal() and len(text) < 10


def _number(entry: Entry, name: str) -> int:
    return int(entry.words[name]) if _is_number(entry, name) else 0


def _seconds(entry: Entry, name: str) -> float:
    try:
        return float(entry.words.get(name, "0"))
    except ValueError:
        return 0.0


def _hello(state: AttemptState, entry: Entry, plan: Plan, places: tuple[str, ...]) -> None:
    """Record a rank on the worker whose node it runs on."""
    # The node is what the rank itself reported: the launcher may have placed ranks otherwise than planned.
    host, slot, rank = entry.words.get("host", entry.host), _number(entry, "slot"), _number(entry, "rank")
    planned = plan.job.worker_of(rank) or 0
    _, first, job = plan.job.part_of(planned)  # srun counts the ranks of one component after the other
    there = [at for at in range(first, first + job.workers) if at < len(places) and places[at] == host]
    worker = there[min(slot // job.slots, len(there) - 1)] if there else planned
    state.rank_started(rank, _number(entry, "size"), worker, slot % job.slots, _number(entry, "pid"),
                entry.words.get("gpus", ""), host)  # fmt: skip


def _end(state: AttemptState, code: int) -> None:
    """Record the launcher's end."""
    if code in (NOT_SHARED, NOT_WRITABLE):
        state.stop(Reason.START_REFUSED, "the job's directory cannot be used on the nodes")
    # Ranks without an exit by then were killed with the launcher: their ends are no failures of their own.
    for rank in sorted(state.ranks.keys() - state.rank_exits.keys()):
        ending, state.ending = state.ending, True
        state.rank_lost(rank)
        state.ending = ending
    # The shell reports a signal of the launcher as 128 + number. If a rank failed, the code is that of the rank.
    rank_failed = any(not exit.good and not exit.by_us for exit in state.rank_exits.values())
    state.launcher_ended(-(code - 128) if 128 < code < 160 and not rank_failed else code)


def _wrong(entry: Entry, plan: Plan) -> str:
    """Return the message about a rank that would have been a world of its own."""
    words = entry.words
    rank, library = words.get("of") or words.get("rank", ""), words.get("library", "an MPI library")
    name, kind = f"rank {rank}", words.get("as", "")
    if kind == "nested":
        return wrong_world.nested(name, plan.world)
    if kind == "cut":
        return wrong_world.cut_off(name, library, (words.get("lost", ""),))
    family = Family.OPENMPI if kind == "openmpi" else Family.MPICH
    return wrong_world.other_mpi(name, library, plan.mpi, family.value)
