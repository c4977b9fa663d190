"""Look into what `make dist` made: a wheel or source distribution without the page is not to be published."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

DIST = Path(__file__).resolve().parent.parent / "dist"
PAGE = "mpijob/api/page/index.html"


def missing() -> list[str]:
    """Return the distributions that lack the page; an absent one lacks it too."""
    wheels, sources = sorted(DIST.glob("*.whl")), sorted(DIST.glob("*.tar.gz"))
    found = {path.name: _names(path) for path in (*wheels, *sources)}
    absent = [kind for kind, paths in (("a wheel", wheels), ("a source distribution", sources)) if not paths]
    return absent + [name for name, names in found.items() if not any(one.endswith(PAGE) for one in names)]


def _names(path: Path) -> list[str]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.namelist()
    with tarfile.open(path) as source:
        return source.getnames()


if __name__ == "__main__":
    if lacking := missing():
        sys.exit(f"the page is not in: {', '.join(lacking)}")
