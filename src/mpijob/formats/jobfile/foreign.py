"""Files that are not job files but Kubernetes manifests: told apart, and answered with the right form.

`mpijob convert` reads the real ones (`trainjob`, `mpijob`); two forms that documents show exist
in no release at all.
"""

from __future__ import annotations

from mpijob.errors import Finding
from mpijob.formats.jobfile.yaml_tree import Mapping, Node, Scalar, finding

_TRAINJOB = "trainer.kubeflow.org/v1alpha1"
_MPIJOB = "kubeflow.org/v2beta1"
_REAL = {("TrainJob", _TRAINJOB), ("MPIJob", _MPIJOB)}
_CONVERT = "`mpijob convert FILE > job.yaml` reads it by what it plainly means"
_OURS = "a job file has no apiVersion and no kind; it begins with name, workers and command"


def is_manifest(root: Mapping) -> bool:
    """Return whether a file is a Kubernetes manifest."""
    return root.get("apiVersion") is not None or root.get("kind") is not None


def explained(root: Mapping) -> Finding:
    """Return what to do with a manifest, and whether it exists in any release."""
    kind, version = _text(root.get("kind")), _text(root.get("apiVersion"))
    place = root.get("apiVersion") or root.get("kind") or root
    called = f"{kind or 'a manifest'} of {version or 'an unnamed version'}"
    if (kind, version) in _REAL:
        hint = f"`mpijob convert FILE > job.yaml` makes a job file of it; {_OURS}"
        return finding("MANIFEST", place, f"{called} is a Kubernetes manifest, not a job file", hint)
    if _in_no_release(root, kind, version):
        message = f"{called} exists in no release of Kubeflow"
        hint = f"the real forms are kind TrainJob of {_TRAINJOB} and kind MPIJob of {_MPIJOB}; {_CONVERT}"
        return finding("NO_SUCH_API", place, message, hint)
    return finding("MANIFEST", place, f"{called} is a Kubernetes manifest, not a job file", _OURS)


def _in_no_release(root: Mapping, kind: str, version: str) -> bool:
    spec = root.get("spec")
    fields = {key.text for key, _ in spec.entries} if isinstance(spec, Mapping) else set()
    wrong_version = (
        kind in ("TrainJob", "MPIJob") and "kubeflow.org" in version and (kind, version) not in _REAL
    )
    return wrong_version or bool(fields & {"trainingFramework", "mpiImplementation"})


def _text(node: Node | None) -> str:
    return node.text[:60] if isinstance(node, Scalar) else ""
