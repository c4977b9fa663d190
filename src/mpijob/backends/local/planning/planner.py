"""The plan of a job on this machine: command lines, variables, hostfile, mounts, notices.

Nothing is started or written. A plan serves several attempts; what differs between them is in `AttemptSpec`.
"""

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

# Of `fault_injection`: without nodes, workers have no daemons.
_DAEMON_FAULT_LABELS = frozenset(
    {"fault.mpijob/kill-daemon", "fault.mpijob/refuse-start", "fault.mpijob/drop-name"}
)


def plan(job: MPIJob, facts: Facts, settings: Settings, home: Home, directory: Path) -> Plan:
    """Return the plan of a valid, admitted job that is submitted from `directory`.

    Raise InvalidJob or Unsupported if it cannot run on this machine.
    """
    refuse_unknown_recipients(job, settings)
    job = code_upload.resolve(job, directory, own_places(settings))
    mpi, reason = mpi_selection.choose(job, settings, home, directory)
    chosen = isolation.choose(settings.isolation)
    group = cgroups.choose_directory(settings)
    uid = os.urandom(8).hex()
    run_dir = Path(private_dirs.placeholder(uid))
    own_launcher = launcher_of(job)
    as_nodes = _reason_for_nodes(job, settings, own_launcher is not None)
    if as_nodes:
        _refuse_shared_names(job, mpi, chosen)
    if own_launcher:
        refuse_uneven_slots(job, mpi.family)
    workers = hostfile.place_ranks(job, [f"{job.name}-worker-{index}" for index in range(job.workers)])
    modules = {name: module.env for name, module in settings.modules.items()} if job.script else {}
    user_environ = os.environ | batch_environment.modules(modules)
    environ = _environ(job, mpi, run_dir, user_environ, nodes=bool(as_nodes))
    mounts = volumes.binds(job, home, directory)
    remarks = tuple(volumes.check(job, mounts, chosen))
    volumes.raise_errors(remarks)
    command_check.refuse_missing(job, environ["PATH"], directory)
    needs = admission.needs(job)
    holds = scheduler.cap_cores(needs, facts.capacity, oversubscribe=facts.oversubscribe)
    return Plan(
        job=job,
        uid=uid,
        engine="local",
        family=mpi.family,
        family_version=mpi.version,
        workers=workers,
        world=job.world,
        hostfile=hostfile.text(mpi.family, workers, job.launch),
        launch=_own_launch_line(job)
        if own_launcher
        else _launch_line(job, mpi, run_dir, nodes=bool(as_nodes)),
        env=environ,
        own_launcher=own_launcher.kind if own_launcher else "",
        launcher=mpi.launcher if mpi.prefix in mpi_installations.SYSTEM_PREFIXES else "",
        nodes=bool(as_nodes),
        census_launch=_launch_line(_census_job(job), mpi, run_dir) if own_launcher and job.census else (),
        needs=holds,
        free=facts.free,
        capacity=facts.capacity,
        starts_now=holds.fits(facts.free) and not facts.waiting_jobs and not unmet(facts.dependencies),
        waits_for=unmet(facts.dependencies),
        wait_estimate_seconds=facts.wait_estimate_seconds,
        wait_range_seconds=facts.wait_range_seconds,
        wait_basis=facts.wait_basis,
        volumes=tuple(msgspec.to_builtins(mount) for mount in mounts),
        isolation=chosen.value,
        cgroup=group,
        guarantee=f"{chosen.guarantee}; {cgroups.GUARANTEE}" if group else chosen.guarantee,
        why=tuple(_reasons(job, mpi, reason, as_nodes, own_launcher is not None)),
        notices=(*remarks, *_notices(job, settings, home)),
    )


