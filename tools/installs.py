"""Install a wheel as users do, and run a job with it: pip, pipx and uv, without a compiler and without Node.

`python -m tools.installs dist` (in `make test-dist`). Each way gets a home of its own, and a PATH on which the
system's programs are, but none that compiles and no Node. Nothing is built: wheels only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

_NOT_THERE = re.compile(
    r"(?:.*-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cpp|ld|make|cmake|node|nodejs|npm|npx)(?:-[\d.]+)?$"
)
_SYSTEM = ("/usr/bin", "/bin")
_PROGRAM = "from mpi4py.MPI import COMM_WORLD as world; print(world.size)"
_JOB = ("run", "hello", "--workers", "2", "--", "python", "-m", "mpi4py", "-c", _PROGRAM)
_KEPT = ("PIP_FIND_LINKS", "PIP_CERT", "SSL_CERT_FILE", "LANG")


def plain_path(folder: Path) -> str:
    """Return a directory with the system's programs but those that compile, and Node."""
    folder.mkdir()
    for place in map(Path, _SYSTEM):
        for program in place.iterdir():
            if not _NOT_THERE.match(program.name) and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def with_pip(wheel: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Install into a fresh virtual environment."""
    _run([sys.executable, "-m", "venv", str(folder / "venv")], environ)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    _run([*pip, f"{wheel}[local,terminal]"], environ)
    return folder / "venv" / "bin"


def with_pipx(wheel: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Install as an application with pipx; the job's own python is the environment's."""
    _tool("pipx", folder, environ)
    inner = {**environ, "PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin")}
    argv = [str(folder / "tool/bin/pipx"), "install", "--quiet", "--pip-args=--only-binary :all:"]
    _run([*argv, f"{wheel}[local,terminal]"], inner)
    return folder / "bin"


def with_uv(wheel: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """Install as a tool with uv."""
    _tool("uv", folder, environ)
    inner = {**environ, "UV_TOOL_DIR": str(folder / "uv"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    inner |= {"UV_CACHE_DIR": str(folder / "cache"), "UV_PYTHON": sys.executable}
    argv = [str(folder / "tool/bin/uv"), "tool", "install", "--quiet", "--no-build"]
    _run([*argv, f"mpijob[local,terminal] @ {wheel.as_uri()}"], inner)
    return folder / "bin"


WAYS: Mapping[str, Callable[[Path, Path, Mapping[str, str]], Path]] = {
    "pip": with_pip,
    "pipx": with_pipx,
    "uv": with_uv,
}


def _tool(name: str, folder: Path, environ: Mapping[str, str]) -> None:
    _run([sys.executable, "-m", "venv", str(folder / "tool")], environ)
    _run([str(folder / "tool/bin/python"), "-m", "pip", "install", "--quiet", name], environ)


def _run(argv: list[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(argv, check=False, env=dict(environ), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def tried(name: str, wheel: Path) -> str:
    """Return what a job says that was run with a wheel installed in one of the ways."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = plain_path(folder / "path")
        environ = {one: os.environ[one] for one in _KEPT if one in os.environ}
        environ |= {"PATH": path, "HOME": str(folder / "home")}
        programs = WAYS[name](wheel, folder, environ)
        inner = (programs / "mpijob").resolve().parent  # where python and mpiexec of the same environment are
        environ["PATH"] = f"{programs}:{inner}:{path}"
        return _run([str(programs / "mpijob"), *_JOB], environ)


def main() -> None:
    """Try every way with the wheel in a directory."""
    (wheel,) = Path(sys.argv[1]).resolve().glob("*.whl")
    for name in WAYS:
        said = sorted(tried(name, wheel).splitlines())
        if said != ["[Rank-0] 2", "[Rank-1] 2"]:
            sys.exit(f"{name}: the job said {said}")
        sys.stdout.write(f"{name}: installed without a compiler and without Node, and a job ran\n")


if __name__ == "__main__":
    main()
