"""Engines on request: what few tests need, built, started and removed again by whoever asks.

Two schedulers place a group of pods together or not at all, under the names by which Trainer's runtimes ask for
them: the cluster's own with scheduler-plugins' coscheduling, and Volcano's. The Training Operator runs the kinds of
before Trainer v2. Their definitions come from their own modules.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import build, places, processes, versions
from testbed.kubectl import get, kubectl
from testbed.shell import wait_for


@dataclass(frozen=True)
class Extra:
    """An engine: the program, where its module has definitions, how it is started, what it must find."""

    program: str
    module: str
    definitions: Mapping[str, str]  # by name: the file in the module
    flags: Callable[[], tuple[str, ...]]
    ready: str  # in what it says
    name: str = ""  # what pods call a scheduler
    found: tuple[Mapping[str, Any], ...] = field(default=())  # objects of an installation
    serving: Path | None = None  # where it looks for a certificate, which a pod would have mounted


@contextmanager
def running(one: Extra) -> Iterator[None]:
    """Run it for a while, with its definitions."""
    program = build.requested(one.program)
    module = build.module_folder(one.module)
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": one.found})
    try:
        for name, file in one.definitions.items():
            kubectl("apply", "--server-side", f"--filename={module / file}")
            wait_for(f"the definition {name}", lambda name=name: _is_served(name), seconds=30)  # type: ignore[misc]  # bound per turn
        if one.found:
            kubectl("apply", "--server-side", "--filename=-", stdin=objects)
        if one.serving:
            one.serving.mkdir(parents=True)
            for ending in ("crt", "key"):
                shutil.copy(places.pki() / f"apiserver.{ending}", one.serving / f"tls.{ending}")
        processes.start(one.program, program, *one.flags())
        wait_for(f"the {one.program}", lambda: _is_up(one), seconds=60)
        yield
    finally:
        processes.stop(one.program)
        if one.serving:
            shutil.rmtree(one.serving, ignore_errors=True)
        if one.found:
            kubectl("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=objects)
        kubectl("delete", "crd", *one.definitions, "--ignore-not-found", "--wait=false")


def _is_served(name: str) -> bool:
    told = get("crd", name).get("status", {}).get("conditions") or ()
    return any((one["type"], one["status"]) == ("Established", "True") for one in told)


def _is_up(one: Extra) -> bool:
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


def _training_flags() -> tuple[str, ...]:
    waits = (
        places.run_state() / "wait-for-master.yaml"
    )  # as the operator's own, with what the images here have
    waits.write_text(
        "- name: init-pytorch\n  image: {{.InitContainerImage}}\n  imagePullPolicy: IfNotPresent\n"
        "  command: [sh, -c, 'until getent hosts {{.MasterAddr}}; do sleep 1; done']\n"
    )
    return (
        f"--kubeconfig={places.kubeconfig()}",
        "--enable-scheme=pytorchjob",
        "--enable-scheme=tfjob",
        f"--pytorch-init-container-image={places.IMAGES}/openmpi4:1",
        f"--pytorch-init-container-template-file={waits}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--webhook-server-port=19443",
    )


COSCHEDULING = Extra(
    name="scheduler-plugins-scheduler",
    program="coscheduling",
    module=f"sigs.k8s.io/scheduler-plugins@{versions.COSCHEDULING}",
    definitions={"podgroups.scheduling.x-k8s.io": "manifests/coscheduling/crd.yaml"},
    flags=_coscheduling_flags,
    ready="Serving securely",
)
VOLCANO = Extra(
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
_OPERATOR_NAMESPACE = "kubeflow"
TRAINING_OPERATOR = Extra(
    program="training-operator",
    module=f"github.com/kubeflow/training-operator@{versions.TRAINING_OPERATOR}",
    definitions={
        f"{plural}.kubeflow.org": f"manifests/base/crds/kubeflow.org_{plural}.yaml"
        for plural in ("pytorchjobs", "tfjobs")
    },
    flags=_training_flags,
    ready='Starting workers\t{"controller": "tfjob-controller"',
    serving=Path("/tmp/k8s-webhook-server/serving-certs"),
    found=(  # it writes its certificate into these two, and asks nobody here
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _OPERATOR_NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert", "namespace": _OPERATOR_NAMESPACE},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validator.training-operator.kubeflow.org"},
        },
    ),
)
