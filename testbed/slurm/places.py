"""Where the Slurm cluster keeps things, and the names and addresses of its machines."""

from __future__ import annotations

from pathlib import Path

from testbed import places

NAME = "mpijob-slurm"
MARK = "MPIJOB_SLURM_MACHINE"  # in the environment of the first process of a machine: how it is found again
SOURCES = Path(__file__).resolve().parent
CHECKOUT = SOURCES.parent.parent

NETWORK = "10.77.0"
CONTROLLER, LOGIN, LAPTOP = "ctl", "login", "laptop"
NODES = ("n1", "n2", "n3", "n4")
MACHINES = (CONTROLLER, LOGIN, LAPTOP, *NODES)
USERS = {"alice": 20001, "bob": 20002}


def address(machine: str) -> str:
    """Return the address of a machine."""
    fixed = {CONTROLLER: 2, LOGIN: 3, LAPTOP: 4}
    return f"{NETWORK}.{fixed.get(machine) or 10 + int(machine[1:])}"


def cache() -> Path:
    """Return the folder of what was built."""
    return places.cache() / "slurm"


def run_state() -> Path:
    """Return the folder of the running cluster; it is removed when the cluster goes."""
    return Path("/var/lib") / NAME


def homes() -> Path:
    """Return the folder that login node and nodes share as /home."""
    return run_state() / "home"


def log() -> Path:
    """Return the folder of what the daemons say."""
    return run_state() / "log"


def control() -> Path:
    """Return the folder with the socket by which tests reach the bed; it is /run/bed inside."""
    return run_state() / "control"


def machine(name: str) -> Path:
    """Return the folder of one machine."""
    return run_state() / "machines" / name
