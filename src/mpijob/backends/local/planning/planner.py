"""From a job to exactly what would run on this machine. Nothing is started, nothing written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mpijob import admission
from mpijob.backends import code_upload
from mpijob.backends.attempts.machine_backend import unused_fields
from mpijob.backends.common_errors import refuse_uneven_slots, refuse_unknown_recipients
from mpijob.backends.local.planning import machine, volumes
from mpijob.backends.local.queue import scheduler
from mpijob.backends.local.storage import private_dirs
from mpijob.backends.local.storage.paths import SHIM, Home
from mpijob.backends.local.worker import cgroups, isolation
from mpijob.backends.mpi import command_check, environment, mpi_installations, mpi_selection
from mpijob.backends.mpi.mpi_installations import Installation
from mpijob.backends.profiler import library as profiler
from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.formats.launch import batch_environment, command_line, hostfile
from mpijob.model import Facts, Family, MPIJob, Plan
from mpijob.model.spec.command import launcher_of
from mpijob.model.spec.dependencies import unmet
from mpijob.settings import Settings, own_places

_DAEMON_FAULT_LABELS = frozenset(
    {"fault.mpijob/kill-daemon", "fault.mpijob/refuse-start", "fault.mpijob/drop-name"}
)


def plan(job: MPIJob, facts: Facts, settings: Settings, home: Home, directory: Path) -> Plan:
    """Return the plan of a job that is well formed and admitted."""
    refuse_unknown_recipients(job, settings)
    job = code_upload.resolve(job, directory, own_places(settings))
    found, reason = mpi_selection.choose(job, settings, home, directory)
    chosen = isolation.choose(settings.isolation)
    group = cgroups.choose_directory(settings)
    uid = os.urandom(8).hex()
    place = Path(private_dirs.placeholder(uid))
    own = launcher_of(job)
    as_nodes = _reason_for_nodes(job, settings, own is not None)
    if as_nodes:
        _refuse_shared_names(job, found, chosen)
    if own:
        refuse_uneven_slots(job, found.family)
    workers = hostfile.place_ranks(job, [f"{job.name}-worker-{index}" for index in range(job.workers)])
    known = {name: one.env for name, one in settings.modules.items()} if job.script else {}
    environ = _environ(job, found, place, os.environ | batch_environment.modules(known), nodes=bool(as_nodes))
    places = volumes.binds(job, home, directory)
    remarks = tuple(volumes.check(job, places, chosen))
    volumes.raise_errors(remarks)
    command_check.refuse_missing(job, environ["PATH"], directory)
    needs = admission.needs(job)
    capacity = facts.capacity
    holds = scheduler.cap_cores(needs, capacity, oversubscribe=facts.oversubscribe)
    return Plan(
        job=job,
        uid=uid,
        engine="local",
        family=found.family,
        family_version=found.version,
        workers=workers,
        world=job.world,
        hostfile=hostfile.text(found.family, workers, job.launch),
        launch=_own_launch_line(job) if own else _launch_line(job, found, place, nodes=bool(as_nodes)),
        env=environ,
        own_launcher=own.kind if own else "",
        launcher=found.launcher if found.prefix in mpi_installations.SYSTEM_PREFIXES else "",
        nodes=bool(as_nodes),
        census_launch=_launch_line(_census_job(job), found, place) if own and job.census else (),
        needs=holds,
        free=facts.free,
        capacity=capacity,
        starts_now=holds.fits(facts.free) and not facts.waiting_jobs and not unmet(facts.dependencies),
        waits_for=unmet(facts.dependencies),
        wait_estimate_seconds=facts.wait_estimate_seconds,
        wait_range_seconds=facts.wait_range_seconds,
        wait_basis=facts.wait_basis,
        volumes=tuple(msgspec.to_builtins(place) for place in places),
        isolation=chosen.value,
        cgroup=group,
        guarantee=f"{chosen.guarantee}; {cgroups.GUARANTEE}" if group else chosen.guarantee,
        why=tuple(_reasons(job, found, reason, as_nodes, own is not None)),
        notices=(*remarks, *_notices(job, settings, home)),
    )


def with_other_mpi(plan: Plan, family: Family, library: str, settings: Settings, home: Home) -> Plan:
    """Return the plan with another MPI: the program was seen to load `library` only when it ran."""
    every = list(mpi_installations.candidates(settings, home, family, near=library))
    found = next((one for one in every if one.owns(library)), None) or mpi_installations.find(
        settings, home, family
    )
    place, job = Path(private_dirs.placeholder(plan.uid)), plan.job
    users = _user_variables(plan.env, mpi_installations.find_by_launcher(Path(plan.launch[0]), home), place)
    return msgspec.structs.replace(
        plan,
        family=found.family,
        family_version=found.version,
        hostfile=hostfile.text(found.family, plan.workers, job.launch),
        launch=_launch_line(job, found, place, nodes=plan.nodes),
        env=_environ(job, found, place, users, nodes=plan.nodes),
        launcher=found.launcher if found.prefix in mpi_installations.SYSTEM_PREFIXES else "",
        why=(
            *plan.why,
            f"mpi {found.family.value} {found.version}: the program loaded it in an earlier run",
        ),
    )


def _user_variables(env: Mapping[str, str], before: Installation | None, place: Path) -> dict[str, str]:
    """Return the user's own variables of a plan: without what was added for the library that it was made for."""
    added = {str(place / "bin"), *(before.variables().values() if before else ())}
    if before is not None and before.prefix not in mpi_installations.SYSTEM_PREFIXES:
        added.add(os.path.dirname(before.launcher))
    paths = {name: env.get(name, "").split(os.pathsep) for name in ("PATH", "LD_LIBRARY_PATH")}
    kept = {
        name: os.pathsep.join(one for one in places if one not in added) for name, places in paths.items()
    }
    return {name: value for name, value in (dict(env) | kept).items() if value}


