"""The machines: namespaces with a first process each, cables between them, and commands that run inside.

A machine is switched off by killing its first process: all others of it end with it, as in a power cut.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.shell import TestBedError, run, wait_for
from testbed.slurm import places, root

HUB = "hub"
_NAMESPACES = ("--net", "--uts", "--mount", "--pid", "--ipc", "--cgroup", "--propagation=private")
# in our own group, so that a machine sees that as the root of its cgroups
_JOIN = f"""
for one in /sys/fs/cgroup/*/{places.NAME}; do if [ -d "$one" ]; then echo $$ >"$one/cgroup.procs"; fi; done
exec "$@"
"""
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def start_hub() -> None:
    """Start the switch that all machines are plugged into; it has no way out of here."""
    _start(HUB, ("unshare", "--net", "--fork", "--kill-child", "sleep", "infinity"))
    bridge = ("link add br0 type bridge", f"address add {places.NETWORK}.1/24 dev br0", "link set br0 up")
    for words in ("link set lo up", *bridge):
        _in_network(HUB, "ip", *words.split())


def start(name: str) -> None:
    """Start a machine and plug it in."""
    places.machine(name).mkdir(parents=True, exist_ok=True)
    init = (
        "bash",
        str(places.SOURCES / "machine-init.sh"),
        name,
        str(places.run_state()),
        str(root.directory()),
    )
    _start(
        name, ("unshare", *_NAMESPACES, "--fork", "--kill-child", "--", *init, *map(str, shared_folders()))
    )
    pid = str(first_process(name))
    link = f"v-{name}"
    if link in _in_network(HUB, "ip", "-br", "link"):  # of its life before: the kernel takes its time
        _in_network(HUB, "ip", "link", "delete", link)
    _in_network(HUB, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid)
    _in_network(HUB, "ip", "link", "set", link, "master", "br0", "up")
    address = f"address add {places.address(name)}/24 dev eth0"
    for words in ("link set lo up", address, "link set eth0 up"):
        _in_network(name, "ip", *words.split())
    wait_for(f"machine {name}", lambda: is_ready(name), seconds=20, pause=0.02)


def shared_folders() -> tuple[Path, ...]:
    """Return the folders of this machine that all machines see: the checkout, and the Python of its environment."""
    python = Path(os.path.realpath(sys.executable)).parent.parent
    folders = {places.CHECKOUT, *([] if python == Path("/usr") else [python])}
    for linked in (places.CHECKOUT / ".make", places.CHECKOUT / ".make" / "mpi"):
        folders |= {linked.resolve()} if linked.is_symlink() else set()
    return tuple(sorted(folders))


def stop(name: str) -> None:
    """Switch a machine off."""
    pid = first_process(name)
    if pid:
        os.kill(pid, signal.SIGKILL)
        wait_for(f"the end of {name}", lambda: not _exists(pid), seconds=20, pause=0.02)


def cable(name: str, *, plugged: bool) -> None:
    """Plug a machine's cable in, or pull it."""
    _in_network(HUB, "ip", "link", "set", f"v-{name}", "up" if plugged else "down")


def is_ready(name: str) -> bool:
    """Return whether a machine has made its root."""
    pid = first_process(name)
    if not pid:
        said = (places.log() / f"init.{name}.log").read_text(errors="replace")[-500:]
        raise TestBedError(f"machine {name} did not start: {said}")
    return (Path("/proc") / str(pid) / "root/run/ready").exists()


def is_running(name: str) -> bool:
    """Return whether a machine is switched on."""
    return first_process(name) != 0


def first_process(name: str) -> int:
    """Return the process id of a machine's first process, as this machine counts; 0 for one that is off."""
    for pid in _children(_holder(name)):
        if _exists(pid):
            return pid
    return 0


def all_processes() -> tuple[int, ...]:
    """Return the process that holds each machine, whoever started it: by what its environment says."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and f"{places.MARK}=".encode() in _environment(entry):
            found.append(int(entry.name))
    return tuple(found)


def inside(
    name: str, argv: Sequence[str | Path], *, user: str = "root", env: Mapping[str, str] = {}, cwd: str = ""
) -> list[str]:
    """Return the command that runs another one on a machine, as one of its users."""
    pid = first_process(name)
    if not pid:
        raise TestBedError(f"machine {name} is switched off")
    home = "/root" if user == "root" else f"/home/{user}"
    words = ["nsenter", f"--target={pid}", "--net", "--uts", "--mount", "--pid", "--ipc", "--cgroup", "--"]
    variables = {"HOME": home, "USER": user, "LOGNAME": user, "PATH": _PATH, "LANG": "C.UTF-8", **env}
    clean = ["env", "-i", "-C", cwd or home, *(f"{key}={value}" for key, value in variables.items())]
    if user == "root":
        return [*words, *clean, *map(str, argv)]
    number = places.USERS[user]
    become = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups"]
    return [*words, *become, *clean, *map(str, argv)]


def call(
    name: str, *argv: str | Path, user: str = "root", stdin: str | None = None, seconds: float = 120
) -> str:
    """Run a command on a machine to its end and return its output."""
    return run(*inside(name, argv, user=user), stdin=stdin, timeout_seconds=seconds)


def _start(name: str, argv: Sequence[str]) -> None:
    places.log().mkdir(parents=True, exist_ok=True)
    (places.run_state() / "pids").mkdir(parents=True, exist_ok=True)
    with (places.log() / f"init.{name}.log").open("ab") as log:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={"PATH": _PATH, places.MARK: name},
        )
    (places.run_state() / "pids" / name).write_text(str(child.pid))
    wait_for(f"the first process of {name}", lambda: first_process(name) != 0, seconds=10, pause=0.01)


def _in_network(name: str, *argv: str) -> str:
    return run("nsenter", f"--target={first_process(name)}", "--net", "--", *argv)


def _holder(name: str) -> int:
    try:
        pid = int((places.run_state() / "pids" / name).read_text())
    except (FileNotFoundError, ValueError):
        return 0
    return pid if f"{places.MARK}={name}".encode() in _environment(Path("/proc") / str(pid)) else 0


def _children(pid: int) -> tuple[int, ...]:
    try:
        return tuple(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return ()


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _exists(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except (FileNotFoundError, ProcessLookupError):
        return False
