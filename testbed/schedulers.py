"""A second scheduler on request, which places a group of pods together or not at all.

Two are known, under the names by which Trainer's runtimes ask for them: the cluster's own scheduler with
scheduler-plugins' coscheduling, and Volcano's. Their definitions come from their own modules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import build, places, processes, versions
from testbed.kubectl import kubectl
from testbed.shell import wait_for


@dataclass(frozen=True)
class Scheduler:
    """A scheduler: what pods call it, the program, where its module has definitions, and how it is started."""

    name: str
    program: str
    module: str
    definitions: dict[str, str]  # by name: the file in the module
    flags: Callable[[], tuple[str, ...]]
    ready: str  # in what it says


@contextmanager
def running(one: Scheduler) -> Iterator[None]:
    """Run it for a while, with its definitions of groups."""
    program = build.requested(one.program)
    module = build.module_folder(one.module)
    for name, file in one.definitions.items():
        kubectl("apply", "--server-side", f"--filename={module / file}")
        kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    try:
        processes.start(one.program, program, *one.flags())
        wait_for(f"the scheduler {one.name}", lambda: _is_up(one), seconds=30)
        yield
    finally:
        processes.stop(one.program)
        kubectl("delete", "crd", *one.definitions, "--ignore-not-found", "--wait=false")


def _is_up(one: Scheduler) -> bool:
    processes.check(one.program)
    return one.ready in processes.log(one.program).read_text(errors="replace")


def _coscheduling_flags() -> tuple[str, ...]:
    return (f"--config={_coscheduling_config()}", "--secure-port=10269", "--v=1")


def _coscheduling_config() -> Path:
    plugins = {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    }
    told = {"name": "Coscheduling", "args": {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "CoschedulingArgs", "permitWaitingTimeSeconds": 10,
    }}  # fmt: skip
    profile = {"schedulerName": COSCHEDULING.name, "plugins": plugins, "pluginConfig": [told]}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(places.kubeconfig())},
        "profiles": [profile],
    }
    path = places.run_state() / "coscheduling.json"
    path.write_text(json.dumps(config, indent=1))
    return path


def _volcano_flags() -> tuple[str, ...]:
    return (
        f"--kubeconfig={places.kubeconfig()}",
        "--leader-elect=false",
        "--cache-dumper=false",
        "--logtostderr=true",
        "--v=2",
    )


COSCHEDULING = Scheduler(
    name="scheduler-plugins-scheduler",
    program="coscheduling",
    module=f"sigs.k8s.io/scheduler-plugins@{versions.COSCHEDULING}",
    definitions={"podgroups.scheduling.x-k8s.io": "manifests/coscheduling/crd.yaml"},
    flags=_coscheduling_flags,
    ready="Serving securely",
)
VOLCANO = Scheduler(
    name="volcano",
    program="volcano",
    module=f"volcano.sh/volcano@{versions.VOLCANO}",
    definitions={
        f"{plural}.{group}": f"config/crd/volcano/bases/{group}_{plural}.yaml"
        for group, plural in (
            ("scheduling.volcano.sh", "podgroups"),
            ("scheduling.volcano.sh", "queues"),
            ("nodeinfo.volcano.sh", "numatopologies"),
        )
    },
    flags=_volcano_flags,
    ready="start to run",
)
