"""All jobs of a cluster in one list, whoever made them and whichever engine runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mpijob.backends import select
from mpijob.backends.kubernetes import gathering, kinds, states
from mpijob.backends.kubernetes.api import Api
from mpijob.backends.kubernetes.gathering import attempt_of, ref_of
from mpijob.backends.kubernetes.kinds import Kind
from mpijob.dialects.terms import Document
from mpijob.errors import InvalidJob
from mpijob.model import JobState, Page, Scope


def page(api: Api, scope: Scope, served: frozenset[str]) -> Page:
    """Return one page, newest first."""
    chosen = [state for state in all_states(api, scope, served) if select.belongs(state, scope)]
    first = _place(scope.after)
    kept = chosen[first : first + scope.limit]
    after = str(first + scope.limit) if len(chosen) > first + scope.limit else ""
    return Page(tuple(kept), after, len(chosen))


def all_states(api: Api, scope: Scope, served: frozenset[str]) -> list[JobState]:
    """Return every job of the scope's namespace once, by its newest attempt, newest first."""
    wanted: dict[str, Callable[[], Any]] = {
        f"{kind.api}/{kind.plural}": _lister(api, kind, scope.namespace)
        for kind in (*gathering.JOB_KINDS, *kinds.OLDER)
        if kind.api in served
    }
    if kinds.KUEUE_API in served:
        wanted["workloads"] = lambda: api.list(kinds.WORKLOAD.path(scope.namespace)).items
    wanted["pods"] = lambda: api.list(kinds.POD.path(scope.namespace), labels=states.POD_SELECTOR).items
    found = gathering.side_by_side(wanted)
    workloads = _by_owner(found.pop("workloads", None) or [])
    pods = _pods_by_job(found.pop("pods", None) or [])
    jobs = [job for listed in found.values() for job in listed or ()]
    ordered = sorted(
        _newest(jobs), key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"])
    )
    return [_summary(job, workloads, pods) for job in reversed(ordered)]


def _lister(api: Api, kind: Kind, namespace: str) -> Callable[[], list[Document]]:
    def listed() -> list[Document]:
        words = {"apiVersion": kind.api, "kind": kind.name}
        return [words | job for job in api.list(kind.path(namespace)).items]

    return listed


def _newest(jobs: list[Document]) -> list[Document]:
    """Return the newest job of each name, by its newest attempt."""
    newest: dict[tuple[str, str, str], Document] = {}
    for job in jobs:
        ref = ref_of(job)
        key = (ref.namespace, ref.name, job["kind"] if job["apiVersion"] == kinds.OLDER_API else "")
        known = newest.get(key)
        if known is None or _rank(job) > _rank(known):
            newest[key] = job
    return [*newest.values()]


def _rank(job: Document) -> tuple[str, int]:
    return str(job["metadata"]["creationTimestamp"]), attempt_of(job)


def _summary(
    job: Document, workloads: dict[str, Document], pods: dict[tuple[str, str], list[Document]]
) -> JobState:
    metadata = job["metadata"]
    mine = pods.get((metadata["namespace"], metadata["name"]), [])
    state = states.summary(job, workloads.get(metadata["uid"]), mine)
    return msgspec.structs.replace(state, ranks=())


def _by_owner(workloads: list[Document]) -> dict[str, Document]:
    owned = {}
    for workload in workloads:
        for owner in workload["metadata"].get("ownerReferences") or ():
            owned[owner["uid"]] = workload
    return owned


def _pods_by_job(pods: list[Document]) -> dict[tuple[str, str], list[Document]]:
    found: dict[tuple[str, str], list[Document]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        name = labels.get("jobset.sigs.k8s.io/jobset-name") or labels.get("training.kubeflow.org/job-name")
        if name:
            found.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
    return found


def _place(after: str) -> int:
    if not after:
        return 0
    if not after.isdecimal():
        raise InvalidJob(f"'{after}' is no place in a list", hint="use the one that the page before gave")
    return int(after)
