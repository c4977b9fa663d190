"""From a job to exactly the documents that a cluster would be given. Nothing is created."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mpijob import admission
from mpijob.accounting import build
from mpijob.backends import code_upload
from mpijob.backends.kubernetes.preflight.context import ClusterContext
from mpijob.backends.kubernetes.submit import code_archive
from mpijob.backends.mpi import fail_fast
from mpijob.backends.profiler import library as profiler
from mpijob.errors import Finding, Severity, Unsupported
from mpijob.formats.kubernetes import mpijob, network_policy, pod_template, trainjob
from mpijob.formats.kubernetes.metadata import controller_notes, well_known, worker_groups
from mpijob.formats.kubernetes.metadata.well_known import Document, Shape
from mpijob.formats.launch import batch_environment, hostfile
from mpijob.formats.sizing import engine_selection
from mpijob.formats.sizing.engine_selection import Choice, Engine
from mpijob.model import Facts, MPIJob, Plan, PlannedWorker, VolumeKind, job_uid
from mpijob.model.spec.command import launcher_of
from mpijob.model.spec.dependencies import unmet
from mpijob.model.status.forecast import Forecast
from mpijob.settings import Settings, own_places

GUARANTEE = "the engine deletes every pod when the job ends; the ranks are counted before the command runs"


def plan(
    job: MPIJob, facts: Facts, around: ClusterContext, settings: Settings, directory: Path, place: str
) -> Plan:
    """Return the plan of a job that is well formed and admitted."""
    if job.concurrency is not None:
        raise Unsupported(
            f"job '{job.name}' sets concurrency, which a cluster does not support: its queue decides how many jobs run",
            hint="remove concurrency, and use a queue with a matching quota",
        )
    by_module = "" if job.image else _image_of_modules(job, settings, directory)
    job = code_upload.resolve(_with_image(job, by_module or settings.image), directory, own_places(settings))
    # The user who submits, whoever is named in the file.
    job = job.replace(owner=around.owner or job.owner)
    choice = engine_selection.choose(job, around.served)
    shape = _shape(job, around, choice, free_name(job.name, around.names), settings)
    documents = _documents(choice, job, shape, around)
    waits = unmet(facts.dependencies)
    if waits:
        controller_notes.hold(documents[-1], job.after, waits)
    workers = _workers(job, shape, choice.engine)
    if (forecast := _forecast(facts)) is not None and not waits:
        controller_notes.estimate(documents[-1], forecast)
    own = launcher_of(job)
    words, counted = pod_template.launch_words(job, shape)
    needs = admission.needs(job)
    return Plan(
        job=job,
        uid=shape.uid,
        engine=place,
        family=choice.family,
        family_version="",
        workers=workers,
        world=job.world,
        hostfile=hostfile.text(choice.family, workers, job.launch),
        launch=tuple(words[counted:]),
        env={},
        own_launcher=own.program if own else "",
        census_launch=tuple(words[:counted]),
        needs=needs,
        free=facts.free,
        capacity=facts.capacity,
        starts_now=not facts.waiting_jobs and not waits and (needs.fits(facts.free) or not facts.room_known),
        waits_for=waits,
        wait_estimate_seconds=facts.wait_estimate_seconds,
        wait_range_seconds=facts.wait_range_seconds,
        wait_basis=facts.wait_basis,
        isolation=choice.engine.value,
        guarantee=GUARANTEE,
        why=(*choice.reasons, _network(job, around)),
        notices=(*pod_template.notices(job, shape), *_notices(job, settings, by_module)),
        documents=documents,
    )


def _forecast(facts: Facts) -> Forecast | None:
    """Return when the job would start, as far as that is known of its queue."""
    if not facts.wait_basis:
        return None
    return Forecast(
        facts.position,
        facts.wait_estimate_seconds,
        facts.wait_range_seconds,
        facts.wait_basis,
        round(time.time(), 3),
    )


def _with_image(job: MPIJob, image: str) -> MPIJob:
    return job if job.image or not image else job.replace(image=image)


def _image_of_modules(job: MPIJob, settings: Settings, directory: Path) -> str:
    """Return the image that the modules of a job's script stand for, "" where there is none, or more than one."""
    if not job.script or not settings.modules:
        return ""
    text = job.code.files.get(job.script) or _text(directory / job.code.path / job.script)
    loaded = (settings.modules.get(name) for name in batch_environment.modules_of(text))
    # Two modules with different images say nothing about which one the script needs.
    images = {one.image for one in loaded if one is not None and one.image}
    return images.pop() if len(images) == 1 else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # The error is reported when the files are packed.
        return ""


