"""The machine on which Slurm's commands run: this one, or a login node by ssh.

The jobs' directories are on a file system that this machine and the nodes share. With ssh their contents are
copied here (`pull`), so that all other modules read local files; one connection serves all commands
(ControlMaster).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mpijob.errors import BackendError

SECONDS = 30.0
# A command that follows a job reads several files at once.
_PULL_SECONDS = 0.5
_SSH = ("-o", "BatchMode=yes", "-o", "ControlMaster=auto", "-o", "ControlPersist=120", "-o", "ConnectTimeout=15",
        "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "LogLevel=ERROR")  # fmt: skip
# ssh's exit status when there is no connection.
_NO_SSH = 255
# rsync's exit statuses when files vanished meanwhile, or the source does not exist yet.
_VANISHED = (23, 24)
_NEEDED = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "SLURM_CLUSTERS")


class Answer(NamedTuple):
    """The exit status and output of a command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The message of a failed command."""
        return (self.err.strip() or self.out.strip())[-2000:]


class Host:
    """This machine, on which Slurm's commands are installed."""

    name = ""

    def __init__(self, root: Path) -> None:
        # Where this process reads and writes.
        self.root = root

    def path(self, *parts: str) -> str:
        """Return a path below the root as the nodes see it."""
        return os.path.join(self.root, *parts)

    def environ(self) -> Mapping[str, str]:
        """Return the user's environment variables on the host."""
        return os.environ

    def call(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        seconds: float = SECONDS,
        bare: bool = False,
    ) -> Answer:
        """Run a command to its end; raise BackendError (passing) if it does not end in time.

        A `bare` one gets only what it needs to find Slurm: a job inherits sbatch's environment.
        """
        known = _outside(os.environ)
        return _call(argv, {**(_needed(known) if bare else known), **env}, seconds)

    def terminal(self, argv: Sequence[str]) -> int:
        """Run a command with this terminal and return its exit status."""
        return subprocess.call(argv, env=_outside(os.environ))

    def make(self, place: str) -> bool:
        """Create a directory and its parents; return False if it exists."""
        path = self.root / place
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def pull(self, place: str, *, whole: bool = False) -> None:
        """Copy what is new in a directory to this machine; logs and working directories only with `whole`."""

    def push(self, place: str) -> None:
        """Copy what was written on this machine to the nodes' file system."""

    def remove(self, place: str) -> None:
        import shutil

        path = self.root / place
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give back what is held."""


class SshHost(Host):
    """A login node: `root` is a copy on this machine of the directory `far` there."""

    def __init__(self, address: str, root: Path) -> None:
        super().__init__(root)
        host, _, port = address.partition(":")
        self.name = host
        self._pulled: dict[str, float] = {}
        control = Path(os.environ.get("XDG_RUNTIME_DIR") or root.parent) / "ssh-%C"
        self._ssh = ["ssh", *_SSH, "-o", f"ControlPath={control}", *(["-p", port] if port else [])]
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Sites set the paths of Slurm and MPI in profiles, which only login shells read.
        lines = self._run("bash -lc env").out.splitlines()
        self._environ = dict(line.partition("=")[::2] for line in lines if "=" in line)
        state = self._environ.get("XDG_STATE_HOME") or f"{self._environ.get('HOME', '')}/.local/state"
        self._far = self._environ.get("MPIJOB_SLURM_DIRECTORY") or f"{state}/mpijob/slurm"

    def path(self, *parts: str) -> str:
        return os.path.join(self._far, *parts)

    def environ(self) -> Mapping[str, str]:
        return self._environ

    def call(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        seconds: float = SECONDS,
        bare: bool = False,
    ) -> Answer:
        """Run a command there, found as in a login shell."""
        known = _needed(self._environ) | dict(env)
        words = ["env", *(f"{key}={value}" for key, value in known.items()), *argv]
        return self._run(shlex.join(words), seconds)

    def terminal(self, argv: Sequence[str]) -> int:
        tty = ["-t"] if os.isatty(0) and os.isatty(1) else []
        return subprocess.call([*self._ssh, *tty, self.name, f"bash -lc {shlex.quote(shlex.join(argv))}"])

    def make(self, place: str) -> bool:
        far = shlex.quote(self.path(place))
        completed = self._run(f'mkdir -p -m 700 "$(dirname {far})" && mkdir -m 700 {far}')
        if completed.code and "exists" not in completed.err:
            raise BackendError(f"{self.name}: {completed.said}")
        super().make(place)
        return completed.code == 0

    def pull(self, place: str, *, whole: bool = False) -> None:
        """Copy with rsync what is new there, at most twice a second."""
        now, key = time.monotonic(), f"{place}{whole}"
        if now - self._pulled.get(key, -1e9) < _PULL_SECONDS:
            return
        left_out = ["/work/"] if whole else ["/jobs/*/work/", "/jobs/*/a*/logs/"]
        (self.root / place).mkdir(mode=0o700, parents=True, exist_ok=True)
        excluded = [f"--exclude={pattern}" for pattern in (*left_out, "state.json")]
        # state.json is written here only, and would be deleted.
        self._rsync([*excluded, "--delete", f"{self.name}:{self.path(place)}/", f"{self.root / place}/"])
        self._pulled[key] = time.monotonic()

    def push(self, place: str) -> None:
        """Copy with rsync what is here; other files there stay."""
        self._rsync([f"{self.root / place}/", f"{self.name}:{self.path(place)}/"])

    def remove(self, place: str) -> None:
        self._run(f"rm -rf {shlex.quote(self.path(place))}")
        super().remove(place)

    def close(self) -> None:
        subprocess.call([*self._ssh, "-q", "-O", "exit", self.name], stderr=subprocess.DEVNULL)

    def _rsync(self, words: Sequence[str]) -> None:
        completed = _call(("rsync", "--archive", "--rsh", shlex.join(self._ssh), *words), os.environ, 600.0)
        if completed.code not in (0, *_VANISHED):
            raise BackendError(f"cannot copy files from or to {self.name}: {completed.said}", passing=True)

    def _run(self, line: str, seconds: float = SECONDS) -> Answer:
        completed = _call([*self._ssh, self.name, line], os.environ, seconds)
        if completed.code == _NO_SSH:
            raise BackendError(
                f"no connection to {self.name} by ssh: {completed.said}",
                hint=f"test it with: ssh {self.name} true; it must work without a password",
                passing=True,
            )
        return completed


def _call(argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> Answer:
    try:
        completed = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, env=environ
        )
    except FileNotFoundError as error:
        raise BackendError(
            f"there is no program '{argv[0]}' here",
            hint="run mpijob where Slurm's commands are, or name a login node: --context slurm+ssh://HOST",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{argv[0]} did not answer within {seconds:g} s", passing=True) from error
    return Answer(
        completed.returncode,
        completed.stdout.decode(errors="replace"),
        completed.stderr.decode(errors="replace"),
    )


def _outside(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without that of an allocation around us: our jobs are not part of it."""
    return {
        name: value for name, value in environ.items() if not name.startswith("SLURM_") or name in _NEEDED
    }


def _needed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what finds the commands and their cluster, and the defaults of the site or the user for sbatch."""
    return {name: value for name, value in environ.items() if name in _NEEDED or name.startswith("SBATCH_")}
