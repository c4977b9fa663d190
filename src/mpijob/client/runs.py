"""Runs: all jobs that had one name, numbered. `train@1` is the first of them, `train` the newest.

A number is assigned at submission. Existing and deleted jobs are numbered together, in the order of
submission; a job whose number is unknown, or not above that of the one before it, gets the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from mpijob.errors import InvalidJob, NotFound
from mpijob.model import JobRef, JobState, Scope

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend

MARK = "@"
_UID = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{16})?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AT_ONCE = 500


def is_plain(target: str) -> bool:
    """Return whether a target can only be a name, so that no request is needed to resolve it."""
    return MARK not in target and _UID.fullmatch(target) is None


def resolved(target: str, namespace: str, reads: Backend) -> JobRef:
    """Resolve `NAME@RUN` or a uid; raise NotFound."""
    name, mark, number = target.partition(MARK)
    if mark:
        return _numbered(name, number, namespace, reads)
    try:
        reads.get(JobRef(namespace, target))
    except NotFound:
        return reads.get(JobRef(namespace, "", target)).ref
    # A job can have a name that looks like a uid, and a name comes first.
    return JobRef(namespace, target)


def _numbered(name: str, number: str, namespace: str, reads: Backend) -> JobRef:
    if not (name and number.isascii() and number.isdecimal() and 0 < len(number) < 10):
        raise InvalidJob(
            f"'{name}{MARK}{number}' is not the run of a job",
            hint=f"write NAME{MARK}NUMBER, as in train{MARK}1; `mpijob runs NAME` lists them",
        )
    found = of_name(JobRef(namespace, name), reads)
    for state in found:
        if state.run == int(number):
            return state.ref
    known = ", ".join(str(state.run) for state in found[:10]) + (" …" if len(found) > 10 else "")
    raise NotFound(
        f"job '{name}' in namespace '{namespace}' has no run {int(number)}; there are: {known}",
        hint=f"mpijob runs {name} lists them; older runs are removed by retention",
    )


def earlier(scope: Scope, reads: Backend) -> dict[str, tuple[JobRef, ...]]:
    """Return the existing earlier runs of each job, by its uid, oldest first."""
    from mpijob.client import paging

    every = paging.pages(msgspec.structs.replace(scope, runs=True, limit=_AT_ONCE), reads)
    before: dict[tuple[str, str], list[JobState]] = {}
    found: dict[str, tuple[JobRef, ...]] = {}
    for state in sorted(every, key=lambda one: one.created):
        same = before.setdefault((state.ref.namespace, state.ref.name), [])
        found[state.ref.uid] = tuple(one.ref for one in same if one.owner in ("", state.owner))
        same.append(state)
    return found


def of_name(ref: JobRef, reads: Backend) -> tuple[JobState, ...]:
    """Return all runs of a name, numbered, newest first; raise NotFound.

    If several users have jobs of this name, only those of the owner of the newest one.
    """
    newest = reads.get(JobRef(ref.namespace, ref.name))
    known = {state.ref.uid: state for state in (*_deleted(ref, reads), *_existing(ref, reads), newest)}
    mine = [state for state in known.values() if state.owner == newest.owner or not state.owner]
    return tuple(reversed(numbered(mine)))


def numbered(states: Iterable[JobState]) -> list[JobState]:
    """Return jobs of one name in the order of submission, numbered."""
    found: list[JobState] = []
    for state in sorted(states, key=lambda one: (one.created, one.run, one.ref.uid)):
        least = found[-1].run + 1 if found else 1
        found.append(msgspec.structs.replace(state, run=max(state.run, least)))
    return found


def _existing(ref: JobRef, reads: Backend) -> Iterable[JobState]:
    from mpijob.client import paging

    scope = Scope(namespace=ref.namespace, names=(ref.name,), runs=True, limit=_AT_ONCE)
    return paging.pages(scope, reads)


def _deleted(ref: JobRef, reads: Backend) -> Iterable[JobState]:
    from mpijob.client import paging

    past = reads.history()
    scope = Scope(namespace=ref.namespace, names=(ref.name,), limit=_AT_ONCE)
    return () if past is None else paging.pages(scope, past)
