"""Where the test bed keeps things, and the names and addresses it takes on this machine.

The cache outlives the cluster: programs, manifests, image layers, by version. The run state is the cluster
itself. Neither lies in a checkout; socket paths must be short.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "mpijob-testbed"
SOURCES = Path(__file__).resolve().parent

NODE = "node-1"
HOST_LINK = "mpijob-tb"  # at most 15 characters
HOST_IP = "10.200.0.254"
NODE_IP = "10.200.0.1"
NODE_PREFIX = 24
API_PORT = 6443
API = f"https://{NODE_IP}:{API_PORT}"
POD_CIDR = "10.244.0.0/16"
NODE_POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_IP = "10.96.0.10"
REGISTRY_PORT = 5999
IMAGES = "testbed.local"  # the name that stands before every image: no registry


def cache() -> Path:
    """Return the folder of what was built."""
    if os.geteuid() == 0:
        return Path("/var/cache") / NAME
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME


def run_state() -> Path:
    """Return the folder of the running cluster; it is removed when the cluster goes."""
    return Path("/var/lib") / NAME


def pki() -> Path:
    """Return the folder of keys and certificates."""
    return run_state() / "pki"


def logs() -> Path:
    """Return the folder of what the components say."""
    return run_state() / "logs"


def kubeconfig(user: str = "admin") -> Path:
    """Return the kubeconfig file of a user."""
    return run_state() / "kubeconfigs" / f"{user}.yaml"


def containerd_socket() -> Path:
    """Return the socket of the container runtime."""
    return run_state() / "containerd.sock"
