"""The files of a container image as a tree with resolved links, and what it offers to jobs.

`backends/registry` merges the layers into these entries. Names have no leading slash; results have one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mpijob.model.spec.image import Binding, Closed, Config, Entry, Image, Kind, Mpi, Origin, Sshd
from mpijob.model.spec.job import Family

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The kernel's limit.
_MOST_LINKS = 40
_LAUNCHERS = ("mpirun", "mpiexec")
_INTERFACES = (((40, 40), "5.0"), ((40, 30), "4.1"), ((40, 20), "4.0"), ((40, 10), "3.1"), ((40, 0), "3.0"))
_NUMBERED = re.compile(r"libmpi\.so\.(\d+)\.(\d+)")
_PYTHON = re.compile(r"python(3\.\d+)")
_PACKAGE = re.compile(r"(.*)/mpi4py-([\w.]+?)(?:-py[\d.]+)?\.(?:dist-info|egg-info)(?:/.*)?")
_MODULE = re.compile(r"(.*)/mpi4py/MPI\.[\w.-]*so")
_CUDA = re.compile(r".*/libcudart\.so\.(\d+(?:\.\d+)*)")
_NCCL = re.compile(r".*/libnccl\.so\.(\d+(?:\.\d+)*)")
_CUDA_PARTS = re.compile(
    r".*/(?:mca_accelerator_cuda\.so|libmca_common_cuda\.so[\d.]*|mca_btl_smcuda\.so|libuct_cuda\.so[\d.]*)"
)
_FABRICS = {"libibverbs.so.1": "InfiniBand verbs", "libfabric.so.1": "libfabric", "libucp.so.0": "UCX"}
_SSHD_WORDS = ("port", "pidfile", "usepam", "strictmodes", "hostkey", "permituserenvironment")


class Tree:
    """The known files, with links resolved as a process in the image would resolve them."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries

    def real(self, path: str) -> str:
        """Return the target of a path, "" if it does not exist."""
        found = self.follow(path)
        return found if found in self.entries else ""

    def follow(self, path: str) -> str:
        """Return the target of a path, existing or not; "" for circular links."""
        todo, done, links = path.strip("/").split("/")[::-1], list[str](), 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done[:-1]
            elif part not in ("", "."):
                entry = self.entries.get("/".join((*done, part)))
                if entry is not None and entry.kind is Kind.LINK:
                    links += 1
                    if links > _MOST_LINKS:
                        return ""
                    done = [] if entry.link.startswith("/") else done
                    todo += entry.link.split("/")[::-1]
                else:
                    done.append(part)
        return "/".join(done)

    def get(self, path: str) -> Entry | None:
        return self.entries.get(self.real(path))

    def text(self, path: str) -> str:
        """Return a file's text, "" if it is missing."""
        found = self.get(path)
        return found.clue.text if found and found.clue else ""

    def program(self, name: str, search: str) -> str:
        """Return a program's path, searched as a shell does."""
        for folder in search.split(":"):
            path = f"{folder.rstrip('/')}/{name}"
            entry = self.get(path) if folder.startswith("/") else None
            if entry is not None and entry.kind is Kind.FILE and entry.mode & 0o111:
                return path
        return ""

    def obstacle(self, path: str) -> tuple[str, int] | None:
        """Return the first directory on a path that another user cannot pass, with its mode."""
        parts = self.real(path).split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            entry = self.entries.get(name)
            if entry is not None and not _open_to_group_root(entry, 0o1):
                return f"/{name}", entry.mode
        return None


def _open_to_group_root(entry: Entry, bit: int) -> bool:
    """Whether a user with group root only has a permission: 1 to search or execute, 2 to write."""
    return bool(entry.mode & (bit << 3 if entry.gid == 0 else bit))


def describe(origin: Origin, config: Config, entries: Mapping[str, Entry]) -> Image:
    tree = Tree(entries)
    search = config.env.get("PATH") or _PATH
    mpis = _mpis(tree)
    launcher = next(filter(None, (tree.program(launcher, search) for launcher in _LAUNCHERS)), "")
    python = next(filter(None, (tree.program(one, search) for one in ("python3", "python"))), "")
    sshd = tree.program("sshd", f"{search}:{_PATH}")
    ssh = tree.program("ssh", search)
    shell = tree.program("sh", "/bin")
    home = _home(tree, config)
    programs = {"mpirun": launcher, "ssh": ssh, "sshd": sshd, "python": python, "sh": shell}
    return Image(
        origin=origin,
        config=config,
        system=_system(tree),
        shell=shell,
        mpis=mpis,
        launcher=launcher,
        launcher_family=_launcher_family(tree, launcher, mpis),
        ssh=ssh,
        sshd=Sshd(path=sshd, settings=_sshd_settings(tree)) if sshd else None,
        python=python,
        python_version=_python_version(tree, python),
        mpi4py=_mpi4py(tree, _python_version(tree, python)),
        cuda=_newest(tree, _CUDA) or config.env.get("CUDA_VERSION", ""),
        nccl=_newest(tree, _NCCL) or config.env.get("NCCL_VERSION", ""),
        fabrics=_fabrics(tree),
        home=home,
        home_open=_writable(tree, home),
        passwd_open=_writable(tree, "/etc/passwd"),
        trapped=_trapped(tree, programs),
        closed=tuple(_closed(tree, programs)),
    )