def with_other_mpi(plan: Plan, family: Family, library: str, settings: Settings, home: Home) -> Plan:
    """Return the plan with the MPI that the program loaded (`library`) when it ran; raise Unsupported without one."""
    candidates = mpi_installations.candidates(settings, home, family, near=library)
    mpi = next((installation for installation in candidates if installation.owns(library)), None)
    mpi = mpi or mpi_installations.find(settings, home, family)
    run_dir, job = Path(private_dirs.placeholder(plan.uid)), plan.job
    # The user's environment of the submit is only in the plan now.
    before = mpi_installations.find_by_launcher(Path(plan.launch[0]), home)
    user_environ = _user_variables(plan.env, before, run_dir)
    return msgspec.structs.replace(
        plan,
        family=mpi.family,
        family_version=mpi.version,
        hostfile=hostfile.text(mpi.family, plan.workers, job.launch),
        launch=_launch_line(job, mpi, run_dir, nodes=plan.nodes),
        env=_environ(job, mpi, run_dir, user_environ, nodes=plan.nodes),
        launcher=mpi.launcher if mpi.prefix in mpi_installations.SYSTEM_PREFIXES else "",
        why=(
            *plan.why,
            f"mpi {mpi.family.value} {mpi.version}: the program loaded it in an earlier run",
        ),
    )


def _user_variables(env: Mapping[str, str], before: Installation | None, run_dir: Path) -> dict[str, str]:
    """Return a plan's variables without the directories that were added for its MPI installation `before`."""
    added = {str(run_dir / "bin"), *(before.variables().values() if before else ())}
    if before is not None and before.prefix not in mpi_installations.SYSTEM_PREFIXES:
        added.add(os.path.dirname(before.launcher))
    paths = {name: env.get(name, "").split(os.pathsep) for name in ("PATH", "LD_LIBRARY_PATH")}
    cleaned = {
        name: os.pathsep.join(directory for directory in directories if directory not in added)
        for name, directories in paths.items()
    }
    return {name: value for name, value in (dict(env) | cleaned).items() if value}


