"""Fake nodes for scale: kwok plays their kubelets, and pods on them "run" without a process.

They are tainted, so that only jobs which ask for them land there, and are started on request only.
"""

from __future__ import annotations

import json
from typing import Any

from testbed import build, manifests, places, processes
from testbed.kubectl import apply, get, kubectl
from testbed.shell import say, wait_for

LABEL = "type=kwok"
_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
_SIZE = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
_AT_ONCE = 200  # pods of one command: thousands would take it longer than a command may
_ADDRESSES = "10.250.0.0/16"


def up(nodes: int) -> None:
    """Start kwok when it does not run and create the fake nodes."""
    if not processes.is_running("kwok"):
        processes.start(
            "kwok",
            build.binary("kwok"),
            f"--kubeconfig={places.kubeconfig()}",
            f"--config={manifests.rendered('kwok')}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={LABEL}",
            "--node-lease-duration-seconds=40",
            f"--cidr={_ADDRESSES}",
        )
    apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [_node(one + 1) for one in range(nodes)]}))
    wait_for(f"{nodes} ready fake nodes", lambda: _ready_nodes() >= nodes, seconds=120, pause=1)
    say(f"{nodes} fake nodes with {_SIZE['nvidia.com/gpu']} GPUs each; label {LABEL}, taint {_TAINT['key']}")


def down() -> None:
    """Remove the fake nodes with what runs on them, and stop kwok."""
    _delete_pods()
    kubectl("delete", "nodes", f"--selector={LABEL}", "--ignore-not-found", "--wait=false")
    wait_for("the end of the fake nodes", lambda: not _nodes(), seconds=60, pause=1)
    processes.stop("kwok")


def _delete_pods() -> None:
    names = {node["metadata"]["name"] for node in _nodes()}
    pods = [
        pod["metadata"]
        for pod in get("pods", "--all-namespaces")["items"]
        if pod["spec"].get("nodeName") in names
    ]
    for namespace in sorted({pod["namespace"] for pod in pods}):
        here = [pod["name"] for pod in pods if pod["namespace"] == namespace]
        forced = ("--force", "--grace-period=0", "--wait=false", "--ignore-not-found")
        for first in range(0, len(here), _AT_ONCE):
            kubectl("delete", "pods", f"--namespace={namespace}", *forced, *here[first : first + _AT_ONCE])


def _nodes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get("nodes", f"--selector={LABEL}")["items"]
    return found


def _ready_nodes() -> int:
    conditions = [node.get("status", {}).get("conditions", []) for node in _nodes()]
    return sum(any(one["type"] == "Ready" and one["status"] == "True" for one in each) for each in conditions)


def _node(number: int) -> dict[str, Any]:
    name = f"fake-{number}"
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [_TAINT]},
        "status": {"allocatable": _SIZE, "capacity": _SIZE},
    }