def _shape(job: MPIJob, around: ClusterContext, choice: Choice, name: str, settings: Settings) -> Shape:
    """Return what the cluster adds to a job; `name` is its first object's, which all attempts share files by."""
    code_parts = code_archive.parts(job)
    shape = Shape(object="" if name == job.name else name)
    return msgspec.structs.replace(
        shape,
        uid=job_uid.issue(job.namespace, around.owner),
        run=around.last_run + 1,
        program=build.program(job),
        family=choice.family,
        # Kueue reserves quota for all pods of a job before any of them starts, so no pod group is needed.
        gang=well_known.Gang.NONE if job.queue and around.kueue else around.gang,
        user=around.user,
        code=well_known.code_name(job, shape) if code_parts else "",
        code_parts=max(1, code_parts),
        profiler=well_known.profiler_name(job, shape) if job.profile_mpi and _can_profile(settings) else "",
        python=fail_fast.text(),
        priority_classes=around.priority_classes,
        modules={name: one.env for name, one in settings.modules.items()} if job.script else {},
        workload_priority=around.workload_priority(job),
        topology_aware=around.topology_aware,
        prove_gpus=around.prove_gpus,
        ipc_lock=around.ipc_lock,
        nfs_driver=around.nfs_driver,
        launcher_cores=around.launcher_cores,
        service_image=_service_image(job, around),
    )


def _can_profile(settings: Settings) -> bool:
    """Whether there is a shim for some kind of machine; of the others the workers say that they have none."""
    return profiler.find_shim(Path(settings.home)) is not None or any(
        profiler.prebuilt(machine).exists() for machine in profiler.MACHINES
    )


def _service_image(job: MPIJob, around: ClusterContext) -> str:
    if not around.service_image and any(one.kind is VolumeKind.S3 for one in job.volumes):
        raise well_known.refuse(
            "volumes",
            "S3 volumes on a cluster require the image of the mpijob services, which is not set",
            "set service_image in the settings, or MPIJOB_SERVICE_IMAGE; ask your administrator for it",
        )
    return around.service_image


def free_name(name: str, taken: frozenset[str]) -> str:
    """Return the name of the next job's objects: the job's own, or `name-r2`, `name-r3` beside earlier ones."""
    if name not in taken:
        return name
    number = 2
    while f"{name}-r{number}" in taken:
        number += 1
    return f"{name}-r{number}"


def _documents(choice: Choice, job: MPIJob, shape: Shape, around: ClusterContext) -> tuple[Document, ...]:
    """Return what is created, in this order: the job itself comes last."""
    write = trainjob.write if choice.engine is Engine.TRAINER else mpijob.write
    # `create_objects` creates them in this order: the engine's webhook requires the runtime before the job.
    *before, main = write(job, shape)
    if around.isolates:
        before.append(network_policy.write(job, shape, kind=main["kind"], more=around.addresses))
    return (*before, main)


def _network(job: MPIJob, around: ClusterContext) -> str:
    if not job.network.isolated:
        return "network: open, as set in the job"
    if around.isolates:
        return "network: the job's pods may connect to each other, DNS and the destinations of the job"
    return "network: you may not create NetworkPolicies here; the cluster's controller, if it runs, creates the policy"


def _workers(job: MPIJob, shape: Shape, engine: Engine) -> tuple[PlannedWorker, ...]:
    """Return the workers as the engine's own hostfile names them."""
    # The hostnames of pods: of a JobSet with its headless service, of the MPI Operator with its own.
    name = well_known.name(job, shape)
    if engine is Engine.TRAINER:
        hosts = [f"{host}.{name}" for workers in worker_groups.of(job) for host in workers.hosts(name)]
    else:
        hosts = [f"{name}-worker-{index}.{name}.{job.namespace}.svc" for index in range(job.workers)]
    return hostfile.place_ranks(job, hosts)


def _notices(job: MPIJob, settings: Settings, by_module: str) -> Iterator[Finding]:
    if job.after:
        message = (
            "dependencies are checked by the client that waits for the job, or by the cluster's controller"
        )
        yield Finding(code="CLUSTER_NOTICE", field="after", message=message, severity=Severity.NOTICE)
    if job.ttl_seconds is not None:
        message = "ttl_seconds is enforced by the cluster's controller (mpijob controller)"
        yield Finding(code="CLUSTER_NOTICE", field="ttl_seconds", message=message, severity=Severity.NOTICE)
    if job.notify:
        message = "allowed receivers are set in the settings of the notifier (mpijob notifier)"
        yield Finding(code="CLUSTER_NOTICE", field="notify", message=message, severity=Severity.NOTICE)
    if job.profile_mpi and not _can_profile(settings):
        message = f"MPI calls cannot be counted, so the job runs without: {profiler.HINT}"
        yield Finding(code="CLUSTER_NOTICE", field="profile_mpi", message=message, severity=Severity.NOTICE)
    if by_module:
        message = f"the job sets no image: {by_module} is used, the image of a module that its script loads"
        yield Finding(code="CLUSTER_NOTICE", field="image", message=message, severity=Severity.NOTICE)
    elif settings.image and job.image == settings.image:
        message = f"the job sets no image: {settings.image} from the settings is used"
        yield Finding(code="CLUSTER_NOTICE", field="image", message=message, severity=Severity.NOTICE)
