"""Rules about files: volumes, uploaded code, the trained model.

Engines check whether a directory exists.
"""

from __future__ import annotations

import re
from posixpath import normpath

from mpijob.checks.rule import Findings, Limits, dns_name, error, unfit_line, warning
from mpijob.model import GitSource, MPIJob, Volume, VolumeKind
from mpijob.model.spec import quantity
from mpijob.model.spec.enums import shown

_SOURCES = {
    VolumeKind.PATH: "a directory, such as /data/train",
    VolumeKind.CLAIM: "the name of a volume claim",
    VolumeKind.NFS: "server:/directory",
    VolumeKind.CONFIG: "the name of a config map",
    VolumeKind.SECRET: "the name of a secret",
    VolumeKind.S3: "CONNECTION/FOLDER: the name of a data connection and a folder in its bucket",
}
_LARGEST_FILES = 1024 * 1024
_SYSTEM = frozenset({"proc", "sys", "dev", "etc", "bin", "sbin", "lib", "lib64", "usr", "run"})
# Directories that `pod_template` or the engines mount.
_POD_PATHS = ("/mpijob", "/etc/mpi", "/etc/passwd")


def volumes(job: MPIJob, limits: Limits) -> Findings:
    """Each volume has a mount of its own and the source that its kind requires."""
    taken: set[str] = set()
    for index, volume in enumerate(job.volumes):
        field = f"volumes[{index}]"
        place = _normal_path(volume.mount)
        yield from _mount(f"{field}.mount", volume.mount, volume.kind)
        if place != "/" and place in taken:
            yield error(
                f"{field}.mount",
                f"{shown(volume.mount)} is used by two volumes",
                "use a separate directory for each",
            )
        taken.add(place)
        yield from _source(f"{field}.source", volume)
        yield from _size(f"{field}.size", volume)


def _normal_path(mount: str) -> str:
    """Return a directory's normal form."""
    return normpath(f"/{mount.strip('/')}")


def _mount(field: str, mount: str, kind: VolumeKind) -> Findings:
    if reason := unfit_line(mount):
        yield error(field, f"the directory {reason}", _MOUNT_HINT)
    elif not mount.startswith("/"):
        yield error(field, f"{shown(mount)} is not an absolute directory", _MOUNT_HINT)
    elif ".." in mount.split("/") or ":" in mount:
        yield error(field, f"{shown(mount)} contains '..' or ':'", "use the path of the directory itself")
    elif not mount.strip("/"):
        yield error(field, "a volume cannot be mounted at /", _MOUNT_HINT)
    elif own := next((own for own in _POD_PATHS if f"{_normal_path(mount)}/".startswith(f"{own}/")), ""):
        message = f"{shown(mount)} cannot be a mount path: the pods of a job use {own}"
        yield error(field, message, _MOUNT_HINT)
    elif mount.strip("/").split("/")[0] in _SYSTEM and kind is not VolumeKind.SHM:
        yield warning(field, f"{shown(mount)} hides files of the system", _MOUNT_HINT)


_MOUNT_HINT = "for example: /data"


def _source(field: str, volume: Volume) -> Findings:
    wanted = _SOURCES.get(volume.kind)
    source = volume.source
    if wanted is None:
        if source:
            yield error(field, f"a volume of kind {volume.kind} has no source", "remove it")
    elif not source:
        yield error(field, f"a volume of kind {volume.kind} needs a source", f"give {wanted}")
    elif unfit_line(source) or ".." in source.split("/") or not _fits(volume.kind, source):
        yield error(
            field, f"{shown(source)} cannot be the source of a volume of kind {volume.kind}", f"give {wanted}"
        )


def _fits(kind: VolumeKind, source: str) -> bool:
    if kind is VolumeKind.PATH:
        return bool(source.strip())
    if kind is VolumeKind.NFS:
        server, colon, directory = source.partition(":")
        return bool(colon and server) and directory.startswith("/") and ".." not in directory.split("/")
    if kind is VolumeKind.S3:
        connection, _, folder = source.partition("/")
        return dns_name(connection) and not folder.startswith("/")
    return dns_name(source)


def _size(field: str, volume: Volume) -> Findings:
    if volume.size == "":
        return
    if volume.kind not in (VolumeKind.SCRATCH, VolumeKind.SHM, VolumeKind.S3):
        yield warning(field, f"a volume of kind {volume.kind} has its own size", "remove size")
    try:
        fits = quantity.parse(volume.size) > 0
    except ValueError:
        fits = False
    if not fits:
        yield error(field, f"{shown(volume.size)} is not a size", "for example: 10Gi")


