"""Summarizes the call stacks of all ranks: "63 ranks in MPI_Allreduce, rank 17 in load (train.py:42)".

Pure; the engines collect the stacks. A location is the MPI or NCCL call in which a rank waits, else its
innermost Python line, else its innermost function, else the system call. One capture shows where ranks are,
not that they stay there, and the summary claims no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mpijob.model.status.records import spans
from mpijob.model.status.stacks import Frame, Lack, Means, RankStack, StackGroup, StackReport

_MPI = re.compile(r"_?(?:P|mca_pml_|i)?(MPI_[A-Z]\w*?)(?:_c|_internal)?_?")
_NCCL = re.compile(r"(?:p?(nccl(?:[A-Z]\w*))|(c10d::\w+|horovod_\w+))")
_COLLECTIVES = re.compile(
    r"MPI_(?:I?(?:Allreduce|Allgatherv?|Alltoall[vw]?|Barrier|Bcast|Exscan|Gatherv?|Reduce\w*|Scan|Scatterv?)"
    r"|Init|Init_thread|Finalize|Comm_(?:split|dup|create)\w*|Win_fence|File_\w+_all)"
)
_WAITS = re.compile(r"MPI_(?:Recv|Wait\w*|Probe|Mprobe|Ssend|Send|Sendrecv\w*)|nccl\w+")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>")
# Frames of the C library and of waiting system calls, which do not name a location.
_LIBC = re.compile(
    r"\?\?|0x[0-9a-f]+|_*(?:libc|GI|pthread|clone|start)\w*|(?:\w+::)*(?:operator.*)?$"
    r"|_*(?:poll|ppoll|epoll_p?wait|p?select\w*|futex\w*|sched_yield|(?:clock_)?nanosleep|read|recv\w*|wait4?|syscall"
    r"|sem_\w+|usleep|sleep)(?:_nocancel|_time64)?"
)
_DOING = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "T": "stopped",
    "t": "stopped",
    "Z": "ended",
}
_STATES = (*_DOING.values(), "in a state", "not seen")
_MOST_NAMED = 4

ALLOWED = {
    "local": "allow it (as root: sysctl kernel.yama.ptrace_scope=0), or run jobs with isolation namespaces",
    "kubernetes": "the pod's seccomp profile or the node's kernel.yama.ptrace_scope forbids ptrace; the capability "
    "SYS_PTRACE for the workers' containers would allow it",
}
_LACKS = {
    Lack.NO_PYSPY: {
        "local": "py-spy is not installed, so Python lines are not shown: pip install 'mpijob[stacks]'",
        "kubernetes": "the image has no py-spy, so Python lines are not shown: use --bring-py-spy, or install it there",
    },
    Lack.NO_GDB: {
        "local": "gdb is not installed, so functions of native programs are not shown: install gdb",
        "kubernetes": "the image has no gdb, so functions of native programs are not shown: install gdb in it",
    },
    Lack.DENIED: {place: f"reading the process was denied (ptrace): {how}" for place, how in ALLOWED.items()},
    Lack.TOO_SLOW: {"": "reading the stack timed out; try fewer ranks with --rank"},
    Lack.UNREADABLE: {"": "the tool could not read the process"},
    Lack.GONE: {"": "the process has ended"},
    Lack.UNREACHED: {"": "the worker could not be reached"},
}  # fmt: skip


def report(stacks: Iterable[RankStack], place: str = "local") -> StackReport:
    """Return where the ranks are, grouped, with remarks; `place` is the engine, for hints about missing
    permissions.
    """
    known = tuple(sorted(stacks, key=lambda stack: stack.rank))
    groups = group(known)
    return StackReport(
        summary=_summary(groups) or "no rank was found",
        groups=groups,
        remarks=tuple(_remarks(groups)),
        lacks=tuple(_lacks(known, place)),
        stacks=known,
    )


def group(stacks: Sequence[RankStack]) -> tuple[StackGroup, ...]:
    """Return the ranks by location, the largest group first."""
    places: dict[str, list[RankStack]] = {}
    for stack in stacks:
        places.setdefault(where(stack), []).append(stack)
    ordered = sorted(places.items(), key=lambda item: (-len(item[1]), item[1][0].rank))
    return tuple(
        StackGroup(name, tuple(stack.rank for stack in same), _is_wait(name), same[0].frames)
        for name, same in ordered
    )


def where(stack: RankStack) -> str:
    """Return the location of one rank, as the summary names it."""
    if call := _call(stack.frames):
        return call
    if python := [frame for frame in stack.frames if not frame.native]:
        return _python(python)
    if native := [frame for frame in stack.frames if not _LIBC.fullmatch(frame.function)]:
        return _place(native[0])
    if stack.frames:
        return stack.frames[0].function.removeprefix("__GI").lstrip("_")
    return _kernel(stack)


def _call(frames: Sequence[Frame]) -> str:
    # The outermost MPI call is the one that the program made; inner ones are the library's own.
    for pattern in (_MPI, _NCCL):
        for frame in reversed(frames):
            if frame.native and (match := pattern.fullmatch(frame.function)):
                return next(part for part in match.groups() if part)
    return ""


def _python(frames: Sequence[Frame]) -> str:
    # With the program's own line, if the innermost one is in a library.
    inner = frames[0]
    own = next((frame for frame in frames if not _LIBRARY.search(frame.file)), inner)
    return _place(inner) if own is inner else f"{_place(inner)}, called from {_place(own)}"


def _place(frame: Frame) -> str:
    file = frame.file.rpartition("/")[2]
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.function} ({file}{line})" if file else frame.function


def _kernel(stack: RankStack) -> str:
    if stack.means is Means.NONE:
        return f"not available ({stack.lack.value if stack.lack else 'unknown'})"
    doing = _DOING.get(stack.state, "in an unknown state")
    inside = stack.syscall or stack.wchan
    call = f" in the system call {inside}" if inside and stack.state != "R" else ""
    return f"{doing}{call}" + (f" ({stack.program})" if stack.program else "")


def _is_wait(name: str) -> bool:
    return bool(_COLLECTIVES.fullmatch(name) or _WAITS.fullmatch(name))


def _summary(groups: Sequence[StackGroup]) -> str:
    return ", ".join(f"{named(group.ranks)} {_in(group.where)}" for group in groups)


def _in(place: str) -> str:
    return place if place.startswith(_STATES) else f"in {place}"


def named(ranks: Sequence[int]) -> str:
    """Return the name of some ranks: `rank 17`, `ranks 0-2, 5`, `63 ranks`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {spans(ranks)}" if len(ranks) <= _MOST_NAMED else f"{len(ranks)} ranks"


