"""`python -m tools.deploy`: write what under deploy/ is made from code: the definitions of our resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mpijob.cluster import crds

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


class _Dumper(yaml.SafeDumper):
    """Lists are indented under their key, and nothing is an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written() -> dict[Path, str]:
    """Return every generated file with its text."""
    return {
        DEPLOY / "base" / "crds" / f"{one['spec']['names']['plural']}.yaml": text(one)
        for one in crds.documents()
    }


def text(document: dict[str, Any]) -> str:
    """Return a document as its file holds it."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


if __name__ == "__main__":
    for path, content in written().items():
        path.write_text(content)
