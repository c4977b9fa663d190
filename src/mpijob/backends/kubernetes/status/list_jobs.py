"""All jobs of a cluster in one list, of all users and engines.

A namespace may have thousands of jobs and a page shows a hundred. Of every job only the metadata is decoded,
which decides its place in the list; the jobs of the page are decoded completely, with their pods and
Workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from mpijob import codec
from mpijob.backends import scope_filter
from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.backends.kubernetes.client.api_errors import ApiError, unread_findings
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.backends.kubernetes.status import job_objects
from mpijob.backends.kubernetes.status.job_objects import attempt_of, ref_of
from mpijob.formats.kubernetes.metadata import identity, well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.model import Page, Phase

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.model import JobState, Scope
    from mpijob.model.status.forecast import Forecast

# More names make a URL that proxies refuse.
_MAX_NAMES = 100
_WORKLOAD_OF = "kueue.x-k8s.io/job-uid"
_OLDER_PATH = f"/apis/{resources.OLDER_API}"
_FEW_PODS = {"labelSelector": well_known.JOB_LABEL, "limit": "100"}


# Of many annotations, the one that is needed here: decoding the others takes most of the time.
_Notes = TypedDict("_Notes", {"mpijob.dev/owner": str}, total=False)


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    creationTimestamp: str
    labels: dict[str, str]
    annotations: _Notes


class _Head(TypedDict):
    metadata: _Metadata


_HEAD = codec.decoder(_Head)


class Listed(msgspec.Struct, frozen=True):
    """An engine's object of which only the metadata is decoded."""

    kind: Kind
    head: Document
    raw: msgspec.Raw

    @property
    def place(self) -> tuple[str, str]:
        """The object's namespace and name."""
        return self.head["metadata"]["namespace"], self.head["metadata"]["name"]

    def decoded(self) -> Document:
        """Return the decoded object, with kind and apiVersion, which list items lack."""
        return {"apiVersion": self.kind.api, "kind": self.kind.name, **msgspec.json.decode(self.raw)}


class Everything(msgspec.Struct, frozen=True):
    """All jobs, newest first, and the pods of mpijob's jobs unless they are too many."""

    jobs: list[Listed]
    pods: list[Document] | None
    refused: list[ApiError]


Forecasts = Callable[[str], Mapping[str, "Forecast"]]


def page(
    api: Api, scope: Scope, served: frozenset[str] | None = None, forecasts: Forecasts | None = None
) -> Page:
    """Return one page, newest first; `served` are the cluster's APIs if they are known already.

    `forecasts` returns the start times of a namespace's queued jobs.
    """
    first = scope.place
    last = first + scope.limit
    reading = concurrent.later(lambda: _everything(api, scope, served))
    # Loaded while the server answers.
    from mpijob.backends.kubernetes.status import derive_state  # noqa: F401 - see above

    everything = reading()
    chosen = [job for job in everything.jobs if scope_filter.matches_ref(ref_of(job.head), scope)]
    if scope_filter.needs_state(scope):
        states = _states(api, scope, chosen, everything, forecasts)
        found = [state for state in states if scope_filter.matches(state, scope)]
        notices = unread_findings(everything.refused)
        return Page(tuple(found[first:last]), str(last) if len(found) > last else "", len(found), notices)
    kept = _states(api, scope, chosen[first:last], everything, forecasts)
    notices = unread_findings(everything.refused)
    return Page(tuple(kept), str(last) if len(chosen) > last else "", len(chosen), notices)


# -- every job ------------------------------------------------------------------------------------
def _everything(api: Api, scope: Scope, served: frozenset[str] | None) -> Everything:
    """Return all jobs of the scope's namespace by their newest attempts, newest first, and the pods."""
    first = [kind for kind in job_objects.JOB_KINDS if served is None or kind.api in served]
    calls = _listers(api, first, scope.namespace) | {"pods": lambda: _few_pods(api, scope.namespace)}
    if served is None:
        calls["older"] = lambda: _older(api)
    refused: list[ApiError] = []
    found = job_objects.read_concurrently(calls, api.lanes(near=1), refused=refused)
    pods, older = found.pop("pods"), found.pop("older", None)
    if served and resources.OLDER_API in served:
        older = resources.OLDER
    if older:
        found |= job_objects.read_concurrently(_listers(api, older, scope.namespace), api.lanes(near=1))
    if all(listed is None for listed in found.values()):
        # An empty list would be wrong.
        raise _no_list_error(refused)
    jobs = [job for listed in found.values() for job in listed or ()]
    ordered = sorted(_newest(jobs, runs=scope.runs), key=lambda job: (_created(job), job.place), reverse=True)
    return Everything(ordered, pods, refused)


def _no_list_error(refused: list[ApiError]) -> Exception:
    # Imported late for a quick start: rarely needed.
    from mpijob.formats.sizing import engine_selection

    return refused[0] if refused else engine_selection.nowhere(frozenset())


