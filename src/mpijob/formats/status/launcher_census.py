"""What the launcher's log reports about the world: the place of each rank, whether the world is as planned, and
exits.

`rank_output` decides which line was written by whom.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import container_of
from mpijob.formats.launch import command_line, wrong_world
from mpijob.formats.launch.rank_output import Output, RankLine, Report
from mpijob.formats.status import job_conditions
from mpijob.formats.status.nested_fields import number, part, parts, text, time_of
from mpijob.model import Exit, Family, RankState, StepState
from mpijob.model.platform.cluster_observation import Census
from mpijob.model.spec.command import own_launcher

_STAMP = re.compile(r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[-+]\d\d:\d\d)) ?")
_NUMBER = re.compile(r"-(\d{1,6})$")
_OWN_WORDS = re.compile(r"^(?:\d{4}-\S+Z ?)?(?:mpijob: |$)")
_PEER_LOST = re.compile(
    r"(?i)socket closed|connection reset|connection closed|broken pipe|lost connection|peer"
)


class Layout(msgspec.Struct, frozen=True):
    """What a census is compared with. `hosts` has the workers' numbers by host name.

    `own` has slots and GPUs by worker if workers differ.
    """

    hosts: Mapping[str, int]
    planned: int
    slots: int = 1
    gpus: int = 0
    own: Mapping[int, tuple[int, int]] = {}


def speech(job: Mapping[str, Any]) -> tuple[Family, bool]:
    """Return the MPI family whose tags the launcher's log has, and whether it has tags."""
    kind = job_conditions.of(job, None, None)
    family = Family(kind.mpi) if kind.mpi else Family.AUTO
    if not job_conditions.is_ours(job):
        return family, False
    launcher = part(job_conditions.replica_specs(job).get("launcher"), "template", "spec")
    args = part(job, "spec", "trainer").get("args") or container_of(launcher).get("args") or ()
    words = [well_known.unescape_variables(str(word)) for word in args]
    if well_known.SHIM not in words:
        return family, False
    # A command that is a launcher itself starts its ranks without our options for tags.
    behind = words[len(words) - words[::-1].index(well_known.SHIM) :]
    return family, not (behind[:1] == ["true"] and (own_launcher(tuple(behind[1:])) or is_elastic(job)))


def is_elastic(job: Mapping[str, Any]) -> bool:
    """Return whether a job of ours is elastic: its launcher has a discovery script."""
    return job_conditions.is_ours(job) and command_line.DISCOVER in _launcher_variables(job)


def planned(job: Mapping[str, Any]) -> int | None:
    """Return the size of the world that an elastic job was created with.

    Scaling does not change its launcher.
    """
    return number(_launcher_variables(job), "MPIJOB_WORLD") if is_elastic(job) else None


def _launcher_variables(job: Mapping[str, Any]) -> dict[str, str]:
    pod = part(job_conditions.replica_specs(job).get("launcher"), "template", "spec")
    return {text(variable, "name"): text(variable, "value") for variable in parts(container_of(pod), "env")}


def read(log: str, family: Family, layout: Layout, *, tagged: bool = True) -> Census:
    output, reports = Output(family, tagged=tagged), _Reports(layout)
    for line in log.splitlines():
        ours = "mpijob-" in line
        reports.begun = reports.begun or not (ours or _OWN_WORDS.search(line) or not line.strip())
        if ours or _PEER_LOST.search(line):
            stamp, rest = split(line)
            for report in output.read(rest.encode(errors="replace")):
                reports.add(report, stamp)
    return reports.census()


def split(line: str) -> tuple[float | None, str]:
    """Split the kubelet's timestamp from a line; None if it has none."""
    if match := _STAMP.match(line):
        return time_of(match["stamp"]), line[match.end() :]
    return None, line