def model(job: MPIJob, limits: Limits) -> Findings:
    """A model has a name, and with an absolute path it is on a volume."""
    wanted = job.model
    if wanted is None:
        return
    for field in ("name", "version", "path", "format"):
        if reason := unfit_line(getattr(wanted, field)):
            yield error(f"model.{field}", f"the {field} {reason}", "use one line of text")
    if not wanted.name.strip():
        yield error("model.name", "the model has no name", "for example: bert", {"model.name": job.name})
    path = wanted.path
    if ".." in path.split("/"):
        yield error("model.path", f"{shown(path)} contains '..'", "use the path of the directory itself")
    elif path.startswith("/") and not any(
        (path + "/").startswith(volume.mount.rstrip("/") + "/") for volume in job.volumes
    ):
        hint = "write the model to a volume (kind: s3 or claim), and set its path"
        yield error("model.path", f"{shown(path)} is not on a volume of the job", hint)


def code(job: MPIJob, limits: Limits) -> Findings:
    """Uploaded paths stay inside their directory; inline files are small."""
    if reason := unfit_line(job.code.path):
        yield error("code.path", f"the path {reason}", "name one directory")
    if job.code.git != GitSource():
        yield from _git(job.code.git, job.code.path)
    for field, paths in (("include", job.code.include), ("exclude", job.code.exclude)):
        for index, path in enumerate(paths):
            yield from _inside(f"code.{field}[{index}]", path)
    for path in job.code.files:
        yield from _inside("code.files", path)
    yield from _small_enough(job)


_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_REF = re.compile(r"(?!-)(?!.*\.\.)[^\s~^:?*\[\\\x00-\x1f\x7f]{1,250}")
# Tokens may be in the place of the user name: known prefixes, or texts that no name looks like.
_PASSWORD = re.compile(
    r"[^/]+://([^/@]*:[^/@]*|(gh[a-z]_|github_pat_|glpat-|hf_)[^/@]*|(?=[^/@]*\d)[^/@.]{20,})@"
)
_TRANSPORTS = ("https", "http", "ssh", "git", "file")


def _git(git: GitSource, path: str) -> Findings:
    """A repository's URL is valid for git and has no password: the spec is stored in the job's record."""
    scheme, has_scheme, _ = git.url.partition("://")
    odd = unfit_line(git.url) or not git.url.strip() or git.url.startswith("-") or "::" in git.url
    if odd or (has_scheme and scheme not in _TRANSPORTS):
        hint = "use an address for git clone: https://git.example.org/train.git, git@host:train.git or a directory"
        yield error("code.git.url", f"{shown(git.url)} is not an address of a repository", hint)
    elif _PASSWORD.match(git.url):
        hint = "remove it and change it: use a git credential helper or SSH"
        yield error(
            "code.git.url",
            "the address has a password or a token, which would be stored in the record of the job",
            hint,
        )
    if git.ref and not _REF.fullmatch(git.ref):
        yield error("code.git.ref", f"{shown(git.ref)} is not a branch or tag", "for example main, or v1.2")
    if git.commit and not _COMMIT.fullmatch(git.commit):
        hint = "use all 40 digits, as git rev-parse prints them; for a branch or tag use code.git.ref"
        yield error("code.git.commit", f"{shown(git.commit)} is not a full commit", hint)
    pinned = bool(git.commit) and f"-{git.commit}" in path
    if ".." in path.split("/") or (not pinned and path.startswith(("/", "~"))):
        hint = "with code.git it is a directory of the repository: use a relative path without '..'"
        yield error("code.path", f"{shown(path)} is outside the repository", hint)


def _inside(field: str, path: str) -> Findings:
    if reason := unfit_line(path):
        yield error(field, f"the path {reason}", _INSIDE_HINT)
    elif not path.strip() or path.startswith(("/", "~")) or ".." in path.split("/") or path in (".", "./"):
        if field.startswith("code.include") and path in (".", "./"):
            return
        yield error(field, f"{shown(path)} is outside the job's directory", _INSIDE_HINT)


_INSIDE_HINT = "use a path relative to code.path, without '..': src/train.py"


def _small_enough(job: MPIJob) -> Findings:
    size = sum(len(text) for text in job.code.files.values())
    if size > _LARGEST_FILES:
        message = f"the inline files have {size} characters; a spec can have at most {_LARGEST_FILES}"
        yield error("code.files", message, "put them into a directory, and set it in code.path")
