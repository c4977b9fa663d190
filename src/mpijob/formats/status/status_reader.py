"""Reads all objects of a job into one `ClusterObservation`; unknown values stay None and are not guessed.

The objects are plain mappings from the API server. `observation/state/cluster_phase` derives the job's phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mpijob import codec
from mpijob.formats.kubernetes.metadata import identity, user_actions, well_known
from mpijob.formats.kubernetes.metadata.well_known import container_of, from_labels, is_ours
from mpijob.formats.status import job_conditions, pod_status
from mpijob.formats.status.events import Events
from mpijob.formats.status.job_conditions import Kind
from mpijob.formats.status.nested_fields import (
    conditions,
    holds,
    labels,
    moment,
    notes,
    number,
    part,
    parts,
    text,
    time_of,
)
from mpijob.model import JobRef, JobState, Phase, Role
from mpijob.model.platform.cluster_observation import (
    Census,
    ClusterObservation,
    GivenUp,
    Member,
    Obstacle,
    Queueing,
    Refusal,
    Verdict,
)
from mpijob.model.spec.enums import PRIORITIES
from mpijob.model.status.forecast import Forecast

Document = Mapping[str, Any]
# Tolerated difference between an engine's clock and the API server's, whose timestamps have whole seconds.
_SKEW_SECONDS = 2.0


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a job that could be read; others are None or empty.

    `position` is the Workload's position in its queue, from 0; `taker` the Workload that preempted it, `reached` the
    progress in the launcher's last lines.
    """

    job: Document
    runtime: Document | None = None
    jobset: Document | None = None
    jobs: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    workload: Document | None = None
    events: Sequence[Document] = ()
    position: int | None = None
    taker: Document | None = None
    reached: str = ""


class _Retry(msgspec.Struct, frozen=True):
    limit: int = 0


class _Program(msgspec.Struct, frozen=True):
    ranks: int = 1


class _Elastic(msgspec.Struct, frozen=True):
    min_workers: int = 1


class Rest(msgspec.Struct, frozen=True):
    """The fields of the annotation `rest` that a state shows."""

    description: str = ""
    mpi: str = ""
    priority: str | int = 0
    ranks: int | None = None
    census: bool = True
    programs: tuple[_Program, ...] = ()
    retry: _Retry = _Retry()
    elastic: _Elastic | None = None


_REST = codec.decoder(Rest)


def read(objects: Objects, *, launcher_log: str | None = None, whole: bool = True) -> ClusterObservation:
    """Return the observation; `whole` says that `pods` are all pods of the job; a log of None was not read."""
    job, events = (
        objects.job,
        Events(objects.events, moment(objects.job, "metadata", "creationTimestamp") or 0.0),
    )
    kind, ours, rest = (
        job_conditions.of(job, objects.runtime, objects.jobset),
        job_conditions.is_ours(job),
        _rest(job),
    )
    members = _members(objects.pods if kind.suspended else _of_this_start(job, objects.pods), kind, events)
    if silent := str(notes(job).get(well_known.SILENT_NODES_ANNOTATION, "")):
        members = tuple(_on_silent(member, silent.split(",")) for member in members)
    queue = _queue(objects)
    name, counted = text(job, "metadata", "name"), ours and rest.census
    about = _about(objects, kind, rest, ours)
    seen_all = whole and bool(members)
    launcher_containers = _launcher_containers(objects.pods, kind) if ours else []
    verdict = kind.verdict or _by_jobs(objects.jobs, name, ours) or _by_queue(objects.workload, queue)
    began = _began(objects, queue, events, name)
    if seen_all and rest.elastic is None:
        members = (*members, *_departed(members, events, name, kind))
    if ours and whole and kind.launched and verdict is not None and not (verdict.good or verdict.late):
        members = (*members, *_departed_launcher(members, events, name, began))
    return ClusterObservation(
        about=about,
        ours=ours,
        counted=counted,
        guarded=all(is_ours(container) for container in launcher_containers),
        launched=kind.launched,
        ordered=kind.ordered or any(_in_order(container) for container in launcher_containers),
        whole=seen_all,
        shown=kind.shown,
        slots=kind.slots,
        groups=tuple(group.group for group in kind.groups for _ in range(group.number)),
        fewest=rest.elastic.min_workers if ours and rest.elastic is not None else None,
        suspended=kind.suspended,
        resuming=not kind.suspended and holds(conditions(job).get("Suspended")),
        suspended_at=_annotated_time(job, well_known.SUSPENDED_ANNOTATION),
        cancelled_at=_annotated_time(job, well_known.CANCELLED_ANNOTATION),
        deleting=bool(text(job, "metadata", "deletionTimestamp")),
        given_up=_given_up(job),
        after=_waits_for(job),
        queue=queue,
        members=members,
        verdict=verdict,
        refusal=_refusal(job, events) if events.all else None,
        census=_census(job, launcher_log, members, kind, about) if counted else Census(),
        deadline_seconds=kind.deadline_seconds,
        began=began,
        before=_before_start(events, name) if verdict is not None and verdict.late else None,
    )