class _Reports:
    """Collects the reports of one log.

    Census lines count before the line `mpijob-world` only: it precedes the user's command, which may print anything.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.begun = False
        self._ranks: dict[int, RankState] = {}
        self._sizes: set[int] = set()
        self._exits: dict[int, Exit] = {}
        self._starved: list[int] = []
        self._spared: list[int] = []
        self._mourners: list[int] = []
        self._left: list[int] = []
        self._steps: dict[int, StepState] = {}
        self._proved: int | None = None
        self._wrong_world = ""
        self._time: float | None = None
        self._ready: float | None = None

    def add(self, report: RankLine | Report, stamp: float | None) -> None:
        if isinstance(report, Report):
            self._report(report, stamp)
        elif report.rank is not None:
            self._mourners.append(report.rank)

    def _report(self, report: Report, stamp: float | None) -> None:
        rank = report.number("rank")
        if report.kind == "step" or "step" in report.words:
            self._step(report, stamp or 0.0)
        elif report.kind == "wrong":
            self._wrong_world = self._wrong_world or _wrong_world(report)
        elif report.kind == "ready" and self._ready is None:
            self._ready = stamp or 0.0
        elif report.kind == "world" and self._proved is None:
            self._proved, self._time = report.number("ranks"), stamp
        elif report.kind == "census" and self._proved is None and rank is not None:
            self._ranks[rank] = _rank(report, rank, self._layout)
            self._sizes.add(report.number("size") or 0)
        elif report.kind == "exit" and rank in self._ranks and rank not in self._left:
            worker = self._ranks[rank].worker
            self._exits[rank] = Exit(code=report.number("code"), time=stamp or 0.0, index=rank, worker=worker)
            self._starved += [rank] if report.number("oom") else []
            self._spared += [rank] if report.number("oom") == 0 else []
            self._left += [rank] if report.number("left") else []

    def _step(self, report: Report, stamp: float) -> None:
        """Store the start or the end of a script's step, or the exit of one of its ranks."""
        number = report.number("step" if report.kind == "exit" else "number")
        known, code = self._steps.get(number if number is not None else -1), report.number("code")
        if number is None:
            return
        if report.kind == "exit":
            if known is not None and code and known.failed_rank is None:
                self._steps[number] = msgspec.structs.replace(known, failed_rank=report.number("rank"))
        elif known is None:
            command = report.words.get("command", "").replace("\x1f", " ").strip()
            self._steps[number] = StepState(number, command, report.number("ranks") or 0, started=stamp)
        elif code is not None and known.finished is None:
            self._steps[number] = msgspec.structs.replace(known, finished=stamp, exit_code=code)

    def census(self) -> Census:
        ends = {rank: exit.status for rank, exit in self._exits.items()}
        ranks = (
            msgspec.structs.replace(self._ranks[at], exit_code=ends.get(at)) for at in sorted(self._ranks)
        )
        return Census(
            read=True,
            proved=self._proved,
            begun=self.begun,
            wrong=self._wrong(),
            wrong_world=self._wrong_world,
            ranks=tuple(ranks),
            exits=tuple(self._exits.values()),
            starved=tuple(self._starved),
            spared=tuple(self._spared),
            mourners=tuple(dict.fromkeys(self._mourners)),
            left=tuple(self._left),
            steps=tuple(one for _, one in sorted(self._steps.items())),
            time=self._time,
            ready=self._ready,
        )

    def _wrong(self) -> str:
        proved, planned = self._proved, self._layout.planned
        if proved is None:
            return ""
        if planned and proved != planned:
            return f"the MPI world has {proved} ranks; planned: {planned}"
        if self._ranks and sorted(self._ranks) != list(range(proved)):
            return f"{len(self._ranks)} ranks reported; the MPI world should have {proved}"
        if others := self._sizes - {proved}:
            return f"a rank is in an MPI world of {min(others)} ranks; planned: {planned or proved}"
        return ""


def _wrong_world(report: Report) -> str:
    who, library = f"rank {report.number('of')}", report.words.get("library", "an MPI library")
    match report.words.get("as"):
        case "nested":
            return wrong_world.nested(who, report.number("size") or 0)
        case "cut":
            return wrong_world.cut_off(who, library, (report.words.get("lost", ""),))
        case wanted:
            return wrong_world.other_mpi(who, library, report.words.get("launcher", ""), wanted or "auto")


def _rank(report: Report, rank: int, layout: Layout) -> RankState:
    host, local = report.words.get("host", "").partition(".")[0], report.number("local") or 0
    number = _NUMBER.search(host)
    worker = layout.hosts.get(host, int(number[1]) if number else 0)
    slots, gpus = layout.own.get(worker, (layout.slots, layout.gpus))
    devices = _devices(local, slots, min(gpus, report.number("gpus") or 0))
    return RankState(rank, worker, local, report.words.get("node", ""), gpus=devices)


def _devices(local: int, slots: int, gpus: int) -> tuple[str, ...]:
    # As the rank script assigns them (`pod_scripts.RANK`).
    if gpus <= 0 or slots <= 0:
        return ()
    each = gpus // slots
    first = local * each if each else local % gpus
    return tuple(str(device) for device in range(first, first + max(1, each)))
