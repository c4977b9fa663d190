"""From a job to exactly what Slurm is handed: the batch script, or the options for a script of the user's own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path

import msgspec

from mpijob.backends import code_upload
from mpijob.backends.attempts.machine_backend import unused_fields
from mpijob.backends.mpi import command_check, environment, mpi_installations, mpi_selection
from mpijob.backends.mpi.mpi_installations import Installation
from mpijob.backends.mpi.mpi_selection import Choice
from mpijob.backends.profiler import library as profiler
from mpijob.backends.slurm.client import SlurmClient, refusal
from mpijob.backends.slurm.host import Host
from mpijob.backends.slurm.jobs.wait_estimate import BOUND
from mpijob.backends.state_home import StateHome
from mpijob.errors import Finding, MpiJobError, Severity, Unsupported
from mpijob.formats.convert import batch_script as header
from mpijob.formats.launch import command_line, hostfile
from mpijob.formats.slurm import batch_script, queries
from mpijob.formats.slurm.batch_script import Launcher
from mpijob.model import Amounts, Facts, MPIJob, Plan, VolumeKind
from mpijob.model.platform.slurm import Layout, SlurmFacts, layouts
from mpijob.model.spec.command import launcher_of
from mpijob.model.spec.dependencies import unmet
from mpijob.model.status.forecast import Forecast
from mpijob.observation.state import queue_wait
from mpijob.settings import Settings, own_places

_AT_ONCE_SECONDS = 2.0
_ARRAY = "SLURM_ARRAY_TASK_ID"
_SHARED = ("nfs", "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "panfs", "wekafs", "afs", "smb", "9p",
           "fuse.glusterfs")  # fmt: skip


def plan(job: MPIJob, facts: Facts, settings: Settings, host: Host, directory: Path) -> Plan:
    """Return the plan of a job that is well formed and admitted."""
    slurm = facts.slurm or SlurmFacts()
    _refuse_unsupported(job)
    uid = os.urandom(8).hex()
    shapes = layouts(job, slurm.nodes)
    job = code_upload.resolve(job, directory, own_places(settings))
    found, why = _choose(job, settings, host, directory)
    names = [f"{job.name}-worker-{index}" for index in range(job.workers)]
    workers = hostfile.place_ranks(job, names)
    own = launcher_of(job)
    launcher = batch_script.choose(job, found.family, found.launcher, slurm.mpi, own.kind if own else "")
    place = host.path("jobs", uid)
    if job.groups and not job.script:
        _refuse_groups(job, launcher)
    if job.script:
        environ, launch, script = _of_script(job, slurm)
    else:
        if not host.name:
            command_check.refuse_missing(job, host.environ().get("PATH", os.defpath), directory)
        environ = _environ(job, found, launcher, shapes, host, place=place, uid=uid)
        launch = batch_script.launch(job, launcher, found.family, shapes, environ)
        if job.groups and batch_script.ARBITRARY in launch:
            raise _not_one_world("its workers would share nodes unevenly, because the partition has too few")
        options = batch_script.components(job, shapes, slurm)
        script = batch_script.write(job, options, environ, launch, directory=place)
    needs = reduce(Amounts.plus, (shape.needs for shape in shapes))
    return Plan(
        job=job,
        uid=uid,
        engine="slurm",
        family=found.family,
        family_version=found.version,
        workers=workers,
        world=job.world,
        hostfile=hostfile.text(found.family, workers, job.launch),
        launch=tuple(map(str, launch)),
        env=environ,
        own_launcher=own.kind if own else "",
        launcher=launcher.kind,
        needs=needs,
        free=facts.free,
        capacity=facts.capacity,
        starts_now=needs.fits(facts.free) and not unmet(facts.dependencies),
        waits_for=unmet(facts.dependencies),
        wait_estimate_seconds=facts.wait_estimate_seconds,
        wait_range_seconds=facts.wait_range_seconds,
        wait_basis=facts.wait_basis,
        guarantee="Slurm enforces the requested resources, if the site configures cgroups",
        why=tuple(_why(job, slurm, found, launcher, shapes, why)),
        notices=tuple(_notices(job, host, place, Path(settings.home))),
        batch_script=script,
    )


def rehearsed(plan: Plan, client: SlurmClient) -> tuple[Finding, ...]:
    """Return what Slurm says of a plan: that it would take it, and when it would start it; raise its refusal."""
    when = _test(plan, client)
    if when is None:
        return ()
    seconds = when - time.time()
    told = f"in {seconds / 60:.0f} minutes" if seconds > 90 else f"in {seconds:.0f} s"
    told = "at once" if seconds < _AT_ONCE_SECONDS else told
    return (_notice("", f"Slurm accepts the job, and expects to start it {told}"),)


def estimated(plan: Plan, client: SlurmClient) -> Plan:
    """Return a plan with when Slurm would start it, where it says so."""
    try:
        when = _test(plan, client)
    except MpiJobError as error:
        refused = Finding("SLURM_REFUSED", error.message, error.hint, severity=Severity.WARNING)
        return msgspec.structs.replace(plan, notices=(*plan.notices, refused))
    if when is None:
        return plan
    told = Forecast(None, plan.wait_estimate_seconds, plan.wait_range_seconds, plan.wait_basis)
    found = queue_wait.bounded(told, when - time.time(), BOUND)
    return msgspec.structs.replace(
        plan,
        wait_estimate_seconds=found.seconds,
        wait_range_seconds=found.span,
        wait_basis=found.basis,
        starts_now=plan.starts_now and when - time.time() < _AT_ONCE_SECONDS,
    )


def _test(plan: Plan, client: SlurmClient) -> float | None:
    """Let sbatch judge the plan without submitting it; raise its refusal."""
    if plan.job.script:
        words = plan.launch[1:]
        place = () if client.host.name else ("env", "-C", plan.job.code.path or ".")
    else:
        asked = batch_script.directives(plan.batch_script)
        words, place = (*(":" if one == "hetjob" else one for one in asked), "--wrap=true"), ()
    answer = client.host.call((*place, "sbatch", "--test-only", *words), env=queries.TIMES)
    if answer.code:
        raise refusal("sbatch", answer)
    return queries.start_estimate(answer.err + answer.out)


def _choose(job: MPIJob, settings: Settings, host: Host, directory: Path) -> Choice:
    """Return the MPI library that the job runs with: as on one machine, or as the login node tells."""
    if host.name:
        return mpi_selection.choose_remote(job, lambda argv: host.call(argv).out, host.name)
    return mpi_selection.choose(job, settings, StateHome(settings.home), directory)


def _refuse_unsupported(job: MPIJob) -> None:
    for volume in job.volumes:
        if volume.kind is not VolumeKind.PATH or (volume.source and volume.source != volume.mount):
            raise Unsupported(
                f"volume {volume.mount} ({volume.kind.value}): Slurm supports only directories of the "
                f"shared file system",
                hint="name a directory of the shared file system by its own path, the same as mount and source",
            )
    if job.retry.on:
        raise Unsupported(
            "retry.on is not supported on Slurm, where an attempt is retried without knowing its cause",
            hint="leave retry.on out to retry after every failure, or use requeue_on_lost_worker for lost nodes",
        )
    if job.concurrency is not None:
        raise Unsupported(
            f"job '{job.name}' limits how many jobs run at once, and on Slurm the partition and the QOS decide that",
            hint="leave concurrency out, or use a QOS that limits the jobs of a user (MaxJobsPerUser)",
        )


def _refuse_groups(job: MPIJob, launcher: Launcher) -> None:
    """Raise where Slurm would make several worlds of the components of a heterogeneous job, or none."""
    if launcher.kind != "srun":
        raise _not_one_world(f"the ranks are started by {launcher.display_name}: {launcher.why}")
    if job.world != job.total_slots:
        raise _not_one_world(f"it has {job.world} ranks, and its workers have {job.total_slots} slots")


def _not_one_world(reason: str) -> Unsupported:
    return Unsupported(
        f"groups on Slurm require srun and a rank for each slot; {reason}",
        hint="remove groups, or change what the reason names",
    )


def _environ(
    job: MPIJob,
    found: Installation,
    launcher: Launcher,
    shapes: Sequence[Layout],
    host: Host,
    *,
    place: str,
    uid: str,
) -> dict[str, str]:
    """Return the variables that reach launcher and ranks: few of the user's own, then ours, then the job's."""
    users = host.environ()
    own = () if host.name else mpi_installations.environment_bin()
    path = environment.search_path(found, users, python_bin=own)
    environ = environment.inherited(users) | {"PATH": path} | environment.library_variables(found, users)
    environ |= environment.tuning_variables(users) | dict(
        command_line.settings_as_variables(found.family, job.launch)
    )
    environ |= batch_script.variables(job, launcher, found.family, shapes, directory=place, uid=uid)
    # On NFS the job's scripts sync their journals and logs, so that other machines see them soon.
    environ["MPIJOB_SYNC"] = "1" if _file_system(host).startswith("nfs") else ""
    if not host.name:
        environ["PYTHONPATH"] = environment.python_path(job, users)
    whole = {**environ, **job.env}
    return {name: value for name, value in whole.items() if value or name in job.env}


def _of_script(job: MPIJob, slurm: SlurmFacts) -> tuple[dict[str, str], tuple[str, ...], str]:
    """Return the variables, the command line and the text of a script that sbatch gets as it is.

    What the job says otherwise than the script's own header goes on the command line, where it wins.
    """
    path = Path(job.code.path or ".") / job.script
    text = job.code.files.get(job.script) or path.read_text(errors="replace")
    own = header.read(text, job.script).jobs[0]
    if own.groups != job.groups:
        raise Unsupported(
            f"the groups of {job.script} are those of its own #SBATCH hetjob lines",
            hint="change these lines instead of groups, or use a command instead of a script",
        )
    words = batch_script.overriding(job, own, slurm)
    environ = {name: value for name, value in job.env.items() if own.env.get(name) != value}
    if task := job.env.get(_ARRAY):
        # One task of an array is submitted with its own index, under which its script runs.
        words.append(f"--array={task}")
    environ = {name: value for name, value in environ.items() if not name.startswith("SLURM_ARRAY_")}
    return environ, ("sbatch", *words, job.script, *job.args), text


def _why(
    job: MPIJob,
    slurm: SlurmFacts,
    found: Installation,
    launcher: Launcher,
    shapes: Sequence[Layout],
    why: str,
) -> Iterator[str]:
    place = f"partition {slurm.partition.name}" if slurm.partition else "its default partition"
    account = f", account {slurm.account}" if slurm.account else ""
    qos = f", QOS {slurm.qos} (that is what priority {job.priority} means here)" if slurm.qos else ""
    yield f"engine slurm: {f'cluster {slurm.cluster}, ' if slurm.cluster else ''}{place}{account}{qos}"
    if job.script:
        yield f"{job.script} is passed to sbatch unchanged; its mpirun and srun are those of the site"
        return
    for part, shape in zip(job.parts, shapes, strict=True):
        many = shape.workers_per_node
        each = f"{many} workers a node" if many > 1 else "a node for each worker"
        memory = f", {shape.memory_mib} MiB" if shape.memory_mib else ""
        tasks = f"{shape.tasks_per_node} tasks of {shape.cpus_per_task} CPUs{memory} on each"
        group = f"group {part.group}: " if part.group else ""
        yield f"{group}{shape.nodes} node{'s' * (shape.nodes != 1)}, {each}: {tasks}"
    if job.groups:
        yield "groups are the components of a heterogeneous job (hetjob), in one MPI world"
    yield f"{f'mpi {found.family.value} {found.version}'.rstrip()}: {why}"
    yield f"ranks are started by {launcher.display_name}: {launcher.why}"


def _notices(job: MPIJob, host: Host, place: str, home: Path) -> Iterator[Finding]:
    kind = _file_system(host)
    if not host.name and kind and not kind.startswith(_SHARED):
        message = f"{place} is on {kind}: if the nodes do not share it, the job fails immediately"
        yield _notice(
            "", message, "set MPIJOB_SLURM_DIRECTORY to a directory on a file system that all nodes share"
        )
    for field, message in unused_fields(job, "as installed on the nodes", "the site's"):
        yield _notice(field, message)
    if job.profile_mpi and (job.script or not profiler.shims_by_machine(home)):
        why = "the script uses the programs of the site" if job.script else profiler.HINT
        yield _notice("profile_mpi", f"MPI calls are not counted: {why}")
    if job.ttl_seconds is not None:
        yield _notice(
            "ttl_seconds", "no service deletes jobs on Slurm", f"delete it yourself: mpijob delete {job.name}"
        )
    if job.notify:
        message = "notifications are sent only while a notifier of yours watches this context"
        yield _notice("notify", message, "run the notifier: mpijob notifier --context slurm")
    for part in () if job.script else job.parts:
        slots, cores = part.job.slots, part.job.resources.cores
        whole = slots * (-(-int(cores) // slots)) if cores < 1e5 else 0
        if whole and whole != cores:
            message = f"a worker gets {max(whole, slots)} CPUs: Slurm allocates whole CPUs per rank"
            yield _notice("groups" if part.group else "resources.cpu", message)


def _notice(field: str, message: str, hint: str = "") -> Finding:
    return Finding(code="SLURM_NOTICE", field=field, message=message, hint=hint, severity=Severity.NOTICE)


def _file_system(host: Host) -> str:
    """Return the kind of file system that the jobs' directories are on; "" where that cannot be told."""
    if host.name:
        return host.call(("stat", "-f", "-c", "%T", host.path("."))).out.strip()
    root = Path(os.path.realpath(host.root))
    try:
        mounts = [line.split(" ") for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [
        (len(point), at, kind) for at, (_, point, kind, *_) in enumerate(mounts) if root.is_relative_to(point)
    ]
    # The innermost mount point, and of several at the same place the last one.
    return max(above, default=(0, 0, ""))[2]
