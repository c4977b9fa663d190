"""A second scheduler on request: scheduler-plugins' coscheduling, which places a group of pods together or not at all.

It is the cluster's own scheduler with that plugin, under the name by which Trainer's runtimes ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import build, places, processes, versions
from testbed.kubectl import kubectl
from testbed.shell import wait_for

NAME = "scheduler-plugins-scheduler"
DEFINITION = "podgroups.scheduling.x-k8s.io"
_PROCESS = "coscheduling"
_PORT = "10269"


@contextmanager
def running() -> Iterator[None]:
    """Run it for a while, with its definition of groups."""
    program = build.requested("coscheduling")
    module = build.module_folder(f"sigs.k8s.io/scheduler-plugins@{versions.COSCHEDULING}")
    kubectl("apply", "--server-side", f"--filename={module / 'manifests' / 'coscheduling' / 'crd.yaml'}")
    kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=30s")
    try:
        processes.start(_PROCESS, program, f"--config={_config()}", f"--secure-port={_PORT}", "--v=1")
        wait_for("the second scheduler", _is_up, seconds=30)
        yield
    finally:
        processes.stop(_PROCESS)
        kubectl("delete", "crd", DEFINITION, "--ignore-not-found", "--wait=false")


def _is_up() -> bool:
    processes.check(_PROCESS)
    return "Serving securely" in processes.log(_PROCESS).read_text(errors="replace")


def _config() -> Path:
    plugins = {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    told = {"name": "Coscheduling", "args": {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "CoschedulingArgs", "permitWaitingTimeSeconds": 10,
    }}  # fmt: skip
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(places.kubeconfig())},
        "profiles": [{"schedulerName": NAME, "plugins": plugins, "pluginConfig": [told]}],
    }
    path = places.run_state() / "coscheduling.json"
    path.write_text(json.dumps(config, indent=1))
    return path