def _remarks(groups: Sequence[StackGroup]) -> Iterable[str]:
    # Ranks that compute differ in their lines, so nothing follows without a collective call.
    collective = [group for group in groups if _COLLECTIVES.fullmatch(group.where)]
    others = [group for group in groups if group not in collective and not group.where.startswith("not seen")]
    if len(collective) > 1:
        calls = ", ".join(f"{named(group.ranks)} in {group.where}" for group in collective)
        yield f"the ranks are in different collective calls ({calls}): if they stay there, the calls do not match"
    if (
        collective
        and others
        and sum(len(group.ranks) for group in others) <= sum(len(group.ranks) for group in collective)
    ):
        behind = [rank for group in others for rank in group.ranks]
        yield (f"{named(behind)} {'has' if len(behind) == 1 else 'have'} not reached {collective[0].where}, "
               f"where {named(collective[0].ranks)} {'waits' if len(collective[0].ranks) == 1 else 'wait'}: "
               f"check {named(behind)} first")  # fmt: skip
    if len(collective) == 1 and not others:
        yield (f"all ranks are in {collective[0].where}: the call is in progress, or its messages do not arrive; "
               "capture the stacks again in a moment")  # fmt: skip


def _lacks(stacks: Sequence[RankStack], place: str) -> Iterable[str]:
    by_reason: dict[Lack, list[RankStack]] = {}
    for stack in stacks:
        if stack.lack is not None:
            by_reason.setdefault(stack.lack, []).append(stack)
    for reason, same in by_reason.items():
        sentences = _LACKS[reason]
        detail = next((f" ({stack.said})" for stack in same if stack.said), "")
        sentence = sentences.get(place) or sentences.get("") or sentences["local"]
        yield f"{named([stack.rank for stack in same])}: {sentence}{detail}"
