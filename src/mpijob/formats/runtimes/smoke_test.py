"""A small job that tests a runtime, and the check of its output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mpijob.formats.kubernetes import pod_template, trainjob
from mpijob.formats.kubernetes.metadata import well_known
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.runtimes import builtin

WORKERS = 2
SECONDS = 300
_SAY = 'echo "mpijob-trial rank=${OMPI_COMM_WORLD_RANK:-?} size=${OMPI_COMM_WORLD_SIZE:-?} host=$(uname -n)"'
_REPORT = re.compile(r"mpijob-trial rank=(\d+) size=(\d+) host=(\S+)")


class WorldProof(msgspec.Struct, frozen=True):
    """The ranks in the output, and their hosts."""

    ranks: int
    wanted: int
    hosts: tuple[str, ...]
    hosts_wanted: int

    @property
    def holds(self) -> bool:
        """Whether the world is as requested."""
        return self.ranks == self.wanted and len(self.hosts) == self.hosts_wanted


def document(runtime: Mapping[str, Any], name: str, namespace: str) -> Document:
    """Return a TrainJob that uses the unchanged runtime: two nodes, and each rank prints its number and host."""
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": runtime.get("kind", builtin.KIND),
        "name": runtime["metadata"]["name"],
    }
    trainer: Document = {"numNodes": WORKERS, "numProcPerNode": 1}
    if builtin.is_ours(runtime):
        trainer["args"] = well_known.escape_variables(["/bin/sh", "-c", _SAY])
    else:
        line = ["mpirun", "--hostfile", well_known.HOSTFILE, "-n", str(WORKERS), "/bin/sh", "-c", _SAY]
        trainer["command"], trainer["args"] = (
            well_known.escape_variables(line[:1]),
            well_known.escape_variables(line[1:]),
        )
    labels = {
        well_known.MANAGED_LABEL: well_known.MANAGED_BY,
        f"{well_known.DOMAIN}/trial": well_known.as_label(reference["name"]),
    }
    return {
        "apiVersion": trainjob.API,
        "kind": trainjob.JOB,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"runtimeRef": reference, "trainer": trainer, "activeDeadlineSeconds": SECONDS},
    }


def proof(output: str) -> WorldProof:
    """Return the ranks in the launcher's output."""
    hosts_by_rank = {int(rank): host for rank, _, host in _REPORT.findall(output)}
    return WorldProof(len(hosts_by_rank), WORKERS, tuple(sorted(set(hosts_by_rank.values()))), WORKERS)


def image_of(runtime: Mapping[str, Any]) -> str:
    return str(pod_template.container_of(builtin.pod_specs(runtime).get("node") or {}).get("image", ""))
