"""The Go programs of the test bed, built by module name and kept by version.

The module files in testbed/go name what is wanted and nothing else. Hashes come from the `go.sum` of the
wanted modules, which the checksum database vouches for, and from that database itself for the rest: it has
no entry for some modules that are needed further down. A wanted module that it does not know has its hash in a
`go.sum` beside its module file. With a full cache Go is not called at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from testbed import places, versions
from testbed.shell import CannotRunHere, run, say

_STAMP = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = versions.KUBERNETES.removeprefix("v").split(".")
_LINK = {
    "kube": f"-s -w -X {_STAMP}.gitVersion={versions.KUBERNETES} -X {_STAMP}.gitMajor={_MAJOR}"
    f" -X {_STAMP}.gitMinor={_MINOR} -X {_STAMP}.gitTreeState=clean"
    f" -X {_STAMP}.buildDate=2026-01-01T00:00:00Z"
}
_PLAIN_LINK = "-s -w"
_HOUR = 3600


def program(name: str) -> versions.Program:
    """Return one of the programs by its name."""
    return next(one for one in (*versions.PROGRAMS, *versions.ON_REQUEST) if one.name == name)


def binary(name: str) -> Path:
    """Return where a program lies in the cache, there or not; the name changes with its sources."""
    one = program(name)
    return places.cache() / "bin" / f"{name}-{one.version}-{_hash_of_sources(one)}"


def build_missing() -> None:
    """Build every program that the cache does not hold."""
    absent = [one for one in versions.PROGRAMS if not binary(one.name).exists()]
    if not absent:
        return
    _check_go()
    for module in dict.fromkeys(one.module for one in absent):
        _build_in(module, [one for one in absent if one.module == module])


def requested(name: str) -> Path:
    """Return a program that no cluster needs to run; it is built when the cache does not hold it."""
    if not binary(name).exists():
        _check_go()
        _build_in(program(name).module, [program(name)])
    return binary(name)


def module_folder(module: str) -> Path:
    """Return where Go keeps the sources of a module (`path@version`); they are downloaded when absent."""
    _check_go()
    with tempfile.TemporaryDirectory() as nowhere:
        words = ("mod", "download", "-json", module)
        found = run("go", *words, cwd=Path(nowhere), env=_environment(), timeout_seconds=900)
    return Path(json.loads(found)["Dir"])


def _build_in(module: str, programs: list[versions.Program]) -> None:
    """Build in a copy: Go completes go.mod and go.sum while it builds, and the checkout stays as it is."""
    (places.cache() / "bin").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=places.cache()) as temporary:
        folder = Path(temporary) / "sources"
        shutil.copytree(places.SOURCES / "go" / module, folder)
        own = folder / "go.sum"
        own.write_text(_merged_sums(folder / "go.mod", own.read_text() if own.exists() else ""))
        for one in programs:
            _build(one, folder)


def _build(one: versions.Program, folder: Path) -> None:
    say(f"building {one.name} {one.version} (minutes when nothing of it was ever compiled here)")
    made = folder.parent / one.name  # beside the sources: a folder of that name may be among them
    link = _LINK.get(one.module, _PLAIN_LINK)
    flags = ("-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", link, "-tags", one.tags)
    words = ("build", *flags, "-o", made, one.package)
    run("go", *words, cwd=folder, env=_environment(), timeout_seconds=_HOUR)
    shutil.move(made, binary(one.name))


def _environment() -> dict[str, str]:
    """Return the environment for Go; what has its hash beside its module file is held to that one."""
    files = (places.SOURCES / "go").glob("*/go.sum")
    pinned = sorted({line.split()[0] for file in files for line in file.read_text().splitlines()})
    return {**os.environ, "CGO_ENABLED": "0", "GONOSUMDB": ",".join(pinned)}


def _merged_sums(go_mod: Path, own: str) -> str:
    """Return the hashes that the wanted modules were released with, and our own."""
    block = re.search(r"^require (?:\((.*?)\)|([^(\n]+)$)", go_mod.read_text(), re.DOTALL | re.MULTILINE)
    wanted = [line.split() for line in ((block[1] or block[2]).splitlines() if block else [])]
    files = [module_folder("@".join(words[:2])) / "go.sum" for words in wanted if len(words) >= 2]
    known = [own, *(file.read_text() for file in files if file.exists())]
    lines = {line for text in known for line in text.splitlines() if line}
    return "".join(f"{line}\n" for line in sorted(lines))


def _hash_of_sources(one: versions.Program) -> str:
    said = f"{one.package} {_LINK.get(one.module, _PLAIN_LINK)}" + (f" {one.tags}" if one.tags else "")
    digest = hashlib.sha256(said.encode())
    folder = places.SOURCES / "go" / one.module
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:10]


def _check_go() -> None:
    if shutil.which("go") is None:
        raise CannotRunHere(
            f"there is no `go` on the PATH: Go {versions.GO} or newer is needed once,"
            " to build Kubernetes and the engines"
        )
