"""The kept inputs of each target: one archive in the tree, the same bytes for the same inputs."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
LARGEST = 4096  # bytes of one input; what is found in more is found in less
MOST = 300  # inputs of one target
_BEGIN = (1980, 1, 1, 0, 0, 0)


def archive(target: str) -> Path:
    """Return where the inputs of a target are kept."""
    return FOLDER / f"{target}.zip"


def kept(target: str) -> Iterator[tuple[str, bytes]]:
    """Yield the kept inputs of a target with their names."""
    if archive(target).exists():
        with zipfile.ZipFile(archive(target)) as packed:
            for name in sorted(packed.namelist()):
                yield name, packed.read(name)


def keep(target: str, inputs: Iterable[bytes], found: Iterable[bytes]) -> int:
    """Keep the shortest of the inputs, and everything that once broke a promise; return how many there are."""
    broken = {f"found-{_name(data)}": data for data in found}
    broken |= {name: data for name, data in kept(target) if name.startswith("found-")}
    short = sorted({data for data in inputs if 0 < len(data) <= LARGEST}, key=lambda data: (len(data), data))
    named = {_name(data): data for data in short[:MOST]} | broken
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive(target), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name in sorted(named):
            packed.writestr(zipfile.ZipInfo(name, _BEGIN), named[name], zipfile.ZIP_DEFLATED)
    return len(named)


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
