"""Look into what `make dist` and `make sbom` made.

A wheel or source distribution without the page or the shim that counts MPI calls is not to be published, nor a bill of
materials that lacks a package which the project asks for.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

DIST = Path(__file__).resolve().parent.parent / "dist"
LOCK = DIST.parent / "deploy" / "images" / "requirements" / "services.txt"
BUILT = (
    "mpijob/api/page/index.html",
    "mpijob/backends/profiler/lib/mpi_profile-x86_64.so",
    "mpijob/backends/profiler/lib/mpi_profile-aarch64.so",
)


def missing() -> list[str]:
    """Return the distributions that lack what is built for them; an absent one lacks it too."""
    wheels, sources = sorted(DIST.glob("*.whl")), sorted(DIST.glob("*.tar.gz"))
    found = {path.name: _names(path) for path in (*wheels, *sources)}
    absent = [kind for kind, paths in (("a wheel", wheels), ("a source distribution", sources)) if not paths]
    return absent + [
        f"{name} ({wanted})"
        for name, names in found.items()
        for wanted in BUILT
        if not any(one.endswith(wanted) for one in names)
    ]


def _names(path: Path) -> list[str]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.namelist()
    with tarfile.open(path) as source:
        return source.getnames()


def unlisted(sbom: Path = DIST / "sbom.json") -> list[str]:
    """Return what the file of pinned packages has and the bill of materials has not."""
    listed = {plain(part["name"]) for part in json.loads(sbom.read_text(encoding="utf-8"))["components"]}
    pinned = re.findall(r"^([\w.-]+)==", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return [name for name in ("mpijob", *pinned) if plain(name) not in listed]


def plain(name: str) -> str:
    """Return a package's name as every index compares it: `typing_extensions` is `typing-extensions`."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__" and "sbom" in sys.argv:
    if absent := unlisted():
        sys.exit(f"not in the bill of materials: {', '.join(absent)}")
elif __name__ == "__main__":
    if lacking := missing():
        sys.exit(f"not whole: {', '.join(lacking)}")