def _on_silent(one: Member, silent: Sequence[str]) -> Member:
    return msgspec.structs.replace(one, machine_silent=True) if one.alive and one.node in silent else one


def _queue(objects: Objects) -> Queueing | None:
    label = str(labels(objects.job).get(well_known.QUEUE_LABEL, ""))
    if objects.workload is None and not label:
        return None
    # Imported for jobs with a queue only: it would delay every command.
    from mpijob.formats.status import kueue_workload

    reached = objects.reached or text(objects.job, "metadata", "annotations", well_known.REACHED_ANNOTATION)
    return kueue_workload.read(objects.workload, label, objects.position, objects.taker, reached)


def _refusal(job: Document, events: Events) -> Refusal | None:
    # Imported only with events, as above.
    from mpijob.formats.status import rejections

    name, uid = text(job, "metadata", "name"), text(job, "metadata", "uid")
    return rejections.refusal(events, text(job, "kind"), name, uid)


def _before_start(events: Events, name: str) -> Obstacle | None:
    from mpijob.formats.status import rejections

    return rejections.before_start(events, name)


def _rest(job: Document) -> Rest:
    written = str(notes(job).get(well_known.REST_ANNOTATION, ""))
    try:
        return _REST.decode(written) if written else Rest()
    except (msgspec.DecodeError, ValueError):
        return Rest()


def _annotated_time(job: Document, annotation: str) -> float | None:
    """Return the time in one of our annotations; 0 if it is malformed, because its presence counts."""
    written = notes(job).get(annotation)
    return None if not written else time_of(str(written)) or 0.0


def _held_queue(job: Document) -> str:
    """Return the queue that a job enters when the jobs that it waits for have ended."""
    if not notes(job).get(well_known.AFTER_ANNOTATION):
        return ""
    from mpijob.formats.kubernetes.metadata import controller_notes

    return controller_notes.queue(job)


def _waits_for(job: Document) -> tuple[str, ...]:
    if not notes(job).get(well_known.AFTER_ANNOTATION):
        return ()
    # Imported only for jobs that wait for others, as above.
    from mpijob.formats.kubernetes.metadata import controller_notes

    note = controller_notes.read(job)
    return tuple(note.jobs) if note is not None else ()


def _given_up(job: Document) -> GivenUp | None:
    written = str(notes(job).get(well_known.GIVEN_UP_ANNOTATION, ""))
    if not written:
        return None
    stamp, _, rest = written.partition(" ")
    reason, _, message = rest.partition(": ")
    return GivenUp(reason=reason, message=message, time=time_of(stamp) or 0.0)


def given_up(stamp: str, reason: str, message: str) -> str:
    """Return the annotation of a job that is ended because it could not start: `TIME REASON: MESSAGE`."""
    return f"{stamp} {reason}: {message}"


def _by_jobs(jobs: Sequence[Document], name: str, ours: bool) -> Verdict | None:
    # Our Jobs have a backoffLimit of 0, so the end of one is the end of the job.
    launchers = (f"{name}-launcher", f"{name}-launcher-0")
    for job in jobs if ours else ():
        # Kubernetes sets the latter as soon as the result is known, and the former when all pods are gone.
        found = job_conditions.ending(job, "Complete", "Failed") or job_conditions.ending(
            job, "SuccessCriteriaMet", "FailureTarget"
        )
        if found is not None and (not found.good or text(job, "metadata", "name") in launchers):
            return found
    return None


