"""`python -m tools.deploy`: write what under deploy/ is made from code: resources, admission, templates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from mpijob.cluster import crds, webhook_objects
from mpijob.dialects import isolation

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


class _Dumper(yaml.SafeDumper):
    """Lists are indented under their key, and nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written() -> dict[Path, str]:
    """Return every generated file with its text."""
    base = DEPLOY / "base"
    made = {base / "crds" / f"{one['spec']['names']['plural']}.yaml": text(one) for one in crds.documents()}
    made[base / "admission" / "configurations.yaml"] = _several(webhook_objects.configurations())
    made[base / "admission" / "policies.yaml"] = _several(webhook_objects.policies())
    made[DEPLOY / "templates" / "namespace-isolation.yaml"] = _several(
        isolation.namespace_defaults("NAMESPACE")
    )
    return made


def _several(documents: Iterable[dict[str, Any]]) -> str:
    return "---\n".join(text(one) for one in documents)


def text(document: dict[str, Any]) -> str:
    """Return a document as its file holds it."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


if __name__ == "__main__":
    for path, content in written().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
