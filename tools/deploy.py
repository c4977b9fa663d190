"""`python -m tools.deploy`: write what under deploy/ is made from code and from its other files.

Definitions, admission and templates come from code; the bundle for the Operator Lifecycle Manager from the
operator's own manifests.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from mpijob import __version__
from mpijob.cluster import crds, manifests
from mpijob.cluster.webhook import configuration
from mpijob.formats.kubernetes import network_policy

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
IMAGE = "registry.example.org/mpijob/mpijob"
_KINDS = {
    "MPIJobPlatform": "What is installed in the cluster and kept there.",
    "MPIJobLimits": "What the jobs of one namespace may do.",
}


class _Dumper(yaml.SafeDumper):
    """Lists are indented under their key, and nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written() -> dict[Path, str]:
    """Return every generated file with its text."""
    base, bundle = DEPLOY / "base", DEPLOY / "bundle" / "manifests"
    definitions = {f"{one['spec']['names']['plural']}.yaml": text(one) for one in crds.documents()}
    made = {folder / name: one for folder in (base / "crds", bundle) for name, one in definitions.items()}
    made[base / "admission" / "configurations.yaml"] = _several(configuration.configurations())
    made[base / "admission" / "policies.yaml"] = _several(configuration.policies())
    made[DEPLOY / "templates" / "namespace-isolation.yaml"] = _several(
        network_policy.namespace_defaults("NAMESPACE")
    )
    made[bundle / "mpijob.clusterserviceversion.yaml"] = text(service_version())
    return made


def _several(documents: Iterable[dict[str, Any]]) -> str:
    return "---\n".join(text(one) for one in documents)


def text(document: dict[str, Any]) -> str:
    """Return a document as its file holds it."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def service_version() -> dict[str, Any]:
    """Return the ClusterServiceVersion, with which the Operator Lifecycle Manager installs the operator."""
    image = f"{IMAGE}:{__version__}"
    documents = manifests.with_images(manifests.read_kustomization(DEPLOY / "base" / "operator"), "", image)
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    install = {
        "strategy": "deployment",
        "spec": {
            "clusterPermissions": [{"serviceAccountName": account, "rules": [everything]}],
            "deployments": [{"name": deployment["metadata"]["name"], "spec": deployment["spec"]}],
        },
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": f"mpijob.v{__version__}", "annotations": {"capabilities": "Seamless Upgrades"}},
        "spec": {
            "displayName": "MPI jobs",
            "description": "Runs MPI jobs of many teams: engines, admission, isolation, limits, audit.",
            "version": __version__,
            "maturity": "alpha",
            "minKubeVersion": "1.27.0",
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [_owned(one) for one in crds.documents()]},
            "install": install,
            "relatedImages": [{"name": "mpijob", "image": image}],
        },
    }


def _owned(definition: dict[str, Any]) -> dict[str, str]:
    spec = definition["spec"]
    kind = spec["names"]["kind"]
    return {
        "name": definition["metadata"]["name"],
        "version": spec["versions"][0]["name"],
        "kind": kind,
        "displayName": kind,
        "description": _KINDS[kind],
    }


if __name__ == "__main__":
    for path, content in written().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
