"""The root directory of the machines: a plain Debian with Slurm, its database, two MPI launch plugins and an MPI.

It is made once for a list of packages, lies in the cache, and is never written again: each machine has its own
layer above it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from testbed import versions
from testbed.shell import run, say
from testbed.slurm import places

PACKAGES = (
    *(
        "slurmctld",
        "slurmd",
        "slurmdbd",
        "slurm-client",
        "slurm-wlm-basic-plugins",
        "munge",
        "mariadb-server",
    ),
    *("libpmix2", "libpmi2-0", "openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev"),
    *("python3", "openssh-server", "openssh-client", "rsync"),
    *("iproute2", "util-linux", "procps", "coreutils", "gawk", "mawk", "less", "faketime"),
    # what Python of this machine's own may be linked to
    *(
        "libssl3",
        "libsqlite3-0",
        "libffi8",
        "libbz2-1.0",
        "liblzma5",
        "zlib1g",
        "libreadline8",
        "libncursesw6",
    ),
)
_EXCLUDED = ("doc", "man", "locale")
_FINISH = "\n".join(
    [
        *(
            f"useradd --uid {uid} --user-group --no-create-home --shell /bin/bash {user}"
            for user, uid in places.USERS.items()
        ),
        # a real site has its users' accounts open for keys: `!` would be refused by sshd
        *(f"usermod --password '*' {user}" for user in places.USERS),
        "ssh-keygen -A",
        "mkdir -p /etc/slurm /run/sshd /root && chmod 755 /root",
        "echo 127.0.0.1 localhost >/etc/hosts",
        "mkdir /var/lib/bed-database && chown mysql /var/lib/bed-database",
        "mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/bed-database --skip-test-db"
        " --auth-root-authentication-method=socket >/dev/null",
    ]
)


def directory() -> Path:
    """Return the root directory; it is there after `make`."""
    words = "\n".join((*PACKAGES, *_EXCLUDED, _FINISH, versions.DEBIAN))
    return places.cache() / f"root-{hashlib.sha256(words.encode()).hexdigest()[:10]}"


def make() -> None:
    """Make the root directory unless it is in the cache."""
    target = directory()
    if target.is_dir():
        return
    places.cache().mkdir(parents=True, exist_ok=True)
    say(f"making a Debian {versions.DEBIAN} root with Slurm, once: two or three minutes")
    unfinished = target.with_name(f"unfinished-{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    _bootstrap(unfinished)
    run("chroot", unfinished, "/bin/sh", "-euc", _FINISH, timeout_seconds=300)
    unfinished.rename(target)


def _bootstrap(target: Path) -> None:
    sources = Path("/etc/apt/sources.list.d/debian.sources")  # this machine's mirror, where it has one
    run(
        "mmdebstrap",
        "--variant=minbase",
        "--mode=root",
        "--format=directory",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in _EXCLUDED),
        "--customize-hook=rm -rf $1/var/cache/apt/* $1/var/lib/apt/lists/*",
        versions.DEBIAN,
        target,
        *([sources] if sources.exists() else []),
        timeout_seconds=1200,
    )
