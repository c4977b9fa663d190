"""An attempt as its journals tell it: what is known of launcher and ranks, in the order of time.

The journals are written inside a batch system's allocation (`formats/launch/allocation`). What they say of an end that
nobody wanted from outside is the whole truth; the batch system's word is put beside it by its engine.
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
    """An attempt as its journals tell it; `ended` says that its launcher has written how it ended."""

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
    state: AttemptState

    @property
    def orderly(self) -> bool:
        """Whether it ended without the batch system wanting it: then what the launcher wrote is the whole truth."""
        return self.ended is not None and self.stop_reason != "term"


def read(number: int, plan: Plan, directory: Path) -> Attempt:
    """Return an attempt by the journals in its directory: the launcher's, and one of each node."""
    journals = [("", directory / "journal")]
    journals += [(path.name.removeprefix("node-"), path) for path in sorted(directory.glob("node-*"))]
    return replay(
        number, plan, (entry for host, path in journals for entry in allocation.entries(text(path), host))
    )


def text(path: Path) -> str:
    """Return what a file of a job's directory says; "" where it is not there (yet)."""
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def replay(number: int, plan: Plan, found: Iterable[Entry]) -> Attempt:
    """Return an attempt with all that its journals make known, in the order of time."""
    ordered = sorted(found, key=lambda one: one.time)
    state = AttemptState(plan, ordered[0].time if ordered else 0.0)
    start = next((one for one in ordered if one.verb == "start"), None)
    nodes = units.hosts(start.words.get("nodes", "")) if start else None
    hosts = nodes or ()
    stopped, stop_at, code, ended, proved, retry = "", None, None, None, None, None
    for one in ordered:
        state.now = one.time
        match one.verb:
            case "start":
                state.ready.update(range(plan.job.workers))
            case "launch":
                state.launcher_started = True
                state.launcher_spawned(0, counting=False)
            case "hello":
                _hello(state, one, plan, hosts)
                if proved is None and state.take_census():
                    proved = one.time
            case "exit" if _known(one, "code"):
                state.bye(_number(one, "rank"), _number(one, "code"))
                if kills := _number(one, "oom"):
                    worker = (
                        state.ranks[_number(one, "rank")].worker if _number(one, "rank") in state.ranks else 0
                    )
                    state.oom_kills[worker] = state.oom_kills.get(worker, 0) + kills
            case "differs":
                state.stop(Reason.WORLD_DIFFERS, one.text)
            case "wrong":
                state.stop(Reason.WRONG_WORLD, _wrong(one, plan))
            case "deadline":
                state.deadline_passed, state.ending, stopped, stop_at = (
                    True,
                    True,
                    "deadline",
                    one.time,
                )
            case "term":
                state.ending, stopped, stop_at = True, "term", one.time
            case "end" if _known(one, "code"):
                code, ended = _number(one, "code"), one.time
                _end(state, code)
            case "retry":
                retry = _seconds(one, "in")
            case _:
                continue
    began = start.time if start else state.now
    return Attempt(number, tuple(ordered), began, proved, ended, code, stop_at, stopped, retry, hosts, state)


def _known(one: Entry, name: str) -> bool:
    text = one.words.get(name, "")
    return text.isdecimal() and len(text) < 10


def _number(one: Entry, name: str) -> int:
    return int(one.words[name]) if _known(one, name) else 0


def _seconds(one: Entry, name: str) -> float:
    try:
        return float(one.words.get(name, "0"))
    except ValueError:
        return 0.0


def _hello(state: AttemptState, one: Entry, plan: Plan, hosts: tuple[str, ...]) -> None:
    """Take note of a rank: its worker is the one whose node it is on, as it was seen there."""
    host, slot = one.words.get("host", one.host), _number(one, "slot")
    each = -(-plan.job.workers // max(1, len(hosts)))
    worker = (
        hosts.index(host) * each + slot // plan.job.slots
        if host in hosts
        else _number(one, "rank") // plan.job.slots
    )
    if plan.job.launch.map_by == "node" and each == 1 and host in hosts:
        worker = hosts.index(host)
    state.hello(_number(one, "rank"), _number(one, "size"), worker, slot % plan.job.slots, _number(one, "pid"),
                one.words.get("gpus", ""), host)  # fmt: skip


def _end(state: AttemptState, code: int) -> None:
    """Take note of the launcher's end; ranks of which nothing was heard by then were killed with it."""
    if code in (NOT_SHARED, NOT_WRITABLE):
        state.stop(Reason.START_REFUSED, "the job's directory cannot be used on the nodes")
    for rank in sorted(state.ranks.keys() - state.rank_exits.keys()):
        ending, state.ending = state.ending, True
        state.rank_vanished(rank)
        state.ending = ending
    bad = any(not exit.good and not exit.by_us for exit in state.rank_exits.values())
    state.launcher_ended(-(code - 128) if 128 < code < 160 and not bad else code)


def _wrong(one: Entry, plan: Plan) -> str:
    """Return the sentence about a rank that would have been a world of its own."""
    words = one.words
    rank, library = words.get("of") or words.get("rank", ""), words.get("library", "an MPI library")
    who, kind = f"rank {rank}", words.get("as", "")
    if kind == "nested":
        return wrong_world.nested(who, plan.world)
    if kind == "cut":
        return wrong_world.cut_off(who, library, (words.get("lost", ""),))
    family = Family.OPENMPI if kind == "openmpi" else Family.MPICH
    return wrong_world.other_mpi(who, library, plan.mpi, family.value)
