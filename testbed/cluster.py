"""The whole test bed: what happens in which order when it comes and when it goes."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import (
    build,
    cgroups,
    control_plane,
    isolation,
    manifests,
    node,
    operators,
    packages,
    pki,
    places,
    preflight,
    processes,
    runtime,
    tenants,
    versions,
)
from testbed.kubectl import is_ready
from testbed.shell import TestBedError, run, say

_OPTIONAL = frozenset({"kwok", *(one.name for one in versions.ON_REQUEST)})


def up() -> None:
    """Start the cluster, unless it runs; what is left of one that does not work is removed first."""
    preflight.check_user()
    with _alone():
        if is_up():
            say("the test bed is up")
            return
        packages.install_missing()
        preflight.check_machine()
        if _remains():
            say("found the remains of a test bed that does not work: removing them")
            _remove()
        _start()


def down(*, purge: bool = False) -> None:
    """Remove the cluster with everything that belongs to it; `purge` removes the cache too."""
    preflight.check_user()
    with _alone():
        _remove()
    if purge:
        shutil.rmtree(places.cache(), ignore_errors=True)


def is_up() -> bool:
    """Return whether the cluster was started completely, and nothing of it has ended since."""
    needed = [name for name in processes.started() if name not in _OPTIONAL]
    return _ready_mark().exists() and all(map(processes.is_running, needed)) and is_ready()


def status() -> str:
    """Return what runs, one line each."""
    if not _remains():
        return "the test bed is down"
    lines = [f"the test bed is {'up' if is_up() else 'not working'}"]
    for name in processes.started():
        state = f"process {processes.process_id(name)}" if processes.is_running(name) else "ENDED"
        lines.append(f"  {name:24} {state:16} {processes.log(name)}")
    users = sorted(path for path in places.kubeconfig().parent.glob("*.yaml"))
    lines += [f"  kubeconfig of {path.stem:10} {path}" for path in users]
    return "\n".join(lines)


def _start() -> None:
    build.build_missing()
    manifests.render_missing()
    _start_node()
    operators.wait_until_available()
    say("engines available")
    tenants.create()
    tenants.wait_until_usable()
    operators.prove()
    for name in processes.started():
        processes.check(name)
    _ready_mark().touch()
    say("the test bed is up")


def _start_node() -> None:
    places.run_state().mkdir(parents=True)
    cgroups.make()
    runtime.start_holder()
    runtime.make_store_when_missing()
    pki.make()
    control_plane.link_components()
    control_plane.start_etcd()
    control_plane.start_api_server()
    runtime.copy_store()
    runtime.start()
    control_plane.finish()
    say("API server ready")
    runtime.wait_until_up()
    node.start()
    operators.install()
    node.finish()
    node.wait_for_dns()
    say("node ready")


def _remove() -> None:
    """Remove everything by its name: nothing that an interrupted start left behind is needed for it."""
    cgroups.end_processes()
    isolation.disconnect()
    _unmount_below(places.run_state())
    if places.run_state().exists():
        shutil.rmtree(places.run_state())
    cgroups.remove()
    isolation.remove_covered_folders()


def _unmount_below(folder: Path) -> None:
    """Unmount what lies in a folder before it is removed; the node's own mounts ended with its processes."""
    for point in reversed(_mounts_below(folder)):
        run("umount", "--lazy", point)
    if _mounts_below(folder):
        raise TestBedError(f"{folder} still holds mounts and was not removed: {_mounts_below(folder)}")


def _mounts_below(folder: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(folder)]


def _remains() -> bool:
    groups = any((one / places.NAME).exists() for one in cgroups.hierarchies())
    return places.run_state().exists() or isolation.is_connected() or groups


def _ready_mark() -> Path:
    return places.run_state() / "ready"


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, so that two starts do not meet."""
    places.cache().mkdir(parents=True, exist_ok=True)
    with (places.cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