def _reason_for_nodes(job: MPIJob, settings: Settings, own_launcher: bool) -> str:
    """Return why each worker is a node to MPI; "" where one daemon starts all ranks."""
    # One daemon is the default, because ranks of different nodes do not share memory: Open MPI's allreduce of 8 bytes
    # took 15 times as long as with plain mpirun (docs/decisions/0053).
    reasons = {
        "the setting local_nodes asks for it": settings.local_nodes,
        "the command contains its own launcher": own_launcher,
        "its launcher is a custom one": job.mpi is Family.CUSTOM,
        "an elastic job discovers its hosts": job.elastic is not None,
        "its ranks are mapped by the MPI library": bool(job.launch.rankfile)
        or job.launch.map_by not in ("", "slot", "node"),
        "a rank counts its GPUs from its worker's first": job.most_gpus > 0 and job.workers > 1,
        "a fault of its daemon is requested": bool(_DAEMON_FAULT_LABELS & job.labels.keys()),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _refuse_shared_names(job: MPIJob, mpi: Installation, chosen: isolation.Isolation) -> None:
    if mpi.family is not Family.OPENMPI or chosen is isolation.Isolation.NAMESPACES or job.workers == 1:
        return
    raise InvalidJob.of((Finding(
        code="OPENMPI_NEEDS_NAMESPACES", field="mpi",
        message="Open MPI identifies workers by host name, which requires namespaces; this machine does not allow them",
        hint="set mpi: mpich, or use one worker with more slots",
    ),))  # fmt: skip


def _launch_line(job: MPIJob, mpi: Installation, run_dir: Path, *, nodes: bool = True) -> tuple[str, ...]:
    return command_line.line(
        mpi.family,
        job,
        launcher=mpi.launcher,
        hostfile=str(run_dir / "hostfile"),
        agent=str(run_dir / "agent"),
        shim=("/bin/sh", SHIM),
        names=sorted({*job.env, *(secret.env for secret in job.secrets), *_job_variables(job), "PATH"}),
        nodes=nodes,
    )


def _own_launch_line(job: MPIJob) -> tuple[str, ...]:
    return ("/bin/sh", batch_environment.STEP, "script", *job.argv) if job.script else job.argv


def _census_job(job: MPIJob) -> MPIJob:
    """Return a job of the same world whose ranks do nothing: it counts them."""
    # Not `true`: Open MPI's mpirun does not always end after ranks that ended at once (docs/decisions/0013).
    return job.replace(command=("sleep", "0.1"), args=(), programs=())


def _job_variables(job: MPIJob) -> dict[str, str]:
    # `rank.sh` needs the variable of a custom launcher, whose library it does not know.
    rank_variable = job.launch.custom.rank_variable if job.launch.custom else ""
    return command_line.job_variables(job) | {"MPIJOB_RANK_VARIABLE": rank_variable}


def _environ(
    job: MPIJob, mpi: Installation, run_dir: Path, user_environ: Mapping[str, str], *, nodes: bool
) -> dict[str, str]:
    """Return the variables of launcher and ranks: a few of the user's shell, then mpijob's, then the job's `env`."""
    hostfile, agent = str(run_dir / "hostfile"), str(run_dir / "agent")
    inherited = environment.inherited(user_environ)
    family = mpi.family
    environ = (
        inherited
        | {"PATH": _search_path(mpi, run_dir, user_environ, nodes=nodes)}
        | environment.library_variables(mpi, user_environ)
    )
    environ |= command_line.one_machine(family, as_root=os.geteuid() == 0)
    if nodes:
        crowded = job.world > len(os.sched_getaffinity(0))
        environ |= command_line.variables(family, hostfile=hostfile, agent=agent, slots=job.slots)
        environ |= command_line.workers_as_nodes(family, mpi.version, oversubscribed=crowded)
        environ[command_line.HOSTS_FILE] = str(run_dir / "hosts")
    else:
        environ |= command_line.one_daemon(family, mpi.version)
    # A variable takes precedence over the user's own parameter file, so these defaults are left out.
    for name in _mca_file_variables(inherited.get("HOME", "")) if family is Family.OPENMPI else ():
        environ.pop(name, None)
    environ |= command_line.settings_as_variables(family, job.launch)
    if job.script:
        environ |= _script_variables(job, mpi, run_dir)
    if job.elastic is not None:
        environ[command_line.DISCOVER] = str(run_dir / "discover_hosts.sh")
    # What the user's shell sets for an MPI library overrides our defaults, as with plain mpirun.
    return (
        environ
        | _job_variables(job)
        | environment.tuning_variables(user_environ)
        | dict(job.env)
        | {"PYTHONPATH": environment.python_path(job, user_environ)}
    )


def _script_variables(job: MPIJob, mpi: Installation, run_dir: Path) -> dict[str, str]:
    """Return the variables of a script and its steps (see formats/launch/scripts/step.sh)."""
    variables = batch_environment.steps(
        job, mpi.family, uid=run_dir.name, directory=str(run_dir / "steps"), launcher=mpi.launcher
    )
    return variables | {
        "MPIJOB_HOSTFILE": str(run_dir / "hostfile"),
        "MPIJOB_SHIM": SHIM,
        "MPIJOB_STEP_RANK": batch_environment.STEP_RANK,
    }


def _mca_file_variables(home: str) -> Iterator[str]:
    """Yield the variables of the parameters in the user's own parameter file of Open MPI."""
    with contextlib.suppress(OSError):
        for line in Path(home, ".openmpi", "mca-params.conf").read_text(errors="replace").splitlines():
            yield f"OMPI_MCA_{line.partition('=')[0].strip()}"


def _search_path(mpi: Installation, run_dir: Path, environ: Mapping[str, str], *, nodes: bool) -> str:
    # /usr/bin must not come before the user's Python. So for an MPI of the system, the attempt has scripts that start
    # its launchers (`AttemptSpec`); and where workers are nodes, `ssh` and other programs that reach them.
    first = [str(run_dir / "bin")] if nodes or mpi.prefix in mpi_installations.SYSTEM_PREFIXES else []
    return environment.search_path(mpi, environ, first, mpi_installations.environment_bin())


def _reasons(job: MPIJob, mpi: Installation, reason: str, as_nodes: str, own_launcher: bool) -> Iterator[str]:
    yield "engine local: no cluster was requested"
    yield f"{f'mpi {mpi.family.value} {mpi.version}'.rstrip()}: {reason}"
    if not as_nodes:
        yield "one daemon of the MPI library starts all ranks: they share memory as with plain mpirun"
    elif not own_launcher:
        yield f"each worker is a node to MPI, with its own daemon: {as_nodes}"
    if job.script:
        yield f"{job.script} runs once, in the launcher; each mpirun, mpiexec or srun in it is a step over the workers"
    elif own_launcher:
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
