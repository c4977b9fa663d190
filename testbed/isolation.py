"""The namespaces that the node lives in: a network of its own, and mounts of its own.

The network has one link to this machine, for the API server, and no route to anywhere else. Everything the
node mounts, and everything its programs would leave in /run or /var/log, exists in the mount namespace only.
Both belong to the node's first process and have no name outside: they are gone with the last process.
"""

from __future__ import annotations

from pathlib import Path

from testbed import places
from testbed.shell import run, succeeds, wait_for

_BRIDGE = "node0"  # the node's address sits on a bridge: pods must reach it, so loopback will not do
_INNER_LINK = "uplink"
# Folders that the runtime and the kubelet insist on; each is covered by one in the run state.
_COVERED = ("/var/log", "/var/lib/cni", "/var/lib/kubelet")
_COVER = """
ip link set lo up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/netns /run/lock
for folder in $1; do mount --bind "$2$folder" "$folder"; done
shift 2
exec "$@"
"""


def apart(*argv: str | Path) -> tuple[str | Path, ...]:
    """Return a command that runs in new namespaces, with the covers in place."""
    for folder in _COVERED:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (places.run_state() / "covers" / folder.lstrip("/")).mkdir(parents=True)
    covers = (" ".join(_COVERED), places.run_state() / "covers")
    apart_from_all = ("unshare", "--net", "--mount", "--propagation=private", "--")
    return (*apart_from_all, "sh", "-euc", _COVER, "sh", *covers, *argv)


def inside(process: int, *argv: str | Path) -> tuple[str | Path, ...]:
    """Return a command that runs in the namespaces of a process; `ip netns exec` would hide the cgroups."""
    namespaces = (f"--net=/proc/{process}/ns/net", f"--mount=/proc/{process}/ns/mnt")
    return ("nsenter", *namespaces, "--", *argv)


def connect(process: int) -> None:
    """Link the network of the node's first process to this machine and give it its address and its route."""
    peer = ("peer", "name", _INNER_LINK, "netns", str(process))
    run("ip", "link", "add", places.HOST_LINK, "type", "veth", *peer)
    run("ip", "address", "add", f"{places.HOST_IP}/{places.NODE_PREFIX}", "dev", places.HOST_LINK)
    run("ip", "link", "set", places.HOST_LINK, "up")
    for words in (
        ("link", "add", _BRIDGE, "type", "bridge"),
        ("link", "set", _INNER_LINK, "master", _BRIDGE, "up"),
        ("address", "add", f"{places.NODE_IP}/{places.NODE_PREFIX}", "dev", _BRIDGE),
        ("link", "set", _BRIDGE, "up"),
        # Connections to services need a route before kube-proxy turns them; "unreachable" would fail at once.
        ("route", "add", places.SERVICE_CIDR, "dev", _BRIDGE),
    ):
        run(*inside(process, "ip", *words))
    for setting in ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1"):
        run(*inside(process, "sysctl", "--quiet", "--write", setting))


def disconnect() -> None:
    """Remove the link; the kernel does it itself soon after the node's last process."""
    if is_connected() and not succeeds("ip", "link", "delete", places.HOST_LINK):
        wait_for("the end of the link to the node", lambda: not is_connected(), seconds=20)


def is_connected() -> bool:
    """Return whether the link to a node exists."""
    return (Path("/sys/class/net") / places.HOST_LINK).exists()


def remove_covered_folders() -> None:
    """Remove the empty folders that had to exist outside only to be covered inside."""
    for folder in map(Path, _COVERED):
        if folder != Path("/var/log") and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
