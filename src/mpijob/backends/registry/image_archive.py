"""Images in files: an OCI layout as a directory or archive, and archives of `docker save`.

The documents in them are read by `manifest`, the layers by `layers`. Nothing is unpacked to disk.
"""

from __future__ import annotations

import os
import stat
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from mpijob.backends.registry import manifest
from mpijob.backends.registry.layers import Header, clean_path
from mpijob.backends.registry.manifest import Blob, PlatformImage
from mpijob.errors import InvalidImage, NotFound
from mpijob.model.spec.image import DIGEST

_BLOCK_BYTES = 1 << 18
_MAX_DOCUMENT_BYTES = 4 << 20
_MAX_MEMBERS = 10_000


class Layout:
    """An OCI layout: `index.json` and blobs by digest."""

    def __init__(self, name: str, files: Directory | Archive) -> None:
        self.name = name
        self._files = files

    def document(self, version: str = "") -> tuple[bytes, str]:
        """Return the index, or the document with a digest."""
        path = _blob_path(version) if version else "index.json"
        return self._files.read_all(path, _MAX_DOCUMENT_BYTES), ""

    def read_blob(self, blob: Blob) -> Iterator[bytes]:
        return self._files.read_blocks(_blob_path(blob.digest))

    def close(self) -> None:
        self._files.close()


class DockerArchive:
    """An archive of `docker save` from before it wrote OCI layouts: a list of layers by file name."""

    def __init__(self, name: str, files: Archive) -> None:
        self.name = name
        self._files = files

    def read_image(self, platform: str) -> PlatformImage:
        """Return the first image of the archive; its layers have digests of their uncompressed content only."""
        # A list, wrapped because `decode_object` decodes objects.
        entries = manifest.decode_object(
            b'{"list":' + self._files.read_all("manifest.json", _MAX_DOCUMENT_BYTES) + b"}", "manifest.json"
        )["list"]
        first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
        layers = first.get("Layers")
        if not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
            raise InvalidImage(f"{self.name}: manifest.json lists no layers")
        config = self._files.read_all(str(first.get("Config") or ""), _MAX_DOCUMENT_BYTES)
        return manifest.image_from_config(
            config, tuple(Blob("", None, layer) for layer in layers), platform, self.name
        )

    # Here, `kind` is the layer's file name.
    def read_blob(self, blob: Blob) -> Iterator[bytes]:
        return self._files.read_blocks(blob.kind)

    def close(self) -> None:
        self._files.close()


class _Files(ABC):
    @abstractmethod
    def __contains__(self, path: str) -> bool: ...

    @abstractmethod
    def _open(self, path: str) -> IO[bytes]:
        """Open a file; raise InvalidImage if it is missing or not regular."""

    @abstractmethod
    def close(self) -> None: ...

    def read_blocks(self, path: str) -> Iterator[bytes]:
        with self._open(path) as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    def read_all(self, path: str, limit: int) -> bytes:
        """Return the content of a file; raise InvalidImage if it exceeds the limit."""
        with self._open(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InvalidImage(f"{path} is larger than {limit} bytes")
        return data


class Directory(_Files):
    """Files of a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __contains__(self, path: str) -> bool:
        return (self._root / path).is_file()

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _open(self, path: str) -> IO[bytes]:
        # Non-blocking, because opening a named pipe would wait forever.
        try:
            fd = os.open(self._root / clean_path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidImage(f"{self._root}: cannot read {path}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise InvalidImage(f"{self._root}: {path} is not a regular file")
        return os.fdopen(fd, "rb")


class Archive(_Files):
    """Files of an archive, read in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members: dict[str, tarfile.TarInfo] = {}
        try:
            # "r:", without decompression: members are read in any order, which a compressed archive makes slow.
            self._tar = tarfile.open(path, "r:", tarinfo=Header)  # noqa: SIM115 it is read until `close`
            for member in self._tar:
                self._members[clean_path(member.name)] = member
                if len(self._members) > _MAX_MEMBERS:
                    raise InvalidImage(
                        f"{path} is not an image archive: it has more than {_MAX_MEMBERS} files"
                    )
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidImage(
                f"{path} is not an image archive: {error}",
                hint="create one with `podman save --format oci-archive`, `docker save` or `skopeo copy`; "
                "decompress it first if it is compressed (gunzip)",
            ) from error

    def __contains__(self, path: str) -> bool:
        return path in self._members

    def close(self) -> None:
        self._tar.close()

    def _open(self, path: str) -> IO[bytes]:
        member = self._members.get(clean_path(path))
        try:
            # `extractfile` follows links inside the archive only.
            file = self._tar.extractfile(member) if member is not None else None
        except (KeyError, tarfile.TarError, RecursionError):
            file = None
        if file is None:
            raise InvalidImage(f"{self._path} does not contain {path}, which its manifest lists")
        return file


def open_path(path: Path) -> Layout | DockerArchive:
    """Open the image in an archive or a directory; raise NotFound or InvalidImage if there is none."""
    if path.is_dir():
        directory = Directory(path)
        if "index.json" not in directory:
            raise NotFound(
                f"{path} is not an OCI layout: it has no index.json",
                hint="pass the directory that contains index.json",
            )
        return Layout(str(path), directory)
    if not path.is_file():
        raise NotFound(
            f"{path} does not exist or is not a regular file",
            hint="pass an archive, a directory, or an image name",
        )
    archive = Archive(path)
    if "index.json" in archive:
        return Layout(str(path), archive)
    if "manifest.json" in archive:
        return DockerArchive(str(path), archive)
    archive.close()
    raise InvalidImage(f"{path} is not an image archive: it contains neither index.json nor manifest.json")


def _blob_path(digest: str) -> str:
    # It becomes part of a path.
    if not DIGEST.fullmatch(digest):
        raise InvalidImage(f"{digest[:80]!r} is not a digest")
    return f"blobs/{digest.replace(':', '/')}"