def _by_queue(workload: Document | None, queue: Queueing | None) -> Verdict | None:
    # For the time before the job object's own status is updated.
    if queue is None:
        return None
    from mpijob.formats.status import kueue_workload

    done = kueue_workload.finished(workload)
    reason = text(done, "reason")
    if done is None or reason not in ("Succeeded", "Failed"):
        return None
    when = moment(done, "lastTransitionTime") or 0.0
    return Verdict(good=reason == "Succeeded", reason=reason, message=text(done, "message"), time=when)


def _about(objects: Objects, kind: Kind, rest: Rest, ours: bool) -> JobState:
    job, labels_of_job = objects.job, {str(key): str(value) for key, value in labels(objects.job).items()}
    fields = from_labels(labels_of_job)
    ranks = sum(program.ranks for program in rest.programs) or rest.ranks
    return JobState(
        ref=ref(job),
        phase=Phase.PENDING,
        kind=kind.name,
        engine=kind.engine,
        mpi=kind.mpi,
        owner=identity.owner_of(part(job, "metadata")),
        labels=fields["labels"],
        description=rest.description,
        image=kind.image or next(_images(objects.pods), ""),
        queue=fields["queue"] or _held_queue(job) or text(objects.workload, "spec", "queueName"),
        priority=_priority(rest, objects.workload),
        run=identity.run_of(part(job, "metadata")),
        attempt=identity.of(part(job, "metadata")).attempt + user_actions.resumed(job) if ours else 1,
        attempts_allowed=1 + rest.retry.limit,
        world=ranks or kind.total_slots,
        workers_wanted=kind.workers,
        created=moment(job, "metadata", "creationTimestamp") or 0.0,
        queued=user_actions.resumed_at(job) if ours else None,
        estimated=_estimated(job),
    )


def _estimated(job: Document) -> Forecast | None:
    if well_known.ESTIMATE_ANNOTATION not in notes(job):
        return None
    # Only jobs that had to wait have one.
    from mpijob.formats.kubernetes.metadata import controller_notes

    return controller_notes.estimated(job)


def ref(job: Document) -> JobRef:
    """Return a job's reference: for jobs of ours the name and uid that all attempts share."""
    return identity.of(part(job, "metadata")).ref


def _images(pods: Iterable[Document]) -> Iterator[str]:
    for pod in pods:
        if image := text(container_of(part(pod, "spec")), "image"):
            yield image


def _priority(rest: Rest, workload: Document | None) -> int:
    if isinstance(rest.priority, int) and rest.priority:
        return rest.priority
    return PRIORITIES.get(str(rest.priority)) or number(workload, "spec", "priority") or 0


def _shift(kind: Kind) -> int:
    """Return the offset of worker numbers to pod numbers: a launcher that runs ranks is worker 0."""
    return 1 if kind.engine == job_conditions.TRAINER and kind.launcher_works else 0


def _members(pods: Sequence[Document], kind: Kind, events: Events) -> tuple[Member, ...]:
    placed = [(pod, place) for pod in _latest_round(pods) if (place := job_conditions.place(pod, kind))]
    numbers = job_conditions.numbered([key for _, (role, key) in placed if role is Role.WORKER])
    shift = _shift(kind)
    found = []
    for pod, (role, key) in placed:
        index = numbers[key] + shift if role is Role.WORKER else 0
        found.append(pod_status.member(pod, role, index, events))
        # A launcher that runs ranks is also worker 0.
        if role is Role.LAUNCHER and kind.launcher_works:
            found.append(pod_status.member(pod, Role.WORKER, 0, events))
    return pod_status.newest(found)


