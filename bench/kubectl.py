"""The yardstick for start-up: a kubectl, from the PATH or built once from its Go module."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from bench.line import Unmeasured

VERSION = "v0.37.2"
_MAIN = """package main

import (
	"os"

	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		os.Exit(1)
	}
}
"""


def find() -> str:
    """Return the path of a kubectl, built if need be."""
    built = _cache() / VERSION / "kubectl"
    if found := shutil.which("kubectl"):
        return found
    if not built.exists():
        _build(built)
    return str(built)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "mpijob-bench"


def _build(target: Path) -> None:
    if shutil.which("go") is None:
        raise Unmeasured("no kubectl")
    target.parent.mkdir(parents=True, exist_ok=True)
    (target.parent / "main.go").write_text(_MAIN)
    _go(target.parent, "mod", "init", "bench/kubectl", allowed=True)
    _go(target.parent, "get", f"k8s.io/kubectl@{VERSION}")
    _go(target.parent, "mod", "tidy")
    _go(target.parent, "build", "-trimpath", "-ldflags=-s -w", "-o", target.name, ".")


def _go(directory: Path, *words: str, allowed: bool = False) -> None:
    """Run go; `allowed` failures are those of a second try."""
    done = subprocess.run(("go", *words), cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode and not allowed:
        raise Unmeasured(f"no kubectl: go {words[0]} failed: {done.stderr.strip()[-200:]}")