def _reason_for_nodes(job: MPIJob, settings: Settings, own: bool) -> str:
    """Return why each worker is a node of its own to MPI; "" where one daemon starts the ranks of all."""
    reasons = {
        "the setting local_nodes asks for it": settings.local_nodes,
        "the command contains its own launcher": own,
        "its launcher is a custom one": job.mpi is Family.CUSTOM,
        "an elastic job discovers its hosts": job.elastic is not None,
        "its ranks are mapped by the MPI library": bool(job.launch.rankfile)
        or job.launch.map_by not in ("", "slot", "node"),
        "a rank counts its GPUs from its worker's first": job.most_gpus > 0 and job.workers > 1,
        "a fault of its daemon is requested": bool(_DAEMON_FAULT_LABELS & job.labels.keys()),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _refuse_shared_names(job: MPIJob, found: Installation, chosen: isolation.Isolation) -> None:
    if found.family is not Family.OPENMPI or chosen is isolation.Isolation.NAMESPACES or job.workers == 1:
        return
    raise InvalidJob.of((Finding(
        code="OPENMPI_NEEDS_NAMESPACES", field="mpi",
        message="Open MPI identifies workers by host name, which requires namespaces; this machine does not allow them",
        hint="set mpi: mpich, or use one worker with more slots",
    ),))  # fmt: skip


def _launch_line(job: MPIJob, found: Installation, place: Path, *, nodes: bool = True) -> tuple[str, ...]:
    return command_line.line(
        found.family,
        job,
        launcher=found.launcher,
        hostfile=str(place / "hostfile"),
        agent=str(place / "agent"),
        shim=("/bin/sh", SHIM),
        names=sorted({*job.env, *(secret.env for secret in job.secrets), *_job_variables(job), "PATH"}),
        nodes=nodes,
    )


def _own_launch_line(job: MPIJob) -> tuple[str, ...]:
    """Return the argv of what starts its ranks itself: the command as it is, or the script by its interpreter."""
    return ("/bin/sh", batch_environment.STEP, "script", *job.argv) if job.script else job.argv


def _census_job(job: MPIJob) -> MPIJob:
    """Return the job that only counts: the same world with nothing to do.

    Nothing takes a moment: Open MPI's mpirun does not always end after ranks that ended at once.
    """
    return job.replace(command=("sleep", "0.1"), args=(), programs=())


def _job_variables(job: MPIJob) -> dict[str, str]:
    """Return what every rank is told about its job, and its shim about a library that we do not know."""
    rank_variable = job.launch.custom.rank_variable if job.launch.custom else ""
    return command_line.told(job) | {"MPIJOB_RANK_VARIABLE": rank_variable}


def _environ(
    job: MPIJob, found: Installation, place: Path, users: Mapping[str, str], *, nodes: bool
) -> dict[str, str]:
    """Return the variables that reach launcher and ranks: few of the user's own, then ours, then the job's."""
    hostfile, agent = str(place / "hostfile"), str(place / "agent")
    kept = environment.inherited(users)
    family = found.family
    environ = (
        kept
        | {"PATH": _search_path(found, place, users, nodes=nodes)}
        | environment.library_variables(found, users)
    )
    environ |= command_line.one_machine(family, as_root=os.geteuid() == 0)
    if nodes:
        crowded = job.world > len(os.sched_getaffinity(0))
        environ |= command_line.variables(family, hostfile=hostfile, agent=agent, slots=job.slots)
        environ |= command_line.workers_as_nodes(family, found.version, oversubscribed=crowded)
        environ[command_line.HOSTS_FILE] = str(place / "hosts")
    else:
        environ |= command_line.one_daemon(family, found.version)
    for name in _mca_file_variables(kept.get("HOME", "")) if family is Family.OPENMPI else ():
        environ.pop(name, None)
    tuning = environment.tuning_variables(users)
    environ |= tuning
    environ |= command_line.settings_as_variables(family, job.launch)
    if job.script:
        environ |= _script_variables(job, found, place)
    if job.elastic is not None:
        environ[command_line.DISCOVER] = str(place / "discover_hosts.sh")
    return (
        environ
        | _job_variables(job)
        | tuning
        | dict(job.env)
        | {"PYTHONPATH": environment.python_path(job, users)}
    )


def _script_variables(job: MPIJob, found: Installation, place: Path) -> dict[str, str]:
    """Return what a script and its steps are told (see formats/launch/scripts/step.sh)."""
    told = batch_environment.steps(
        job, found.family, uid=place.name, directory=str(place / "steps"), launcher=found.launcher
    )
    return told | {
        "MPIJOB_HOSTFILE": str(place / "hostfile"),
        "MPIJOB_SHIM": SHIM,
        "MPIJOB_STEP_RANK": batch_environment.STEP_RANK,
    }


def _mca_file_variables(home: str) -> Iterator[str]:
    """Yield the variables of what the user's own file of Open MPI's parameters sets: a variable would win over it."""
    with contextlib.suppress(OSError):
        for line in Path(home, ".openmpi", "mca-params.conf").read_text(errors="replace").splitlines():
            yield f"OMPI_MCA_{line.partition('=')[0].strip()}"


def _search_path(found: Installation, place: Path, environ: Mapping[str, str], *, nodes: bool) -> str:
    """The library's own programs first, then this environment's Python, then the user's.

    The system's directory of programs keeps its place behind the user's Python; the attempt then has scripts that
    start the system's launchers (`Plan.launcher`). Where workers are nodes, it has those that reach them, too.
    """
    first = [str(place / "bin")] if nodes or found.prefix in mpi_installations.SYSTEM_PREFIXES else []
    return environment.search_path(found, environ, first, mpi_installations.environment_bin())


def _reasons(job: MPIJob, found: Installation, reason: str, as_nodes: str, own: bool) -> Iterator[str]:
    yield "engine local: no cluster was requested"
    yield f"{f'mpi {found.family.value} {found.version}'.rstrip()}: {reason}"
    if not as_nodes:
        yield "one daemon of the MPI library starts all ranks: they share memory as with plain mpirun"
    elif not own:
        yield f"each worker is a node to MPI, with its own daemon: {as_nodes}"
    if job.script:
        yield f"{job.script} runs once, in the launcher; each mpirun, mpiexec or srun in it is a step over the workers"
    elif own:
        yield f"the command starts its own ranks ({job.argv[0]}): it runs unchanged, with the job's workers"


def _notices(job: MPIJob, settings: Settings, home: Home) -> Iterator[Finding]:
    if job.profile_mpi and profiler.find_shim(home.root) is None:
        message = f"MPI calls cannot be counted on this machine, so the job runs without: {profiler.HINT}"
        yield _notice("profile_mpi", message)
    if job.notify:
        yield _notice("notify", "notifications are sent only while `mpijob notifier` runs on this machine")
    if job.placement != type(job.placement)():
        yield _notice("placement", "placement is not used here: there is one machine")
    for field, message in unused_fields(job, "on this machine", "this machine's"):
        yield _notice(field, message)
    if job.queue:
        yield _notice("queue", f"queue '{job.queue}' has no effect: the local engine has one queue")
    if not job.most_gpus and machine.gpu_ids(settings):
        yield _notice("resources.gpu", "the job requests no GPU, so its ranks see none")


def _notice(field: str, message: str) -> Finding:
    return Finding(code="LOCAL_NOTICE", field=field, message=message, severity=Severity.NOTICE)
