"""What the machine must be able to do, tried rather than guessed; everything that is missing is told at once."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from testbed import cgroups, images, isolation, packages, places
from testbed.shell import CannotRunHere, run, succeeds

_GIB = 1 << 30
_MEMORY_GIB = 4
_DISK_GIB = 16  # modules, the compiler's cache, layers and the store of images
_TRY_OVERLAY = """
cd "$(mktemp -d -p "$1")"; trap 'rm -rf "$PWD"' EXIT
mkdir lower upper work merged; mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
umount merged
"""
_TRY_NETWORK = """
ip link add one type bridge; ip link add two type veth peer name three
test -e /proc/sys/net/bridge/bridge-nf-call-iptables; iptables --list-rules
"""


def check_user() -> None:
    """Raise when the test bed cannot even begin here."""
    if platform.system() != "Linux" or images.ARCHITECTURE != "amd64":
        raise CannotRunHere(
            f"the test bed needs Linux on x86-64, this is {platform.system()} on {platform.machine()}:"
            " point KUBECONFIG at a cluster instead"
        )
    if os.geteuid() != 0:
        raise CannotRunHere(
            "the test bed needs root, for namespaces, mounts and cgroups:"
            " run it as root, or point KUBECONFIG at a cluster"
        )


def check_machine() -> None:
    """Raise with all that this machine lacks."""
    for module in ("overlay", "br_netfilter", "ip_set"):
        if shutil.which("modprobe"):
            succeeds("modprobe", module)  # built in, loaded, or missed below
    lacking = list(_lacking())
    if lacking:
        raise CannotRunHere("this machine cannot run the test bed: " + "; ".join(lacking))


def _lacking() -> Iterator[str]:
    if packages.missing():
        yield f"packages {' '.join(packages.missing())} are missing"
    places.run_state().parent.mkdir(parents=True, exist_ok=True)
    private = ("unshare", "--mount", "--propagation=private", "--")
    if not succeeds(*private, "true"):
        yield "no mount namespace can be made"
    elif not succeeds(*private, "sh", "-euc", _TRY_OVERLAY, "sh", places.run_state().parent):
        yield f"no overlay filesystem can be mounted in {places.run_state().parent}"
    if not succeeds("unshare", "--net", "--", "true"):
        yield "no network namespace can be made"
    elif not succeeds("unshare", "--net", "--", "sh", "-euc", _TRY_NETWORK):
        yield "no bridge, no veth pair, no br_netfilter or no iptables in a network namespace"
    if not isolation.is_connected() and _taken_addresses():
        yield f"{_taken_addresses()} is an address of this machine, and the test bed needs it"
    yield from _lacking_cgroups()
    yield from _lacking_room()


def _taken_addresses() -> str:
    network = f"{places.NODE_IP}/{places.NODE_PREFIX}"
    found = run("ip", "-oneline", "-family", "inet", "address", "show", "to", network).split()
    return found[3] if found else ""


def _lacking_cgroups() -> Iterator[str]:
    if not cgroups.hierarchies():
        yield "no cgroup hierarchy is mounted"
    for hierarchy in cgroups.hierarchies():
        if not os.access(hierarchy, os.W_OK):
            yield f"the cgroups in {hierarchy} cannot be written"


def _lacking_room() -> Iterator[str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB
    if memory < _MEMORY_GIB:
        yield f"{memory:.1f} GiB of memory, {_MEMORY_GIB} are needed"
    fresh = not places.cache().exists()
    free = shutil.disk_usage(_existing(places.cache())).free / _GIB
    if free < (_DISK_GIB if fresh else 2):
        yield f"{free:.1f} GiB free in {places.cache()}, {_DISK_GIB if fresh else 2} are needed"


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
