"""The whole Slurm cluster: what happens in which order when it comes and when it goes."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from testbed import packages, preflight
from testbed.shell import TestBedError, run, say, succeeds, wait_for
from testbed.slurm import configuration, daemons, machines, places, root

_HIERARCHIES = ("memory", "freezer", "cpuset", "cpuacct", "devices")


def up() -> None:
    """Start the cluster, unless it runs; what is left of one that does not work is removed first."""
    preflight.check_user()
    with _alone():
        if is_up():
            say("the Slurm cluster is up")
            return
        packages.install_missing()
        root.make()
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
    """Return whether the cluster was started completely, and runs; a test may have switched nodes off."""
    needed = (machines.HUB, places.CONTROLLER, places.LOGIN)
    return _ready_mark().exists() and all(map(machines.is_running, needed))


def status() -> str:
    """Return what runs, one line each."""
    if not places.run_state().exists():
        return "the Slurm cluster is down"
    lines = [f"the Slurm cluster is {'up' if is_up() else 'not working'}; logs: {places.log()}"]
    for name in places.MACHINES:
        pid = machines.first_process(name)
        lines.append(f"  {name:6} {places.address(name):12} {f'process {pid}' if pid else 'OFF'}")
    if machines.is_running(places.CONTROLLER):
        lines.append(machines.call(places.CONTROLLER, "sinfo", "-N", "-l"))
    return "\n".join(lines)


def reset() -> None:
    """Bring everything back that a test may have left broken: machines, cables, daemons, nodes, jobs."""
    for name in ("prolog", "epilog"):
        (places.control() / f"{name}.fail").unlink(missing_ok=True)
    for name in places.MACHINES:
        if not machines.is_running(name):
            power_on(name)
        machines.cable(name, plugged=True)
    for machine, name in _daemons():
        if not daemons.process_ids(machine, name):
            daemons.start(machine, name)
        daemons.pause(machine, name, go_on=True)
    wait_for("the controller", _controller_answers, seconds=60)
    for user in (*places.USERS, "root"):
        succeeds(*machines.inside(places.CONTROLLER, ("scancel", "-u", user)))
    for name in configuration.PARTITIONS:
        machines.call(places.CONTROLLER, "scontrol", "update", f"partitionname={name}", "state=up")
    wait_for("idle nodes", _all_resumed, seconds=120, pause=0.5)


def power_on(name: str) -> None:
    """Switch a machine on, with its daemons."""
    machines.start(name)
    for machine, daemon in _daemons():
        if machine == name:
            daemons.start(machine, daemon)


def _daemons() -> Iterator[tuple[str, str]]:
    for name in places.MACHINES:
        if name != places.LAPTOP:
            yield name, "munged"
    yield places.CONTROLLER, "mariadbd"
    yield places.CONTROLLER, "slurmdbd"
    yield places.CONTROLLER, "slurmctld"
    yield places.LOGIN, "sshd"
    for name in places.NODES:
        yield name, "slurmd"


def _start() -> None:
    cgroups = _make_cgroups()
    configuration.write(cgroups=cgroups)
    machines.start_hub()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(machines.start, places.MACHINES))
        _restore_database()
        list(pool.map(lambda name: daemons.start(name, "munged"), _with_slurm()))
        say(f"machines are on, cgroups {'limit memory' if cgroups else 'are not used'}")
        daemons.start(places.LOGIN, "sshd")
        _make_keys()
        daemons.start(places.CONTROLLER, "mariadbd")
        daemons.make_database()
        daemons.start(places.CONTROLLER, "slurmdbd")
        daemons.make_accounts()
        say("accounting is there")
        daemons.start(places.CONTROLLER, "slurmctld")
        wait_for("the controller", _controller_answers, seconds=60, pause=0.1)
        list(pool.map(lambda name: daemons.start(name, "slurmd"), places.NODES))
    wait_for("idle nodes", _all_idle, seconds=60)
    _keep_database()
    _ready_mark().touch()
    say("the Slurm cluster is up")


def _with_slurm() -> tuple[str, ...]:
    return tuple(name for name in places.MACHINES if name != places.LAPTOP)


def _controller_answers() -> bool:
    return succeeds(*machines.inside(places.CONTROLLER, ("scontrol", "ping")))


def _all_idle() -> bool:
    return [*_node_states().values()] == ["idle"] * len(places.NODES)


def _all_resumed() -> bool:
    """Return whether all nodes are idle; one that a late end of a job has drained meanwhile is resumed."""
    states = _node_states()
    for name, state in states.items():
        if state not in ("idle", "completing"):
            update = ("scontrol", "update", f"nodename={name}", "state=resume")
            succeeds(*machines.inside(places.CONTROLLER, update))
    return [*states.values()] == ["idle"] * len(places.NODES)


def _node_states() -> dict[str, str]:
    """Return each node's state as Slurm says it: `-t idle` would also name one that is completing."""
    lines = machines.call(places.CONTROLLER, "sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
    return {name: state for name, _, state in (line.partition(" ") for line in lines)}


def _make_keys() -> None:
    """Let each user reach the login node from everywhere by key, as people set it up for themselves."""
    login = "ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519 && cp .ssh/id_ed25519.pub .ssh/authorized_keys"
    for user, uid in places.USERS.items():
        machines.call(places.LOGIN, "sh", "-c", f"mkdir -m 700 .ssh && {login}", user=user)
        ssh = places.homes() / user / ".ssh"
        known = (places.machine(places.LOGIN) / "root").exists() and machines.call(
            places.LOGIN, "cat", "/etc/ssh/ssh_host_ed25519_key.pub"
        )
        (ssh / "known_hosts").write_text(f"{places.LOGIN},{places.address(places.LOGIN)} {known}")
        os.chown(ssh / "known_hosts", uid, uid)
        home = places.machine(places.LAPTOP) / "home" / user
        shutil.copytree(ssh, home / ".ssh")
        run("chown", "-R", f"{uid}:{uid}", home)


# -- the database, as it was when the cluster came up first ------------------------------------------
def _database(machine_root: Path) -> Path:
    return machine_root / "var/lib/bed-database"


def _kept() -> Path:
    return places.cache() / f"database-{root.directory().name}"


def _keep_database() -> None:
    """Keep the tables and accounts: to make them takes longer than all the rest."""
    if _kept().exists():
        return
    daemons.stop(places.CONTROLLER, "slurmdbd")
    daemons.stop(places.CONTROLLER, "mariadbd")
    unfinished = _kept().with_name("unfinished-database")
    shutil.rmtree(unfinished, ignore_errors=True)
    inside = Path(f"/proc/{machines.first_process(places.CONTROLLER)}/root")
    run("cp", "--archive", _database(inside), unfinished)
    unfinished.rename(_kept())
    daemons.start(places.CONTROLLER, "mariadbd")
    daemons.start(places.CONTROLLER, "slurmdbd")


def _restore_database() -> None:
    if _kept().exists():
        inside = Path(f"/proc/{machines.first_process(places.CONTROLLER)}/root")
        run("cp", "--archive", f"{_kept()}/.", _database(inside))


# -- cgroups -----------------------------------------------------------------------------------------
def _groups() -> tuple[Path, ...]:
    return tuple(Path("/sys/fs/cgroup") / one / places.NAME for one in _HIERARCHIES)


def _make_cgroups() -> bool:
    """Make a group of our own where this machine has the hierarchies that Slurm wants; return whether it has."""
    if not all((group.parent / "cgroup.procs").exists() for group in _groups()):
        return False
    for group in _groups():
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # an empty set would hold no process
            if (group.parent / name).exists():
                (group / name).write_text((group.parent / name).read_text())
    return True


def _remove_cgroups() -> None:
    def gone() -> bool:
        for group in _groups():
            for folder, _, _ in os.walk(group, topdown=False):
                try:
                    Path(folder).rmdir()
                except OSError:
                    continue  # a process is on its way out: the next round
        return not any(group.exists() for group in _groups())

    wait_for("the removal of the cgroups", gone, seconds=20)


# -- the end -----------------------------------------------------------------------------------------
def _remove() -> None:
    """Remove everything by its name: nothing that an interrupted start left behind is needed for it."""
    for pid in machines.all_processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_for("the end of the machines", lambda: not machines.all_processes(), seconds=30)
    _remove_cgroups()
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in points:
        if Path(point).is_relative_to(places.run_state()):
            raise TestBedError(f"{point} is mounted, and nothing was removed")
    if places.run_state().exists():
        shutil.rmtree(places.run_state())


def _ready_mark() -> Path:
    return places.run_state() / "ready"


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock, so that two starts do not meet."""
    places.cache().mkdir(parents=True, exist_ok=True)
    with (places.cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
