"""What the cluster tests share: the real CRDs, taken from the engines' own Go modules.

The schemas are never copied into this repository: they come from the module cache, checked by Go's
checksum database. A machine without Go fails here; it never passes by skipping.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

MODULES = {
    "github.com/kubeflow/trainer/v2@v2.2.1": "manifests/base/crds",
    "sigs.k8s.io/jobset@v0.12.0": "config/components/crd/bases",
    "github.com/kubeflow/mpi-operator@v0.8.2": "manifests/base",
}


@pytest.fixture(scope="session")
def crd_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return every CRD file of the engines, at the versions that the project is built for."""
    if shutil.which("go") is None:
        pytest.fail("the cluster tests need Go on the PATH: the CRDs come from the engines' Go modules")
    place = tmp_path_factory.mktemp("modules")
    folders = [_download(module, place) / folder for module, folder in MODULES.items()]
    return tuple(path for folder in folders for path in sorted(folder.glob("*_*.yaml")))


def _download(module: str, place: Path) -> Path:
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])
