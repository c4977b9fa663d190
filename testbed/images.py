"""The images of the test bed, as layers in the cache: plain Debian with an MPI, and the engines' programs.

The MPI images are what a user would build: they know nothing of this project, and nobody publishes them.
`store` imports them into the container runtime once.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed import build, oci, places, processes, versions
from testbed.shell import run, say

PAUSE = f"{places.IMAGES}/pause:{versions.PAUSE}"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

_PLAIN = (
    "python3-minimal",
    "python3-numpy",
    "python-is-python3",
    "openssh-server",
    "openssh-client",
    "procps",
    "iproute2",
    "netcat-openbsd",
)
_OPENMPI4 = (*_PLAIN, "openmpi-bin", "python3-mpi4py")
_MPI4PY = "mpi4py>=4.1"
_OPENSSH = ("usr/sbin/sshd", "usr/bin/ssh", "usr/bin/scp", "usr/bin/sftp", "usr/bin/ssh-keygen", "etc/ssh")
_SYSTEM_USER = "65532:65532"


@dataclass(frozen=True)
class Workload:
    """An image that jobs run in: Debian packages, then wheels from PyPI, then what is taken away again."""

    name: str
    packages: tuple[str, ...]
    wheels: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def image(self) -> str:
        """Return the name that a pod asks for."""
        return f"{places.IMAGES}/{self.name}:1"


WORKLOADS = (
    Workload("openmpi4", _OPENMPI4),
    Workload("openmpi5", _PLAIN, ("openmpi>=5.0.11", _MPI4PY)),
    Workload("mpich", _PLAIN, ("mpich>=5.0.2", _MPI4PY)),
    Workload("intel", _PLAIN, ("impi-rt==2021.18.1", _MPI4PY)),
    Workload("nosshd", _OPENMPI4, removed=_OPENSSH),
)
# Where each program lies in its image: the engines' own manifests name these paths.
_INSIDE = {
    "pause": "/pause",
    "coredns": "/coredns",
    "jobset": "/manager",
    "trainer": "/manager",
    "kueue": "/manager",
    "mpi-operator": "/opt/mpi-operator",
}


def key() -> str:
    """Return a word that changes when any image would."""
    programs = [str(build.binary(name)) for name in _INSIDE]
    rest = (versions.DEBIAN, versions.PYTHON, processes.LAZY_COLLECTION)
    return short_hash([*map(repr, WORKLOADS), *programs, *rest])


def make() -> tuple[oci.Image, ...]:
    """Make the layers that are not in the cache and return every image."""
    layers().mkdir(parents=True, exist_ok=True)
    programs = tuple(_program_image(name, inside) for name, inside in _INSIDE.items())
    return (*programs, *(_workload_image(one) for one in WORKLOADS))


def layers() -> Path:
    """Return the folder of the layers."""
    return places.cache() / "layers"


def name_of(program: str) -> str:
    """Return the image of one of our programs."""
    return f"{places.IMAGES}/{program}:{build.program(program).version}"


def _program_image(name: str, inside: str) -> oci.Image:
    binary = build.binary(name)
    layer = once(f"program-{binary.name}.tar", lambda target: oci.write_program_layer(binary, inside, target))
    user = "" if name == "coredns" else _SYSTEM_USER
    return oci.Image(name_of(name), (layer,), (inside,), user=user, environment=(processes.LAZY_COLLECTION,))


def _workload_image(workload: Workload) -> oci.Image:
    found = [rootfs(workload.packages)]
    if workload.wheels:
        found.append(_wheels(workload, below=found[0]))
    if workload.removed:
        name = f"removed-{short_hash(workload.removed)}.tar"
        found.append(once(name, lambda target: oci.write_removal_layer(workload.removed, target)))
    return oci.Image(workload.image, tuple(found), command=("/bin/bash",))


def rootfs(packages: tuple[str, ...]) -> Path:
    """Return the layer of a plain Debian with these packages."""
    name = f"debian-{versions.DEBIAN}-{short_hash(packages)}.tar"
    return once(name, lambda target: _bootstrap(packages, target))


def _bootstrap(packages: tuple[str, ...], target: Path) -> None:
    say(f"making a Debian {versions.DEBIAN} root with {' '.join(packages)}")
    exclude = [f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in ("doc", "man", "locale")]
    sources = Path("/etc/apt/sources.list.d/debian.sources")  # this machine's mirror, where it has one
    run(
        "mmdebstrap",
        "--variant=minbase",
        "--mode=root",
        "--format=tar",
        f"--include={','.join(packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        *exclude,
        "--customize-hook=rm -rf $1/var/cache/apt/* $1/var/lib/apt/lists/*",
        versions.DEBIAN,
        target,
        *([sources] if sources.exists() else []),
        timeout_seconds=3600,  # minutes, but hours where others use the machine too
    )


def _wheels(workload: Workload, below: Path) -> Path:
    name = f"wheels-{workload.name}-{short_hash([*workload.wheels, below.name])}.tar"
    return once(name, lambda target: _install_wheels(workload.wheels, below, target))


def _install_wheels(wheels: tuple[str, ...], below: Path, target: Path) -> None:
    """Let the image's own Python install the wheels, as a Dockerfile would; only the download is ours."""
    say(f"installing {' '.join(wheels)} for the image")
    with tempfile.TemporaryDirectory(dir=places.cache()) as temporary:
        root = Path(temporary)
        run("tar", "--extract", "--file", below, "--directory", root, timeout_seconds=600)
        _download_wheels((*wheels, "pip"), root / "wheels")
        (pip,) = (root / "wheels").glob("pip-*.whl")
        install = ("install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--break-system-packages")
        others = [f"/wheels/{one.name}" for one in (root / "wheels").glob("*.whl") if one != pip]
        python = ("chroot", root, "/usr/bin/python3", f"/wheels/{pip.name}/pip")
        run(*python, *install, "--root=/layer", *others, timeout_seconds=600)
        _find_libraries(root)
        oci.write_folder_layer(root / "layer", target)


def _find_libraries(root: Path) -> None:
    """Run ldconfig over what was installed: the loader looks in /usr/local/lib for what its cache names."""
    run("cp", "--archive", root / "layer" / "usr", root)
    run("chroot", root, "ldconfig")
    (root / "layer" / "etc").mkdir()
    shutil.copy(root / "etc" / "ld.so.cache", root / "layer" / "etc" / "ld.so.cache")


def _download_wheels(wheels: tuple[str, ...], folder: Path) -> None:
    folder.mkdir()
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
        *(f"--python-version={versions.PYTHON}", *platform_tags(), f"--dest={folder}", *wheels),
        timeout_seconds=900,
    )


def platform_tags() -> tuple[str, ...]:
    """Return what pip is told of the platform that the images' wheels are for."""
    machine = platform.machine()
    return tuple(f"--platform=manylinux_{glibc}_{machine}" for glibc in ("2_28", "2_17", "2_12", "2_5"))


def once(name: str, make_it: Callable[[Path], None]) -> Path:
    """Return a layer of the cache, made when it is not there; a half-made one is never used, whoever else makes it."""
    layer = layers() / name
    if not layer.exists():
        unfinished = layer.with_name(f"unfinished-{os.getpid()}-{name}")
        unfinished.unlink(missing_ok=True)
        make_it(unfinished)
        shutil.move(unfinished, layer)
    return layer


def short_hash(words: tuple[str, ...] | list[str]) -> str:
    """Return a short word that changes when any of these words does."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:10]
