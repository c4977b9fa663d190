"""The plan made concrete for one attempt: its directories, pipes, files, command lines and variables.

A plan serves several attempts, so it has placeholders for what is the attempt's own. Values of secrets are not in the
plan: they are in a file of mode 0600 beside it until the job has ended.
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

# In the job's own mount namespace, whose /dev/shm no other process sees; files in memory are created quickly.
PRIVATE = Path("/dev/shm/mpijob")  # noqa: S108


class AttemptSpec:
    """The directories, command lines and variables of one attempt; `prepare` creates what must exist."""

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
        self.isolation = Isolation(plan.isolation)
        self.pipes = PRIVATE if self.isolation is Isolation.NAMESPACES else self.directory / "pipes"
        self.work = home.work(uid)
        self.logs = home.logs(uid, attempt)
        # Now, before the job's namespaces are entered: inside, owners of directories cannot be told apart.
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
        """Run without the planned namespaces, which this machine refuses now."""
        # /dev/shm is shared with other users then.
        self.isolation = Isolation.GROUPS
        self.pipes = self.directory / "pipes"

    def refuse_without_namespaces(self) -> None:
        """Raise PermissionError if the attempt cannot run as planned without namespaces."""
        names = self.plan.nodes and self.plan.family is Family.OPENMPI and self.plan.job.workers > 1
        if self.plan.volumes or names:
            what = "volumes" if self.plan.volumes else "workers' names"
            why = f"the job's {what} require Linux namespaces, which are not available now"
            raise PermissionError(errno.EPERM, why, "unshare")

    @property
    def diagnosis_input(self) -> Attempt:
        # The rules are loaded only for a failure.
        from mpijob.backends.attempts.evidence import Attempt

        rules, secrets = self.settings.rules, tuple(self.secrets.values())
        return Attempt(self.plan, self.attempt, self.logs, self.work, rules, secrets)

    @property
    def ranks_report(self) -> bool:
        """Whether every rank starts through our wrapper; False where the command contains its own launcher."""
        return not self.plan.own_launcher

    @property
    def launch(self) -> tuple[str, ...]:
        return tuple(map(self._in_run_dir, self.plan.launch))

    @property
    def census_launch(self) -> tuple[str, ...]:
        """The launch that counts the ranks before a command with its own launcher; () for none."""
        return tuple(map(self._in_run_dir, self.plan.census_launch))

    @property
    def steps(self) -> Path:
        """The directory in which the steps of a script write their commands."""
        return Path(self.private.run.path) / "steps"

    @property
    def private(self) -> PrivateDirs:
        """The directories outside the home; call `prepare` first."""
        assert self._private is not None, "prepare() creates them"
        return self._private

    def _in_run_dir(self, word: str) -> str:
        return word.replace(private_dirs.placeholder(self.uid), self.private.run.path)

    def environ(self) -> dict[str, str]:
        """Return the launcher's environment, which MPI passes on to every rank."""
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
        """The directory of the counts of MPI calls, one file for each rank."""
        return self.directory / mpi_profiles.FOLDER

    def _profile_variables(self) -> dict[str, str]:
        # By the environment, which processes of MPI_Comm_spawn inherit. Behind the user's own libraries: tools that
        # intercept MPI calls must stay in front of MPI.
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
        """The value of MPIJOB_OUTPUT: outputs that other attempts must not overwrite."""
        return self.work / artifacts.attempt_directory(self.attempt)

    @property
    def _stdin(self) -> str:
        return str(self.work / self.plan.job.launch.stdin) if self.plan.job.launch.stdin else os.devnull

    @property
    def launcher_stdin(self) -> str:
        # Rank 0's wrapper opens the file itself (`rank.sh`); there is none where the command has its own launcher.
        return os.devnull if self.ranks_report else self._stdin

    def _resolver_variables(self) -> dict[str, str]:
        # Hydra looks up every worker's name, and waits five seconds for a name server that is not reachable.
        return {} if self.isolation is Isolation.NAMESPACES else {"RES_OPTIONS": "timeout:1 attempts:1"}

    def _script_gpus(self) -> dict[str, str]:
        # Under Slurm a batch script runs on the first node, whose GPUs it sees.
        gpus = self.worker_gpus(0) if self.plan.job.script else ()
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}

    def workers(self) -> tuple[WorkerSpec, ...]:
        return tuple(self._worker(worker.index, worker.name) for worker in self.plan.workers)

    def _worker_variables(self, index: int, name: str) -> dict[str, str]:
        gpus = self.worker_gpus(index)
        return {
            "MPIJOB_WORKER": str(index),
            "MPIJOB_WORKER_DIR": str(self.pipes / "workers" / name),
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            "MPIJOB_GPUS": ",".join(gpus),
            "MPIJOB_GPUS_PER_RANK": self._gpus_per_rank(index, gpus),
            **({command_line.GROUP: group} if (group := self.plan.workers[index].group) else {}),
        }

    def _worker(self, index: int, name: str) -> WorkerSpec:
        environ = self.environ() | self._worker_variables(index, name)
        in_namespaces = self.isolation is Isolation.NAMESPACES
        # Open MPI tells its daemons apart by host name.
        own_name = in_namespaces and self.plan.nodes
        directories = (str(self.directory), str(self.pipes), str(self.work))
        group = str(cgroups.worker_cgroup(self.cgroup, index)) if self.cgroup else ""
        return WorkerSpec(
            index,
            name,
            *directories,
            environ,
            self.private,
            in_namespaces,
            own_name,
            group,
            self.masked_values,
        )

    def worker_gpus(self, index: int) -> tuple[str, ...]:
        """Return the GPUs of one worker, as CUDA_VISIBLE_DEVICES names them."""
        part = self.plan.job.part_of(index)
        count = part.job.resources.gpu
        before = sum(
            other.job.workers * other.job.resources.gpu
            for other in self.plan.job.parts
            if other.first < part.first
        )
        first = before + (index - part.first) * count
        return self._gpus[first : first + count]

    def _gpus_per_rank(self, index: int, gpus: tuple[str, ...]) -> str:
        slots = self.plan.workers[index].slots
        # Without an even division, each rank sees all GPUs of its worker.
        return str(len(gpus) // slots) if gpus and len(gpus) % slots == 0 else ""

    def prepare_mounts(self) -> None:
        """Mount hosts files and volumes; call it inside the job's own mount namespace."""
        self._write_hosts_files()
        binds = tuple(codec.convert(volume, volumes.Bind) for volume in self.plan.volumes)
        volumes.mount_all(binds, self.directory / "root")

    def s3_staging(self) -> S3Staging | None:
        """Return the staging of the job's S3 volumes, None if it has none."""
        if self._s3_staging is None and any(volume.kind is VolumeKind.S3 for volume in self.plan.job.volumes):
            from mpijob.backends.local.storage.s3_staging import S3Staging

            self._s3_staging = S3Staging(self.plan, self.connections())
        return self._s3_staging

    def connections(self) -> dict[str, Connection]:
        return read_connections(self.home, self.uid)

    def _write_hosts_files(self) -> None:
        # A name server that is not reachable would delay the launcher by seconds. Where workers are nodes, the
        # launcher must not take one for its own machine, or it starts the ranks without our agent: it reads addresses
        # that no machine has (240.0.0.0/4), to which nothing connects. The ranks of a worker need an address at which
        # they can listen, as PyTorch and JAX do at their own name (docs/decisions/0013).
        own = f"127.0.1.1 {machine.node_name()}"
        loopback = [f"127.0.0.1 {w.name}" for w in self.plan.workers]
        unreachable = [f"240.0.{w.index // 250}.{w.index % 250 + 1} {w.name}" for w in self.plan.workers]
        self.pipes.mkdir(mode=0o700, parents=True, exist_ok=True)
        hosts = Path(HOSTS)
        before = hosts.read_text() if hosts.exists() else "127.0.0.1 localhost\n"
        for name, lines in (
            ("hosts", unreachable if self.plan.nodes else loopback),
            (WORKER_HOSTS, loopback),
        ):
            file = self.pipes / name
            file.write_text("\n".join([before.rstrip("\n"), own, *lines, ""]))
            file.chmod(0o644)
        if hosts.exists():
            syscalls.mount_bind(str(self.pipes / "hosts"), HOSTS)

    def prepare(self) -> None:
        """Create the attempt's directories, pipes, cgroups and files."""
        profiles = (self.profiles,) if self.plan.job.profile_mpi else ()
        for path in (self.work, self._output, self.logs, self.pipes / "ranks", *profiles):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._private = private_dirs.create(self.directory, self._parents)
        # Held until this process ends, so that systemd-tmpfiles does not remove the directories of a long job.
        self._locks = self._private.lock()
        for worker in self.plan.workers:
            directory = self.pipes / "workers" / worker.name
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _pipe(directory / "ask")
            # Of the first request: `agent.sh` creates those of further ones.
            _pipe(directory / "answer.0")
        for rank in range(self.plan.world):
            _pipe(self.pipes / "ranks" / f"{rank}.out")
            _pipe(self.pipes / "ranks" / f"{rank}.err")
        if not self.plan.nodes:
            (self.pipes / "placement").write_text(self._placement())
        _pipe(self.pipes / "report")
        _pipe(self.pipes / "gate")
        if self.cgroup:
            for part in self.plan.job.parts:
                indices, resources = range(part.first, part.first + part.job.workers), part.job.resources
                cgroups.prepare(self.cgroup, indices, resources.memory_bytes, resources.cores)
        run_dir = Path(self.private.run.path)
        (run_dir / "hostfile").write_text(self.plan.hostfile)
        if self.plan.job.elastic is not None:
            script = run_dir / "discover_hosts.sh"
            script.write_text(hostfile.discovery_script(self.plan.workers))
            script.chmod(0o700)
        # A short path without special characters: hydra does not quote its agent's path.
        (run_dir / "agent").symlink_to(self._agent)
        if self.plan.job.script:
            self.steps.mkdir(mode=0o700)
        if self.plan.launcher or self.plan.nodes:
            self._link_launchers(run_dir)
        if self.plan.nodes:
            (run_dir / "hosts").write_text(hostfile.slots(self.plan.workers))

    def _placement(self) -> str:
        """Return shell text by which `rank.sh` finds a rank's worker where one daemon starts all ranks."""
        # Generated `case` branches: the wrapper is POSIX sh, and starts no other program for this.
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
        """Write the scripts that stand first on the PATH: `mpirun`, `mpiexec`, other launchers, `ssh` and `pdsh`."""
        (directory / "bin").mkdir(mode=0o700)
        texts: dict[str, str] = {}
        # Scripts, not links: hydra looks for its helpers beside its own name.
        if self.plan.launcher:
            text = f'#!/bin/sh\nexec {shlex.quote(self.plan.launcher)} "$@"\n'
            texts = dict.fromkeys(("bin/mpirun", "bin/mpiexec"), text)
        if self.plan.nodes:
            shells = {f"bin/{name}": batch_environment.text(path) for name, path in REMOTE_SHELLS.items()}
            texts |= own_launchers.files() | shells
        for name, text in texts.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o700)


def _masked_values(secrets: dict[str, str]) -> tuple[str, ...]:
    # Most jobs have no secrets.
    from mpijob.observation.redaction import masking

    return masking.spellings(secrets.values())


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
