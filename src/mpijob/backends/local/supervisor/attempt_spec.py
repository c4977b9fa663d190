"""What a supervisor is to run: the plan made concrete for one attempt on this machine.

An attempt has directories, pipes and logs of its own; its line and variables are the plan's. Secret
values are not in the plan: they lie in a file of mode 0600 beside it until the job has ended, and no log holds them.
"""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mpijob import codec
from mpijob.backends.attempts import artifacts, mpi_profiles
from mpijob.backends.local.planning import machine, volumes
from mpijob.backends.local.storage import private_dirs
from mpijob.backends.local.storage.job_files import read_connections, read_secrets
from mpijob.backends.local.storage.paths import REMOTE_SHELLS, Home
from mpijob.backends.local.storage.private_dirs import PrivateDirs
from mpijob.backends.local.worker import cgroups, syscalls
from mpijob.backends.local.worker.isolation import HOSTS, WORKER_HOSTS, Isolation
from mpijob.backends.local.worker.worker import WorkerSpec
from mpijob.backends.profiler import library as profiler
from mpijob.formats.launch import batch_environment, command_line, hostfile, own_launchers
from mpijob.formats.launch import mpi_profile as profile_words
from mpijob.model import Family, Plan, VolumeKind
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.attempts.evidence import Attempt
    from mpijob.backends.local.storage.s3_staging import S3Staging
    from mpijob.backends.s3_volumes import Connection

PRIVATE = Path("/dev/shm/mpijob")  # noqa: S108 - in the job's own mount namespace: memory that only it sees


