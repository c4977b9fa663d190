"""The image of this project's own services, `testbed.local/mpijob:1`, so that they run as real pods.

It is Debian's Python, the wheels that the extras ask for, and this checkout on top. The checkout changes
often, so the image is no part of the store that every cluster starts with: `provide` makes it from what is in
the working tree and imports it into the running cluster when that differs from what is there.
`deploy/images/Containerfile` describes the same image for a registry.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from testbed import images, oci, places, runtime, versions
from testbed.shell import run, say

_NAME = f"{places.IMAGES}/mpijob"
IMAGE = f"{_NAME}:1"
_PACKAGES = ("python3", "ca-certificates")
_EXTRAS = ("kubernetes", "regex", "ui", "cluster", "metrics", "postgres", "s3")
_CHECKOUT = places.SOURCES.parent
_HOME = Path("usr/local/lib") / f"python{versions.PYTHON}" / "dist-packages"
_PROGRAM = "#!/usr/bin/python3\nimport sys\n\nfrom mpijob.cli.main import main\n\nsys.exit(main())\n"
_USER = "1000"
_OLD_SECONDS = 24 * 3600.0


def provide(checkout: Path = _CHECKOUT, tag: str = "1") -> str:
    """Import the image of a checkout into the running cluster, unless it is there; return its name."""
    mark = places.run_state() / f"service-image-{tag}"
    image = make(checkout, tag)
    layer = image.layers[-1].name
    if not mark.exists() or mark.read_text() != layer:
        say(f"importing {image.name}")
        runtime.import_image(image)
        mark.write_text(layer)
    return image.name


def make(checkout: Path = _CHECKOUT, tag: str = "1") -> oci.Image:
    """Make the layers that the cache does not hold and return the image."""
    images.layers().mkdir(parents=True, exist_ok=True)
    below = images.rootfs(_PACKAGES)
    wanted = _requirements(checkout)
    wheels = images.once(
        f"service-wheels-{images.short_hash([*wanted, below.name])}.tar",
        lambda target: _install(wanted, below, target),
    )
    name = f"service-{images.short_hash([_fingerprint(checkout), wheels.name])}.tar"
    own = images.once(name, lambda target: _write_own(checkout, below, target))
    for old in images.layers().glob("service-*.tar"):  # younger ones may be another checkout's
        if old not in (own, wheels) and time.time() - old.stat().st_mtime > _OLD_SECONDS:
            old.unlink(missing_ok=True)
    return oci.Image(
        f"{_NAME}:{tag}", (below, wheels, own), entrypoint=("/usr/local/bin/mpijob",), user=_USER
    )


def _requirements(checkout: Path) -> tuple[str, ...]:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return (*project["dependencies"], *(one for extra in _EXTRAS for one in extras[extra]))


def _install(wanted: tuple[str, ...], below: Path, target: Path) -> None:
    say(f"installing {' '.join(wanted)} for the services' image")
    with tempfile.TemporaryDirectory(dir=places.cache()) as temporary:
        root = _unpacked(below, Path(temporary))
        (root / "wheels").mkdir()
        download = ("-m", "pip", "download", "--quiet", "--only-binary=:all:", f"--dest={root / 'wheels'}")
        tags = (f"--python-version={versions.PYTHON}", *images.platform_tags())
        run(sys.executable, *download, *tags, *wanted, "pip", timeout_seconds=900)
        (pip,) = (root / "wheels").glob("pip-*.whl")
        others = [f"/wheels/{one.name}" for one in (root / "wheels").glob("*.whl") if one != pip]
        install = ("install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--break-system-packages")
        python = ("chroot", root, "/usr/bin/python3", f"/wheels/{pip.name}/pip")
        run(*python, *install, "--root=/layer", *others, timeout_seconds=600)
        _compile(root)
        oci.write_folder_layer(root / "layer", target)


def _write_own(checkout: Path, below: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=places.cache()) as temporary:
        root = _unpacked(below, Path(temporary))
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(checkout / "src" / "mpijob", root / "layer" / _HOME / "mpijob", ignore=ignore)
        shutil.copytree(checkout / "deploy", root / "layer/usr/share/mpijob/deploy")
        program = root / "layer/usr/local/bin/mpijob"
        program.parent.mkdir(parents=True)
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        _compile(root)
        oci.write_folder_layer(root / "layer", target)


def _unpacked(below: Path, root: Path) -> Path:
    run("tar", "--extract", "--file", below, "--directory", root, timeout_seconds=600)
    return root


def _compile(root: Path) -> None:
    """Compile here: nothing can be written where the services run. Layers have no times, so hashes are kept."""
    words = ("-q", "--invalidation-mode=unchecked-hash", "-s", "/layer", f"/layer/{_HOME}")
    run("chroot", root, "/usr/bin/python3", "-m", "compileall", *words, timeout_seconds=600)


def _fingerprint(checkout: Path) -> str:
    digest = hashlib.sha256()
    for folder in ("src", "deploy"):
        for path in sorted((checkout / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(checkout)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
