"""The machine on which Slurm's commands run: this one, or a login node reached by ssh.

Jobs' directories are on a file system that this machine and the nodes share. By ssh, what is in them is copied here
(`pull`), so that everybody else reads files of this machine; one connection serves all commands (ControlMaster).
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
_PULL_SECONDS = 0.5
_SSH = ("-o", "BatchMode=yes", "-o", "ControlMaster=auto", "-o", "ControlPersist=120", "-o", "ConnectTimeout=15",
        "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "LogLevel=ERROR")  # fmt: skip
_NO_SSH = 255  # its exit status when there is no connection
_GONE = (23, 24)  # those of rsync where a file there went away meanwhile, or nothing is there yet
_NEEDED = ("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "SLURM_CLUSTERS")


class Answer(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """What is told of a failure."""
        return (self.err.strip() or self.out.strip())[-2000:]


class Host:
    """This machine: a login node, or any that has Slurm's commands."""

    name = ""

    def __init__(self, root: Path) -> None:
        self.root = root  # where this process reads and writes

    def path(self, *parts: str) -> str:
        """Return a path below the root as the nodes see it."""
        return os.path.join(self.root, *parts)

    def environ(self) -> Mapping[str, str]:
        """Return the variables of the user there."""
        return os.environ

    def call(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        seconds: float = SECONDS,
        bare: bool = False,
    ) -> Answer:
        """Run a command to its end; raise BackendError (passing) when it does not answer in time.

        A `bare` one gets what finds Slurm, and nothing else of our own environment: a job would inherit that.
        """
        known = _outside(os.environ)
        return _call(argv, {**(_needed(known) if bare else known), **env}, seconds)

    def terminal(self, argv: Sequence[str]) -> int:
        """Run a command with this terminal and return its exit status."""
        return subprocess.call(argv, env=_outside(os.environ))

    def make(self, place: str) -> bool:
        """Make a directory and those above it; return False where it is there."""
        path = self.root / place
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def pull(self, place: str, *, whole: bool = False) -> None:
        """Bring what is new in a directory here; without `whole`, neither jobs' logs nor their working directories."""

    def push(self, place: str) -> None:
        """Take what was written here to where the nodes see it."""

    def remove(self, place: str) -> None:
        """Remove a directory or file with all in it."""
        import shutil  # start-up is a feature

        path = self.root / place
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give back what is held."""


class SshHost(Host):
    """A login node: `root` is a copy on this machine of what is there below `far`."""

    def __init__(self, address: str, root: Path) -> None:
        super().__init__(root)
        host, _, port = address.partition(":")
        self.name = host
        self._pulled: dict[str, float] = {}
        control = Path(os.environ.get("XDG_RUNTIME_DIR") or root.parent) / "ssh-%C"
        self._ssh = ["ssh", *_SSH, "-o", f"ControlPath={control}", *(["-p", port] if port else [])]
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = self._run("bash -lc env").out.splitlines()
        self._environ = dict(line.partition("=")[::2] for line in lines if "=" in line)
        state = self._environ.get("XDG_STATE_HOME") or f"{self._environ.get('HOME', '')}/.local/state"
        self._far = self._environ.get("MPIJOB_SLURM_DIRECTORY") or f"{state}/mpijob/slurm"

    def path(self, *parts: str) -> str:
        """Return a path below the root as the login node sees it."""
        return os.path.join(self._far, *parts)

    def environ(self) -> Mapping[str, str]:
        """Return the variables of a login shell there."""
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
        """Run a command there with this terminal."""
        tty = ["-t"] if os.isatty(0) and os.isatty(1) else []
        return subprocess.call([*self._ssh, *tty, self.name, f"bash -lc {shlex.quote(shlex.join(argv))}"])

    def make(self, place: str) -> bool:
        """Make a directory there, and here."""
        far = shlex.quote(self.path(place))
        done = self._run(f'mkdir -p -m 700 "$(dirname {far})" && mkdir -m 700 {far}')
        if done.code and "exists" not in done.err:
            raise BackendError(f"{self.name}: {done.said}")
        super().make(place)
        return done.code == 0

    def pull(self, place: str, *, whole: bool = False) -> None:
        """Copy by rsync what is new there, at most twice a second."""
        now, key = time.monotonic(), f"{place}{whole}"
        if now - self._pulled.get(key, -1e9) < _PULL_SECONDS:
            return
        left_out = ["/work/"] if whole else ["/jobs/*/work/", "/jobs/*/a*/logs/"]
        (self.root / place).mkdir(mode=0o700, parents=True, exist_ok=True)
        excluded = [f"--exclude={pattern}" for pattern in (*left_out, "state.json")]
        self._rsync([*excluded, "--delete", f"{self.name}:{self.path(place)}/", f"{self.root / place}/"])
        self._pulled[key] = time.monotonic()

    def push(self, place: str) -> None:
        """Copy by rsync what is here, and leave what else is there."""
        self._rsync([f"{self.root / place}/", f"{self.name}:{self.path(place)}/"])

    def remove(self, place: str) -> None:
        """Remove it there, and here."""
        self._run(f"rm -rf {shlex.quote(self.path(place))}")
        super().remove(place)

    def close(self) -> None:
        """End the connection."""
        subprocess.call([*self._ssh, "-q", "-O", "exit", self.name], stderr=subprocess.DEVNULL)

    def _rsync(self, words: Sequence[str]) -> None:
        done = _call(("rsync", "--archive", "--rsh", shlex.join(self._ssh), *words), os.environ, 600.0)
        if done.code not in (0, *_GONE):
            raise BackendError(f"cannot copy files from or to {self.name}: {done.said}", passing=True)

    def _run(self, line: str, seconds: float = SECONDS) -> Answer:
        done = _call([*self._ssh, self.name, line], os.environ, seconds)
        if done.code == _NO_SSH:
            raise BackendError(
                f"no connection to {self.name} by ssh: {done.said}",
                hint=f"test it with: ssh {self.name} true; it must work without a password",
                passing=True,
            )
        return done


def _call(argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> Answer:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False, env=environ
        )
    except FileNotFoundError as error:
        raise BackendError(
            f"there is no program '{argv[0]}' here",
            hint="run mpijob where Slurm's commands are, or name a login node: --context slurm+ssh://HOST",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{argv[0]} did not answer within {seconds:g} s", passing=True) from error
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _outside(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what an allocation around us says: our jobs are not part of it."""
    return {
        name: value for name, value in environ.items() if not name.startswith("SLURM_") or name in _NEEDED
    }


def _needed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what finds the commands and their cluster, and the site's or the user's own defaults for sbatch."""
    return {name: value for name, value in environ.items() if name in _NEEDED or name.startswith("SBATCH_")}
