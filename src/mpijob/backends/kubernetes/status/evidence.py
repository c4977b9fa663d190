"""Collects the evidence of a job that failed or does not start, for `diagnosis`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mpijob.backends.attempts.findings import explained
from mpijob.diagnosis.evidence import Evidence, Memory, Node, Pod, World, without_aborts
from mpijob.diagnosis.rule import Rule
from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.formats.kubernetes import mpijob, trainjob
from mpijob.formats.launch.rank_output import Output, Report
from mpijob.formats.status import launcher_census
from mpijob.formats.status.status_reader import Objects
from mpijob.model import Exit, Family, LogLine, MPIJob, Phase, Resources, Role
from mpijob.model.platform.cluster_observation import ClusterObservation, Loss, Member
from mpijob.observation.state import first_cause, waiting_reason
from mpijob.observation.state.first_cause import Cause
from mpijob.observation.state.phase import PhaseResult, Reason

LAUNCHER_LINES, WORKER_LINES = 4000, 200
# SIGKILL
_KILL = 9
_BANNER = re.compile(
    rb"BAD TERMINATION|EXIT CODE:|EXIT STRING|KILLED BY SIGNAL|RUNNING AT|process rank \d+|non-zero status"
)
# Messages of launchers about ranks that were killed. Without one, 137 is the launcher's own end, unless a rank's end
# was reported otherwise: Open MPI sometimes loses its last lines.
_OF_RANKS = (
    "noticed that process rank",
    "BAD TERMINATION",
    "KILLED BY SIGNAL",
    "non-zero status",
    "non-zero exit code",
    "exited on signal",
)


def findings(
    objects: Objects,
    sight: ClusterObservation,
    standing: PhaseResult,
    first: Cause | None,
    launcher_log: str,
    logs: Mapping[str, str],
    site: tuple[Rule, ...] = (),
) -> tuple[Finding, ...]:
    """Return why the job failed, or why it does not start, the first cause first."""
    seen = _evidence(objects, sight, standing, first, launcher_log, logs)
    found = explained(seen, site)
    if standing.phase is Phase.FAILED:
        return (*_before_deadline(sight, standing, seen), *found)
    return tuple(msgspec.structs.replace(finding, severity=Severity.WARNING) for finding in found)


def _before_deadline(sight: ClusterObservation, standing: PhaseResult, seen: Evidence) -> tuple[Finding, ...]:
    # A job that did not start before its deadline failed for the reason that kept it from starting.
    if standing.reason is not Reason.DEADLINE_EXCEEDED:
        return ()
    obstacle = waiting_reason.last_obstacle(sight)
    if obstacle is None:
        return ()
    reason = waiting_reason.REASONS[obstacle.hurdle].value
    return explained(msgspec.structs.replace(seen, reason=reason, message=obstacle.text))


def _evidence(
    objects: Objects,
    sight: ClusterObservation,
    standing: PhaseResult,
    first: Cause | None,
    launcher_log: str,
    logs: Mapping[str, str],
) -> Evidence:
    launcher = sight.launcher
    well = standing.phase is Phase.SUCCEEDED
    return Evidence(
        spec=_spec(objects, sight),
        family=Family(sight.about.mpi) if sight.about.mpi in set(Family) else Family.AUTO,
        attempt=sight.about.attempt,
        reason="" if well else standing.reason.value,
        message=standing.message,
        worker=first.worker if first is not None else None,
        launcher=None if launcher is None else _launcher(sight, launcher, first, launcher_log),
        workers=() if well else tuple(_workers(sight, first)),
        ranks=tuple(_ranks(sight, first)),
        memory=tuple(_memory(sight)),
        pods=tuple(_pods(objects, sight)),
        nodes=tuple(_nodes(sight)),
        started=min((worker.started for worker in sight.workers if worker.started), default=None),
        world=World(planned=sight.about.world, proved=sight.census.proved),
        veiled=any(_has_secret_variables(pod) for pod in objects.pods),
        logs=tuple(_possible_causes(standing, sight, _lines(objects.job, sight, launcher_log, logs))),
        ready=tuple(range(sight.about.workers_wanted)) if sight.ordered and launcher is not None else (),
    )


def _has_secret_variables(pod: Mapping[str, Any]) -> bool:
    # Their values are unknown here, so they cannot be masked: lines are not quoted then.
    containers = (pod.get("spec") or {}).get("containers") or ()
    env = [
        variable.get("valueFrom") or {} for container in containers for variable in container.get("env") or ()
    ]
    whole = [source for container in containers for source in container.get("envFrom") or ()]
    return any("secretKeyRef" in source for source in env) or any("secretRef" in source for source in whole)


def _spec(objects: Objects, sight: ClusterObservation) -> MPIJob:
    """Return the job from its documents, or the fields of it that messages use."""
    documents = [document for document in (objects.runtime, objects.job) if document is not None]
    reader: Any = {"TrainJob": trainjob, "MPIJob": mpijob}.get(objects.job.get("kind", ""))
    try:
        if reader is not None and (sight.ours or reader is mpijob or objects.runtime is not None):
            job: MPIJob = reader.read(documents).job
            return job
    except InvalidJob:
        pass
    about = sight.about
    limit = next((worker.memory_limit_bytes for worker in sight.workers if worker.memory_limit_bytes), None)
    return MPIJob(
        name=about.ref.name,
        namespace=about.ref.namespace,
        workers=about.workers_wanted,
        slots=sight.slots,
        image=about.image,
        resources=Resources() if limit is None else Resources(memory=str(limit)),
        deadline_seconds=sight.deadline_seconds,
    )


def _launcher(sight: ClusterObservation, one: Member, first: Cause | None, log: str) -> Exit | None:
    """Return how the launcher ended, without what it only reports of a rank."""
    if one.exit is None:
        return None
    followed = first is not None and first.member is not one
    reported = any(rank.killer == _KILL for rank in sight.census.exits) or any(
        sign in log for sign in _OF_RANKS
    )
    # mpirun exits with 137 when a rank was killed, and also when it is killed itself.
    killed = one.exit.killer == _KILL and log and not reported
    if killed and one.loss is Loss.NONE:
        return msgspec.structs.replace(one.exit, code=None, signal=_KILL, by_us=followed)
    return msgspec.structs.replace(one.exit, by_us=followed)


def _workers(sight: ClusterObservation, first: Cause | None) -> Iterator[Exit]:
    """Yield how the workers ended; ends after the first cause are marked as its consequences."""
    for worker in sight.workers:
        mine = first is not None and first.member is worker
        if worker.exit is not None and (mine or not worker.exit.good):
            yield msgspec.structs.replace(worker.exit, by_us=not mine)


def _ranks(sight: ClusterObservation, first: Cause | None) -> Iterator[Exit]:
    """Yield how the ranks ended; those that MPI ended, and those of a lost worker, are marked as consequences."""
    followers = first_cause.followers(sight.census)
    lost = first is not None and first.reason is not Reason.RANK_FAILED and first.worker is not None
    for exit in sight.census.exits:
        yield msgspec.structs.replace(exit, by_us=not exit.good and (lost or exit.index in followers))


def _memory(sight: ClusterObservation) -> Iterator[Memory]:
    for worker in sight.workers:
        if worker.loss is Loss.MEMORY and worker.exit is not None:
            limit = worker.memory_limit_bytes or 0
            yield Memory(worker.index, limit_bytes=limit, exceeded=True, time=worker.exit.time)
    for exit in sight.census.exits:
        if exit.index in sight.census.starved and exit.worker is not None:
            yield Memory(exit.worker, oom_kills=1, exceeded=True, time=exit.time)
        elif exit.index in sight.census.spared and exit.worker is not None:
            yield Memory(exit.worker, enough=True, time=exit.time)


def _pods(objects: Objects, sight: ClusterObservation) -> Iterator[Pod]:
    """Yield the pods: their nodes, why they ended, their other containers."""
    known = {document.get("metadata", {}).get("name", ""): document for document in objects.pods}
    for worker in sight.workers:
        pod = known.get(worker.name, {})
        yield Pod(
            worker.name,
            worker.index,
            reason=worker.loss.value,
            node=worker.node,
            containers=tuple(part.get("name", "") for part in pod.get("spec", {}).get("containers", ())),
            address=pod.get("status", {}).get("podIP", ""),
        )


def _nodes(sight: ClusterObservation) -> Iterator[Node]:
    """Yield the nodes that were lost together with a worker."""
    gone = {worker.node for worker in sight.workers if worker.loss is Loss.MACHINE and worker.node}
    yield from (Node(name, ready=False) for name in sorted(gone))


def _lines(
    job: Mapping[str, Any], sight: ClusterObservation, launcher_log: str, logs: Mapping[str, str]
) -> Iterator[LogLine]:
    yield from _launcher_lines(job, sight, launcher_log)
    for worker in sight.workers:
        for time, text in _timed(logs.get(worker.name, ""), worker, WORKER_LINES):
            yield LogLine(time, text, Role.WORKER, worker=worker.index)


def _possible_causes(
    standing: PhaseResult, sight: ClusterObservation, lines: Iterator[LogLine]
) -> Iterator[LogLine]:
    # When a deadline ends the workers, the launcher complains about that.
    late = standing.reason is Reason.DEADLINE_EXCEEDED
    kept = (line for line in lines if not late or line.role is Role.RANK)
    return without_aborts(kept) if sight.census.left else kept


def _launcher_lines(job: Mapping[str, Any], sight: ClusterObservation, log: str) -> Iterator[LogLine]:
    """Yield the launcher's lines with their ranks, without our own reports."""
    # Lines of other ranks after the first failure follow from it. The launcher's banners are left out then, since they
    # also report the ranks that it killed itself.
    family, tagged = launcher_census.speech(job)
    output, places = Output(family, tagged=tagged), {rank.rank: rank.worker for rank in sight.census.ranks}
    failed, over = first_cause.first_rank(sight.census), False
    for time, text in _timed(log, sight.launcher, LAUNCHER_LINES):
        for said in output.read(text):
            if isinstance(said, Report):
                over = over or _is_end_of(said, failed)
            elif said.rank is None:
                if failed is None or not _BANNER.search(said.text):
                    yield LogLine(time, said.text, Role.LAUNCHER, said.stream)
            elif not over or (failed is not None and said.rank == failed.index):
                yield LogLine(time, said.text, Role.RANK, said.stream, places.get(said.rank), said.rank)


def _is_end_of(report: Report, rank: Exit | None) -> bool:
    return rank is not None and report.kind == "exit" and report.number("rank") == rank.index


def _timed(log: str, by: Member | None, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield the last lines with nanoseconds; one without a timestamp has the time of the pod's end."""
    end = by.exit.time if by is not None and by.exit is not None else 0.0
    for line in log.splitlines()[-most:]:
        stamp, text = launcher_census.split(line)
        yield int((stamp or end) * 1e9), text.encode(errors="replace")
