"""The files of a job's volume claims, through a reader pod: listed with find and stat, streamed with tar.

The programs are those of the job's image, so their output is not trusted: a name outside of the requested
paths, a header without end, or a file larger than allowed ends the transfer, and no links are created here.
Only regular files are listed and fetched. Names that are not UTF-8 or have a line break are left out.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NoReturn, cast

from mpijob.backends.kubernetes.actions.claim_reader import JobFiles, Reader
from mpijob.errors import BackendError, NotFound
from mpijob.formats.kubernetes import reader_pod
from mpijob.model import Artifact
from mpijob.model.spec import quantity
from mpijob.outbound.policy import Policy, TooLarge

_FIND = 'cd "$0" && exec find "$@" -name lost+found -prune -o -type f ! -path "*\n*" -exec stat -c "%s %Y %n" {} +'
# BusyBox may be built without --exclude.
_TAR = (
    'cd "$0" || exit 2; left_out=--exclude=lost+found; tar $left_out -cf /dev/null /dev/null 2>/dev/null || left_out=; '
    'exec tar $left_out -cf - -- "$@"'
)
# GNU tar's warning; the file is in the archive nevertheless.
_CHANGED = "file changed as we read it"
_AFTERWORDS = ("Exiting with failure", "error exit delayed")
_MISSING = ("No such file or directory", "Cannot stat")
# File servers have clocks of their own.
_CLOCK_SECONDS = 60.0
# The command is a part of the URL, whose length is limited.
_MAX_COMMAND_BYTES = 16 << 10
# The exceptions of tarfile for bytes that are not an archive.
NO_ARCHIVE = (tarfile.TarError, EOFError, ValueError, OverflowError)
_LONGEST_LINE, _LARGEST_HEADER, _CHUNK_BYTES = 64 << 10, 1 << 20, 256 << 10
Write = Callable[[PurePosixPath, Iterator[bytes]], None]


def left(reader: Reader, files: JobFiles, policy: Policy) -> Iterator[Artifact]:
    """Yield the files that changed since the job was submitted; raise TooLarge beyond the policy's number."""
    since = files.submitted - _CLOCK_SECONDS
    count = 0
    for artifact in listed(reader, stems(files)):
        if artifact.time < since:
            continue
        count += 1
        if 0 < policy.listed_objects < count:
            raise TooLarge(
                f"the job has more than {policy.listed_objects} files, the limit of this server",
                hint="list them with: mpijob artifacts list",
            )
        yield artifact


def stems(files: JobFiles) -> list[str]:
    """Return the directories of the claims below the reader's root, without those inside of others."""
    found = sorted({volume.mount.strip("/") for volume in files.claims})
    return [stem for stem in found if not any(stem.startswith(f"{other}/") for other in found)]


def listed(reader: Reader, roots: Sequence[str]) -> Iterator[Artifact]:
    """Yield all regular files below directories."""
    argv = ("/bin/sh", "-c", _FIND, reader_pod.ROOT, *(f"./{path}" for path in roots))
    with reader.output(*argv) as output:
        batch = False
        while line := output.stdout.readline(_LONGEST_LINE):
            if (found := _artifact(line)) is not None:
                batch = True
                yield found
        status, stderr = output.finish()
        # 1: some directories may not be read, for example those of other users.
        if status > 1 or (status and not batch):
            raise BackendError(
                f"the claims cannot be listed: {_last(stderr) or f'find ended with {status}'}", hint=_HINT
            )


_HINT = "the job's image needs sh, find, stat and tar"


def _artifact(line: bytes) -> Artifact | None:
    size, _, rest = line.removesuffix(b"\n").partition(b" ")
    time, _, name = rest.partition(b" ")
    if not (
        line.endswith(b"\n") and size.isdigit() and time.removeprefix(b"-").isdigit() and len(line) < 8192
    ):
        return None
    try:
        path = name.decode().removeprefix("./")
        return Artifact(path, int(size[:19]), float(int(time[:19]))) if path else None
    except UnicodeDecodeError:
        return None


def fetch_one(reader: Reader, path: str, write: Write, policy: Policy) -> None:
    """Pass the contents of a file to `write`; raise NotFound before it is called."""

    def written(place: PurePosixPath, pieces: Iterator[bytes]) -> None:
        # A file of a folder with that name.
        if str(place) != path:
            raise missing(path)
        write(place, pieces)

    if not fetch(reader, [path], written, policy):
        raise missing(path)


def fetch_below(reader: Reader, paths: Sequence[str], directory: Path, policy: Policy) -> list[str]:
    """Copy files and folders to the same paths below a directory; return the copied files."""
    root = directory.resolve()

    def write(place: PurePosixPath, pieces: Iterator[bytes]) -> None:
        target = root / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as file:
                file.writelines(pieces)
        except OSError as error:
            raise BackendError(f"cannot write {target}: {error.strerror}") from error

    def copy(place: PurePosixPath, earlier: PurePosixPath) -> None:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / earlier, root / place)

    found: list[PurePosixPath] = []
    for batch in _batches(_outermost(paths)):
        found += fetch(reader, batch, write, policy, copy)
    if not found:
        raise missing(paths[0])
    return [str(place) for place in sorted(found)]


