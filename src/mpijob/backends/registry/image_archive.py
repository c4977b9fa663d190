"""Images in files: an OCI layout as a folder or as one archive, and what `docker save` writes."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from mpijob.backends.registry import manifest
from mpijob.backends.registry.layers import Header, clean
from mpijob.backends.registry.manifest import Blob, Picture
from mpijob.errors import InvalidImage, NotFound
from mpijob.model.spec.image import DIGEST

_PIECE = 1 << 18
_LARGEST_DOCUMENT = 4 << 20
_MOST_MEMBERS = 10_000


class Layout:
    """An OCI layout: `index.json` and blobs by their digests."""

    def __init__(self, name: str, files: Folder | Archive) -> None:
        self.name = name
        self._files = files

    def document(self, version: str = "") -> tuple[bytes, str]:
        """Return the index, or the document of a digest."""
        path = _blob_path(version) if version else "index.json"
        return self._files.whole(path, _LARGEST_DOCUMENT), ""

    def pieces(self, blob: Blob) -> Iterator[bytes]:
        """Yield the bytes of a blob."""
        return self._files.pieces(_blob_path(blob.digest))

    def close(self) -> None:
        """Close the archive."""
        self._files.close()


class Saved:
    """What `docker save` wrote before it wrote OCI layouts: a list of layers by their names in the archive."""

    def __init__(self, name: str, files: Archive) -> None:
        self.name = name
        self._files = files

    def picture(self, platform: str) -> Picture:
        """Return the first image of the archive; its layers have no digests but those of their content."""
        told = manifest.decoded(
            b'{"list":' + self._files.whole("manifest.json", _LARGEST_DOCUMENT) + b"}", "manifest.json"
        )["list"]
        first = told[0] if isinstance(told, list) and told and isinstance(told[0], dict) else {}
        layers = first.get("Layers")
        if not isinstance(layers, list) or not all(isinstance(one, str) for one in layers):
            raise InvalidImage(f"{self.name}: its manifest.json names no layers")
        config = self._files.whole(str(first.get("Config") or ""), _LARGEST_DOCUMENT)
        return manifest.of_config(config, tuple(Blob("", None, one) for one in layers), platform, self.name)

    def pieces(self, blob: Blob) -> Iterator[bytes]:
        """Yield the bytes of a layer."""
        return self._files.pieces(blob.kind)

    def close(self) -> None:
        """Close the archive."""
        self._files.close()


class Folder:
    """Files of a folder; only plain ones are opened, so that nobody waits at a pipe."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __contains__(self, path: str) -> bool:
        return (self._root / path).is_file()

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        with self._open(path) as file:
            while piece := file.read(_PIECE):
                yield piece

    def whole(self, path: str, most: int) -> bytes:
        """Return a short file."""
        with self._open(path) as file:
            return _short(file.read(most + 1), path, most)

    def close(self) -> None:
        """Nothing stays open."""

    def _open(self, path: str) -> IO[bytes]:
        try:
            fd = os.open(self._root / clean(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidImage(f"{self._root}: {path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise InvalidImage(f"{self._root}: {path} is not a plain file")
        return os.fdopen(fd, "rb")


class Archive:
    """Files of an archive, read where they lie in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members: dict[str, tarfile.TarInfo] = {}
        try:
            self._tar = tarfile.open(path, "r:", tarinfo=Header)  # noqa: SIM115 it is read until `close`
            for member in self._tar:
                self._members[clean(member.name)] = member
                if len(self._members) > _MOST_MEMBERS:
                    raise InvalidImage(
                        f"{path} holds more than {_MOST_MEMBERS} files: it is no archive of an image"
                    )
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidImage(
                f"{path} is no archive of an image: {error}",
                hint="make one with `podman save --format oci-archive`, `docker save` or `skopeo copy`; "
                "unpack it first if it is packed (gunzip)",
            ) from error

    def __contains__(self, path: str) -> bool:
        return path in self._members

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        with self._open(path) as file:
            while piece := file.read(_PIECE):
                yield piece

    def whole(self, path: str, most: int) -> bytes:
        """Return a short file."""
        with self._open(path) as file:
            return _short(file.read(most + 1), path, most)

    def close(self) -> None:
        """Close the archive."""
        self._tar.close()

    def _open(self, path: str) -> IO[bytes]:
        member = self._members.get(clean(path))
        try:
            file = (
                self._tar.extractfile(member) if member is not None else None
            )  # links are followed inside only
        except (KeyError, tarfile.TarError, RecursionError):
            file = None
        if file is None:
            raise InvalidImage(f"{self._path} does not hold {path}, which its own list names")
        return file


def open_path(path: Path) -> Layout | Saved:
    """Return the image that a path holds."""
    if path.is_dir():
        folder = Folder(path)
        if "index.json" not in folder:
            raise NotFound(
                f"{path} is no OCI layout: it has no index.json", hint="name the folder that holds index.json"
            )
        return Layout(str(path), folder)
    if not path.is_file():
        raise NotFound(
            f"{path} does not exist or is not a plain file", hint="name an archive, a folder, or an image"
        )
    archive = Archive(path)
    if "index.json" in archive:
        return Layout(str(path), archive)
    if "manifest.json" in archive:
        return Saved(str(path), archive)
    archive.close()
    raise InvalidImage(f"{path} holds neither index.json nor manifest.json: it is no archive of an image")


def _blob_path(digest: str) -> str:
    if not DIGEST.fullmatch(digest):
        raise InvalidImage(f"{digest[:80]!r} is not a digest")
    return f"blobs/{digest.replace(':', '/')}"


def _short(data: bytes, path: str, most: int) -> bytes:
    if len(data) > most:
        raise InvalidImage(f"{path} has more than {most} bytes where a short document is due")
    return data
