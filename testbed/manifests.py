"""The engines' own manifests, rendered out of their Go modules with `kubectl kustomize`.

Only three things differ from what upstream ships: the image (ours, built from the same module), a CPU request
that fits a small node, and the pull policy. They are never copied into this repository.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import build, images, places, versions
from testbed.shell import run, say

_SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}
_TRAINER_NAMESPACE = "kubeflow-system"
FOR_EVER = "runs-for-ever"  # the label of pods on fake nodes that do not end by themselves


@dataclass(frozen=True)
class Source:
    """Where the manifests of an engine lie in its module, and what is asked of kustomize."""

    name: str
    module: str
    folder: str
    resources: tuple[str, ...]
    more: Mapping[str, Any] = field(default_factory=dict)
    image: bool = True


SOURCES = (
    Source("jobset", f"sigs.k8s.io/jobset@{versions.JOBSET}", "config", ("default",)),
    Source(
        "trainer",
        f"github.com/kubeflow/trainer/v2@{versions.TRAINER}",
        "manifests",
        # The overlay `manager` would bring a JobSet of its own, from the network.
        ("base/crds", "base/manager", "base/rbac", "base/webhook"),
        {
            "namespace": _TRAINER_NAMESPACE,
            "secretGenerator": [
                {"name": "kubeflow-trainer-webhook-cert", "options": {"disableNameSuffixHash": True}}
            ],
            "configMapGenerator": [
                {
                    "name": "kubeflow-trainer-public",
                    "literals": [f"kubeflow_trainer_version={versions.TRAINER}"],
                    "options": {"disableNameSuffixHash": True},
                }
            ],
        },
    ),
    Source(
        "mpi-operator",
        f"github.com/kubeflow/mpi-operator@{versions.MPI_OPERATOR}",
        "manifests",
        ("overlays/standalone",),
    ),
    Source("kueue", f"sigs.k8s.io/kueue@{versions.KUEUE}", "config", ("default",)),
    Source(
        "kwok",
        f"sigs.k8s.io/kwok@{versions.KWOK}",
        "kustomize",
        ("stage/fast",),
        {
            # Pods of Jobs would complete at once: let them run for 20 s to 60 s, and those that say so for ever.
            "patches": [
                {
                    "target": {"kind": "Stage", "name": "pod-complete"},
                    "patch": json.dumps(
                        [
                            {
                                "op": "add",
                                "path": "/spec/delay",
                                "value": {"durationMilliseconds": 20000, "jitterDurationMilliseconds": 60000},
                            },
                            {
                                "op": "add",
                                "path": "/spec/selector/matchExpressions/-",
                                "value": {
                                    "key": f'.metadata.labels["{FOR_EVER}"]',
                                    "operator": "DoesNotExist",
                                },
                            },
                        ]
                    ),
                }
            ]
        },
        image=False,
    ),
)


def rendered(name: str) -> Path:
    """Return the manifests of one engine, rendered when the cache does not hold them."""
    source = next(one for one in SOURCES if one.name == name)
    target = places.cache() / "manifests" / f"{name}-{_key(source)}.yaml"
    if not target.exists():
        say(f"rendering the manifests of {source.module}")
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"unfinished-{target.name}")
        unfinished.write_text(_render(source))
        unfinished.rename(target)
    return target


def render_missing() -> None:
    """Render whatever the cache does not hold."""
    for source in SOURCES:
        rendered(source.name)


def custom_resources() -> tuple[Path, ...]:
    """Return the files that hold the CRDs of the engines a job is written for."""
    return tuple(rendered(name) for name in ("trainer", "jobset", "mpi-operator"))


def _render(source: Source) -> str:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        # kustomize reads neither absolute paths nor files above its folder
        shutil.copytree(build.module_folder(source.module) / source.folder, root / "upstream")
        (root / "ours").mkdir()
        (root / "ours" / "kustomization.yaml").write_text(json.dumps(_kustomization(source)))
        if "namespace" in source.more:
            (root / "ours" / "namespace.yaml").write_text(json.dumps(_namespace(source.more["namespace"])))
        return run("kubectl", "kustomize", root / "ours")


def _kustomization(source: Source) -> dict[str, Any]:
    kustomization: dict[str, Any] = {
        "resources": [f"../upstream/{one}" for one in source.resources],
        "patches": [],
        **source.more,
    }
    if "namespace" in source.more:
        kustomization["resources"].append("namespace.yaml")
    if source.image:
        patch = json.dumps(list(_small_patch(images.name_of(source.name))))
        kustomization["patches"] = [{"target": {"kind": "Deployment"}, "patch": patch}]
    return kustomization


def _small_patch(image: str) -> Iterable[Mapping[str, Any]]:
    wanted = {"image": image, "imagePullPolicy": "IfNotPresent", "resources": _SMALL}
    for field_name, value in wanted.items():
        yield {"op": "add", "path": f"/spec/template/spec/containers/0/{field_name}", "value": value}


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _key(source: Source) -> str:
    asked = json.dumps([source.module, source.folder, _kustomization(source)], sort_keys=True)
    version = source.module.rsplit("@", 1)[1]
    return f"{version}-{hashlib.sha256(asked.encode()).hexdigest()[:10]}"
