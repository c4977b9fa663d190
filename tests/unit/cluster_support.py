"""Builders for jobs and documents of a cluster, and what the kubelet does to a container's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mpijob.formats.jobfile import jobfile_writer
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.launch import launcher_script, own_launchers, pod_scripts
from mpijob.model import (
    Launch,
    MPIJob,
    Placement,
    Resources,
    Secret,
    Signal,
    Topology,
    Volume,
    VolumeKind,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
_TEXTS = {
    "PREPARE": pod_scripts.PREPARE,
    "WORKER": pod_scripts.WORKER,
    "LAUNCHER": launcher_script.LAUNCHER,
    "RANK": pod_scripts.RANK,
    "STOP": pod_scripts.STOP,
    "sshd_config()": pod_scripts.sshd_config(),
    "ssh_config()": pod_scripts.ssh_config(),
    "agent()": pod_scripts.agent(),
    "WITH_HOSTS": own_launchers.files()["bin/horovodrun"],
}


def a_job(**fields: object) -> MPIJob:
    base: dict[str, object] = {"name": "bert", "namespace": "team-cv", "workers": 2, "slots": 2}
    base |= {"image": "example/mpi:1", "command": ("python", "train.py")}
    return MPIJob(**(base | fields))  # type: ignore[arg-type]  # a builder for tests


def a_rich_job(**fields: object) -> MPIJob:
    rich: dict[str, object] = {
        "description": "Nightly training",
        "workers": 4,
        "env": {"LR": "0.1", "ODD": "$(HOME) $$ 'x'"},
        "secrets": (Secret(env="TOKEN", source="tracking/token"), Secret(env="KEY", source="env:KEY")),
        "volumes": (
            Volume(mount="/data", kind=VolumeKind.CLAIM, source="train-data", read_only=True),
            Volume(mount="/settings", kind=VolumeKind.CONFIG, source="settings"),
            Volume(mount="/keys", kind=VolumeKind.SECRET, source="keys"),
            Volume(mount="/scratch", kind=VolumeKind.SCRATCH, size="10Gi"),
            Volume(mount="/dev/shm", kind=VolumeKind.SHM, size="2Gi"),
        ),
        "pull_secrets": ("registry-login",),
        "resources": Resources(cpu="4", memory="16Gi", gpu=2, others={"rdma/hca": "1"}),
        "launch": Launch(settings={"btl_tcp_if_include": "eth0", "UCX_TLS": "tcp"}),
        "placement": Placement(
            node_selector={"pool": "gpu"},
            exclude_nodes=("gpu-17",),
            tolerations=({"key": "gpu", "operator": "Exists"},),
            topology=Topology.PACKED_RACK,
        ),
        "queue": "gpu-large",
        "priority": "important",
        "deadline_seconds": 3600.0,
        "signal": Signal(name="SIGUSR1", seconds_before=120.0),
        "grace_seconds": 30.0,
        "labels": {"team": "cv"},
        "owner": "jane@example.org",
        "cost": {"cost-centre": "4711"},
    }
    return a_job(**(rich | fields))


def kubelet(words: list[str], env: Mapping[str, str]) -> list[str]:
    """Return words as the kubelet hands them to a container: `$(NAME)` is a variable, `$$` a dollar."""

    def seen(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return [re.sub(r"\$\$|\$\(([^)]*)\)", seen, word) for word in words]


def shown(documents: tuple[Mapping[str, Any], ...]) -> str:
    """Return documents as they are reviewed: the long sh texts by their names."""
    named = [_named(one) for one in documents]
    return yaml.dump_all(named, Dumper=jobfile_writer.Dumper, sort_keys=False, width=100)


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    for name, text in _TEXTS.items():
        if value in (text, well_known.escape_variables([text])[0]):
            return f"<shell.{name}>"
    return value


def expect_golden(name: str, documents: tuple[Mapping[str, Any], ...]) -> None:
    """Hold documents against the reviewed file of that name."""
    assert shown(documents) == (GOLDEN / f"{name}.yaml").read_text(), f"tests/golden/{name}.yaml differs"