def _mpis(tree: Tree) -> tuple[Mpi, ...]:
    """Return the MPI libraries, each path once, those with a version first."""
    found: dict[tuple[Family, str], Mpi] = {}
    for path in sorted(tree.entries):
        entry = tree.entries[path]
        clue = entry.clue
        if entry.kind is not Kind.FILE or clue is None or clue.family is None:
            continue
        version, exact = (clue.version, True) if clue.version else (_by_interface(path), False)
        key = (clue.family, path.rpartition("/")[0])
        if key not in found or (version and not found[key].version):
            found[key] = Mpi(
                family=clue.family,
                version=version,
                path=f"/{path}",
                soname=clue.soname or path.rpartition("/")[2],
                exact=exact,
                cuda_aware=_cuda_aware(tree, clue.cuda, clue.family),
            )
    return tuple(found.values())


def _by_interface(path: str) -> str:
    number = _NUMBERED.search(path)
    if number is None:
        return ""
    version_numbers = int(number[1]), int(number[2])
    return next(
        (
            version
            for least, version in _INTERFACES
            if version_numbers >= least and version_numbers[0] == least[0]
        ),
        "",
    )


def _cuda_aware(tree: Tree, by_file: bool | None, family: Family) -> bool | None:
    """Return whether an MPI library supports GPU memory, None if the files do not decide it."""
    if by_file:
        return True
    if any(_CUDA_PARTS.fullmatch(path) for path in tree.entries):
        return True
    return False if family is Family.OPENMPI else None


def _launcher_family(tree: Tree, launcher: str, mpis: tuple[Mpi, ...]) -> Family | None:
    """Return a launcher's MPI family, from the programs beside it or the only installed library."""
    if not launcher:
        return None
    beside = tree.real(launcher).rpartition("/")[0]
    by_program = (
        (Family.INTEL, ("impi_info", "hydra_bstrap_proxy")),
        (Family.OPENMPI, ("orted", "prted", "ompi_info", "orterun", "prterun")),
        (Family.MPICH, ("hydra_pmi_proxy", "mpichversion", "mpiexec.hydra")),
    )
    for family, names in by_program:
        if any(tree.get(f"/{beside}/{name}") for name in names):
            return family
    families = {mpi.family for mpi in mpis}
    return families.pop() if len(families) == 1 else None


def _system(tree: Tree) -> str:
    text = tree.text("/etc/os-release") or tree.text("/usr/lib/os-release")
    found = re.search(r'^PRETTY_NAME="?([^"\n]{1,80})', text, re.MULTILINE)
    return found[1] if found else ""


def _python_version(tree: Tree, python: str) -> str:
    found = _PYTHON.search(tree.real(python).rpartition("/")[2]) if python else None
    return found[1] if found else ""


def _mpi4py(tree: Tree, python: str) -> Binding | None:
    """Return the mpi4py that this Python imports: its own site-packages before others."""
    modules: dict[str, set[str]] = {}
    versions: dict[str, str] = {}
    for path, entry in tree.entries.items():
        if found := _MODULE.fullmatch(path):
            needs = entry.clue.needed if entry.clue else ()
            modules.setdefault(found[1], set()).update(one for one in needs if one.startswith("libmpi"))
        elif found := _PACKAGE.fullmatch(path):
            versions[found[1]] = found[2]
    if not modules:
        return None
    folder = min(modules, key=lambda one: (bool(python) and f"python{python}" not in one, one))
    return Binding(
        version=versions.get(folder, ""), path=f"/{folder}/mpi4py", needs=tuple(sorted(modules[folder]))
    )


def _newest(tree: Tree, pattern: re.Pattern[str]) -> str:
    found = [match[1] for path in tree.entries if (match := pattern.fullmatch(path))]
    return max(found, key=lambda one: (one.count("."), one), default="")


def _fabrics(tree: Tree) -> tuple[str, ...]:
    names = {path.rpartition("/")[2] for path in tree.entries}
    return tuple(word for name, word in _FABRICS.items() if name in names)


def _sshd_settings(tree: Tree) -> dict[str, str]:
    """Return the settings in the image's sshd_config; sshd uses the first of several values."""
    texts = [tree.text("/etc/ssh/sshd_config")]
    if re.search(r"^\s*Include\s+/etc/ssh/sshd_config\.d/", texts[0], re.MULTILINE | re.IGNORECASE):
        more = sorted(path for path in tree.entries if path.startswith("etc/ssh/sshd_config.d/"))
        texts = [*(tree.text(path) for path in more), *texts]
    found: dict[str, str] = {}
    for line in "\n".join(texts).splitlines():
        word, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() == "match":
            # Settings after a Match line apply conditionally.
            break
        if word.lower() in _SSHD_WORDS:
            found.setdefault(word.lower(), value.strip())
    return found


def _home(tree: Tree, config: Config) -> str:
    """Return HOME of a user whom the image does not know: the variable, else the home of the image's user."""
    if home := config.env.get("HOME"):
        return home
    user = config.user.partition(":")[0] or "root"
    for line in tree.text("/etc/passwd").splitlines():
        words = line.split(":")
        if len(words) >= 6 and user in (words[0], words[2]):
            return words[5]
    return "/"


def _writable(tree: Tree, path: str) -> bool:
    entry = tree.get(path)
    return entry is not None and _open_to_group_root(entry, 0o2)


def _trapped(tree: Tree, programs: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the programs for jobs that need capabilities, which pods do not have."""
    real = {tree.real(path) for path in programs.values() if path}
    daemons = (
        "orted",
        "prted",
        "hydra_pmi_proxy",
        "hydra_bstrap_proxy",
        "orterun",
        "prterun",
        "mpiexec.hydra",
    )
    return {
        f"/{path}": entry.capabilities
        for path, entry in sorted(tree.entries.items())
        if entry.capabilities and (path in real or path.rpartition("/")[2] in daemons)
    }


def _closed(tree: Tree, programs: Mapping[str, str]) -> Iterator[Closed]:
    for name, path in programs.items():
        if path and (at := tree.obstacle(path)):
            yield Closed(program=name, path=path, at=at[0], mode=f"{at[1] & 0o7777:04o}")
