"""A container image: its name, its relevant files, and what they say about running MPI jobs.

`backends/registry` reads images, `formats/images` makes these values of their files, `checks/images` decides. Nothing
in an image is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from mpijob.errors import Finding, InvalidJob, Severity
from mpijob.model.spec.job import Family

HUB = "docker.io"
# The host of Docker Hub's registry; `docker.io` itself serves no images.
_HUB_HOST = "registry-1.docker.io"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:(?P<host>[A-Za-z0-9.-]+(?::\d{{1,5}})?|\[[0-9a-fA-F:]+\](?::\d{{1,5}})?)/)?(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{32,128}))?"
)
DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")


class Known(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base class: frozen, keyword only."""


class Reference(msgspec.Struct, frozen=True):
    """The name of an image: its registry, its repository, and its version."""

    host: str
    path: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Return the parts of a name; like container engines, take a name without a host as Docker Hub's."""
        host, found = "", None
        if len(text) <= 512:
            first, slash, _ = text.partition("/")
            host = first if slash and (set(".:") & set(first) or first == "localhost") else ""
            found = _REFERENCE.fullmatch(text if host else f"{HUB}/{text}")
        if found is None or (found["digest"] and not DIGEST.fullmatch(found["digest"])):
            raise InvalidJob(
                f"{text[:100]!r} is not the name of an image",
                hint="the format is registry.example.com/team/mpi:1.0, in lowercase",
            )
        path = found["path"]
        if not host and "/" not in path:
            path = f"library/{path}"
        tag = found["tag"] or ("" if found["digest"] else "latest")
        return cls(host or HUB, path, tag, found["digest"] or "")

    @property
    def server(self) -> str:
        """The host, with its port, of this image's registry."""
        return _HUB_HOST if self.host in (HUB, "index.docker.io") else self.host

    @property
    def version(self) -> str:
        """The digest if there is one, else the tag."""
        return self.digest or self.tag

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" + (f":{self.tag}" if self.tag else "") + (
            f"@{self.digest}" if self.digest else ""
        )  # fmt: skip


class Kind(StrEnum):
    """What kind of file an entry is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class Clue(Known, frozen=True):
    """What one file says: its text, or a library's own data."""

    text: str = ""
    family: Family | None = None
    version: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    cuda: bool | None = None


class Entry(Known, frozen=True):
    """One file; `capabilities` are its file capabilities."""

    kind: Kind
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    size: int = 0
    link: str = ""
    capabilities: tuple[str, ...] = ()
    clue: Clue | None = None


class Config(Known, frozen=True):
    """The image's configuration: how it starts."""

    user: str = ""
    env: Mapping[str, str] = {}
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = ""


class Origin(Known, frozen=True):
    """The registry of an image, and its digest."""

    name: str
    digest: str = ""
    platform: str = ""
    layers: int = 0
    bytes: int = 0


class Mpi(Known, frozen=True):
    """One MPI library; `exact` is False if only its interface number tells the version."""

    family: Family
    version: str = ""
    path: str = ""
    soname: str = ""
    exact: bool = True
    cuda_aware: bool | None = None

    def __str__(self) -> str:
        return " ".join(
            filter(None, (NAMES[self.family], self.version if self.exact else f"{self.version}.x"))
        )


class Binding(Known, frozen=True):
    """A Python package that calls MPI, with the sonames of the libraries that it was built for."""

    version: str = ""
    path: str = ""
    needs: tuple[str, ...] = ()


class Sshd(Known, frozen=True):
    """The ssh server, and the image's own configuration of it."""

    path: str
    settings: Mapping[str, str] = {}


class Closed(Known, frozen=True):
    """A program that an ordinary user cannot execute, and the directory or file that prevents it."""

    program: str
    path: str
    at: str
    mode: str


class Image(Known, frozen=True):
    """What was found in an image and matters to jobs.

    `launcher` is the target of `mpirun` or `mpiexec`, `launcher_family` its family; `passwd_open` and `home_open` say
    whether a user ID without an entry could add itself to passwd and write its home.
    """

    origin: Origin
    config: Config = Config()
    system: str = ""
    shell: str = ""
    mpis: tuple[Mpi, ...] = ()
    launcher: str = ""
    launcher_family: Family | None = None
    ssh: str = ""
    sshd: Sshd | None = None
    python: str = ""
    python_version: str = ""
    mpi4py: Binding | None = None
    cuda: str = ""
    nccl: str = ""
    fabrics: tuple[str, ...] = ()
    home: str = ""
    home_open: bool = False
    passwd_open: bool = False
    trapped: Mapping[str, tuple[str, ...]] = {}
    closed: tuple[Closed, ...] = ()

    @property
    def mpi(self) -> Mpi | None:
        """The library that belongs to the launcher, or the only one."""
        own = [mpi for mpi in self.mpis if mpi.family is self.launcher_family]
        return own[0] if own else self.mpis[0] if len(self.mpis) == 1 else None


class Verdict(StrEnum):
    """Whether jobs can run in an image, as far as its files tell."""

    READY = "ready"
    DOUBTFUL = "doubtful"
    BROKEN = "broken"


class ImageReport(Known, frozen=True):
    """The findings of an inspection, and its verdict."""

    image: Image
    verdict: Verdict
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found that stops a job."""
        return self.verdict is not Verdict.BROKEN

    @classmethod
    def of(cls, image: Image, findings: tuple[Finding, ...]) -> ImageReport:
        """Return the report; the most severe finding decides the verdict."""
        worst = {finding.severity for finding in findings}
        if Severity.ERROR in worst:
            return cls(image=image, verdict=Verdict.BROKEN, findings=findings)
        verdict = Verdict.DOUBTFUL if Severity.WARNING in worst else Verdict.READY
        return cls(image=image, verdict=verdict, findings=findings)


NAMES = {
    Family.OPENMPI: "Open MPI",
    Family.MPICH: "MPICH",
    Family.INTEL: "Intel MPI",
    Family.AUTO: "MPI",
    Family.CUSTOM: "MPI",
}
