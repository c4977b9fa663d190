"""kubectl, as the administrator of the test bed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from testbed import places
from testbed.shell import TestBedError, run

_OBJECTS = places.SOURCES / "objects"


def kubectl(*words: str | Path, stdin: str | None = None, timeout_seconds: float = 120) -> str:
    """Run kubectl and return what it prints."""
    config = f"--kubeconfig={places.kubeconfig()}"
    return run("kubectl", config, *words, stdin=stdin, timeout_seconds=timeout_seconds)


def apply(documents: str) -> None:
    """Apply documents on the server's side: some CRDs are too large for kubectl's annotation."""
    kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=documents)


def apply_file(path: Path) -> None:
    """Apply a file of documents."""
    apply(path.read_text())


def apply_ours(name: str, **words: object) -> None:
    """Apply a file of testbed/objects with its $words filled in."""
    apply(Template((_OBJECTS / f"{name}.yaml").read_text()).substitute(words))


def get(*words: str) -> Mapping[str, Any]:
    """Return an object, or a list of them."""
    found: Mapping[str, Any] = json.loads(kubectl("get", *words, "--output=json"))
    return found


def is_ready(path: str = "/readyz") -> bool:
    """Return whether the API server answers a path."""
    try:
        kubectl("get", "--raw", path, timeout_seconds=10)
    except TestBedError:
        return False
    return True


def has_condition(*words: str, condition: str) -> bool:
    """Return whether an object exists and says "True" to a condition."""
    try:
        found = get(*words).get("status", {}).get("conditions", [])
    except TestBedError:
        return False
    return any(one["type"] == condition and one["status"] == "True" for one in found)