def _few_pods(api: Api, namespace: str) -> list[Document] | None:
    """Return the pods of mpijob's jobs; None if there are too many to read before the page is known."""
    found = api.get(resources.POD.path(namespace), **_FEW_PODS)
    return None if found["metadata"].get("continue") else found["items"]


def _listers(api: Api, wanted: Iterable[Kind], namespace: str) -> dict[str, Callable[[], Any]]:
    return {f"{kind.api}/{kind.plural}": _lister(api, kind, namespace) for kind in wanted}


def _lister(api: Api, kind: Kind, namespace: str) -> Callable[[], list[Listed]]:
    def listed() -> list[Listed]:
        return [Listed(kind, _HEAD.decode(raw), raw) for raw in api.raws(kind.path(namespace))]  # type: ignore[arg-type]  # a TypedDict is a dict

    return listed


def _older(api: Api) -> list[Kind]:
    found = {resource["name"] for resource in api.get(_OLDER_PATH).get("resources") or ()}
    return [kind for kind in resources.OLDER if kind.plural in found]


def _newest(jobs: list[Listed], *, runs: bool) -> list[Listed]:
    """Return the newest job of each name and owner (with `runs` every job) by its newest attempt."""
    newest: dict[tuple[str, str, str, str, str], Listed] = {}
    for job in jobs:
        ref, _, owner = identity.of(job.head["metadata"])
        kind = job.kind.name if job.kind.api == resources.OLDER_API else ""
        key = (ref.namespace, ref.name, owner, kind, ref.uid if runs else "")
        known = newest.get(key)
        if known is None or _rank(job) > _rank(known):
            newest[key] = job
    return [*newest.values()]


def _rank(job: Listed) -> tuple[str, int]:
    return _created(job), attempt_of(job.head)


def _created(job: Listed) -> str:
    return str(job.head["metadata"]["creationTimestamp"])


# -- the jobs of a page ---------------------------------------------------------------------------
def _states(
    api: Api, scope: Scope, jobs: list[Listed], everything: Everything, forecasts: Forecasts | None
) -> list[JobState]:
    """Return the states of jobs from their objects, pods and Workloads."""
    from mpijob.backends.kubernetes.status import derive_state

    namespace, pods = scope.namespace, everything.pods
    labels = [job.head["metadata"].get("labels") or {} for job in jobs]
    ours = {mine[well_known.JOB_LABEL] for mine in labels if mine.get(well_known.JOB_LABEL)}
    queued = {
        job.head["metadata"]["uid"]
        for job, mine in zip(jobs, labels, strict=True)
        if well_known.QUEUE_LABEL in mine
    }
    wanted: dict[str, Callable[[], Any]] = {}
    if ours and pods is None:
        among = _selector(derive_state.POD_SELECTOR, ours)
        wanted["pods"] = lambda: api.list(resources.POD.path(namespace), labels=among).items
    if queued:
        of_these = _selector(_WORKLOAD_OF, queued)
        wanted["workloads"] = lambda: api.list(resources.WORKLOAD.path(namespace), labels=of_these).items
    found = job_objects.read_concurrently(wanted, api.lanes(near=1), refused=everything.refused)
    workloads, of_jobs = _by_owner(found.get("workloads") or ()), _by_job(pods or found.get("pods") or ())
    states = [
        derive_state.summary(job.decoded(), workloads.get(_object_key(job.head)), of_jobs.get(job.place, ()))
        for job in jobs
    ]
    return states if forecasts is None else _with_forecasts(jobs, states, scope.namespace, forecasts)


def _with_forecasts(
    jobs: list[Listed], states: list[JobState], namespace: str, forecasts: Forecasts
) -> list[JobState]:
    """Return the states, those of queued jobs with their start time."""
    if not any(state.phase is Phase.QUEUED and state.queue for state in states):
        return states
    known = forecasts(namespace)
    return [
        state.forecast(known[uid]) if state.phase is Phase.QUEUED and uid in known else state
        for state, uid in (
            (state, job.head["metadata"]["uid"]) for job, state in zip(jobs, states, strict=True)
        )
    ]


def _selector(label: str, values: Collection[str]) -> str:
    """Return the selector for these values; if they are too many, for all objects with the label."""
    return f"{label} in ({','.join(sorted(values))})" if len(values) <= _MAX_NAMES else label


def _by_owner(workloads: Iterable[Document]) -> dict[tuple[str, str], Document]:
    # By namespace, too: an owner reference to an object of another namespace is invalid, and anybody could write one.
    owned = {}
    for workload in workloads:
        for owner in workload["metadata"].get("ownerReferences") or ():
            owned[workload["metadata"]["namespace"], owner["uid"]] = workload
    return owned


def _object_key(document: Document) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["uid"]


def _by_job(pods: Iterable[Document]) -> dict[tuple[str, str], list[Document]]:
    found: dict[tuple[str, str], list[Document]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        name = next((labels[key] for key in well_known.ENGINE_NAMES.values() if labels.get(key)), "")
        if name:
            found.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
    return found