def _began(objects: Objects, queue: Queueing | None, events: Events, name: str) -> float | None:
    """Return when the job's present start began, without its pods, which are gone when it is over."""
    held = conditions(objects.job).get("Suspended")
    resumed = 0.0 if holds(held) else moment(held, "lastTransitionTime") or 0.0
    since = max(resumed, (queue.admitted_at or 0.0) if queue is not None else 0.0)
    scheduled = (one for one in events.all if one.reason == "Scheduled" and one.name.startswith(f"{name}-"))
    times = (moment(one, "status", "startTime") for one in (objects.job, *objects.jobs))
    known = [one.time for one in scheduled] or [time for time in times if time is not None]
    return min((time for time in known if time >= since), default=since or None)


def _departed(members: Sequence[Member], events: Events, name: str, kind: Kind) -> Iterator[Member]:
    """Yield the workers whose pods were deleted since the launcher was created.

    Earlier ones belong to a previous start.
    """
    from mpijob.formats.status import rejections

    launcher = next((member for member in members if member.role is Role.LAUNCHER), None)
    present = [member.index for member in members if member.role is Role.WORKER]
    if launcher is not None and launcher.created is not None:
        firsts = {group.replicated_job: group.first for group in kind.groups}
        firsts = firsts or dict.fromkeys(("node", "worker"), _shift(kind))
        yield from rejections.departed(events, name, present, since=launcher.created, firsts=firsts)


def _departed_launcher(
    members: Sequence[Member], events: Events, name: str, began: float | None
) -> Iterator[Member]:
    """Yield the launcher of a failed job if its pod was deleted while it ran."""
    from mpijob.formats.status import rejections

    if not any(member.role is Role.LAUNCHER for member in members):
        yield from rejections.departed_launcher(events, name, since=began or 0.0)


def _launcher_containers(pods: Sequence[Document], kind: Kind) -> list[Document]:
    places = ((pod, job_conditions.place(pod, kind)) for pod in pods)
    return [container_of(part(pod, "spec")) for pod, place in places if place and place[0] is Role.LAUNCHER]


def _in_order(container: Document) -> bool:
    """Whether the launcher starts only when every worker is ready."""
    found = (
        text(variable, "value")
        for variable in parts(container, "env")
        if text(variable, "name") == "MPIJOB_ORDER"
    )
    return next(found, "") == well_known.Order.READY.value


def _of_this_start(job: Document, pods: Sequence[Document]) -> list[Document]:
    """Return the pods created since the job was suspended or resumed last."""
    # An engine may create pods before it updates the condition to resumed: it then has the time of the suspension.
    since = moment(conditions(job).get("Suspended"), "lastTransitionTime")
    return list(pods) if since is None else [pod for pod in pods if not _is_left_over(pod, since)]


def _is_left_over(pod: Document, since: float) -> bool:
    created, asked = moment(pod, "metadata", "creationTimestamp"), pod_status.asked_to_end(pod)
    early = created is not None and created < since - _SKEW_SECONDS
    return early or (asked is not None and asked <= since + _SKEW_SECONDS)


def _latest_round(pods: Sequence[Document]) -> list[Document]:
    """Return the pods of JobSet's last restart."""
    rounds = [number(labels(pod), job_conditions.RESTART_LABEL) or 0 for pod in pods]
    last = max(rounds, default=0)
    return [pod for pod, labels_of_job in zip(pods, rounds, strict=True) if labels_of_job == last]


def _census(job: Document, log: str | None, members: Sequence[Member], kind: Kind, about: JobState) -> Census:
    if log is None:
        return Census()
    # Imported only with a log, as above.
    from mpijob.formats.status import launcher_census

    workers = [member for member in members if member.role is Role.WORKER]
    hosts = {worker.host.partition(".")[0]: worker.index for worker in workers}
    gpus = {worker.index: worker.gpus for worker in workers}
    by_worker = {}
    # A finished worker may have no pod.
    for group in kind.groups:
        for index, host in enumerate(group.hosts(text(job, "metadata", "name")), start=group.first):
            hosts.setdefault(host, index)
            by_worker[index] = (group.slots, gpus.get(index, 0))
    family, tagged = launcher_census.speech(job)
    # An elastic job may have been scaled since it was created.
    planned = launcher_census.planned(job) or about.world
    layout = launcher_census.Layout(hosts, planned, kind.slots, max(gpus.values(), default=0), by_worker)
    return launcher_census.read(log, family, layout, tagged=tagged)
