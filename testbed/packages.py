"""Debian packages that the node needs: only what is missing is installed, with apt-get.

A program is looked for by its name, so that a machine which has it from elsewhere is left alone.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from testbed.shell import CannotRunHere, TestBedError, run, say

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGE_OF_PROGRAM = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "socat": "socat",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "sysctl": "procps",
    "openssl": "openssl",
    "mmdebstrap": "mmdebstrap",
    "kubectl": "kubectl",
}
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("bridge", "host-local", "portmap", "loopback")
_CNI_PACKAGE = "containernetworking-plugins"


def missing() -> tuple[str, ...]:
    """Return the packages whose programs are not on this machine."""
    path = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"
    packages = [one for name, one in _PACKAGE_OF_PROGRAM.items() if shutil.which(name, path=path) is None]
    if cni_folder() is None:
        packages.append(_CNI_PACKAGE)
    return tuple(dict.fromkeys(packages))


def cni_folder() -> Path | None:
    """Return the folder of the CNI plugins, when all that are needed are in one."""
    complete = (one for one in _CNI_FOLDERS if all((one / plugin).exists() for plugin in _CNI_PLUGINS))
    return next(complete, None)


def install_missing() -> None:
    """Install what is missing; a machine without apt-get is told what it lacks."""
    packages = missing()
    if not packages:
        return
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise CannotRunHere(f"these packages are missing, and there is no apt-get to install them: {names}")
    say(f"installing {names}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages)
    try:
        run("apt-get", "update", "--quiet", timeout_seconds=300, env=quiet)
        run(*install, timeout_seconds=900, env=quiet)
    except TestBedError as error:
        raise CannotRunHere(f"the packages {names} could not be installed: {error}") from error
