"""An image with Horovod, for the tests that train with it in pods: built and imported when one of them asks.

What `deploy/images/horovod.Containerfile` describes: Debian's Open MPI and torch, Horovod compiled with both. It takes
some minutes once; no cluster starts with it.
"""

from __future__ import annotations

import hashlib
import tempfile
import urllib.request
from pathlib import Path

from testbed import images, oci, places, runtime, versions
from testbed.shell import TestBedError, run, say

NAME = f"{places.IMAGES}/horovod:1"
NEEDED = (
    "python3-torch",
    "python3-cloudpickle",
    "python3-psutil",
    "python3-packaging",
    "python3-yaml",
    "python3-cffi",
)
BUILDING = (
    *("g++", "cmake", "make", "libopenmpi-dev", "libtorch-dev", "pybind11-dev", "python3-dev"),
    *("python3-pip", "python3-setuptools", "python3-wheel"),
)
_PARTS = {
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "MAKEFLAGS": "-j2",
}
_HOUR = 3600


def provide() -> str:
    """Import the image into the running cluster, unless it is there; return its name."""
    image = make()
    mark = places.run_state() / "horovod-image"
    if not mark.exists() or mark.read_text() != image.layers[-1].name:
        say(f"importing {image.name}")
        runtime.import_image(image)
        mark.write_text(image.layers[-1].name)
    return image.name


def make() -> oci.Image:
    """Make the layers that the cache does not hold and return the image."""
    images.layers().mkdir(parents=True, exist_ok=True)
    packages = (*images.OPENMPI4, *NEEDED)
    below = images.rootfs(packages)
    key = images.short_hash([versions.HOROVOD, *_PARTS, *BUILDING, below.name])
    own = images.once(f"horovod-{versions.HOROVOD}-{key}.tar", lambda target: _build(packages, target))
    return oci.Image(NAME, (below, own), command=("/bin/bash",))


def _build(packages: tuple[str, ...], target: Path) -> None:
    below = images.rootfs((*packages, *BUILDING))
    say(f"compiling Horovod {versions.HOROVOD} for the image (some minutes)")
    with tempfile.TemporaryDirectory(dir=places.cache()) as temporary:
        root = Path(temporary)
        run("tar", "--extract", "--file", below, "--directory", root, timeout_seconds=600)
        (root / "horovod.tar.gz").write_bytes(_source())
        parts: list[str | Path] = [f"{name}={value}" for name, value in _PARTS.items()]
        pip: tuple[str | Path, ...] = (
            *("chroot", root, "/usr/bin/env", *parts),
            *("/usr/bin/python3", "-m", "pip"),
        )
        plain = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
        run(*pip, "wheel", *plain, "--wheel-dir=/wheels", "/horovod.tar.gz", timeout_seconds=_HOUR)
        (wheel,) = (root / "wheels").glob("*.whl")
        install = (
            "install",
            "--no-compile",
            "--break-system-packages",
            "--root=/layer",
            f"/wheels/{wheel.name}",
        )
        run(*pip, *install[:1], *plain, *install[1:], timeout_seconds=600)
        oci.write_folder_layer(root / "layer", target)


def _source() -> bytes:
    address, digest = versions.HOROVOD_SOURCE
    with urllib.request.urlopen(address, timeout=120) as answer:
        data: bytes = answer.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise TestBedError(f"{address} is not what it was: its SHA-256 differs from {digest}")
    return data