class AttemptSpec:
    """One attempt's directories, lines and variables."""

    def __init__(
        self,
        home: Home,
        uid: str,
        attempt: int,
        plan: Plan,
        gpu_ids: tuple[str, ...],
        settings: Settings | None = None,
    ) -> None:
        self.plan = plan
        self.settings = settings or Settings(warn_after_seconds=0.0)
        self.uid = uid
        self.attempt = attempt
        self.directory = home.attempt(uid, attempt)
        self.isolation = Isolation(plan.isolation)  # how the attempt's processes are kept together
        self.pipes = PRIVATE if self.isolation is Isolation.NAMESPACES else self.directory / "pipes"
        self.work = home.work(uid)
        self.logs = home.logs(uid, attempt)
        self._parents = private_dirs.parents(home, os.environ)
        self._private: PrivateDirs | None = None
        self.cgroup = cgroups.attempt_cgroup(plan.cgroup, uid, attempt)
        self._agent = home.agent
        self._gpus = gpu_ids
        self.secrets = read_secrets(home, uid)
        self.masked_values = _masked_values(self.secrets) if self.secrets else ()
        self.home = home
        self._s3_staging: S3Staging | None = None

    def disable_namespaces(self) -> None:
        """Go on where the planned namespaces cannot be had now: /dev/shm is then everybody's, so no pipe is there."""
        self.isolation = Isolation.GROUPS
        self.pipes = self.directory / "pipes"

    def refuse_without_namespaces(self) -> None:
        """Raise for an attempt that would be another one without its namespaces."""
        names = self.plan.nodes and self.plan.family is Family.OPENMPI and self.plan.job.workers > 1
        if self.plan.volumes or names:
            what = "volumes" if self.plan.volumes else "workers' names"
            why = f"the job's {what} require Linux namespaces, which are not available now"
            raise PermissionError(errno.EPERM, why, "unshare")

    @property
    def diagnosis_input(self) -> Attempt:
        """What is known of the attempt for a diagnosis."""
        from mpijob.backends.attempts.evidence import Attempt  # the rules are loaded only for a failure

        rules, secrets = self.settings.rules, tuple(self.secrets.values())
        return Attempt(self.plan, self.attempt, self.logs, self.work, rules, secrets)

    @property
    def ranks_report(self) -> bool:
        """Whether every rank reports to us (False when the command brings its own mpirun)."""
        return not self.plan.own_launcher

    @property
    def launch(self) -> tuple[str, ...]:
        """The launcher's argv."""
        return tuple(map(self._in_run_dir, self.plan.launch))

    @property
    def census_launch(self) -> tuple[str, ...]:
        """The argv that counts the ranks before a command that brings its own launcher."""
        return tuple(map(self._in_run_dir, self.plan.census_launch))

    @property
    def steps(self) -> Path:
        """The directory in which the steps of a script leave what they are."""
        return Path(self.private.run.path) / "steps"

    @property
    def private(self) -> PrivateDirs:
        """The directories outside the home that were made for this attempt."""
        assert self._private is not None, "prepare() makes them"
        return self._private

    def _in_run_dir(self, word: str) -> str:
        """Return a word of the plan with the run directory of this attempt in it."""
        return word.replace(private_dirs.placeholder(self.uid), self.private.run.path)

    def environ(self) -> dict[str, str]:
        """The launcher's environment; MPI hands it on to every rank."""
        job = self.plan.job
        return (
            {name: self._in_run_dir(value) for name, value in self.plan.env.items()}
            | self.secrets
            | {
                "MPIJOB_ATTEMPT": str(self.attempt),
                "MPIJOB_ATTEMPT_DIR": str(self.directory),
                "MPIJOB_OUTPUT": str(self._output),
                "MPIJOB_PIPES": str(self.pipes),
                "MPIJOB_GATE": "1" if job.census else "0",
                "MPIJOB_STDIN": self._stdin,
                "TMPDIR": self.private.temporary.path,
                **self._resolver_variables(),
                **self._script_gpus(),
                **self._profile_variables(),
            }
        )

    @property
    def profiles(self) -> Path:
        """Where ranks count their MPI calls, one file each."""
        return self.directory / mpi_profiles.FOLDER

    def _profile_variables(self) -> dict[str, str]:
        """How ranks come to count their MPI calls, those that are spawned too: whatever the job starts has the shim.

        It stands behind libraries of the user's own, so that tools which stand before MPI go on to do so.
        """
        shim = profiler.find_shim(self.home.root) if self.plan.job.profile_mpi else None
        if shim is None or not shim.exists():
            return {}
        before = self.plan.env.get("LD_PRELOAD", "")
        return {
            profile_words.DIRECTORY: str(self.profiles),
            "LD_PRELOAD": f"{before}:{shim}".lstrip(":"),
        }

    @property
    def _output(self) -> Path:
        """Where this attempt writes what is to be kept apart from other attempts."""
        return self.work / artifacts.attempt_directory(self.attempt)

    @property
    def _stdin(self) -> str:
        return str(self.work / self.plan.job.launch.stdin) if self.plan.job.launch.stdin else os.devnull

    @property
    def launcher_stdin(self) -> str:
        """What the launcher reads; rank 0 reads its file itself, unless the command brings its own mpirun."""
        return os.devnull if self.ranks_report else self._stdin

    def _resolver_variables(self) -> dict[str, str]:
        """Without a hosts file of our own, a name server is asked for workers' names: not for long."""
        return {} if self.isolation is Isolation.NAMESPACES else {"RES_OPTIONS": "timeout:1 attempts:1"}

    def _script_gpus(self) -> dict[str, str]:
        """A script counts the GPUs of the first worker, on which it would run."""
        mine = self.worker_gpus(0) if self.plan.job.script else ()
        return {"CUDA_VISIBLE_DEVICES": ",".join(mine)} if mine else {}

    def workers(self) -> tuple[WorkerSpec, ...]:
        """What each worker is told."""
        return tuple(self._worker(worker.index, worker.name) for worker in self.plan.workers)

    def _worker_variables(self, index: int, name: str) -> dict[str, str]:
        """What the ranks of one worker are told beyond the launcher's environment."""
        mine = self.worker_gpus(index)
        return {
            "MPIJOB_WORKER": str(index),
            "MPIJOB_WORKER_DIR": str(self.pipes / "workers" / name),
            "CUDA_VISIBLE_DEVICES": ",".join(mine),
            "MPIJOB_GPUS": ",".join(mine),
            "MPIJOB_GPUS_PER_RANK": self._gpus_per_rank(index, mine),
            **({command_line.GROUP: group} if (group := self.plan.workers[index].group) else {}),
        }

    def _worker(self, index: int, name: str) -> WorkerSpec:
        environ = self.environ() | self._worker_variables(index, name)
        contained = self.isolation is Isolation.NAMESPACES
        own_name = contained and self.plan.nodes
        places = (str(self.directory), str(self.pipes), str(self.work))
        group = str(cgroups.worker_cgroup(self.cgroup, index)) if self.cgroup else ""
        return WorkerSpec(
            index, name, *places, environ, self.private, contained, own_name, group, self.masked_values
        )

    def worker_gpus(self, index: int) -> tuple[str, ...]:
        """The GPUs of one worker."""
        part = self.plan.job.part_of(index)
        each = part.job.resources.gpu
        before = sum(
            one.job.workers * one.job.resources.gpu for one in self.plan.job.parts if one.first < part.first
        )
        first = before + (index - part.first) * each
        return self._gpus[first : first + each]

    def _gpus_per_rank(self, index: int, mine: tuple[str, ...]) -> str:
        slots = self.plan.workers[index].slots
        return str(len(mine) // slots) if mine and len(mine) % slots == 0 else ""

    def prepare_mounts(self) -> None:
        """Inside the job's own mount namespace: its workers' names, its volumes at their places."""
        self._write_hosts_files()
        found = tuple(codec.convert(volume, volumes.Bind) for volume in self.plan.volumes)
        volumes.mount_all(found, self.directory / "root")

    def s3_staging(self) -> S3Staging | None:
        """What is fetched and stored for the job's S3 volumes; None where it has none."""
        if self._s3_staging is None and any(one.kind is VolumeKind.S3 for one in self.plan.job.volumes):
            from mpijob.backends.local.storage.s3_staging import S3Staging

            self._s3_staging = S3Staging(self.plan, self.connections())
        return self._s3_staging

    def connections(self) -> dict[str, Connection]:
        """The data connections of the job's S3 volumes."""
        return read_connections(self.home, self.uid)

    def _write_hosts_files(self) -> None:
        """Let the workers' names be found at once: a launcher that asks a name server for them may wait seconds.

        A launcher for which workers are nodes reads addresses from a range that no machine has (240.0.0.0/4): nobody
        connects to them, and it takes no worker for its own machine. Everybody else finds workers on loopback.
        """
        own = f"127.0.1.1 {machine.node_name()}"
        inside = [f"127.0.0.1 {w.name}" for w in self.plan.workers]
        apart = [f"240.0.{w.index // 250}.{w.index % 250 + 1} {w.name}" for w in self.plan.workers]
        self.pipes.mkdir(mode=0o700, parents=True, exist_ok=True)
        hosts = Path(HOSTS)
        before = hosts.read_text() if hosts.exists() else "127.0.0.1 localhost\n"
        for name, those in (("hosts", apart if self.plan.nodes else inside), (WORKER_HOSTS, inside)):
            file = self.pipes / name
            file.write_text("\n".join([before.rstrip("\n"), own, *those, ""]))
            file.chmod(0o644)
        if hosts.exists():
            syscalls.mount_bind(str(self.pipes / "hosts"), HOSTS)

    def prepare(self) -> None:
        """Make the attempt's directories and pipes."""
        profiles = (self.profiles,) if self.plan.job.profile_mpi else ()
        for path in (self.work, self._output, self.logs, self.pipes / "ranks", *profiles):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._private = private_dirs.create(self.directory, self._parents)
        self._locks = self._private.lock()
        for worker in self.plan.workers:
            directory = self.pipes / "workers" / worker.name
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _pipe(directory / "ask")
            _pipe(directory / "answer.0")
        for rank in range(self.plan.world):
            _pipe(self.pipes / "ranks" / f"{rank}.out")
            _pipe(self.pipes / "ranks" / f"{rank}.err")
        if not self.plan.nodes:
            (self.pipes / "placement").write_text(self._placement())
        _pipe(self.pipes / "report")
        _pipe(self.pipes / "gate")
        if self.cgroup:
            for _, first, job in self.plan.job.parts:
                those, each = range(first, first + job.workers), job.resources
                cgroups.prepare(self.cgroup, those, each.memory_bytes, each.cores)
        run_dir = Path(self.private.run.path)
        (run_dir / "hostfile").write_text(self.plan.hostfile)
        if self.plan.job.elastic is not None:
            found = run_dir / "discover_hosts.sh"
            found.write_text(hostfile.discovery_script(self.plan.workers))
            found.chmod(0o700)
        (run_dir / "agent").symlink_to(self._agent)
        if self.plan.job.script:
            self.steps.mkdir(mode=0o700)
        if self.plan.launcher or self.plan.nodes:
            self._link_launchers(run_dir)
        if self.plan.nodes:
            (run_dir / "hosts").write_text(hostfile.slots(self.plan.workers))

    def _placement(self) -> str:
        """Return what the wrapper of a rank reads where one daemon starts all: its worker, as a shell says it."""
        lines = ["case $rank in"]
        for worker in self.plan.workers:
            if worker.ranks:
                variables = self._worker_variables(worker.index, worker.name)
                words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
                group = (
                    shlex.quote(str(cgroups.worker_cgroup(self.cgroup, worker.index))) if self.cgroup else ""
                )
                enter = f"printf 0 > {group}/cgroup.procs" if group else ":"
                lines.append(
                    f"{'|'.join(map(str, worker.ranks))}) export {words}; local_size={len(worker.ranks)}; {enter} ;;"
                )
        lines += ["esac", "case $rank in"]
        for worker in self.plan.workers:
            lines += [f"{rank}) slot={slot} ;;" for slot, rank in enumerate(worker.ranks)]
        return "\n".join([*lines, "esac", ""])

    def _link_launchers(self, directory: Path) -> None:
        """Let `mpirun` and `mpiexec` in the job mean the launcher of its MPI, whatever else is on the PATH.

        Launchers that are no MPI's find the job's workers, and reach them by `ssh`, where workers are nodes.
        """
        (directory / "bin").mkdir(mode=0o700)
        texts: dict[str, str] = {}
        if self.plan.launcher:  # no links: hydra looks for its helpers where its own name is
            text = f'#!/bin/sh\nexec {shlex.quote(self.plan.launcher)} "$@"\n'
            texts = dict.fromkeys(("bin/mpirun", "bin/mpiexec"), text)
        if self.plan.nodes:
            reaching = {f"bin/{name}": batch_environment.text(path) for name, path in REMOTE_SHELLS.items()}
            texts |= own_launchers.files() | reaching
        for name, text in texts.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o700)


def _masked_values(secrets: dict[str, str]) -> tuple[str, ...]:
    from mpijob.observation.redaction import masking  # most jobs have no secrets

    return masking.spellings(secrets.values())


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