def missing(path: str) -> NotFound:
    return NotFound(f"the job has no output file {path!r}", hint="mpijob artifacts list shows what there is")


def _outermost(paths: Sequence[str]) -> list[str]:
    # Without paths inside of others, so that each file comes once.
    every = set(paths)
    return [
        path
        for path in dict.fromkeys(paths)
        if every.isdisjoint(str(above) for above in PurePosixPath(path).parents)
    ]


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    batch, size = list[str](), 0
    for path in paths:
        batch.append(path)
        size += len(path.encode(errors="surrogateescape")) * 3 + 16
        if size > _MAX_COMMAND_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def fetch(
    reader: Reader,
    paths: Sequence[str],
    write: Write,
    policy: Policy,
    copy: Callable[[PurePosixPath, PurePosixPath], None] | None = None,
) -> list[PurePosixPath]:
    """Pass files and those of folders to `write`, in one transfer; return them.

    Of a file with several hard links tar sends the contents once: `copy` is called for the other names.
    """
    argv = ("/bin/sh", "-c", _TAR, reader_pod.ROOT, *(f"./{path}" for path in paths))
    with reader.output(*argv) as output:
        try:
            found = [*members(output.stdout, [PurePosixPath(path) for path in paths], write, policy, copy)]
        except NO_ARCHIVE as error:
            # tar's own message is the better explanation.
            _finish(output.finish(), paths)
            raise BackendError(f"the reader pod sent an invalid tar archive: {error}", hint=_HINT) from error
        _finish(output.finish(), paths)
    return found


def _finish(ended: tuple[int, str], paths: Sequence[str]) -> None:
    status, stderr = ended
    lines = [line for line in stderr.splitlines() if line.strip()]
    if status == 0 or (status == 1 and lines and all(line.endswith(_CHANGED) for line in lines)):
        return
    if any(word in stderr for word in _MISSING):
        raise missing(paths[0] if len(paths) == 1 else _last(stderr))
    raise BackendError(
        f"the files cannot be read: {_last(stderr) or f'tar ended with {status}'}",
        hint="files of a job that still runs may change while they are read: fetch them again; " + _HINT,
    )


def _last(stderr: str) -> str:
    lines = [
        line.strip()
        for line in stderr.splitlines()
        if line.strip() and not any(word in line for word in _AFTERWORDS)
    ]
    return lines[-1][:300] if lines else ""


class _Limited:
    """The stream that tarfile reads; between files it provides no more bytes than headers need."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.allowance: int | None = _LARGEST_HEADER

    # tarfile reads a PAX header into memory, however large it says that it is.
    def read(self, size: int) -> bytes:
        if self.allowance is not None:
            if size > self.allowance:
                raise BackendError("the reader pod sends a tar header of more than 1 MiB; discarded")
            self.allowance -= size
        return self._stream.read(size)


def members(
    stream: BinaryIO,
    wanted: Sequence[PurePosixPath],
    write: Write,
    policy: Policy,
    copy: Callable[[PurePosixPath, PurePosixPath], None] | None = None,
) -> Iterator[PurePosixPath]:
    """Pass the requested regular files of an archive to `write` and yield them; raise BackendError for others."""
    limited, received = _Limited(stream), set[PurePosixPath]()
    with tarfile.open(fileobj=cast(IO[bytes], limited), mode="r|", bufsize=tarfile.RECORDSIZE) as tar:
        while (member := tar.next()) is not None:
            place = _place(member.name, wanted)
            # tar was not called with --sparse, and holes may be endless.
            if place in received or member.issparse():
                _refuse(member.name)
            if member.isreg():
                limited.allowance = None
                write(place, _contents(tar, member, policy))
            elif not (member.islnk() and copy and (earlier := _place(member.linkname, wanted)) in received):
                limited.allowance = _LARGEST_HEADER
                # A directory, a link or a device.
                continue
            else:
                copy(place, earlier)
            limited.allowance = _LARGEST_HEADER
            # tarfile keeps all members in memory, and there may be millions.
            cast(Any, tar).members.clear()
            received.add(place)
            yield place


def _place(name: str, wanted: Sequence[PurePosixPath]) -> PurePosixPath:
    """Return the path of a member; raise BackendError for one outside of the requested paths."""
    place = PurePosixPath(name.removeprefix("./"))
    if place.is_absolute() or ".." in place.parts or "\0" in name:
        _refuse(name)
    if not any(path == place or path in place.parents for path in wanted):
        _refuse(name)
    return place


def _refuse(name: str) -> NoReturn:
    raise BackendError(
        f"the reader pod sent {name[:200]!r}, which was not requested; transfer aborted",
        hint="check the tar program of the image",
    )


def _contents(tar: tarfile.TarFile, member: tarfile.TarInfo, policy: Policy) -> Iterator[bytes]:
    if 0 < policy.download_bytes < member.size:
        whole, most = quantity.as_bytes(member.size), quantity.as_bytes(policy.download_bytes)
        raise TooLarge(f"{os.path.basename(member.name)} has {whole}; the limit of this server is {most}")
    content = tar.extractfile(member)
    # Regular files have contents.
    assert content is not None
    size = 0
    while piece := content.read(_CHUNK_BYTES):
        size += len(piece)
        yield piece
    if size != member.size:
        raise EOFError(f"{member.name} was truncated after {size} of {member.size} bytes")
