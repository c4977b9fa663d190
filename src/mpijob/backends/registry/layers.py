"""The layers of an image, merged in memory as names and modes: nothing is written to disk.

A layer is read as a stream: decompressed, digested, and its archive walked, block by block. Kept are
directories, links, programs and the few files that `formats/images/file_probes` reads. Everything that an
image can claim is bounded: names, headers, bytes, and the compression ratio.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mpijob.backends.registry import zstd
from mpijob.backends.registry.manifest import Blob
from mpijob.errors import InvalidImage, Unsupported
from mpijob.formats.images import file_probes
from mpijob.formats.images.filesystem import Tree
from mpijob.model.spec.image import Entry, Kind

# Of a whole image, decompressed.
MAX_BYTES = 100 << 30
# Entries that are kept.
MAX_ENTRIES = 500_000
# Entries that are walked.
_MAX_NAMES = 5_000_000
# Real layers have ratios of 5 to 10.
_MAX_RATIO = 100
_RATIO_FREE_BYTES = 256 << 20
_MAX_HEADER_BYTES = 1 << 20
_MAX_NAME_LENGTH = 4096
_MAX_GLOBAL_HEADERS = 64
# Of names, links and texts.
_MAX_KEPT_BYTES = 128 << 20
_BLOCK_BYTES = 1 << 18
_SLICE_BYTES = 1 << 15
# zlib's flag for the gzip format.
_GZIP = zlib.MAX_WBITS | 16
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_HEADER_ERRORS = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]  # not in its stubs
_EXTENSION_HEADERS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip


class Header(tarfile.TarInfo):
    """A tar header that cannot cause unbounded reading."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Header:
        """Return the next header; raise InvalidImage for a damaged one."""
        # tarfile would take a damaged header for the end of the archive.
        try:
            return super().fromtarfile(tarfile_)
        except _HEADER_ERRORS as error:
            if tarfile_.offset == 0:
                # The first header: tarfile itself reports that it is not an archive.
                raise
            raise InvalidImage(f"the archive is damaged at byte {tarfile_.offset}: {error}") from error

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.type in _EXTENSION_HEADERS and self.size > _MAX_HEADER_BYTES:
            raise InvalidImage(f"a layer has a tar header of {self.size} bytes")
        if len(tar.pax_headers) > _MAX_GLOBAL_HEADERS:
            raise InvalidImage(f"a layer has more than {_MAX_GLOBAL_HEADERS} global tar headers")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise Unsupported("a layer contains a sparse file, which no image builder writes")
        return super()._proc_member(tar)  # type: ignore[misc]  # the library's own hook for subclasses

    def _block(self, count: int) -> int:
        # A negative size would make the reader go back and loop forever.
        if count < 0:
            raise InvalidImage("a layer contains a file with a negative size")
        return -(-count // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE

    # The three formats of sparse files in pax headers.
    def _refuse(self, *_: Any) -> None:
        raise Unsupported("a layer contains a sparse file, which no image builder writes")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse


class LayerStream(io.RawIOBase):
    """The decompressed stream of a layer; digest and size of the compressed data are checked."""

    def __init__(self, blob: Blob, blocks: Iterator[bytes], spend: Callable[[int], None]) -> None:
        self._blob = blob
        self._blocks = blocks
        self._spend = spend
        self._compressed_digest = hashlib.new(blob.digest.partition(":")[0]) if blob.digest else None
        self._content_digest = hashlib.sha256()
        self._decompressor: Any = None
        self._new_decompressor: Callable[[], Any]
        self._started = self._ended = False
        self._output = self._input = b""
        self._input_offset = 0
        self._compressed_bytes = self._decompressed_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next decompressed bytes: `size` bytes unless the end comes first."""
        count = _BLOCK_BYTES if size < 0 else size
        while len(self._output) < count and not self._ended:
            self._decompress_slice()
        data, self._output = self._output[:count], self._output[count:]
        return data

    def finish(self, content: str) -> None:
        """Read the rest, and raise InvalidImage if digest or size differ from manifest and configuration."""
        while not self._ended or self._output:
            self._output = b""
            if not self._ended:
                self._decompress_slice()
        if self._blob.size is not None and self._compressed_bytes != self._blob.size:
            raise InvalidImage(
                f"layer {self._short_digest} has {self._compressed_bytes} bytes, but its manifest "
                f"says {self._blob.size}"
            )
        if (
            self._compressed_digest is not None
            and self._compressed_digest.hexdigest() != self._blob.digest.partition(":")[2]
        ):
            raise InvalidImage(
                f"digest mismatch of layer {self._short_digest}: it is damaged or was replaced"
            )
        if f"sha256:{self._content_digest.hexdigest()}" != content:
            raise InvalidImage(
                f"content of layer {self._short_digest} does not match the image's configuration"
            )

    @property
    def _short_digest(self) -> str:
        return self._blob.digest[:19] or "of the archive"

    # Slices are small, because a few bytes may decompress to many.
    def _decompress_slice(self) -> None:
        if self._input_offset >= len(self._input) and not self._read_block():
            return
        # An uncompressed layer.
        if self._decompressor is None:
            data, self._input_offset = self._input[self._input_offset :], len(self._input)
            self._emit(data)
            return
        # Several compressed streams may follow each other, and zeros after the last one.
        if self._decompressor.eof:
            if not self._input[self._input_offset :].strip(b"\0"):
                self._input_offset = len(self._input)
                return
            self._decompressor = self._new_decompressor()
        slice_ = self._input[self._input_offset : self._input_offset + _SLICE_BYTES]
        data = self._decompress(slice_)
        unused = (
            self._decompressor.unused_data if self._decompressor.eof else self._decompressor.unconsumed_tail
        )
        self._input_offset += len(slice_) - len(unused)
        self._emit(data)

    def _read_block(self) -> bool:
        """Read the next compressed block; return False at the end."""
        self._input, self._input_offset = next(self._blocks, b""), 0
        if not self._input:
            self._drain()
            return False
        self._compressed_bytes += len(self._input)
        if self._blob.size is not None and self._compressed_bytes > self._blob.size:
            raise InvalidImage(
                f"layer {self._short_digest} is longer than its manifest says ({self._blob.size} bytes)"
            )
        if self._compressed_digest is not None:
            self._compressed_digest.update(self._input)
        if not self._started:
            self._choose_decompressor(self._input)
        return True

    def _choose_decompressor(self, block: bytes) -> None:
        # By the content rather than by the media type that the manifest claims.
        self._started = True
        if block[:2] == b"\x1f\x8b":
            self._new_decompressor = lambda: zlib.decompressobj(_GZIP)
        elif zstd.is_zstd(block) or "zstd" in self._blob.kind:
            if not zstd.is_available():
                raise Unsupported(
                    f"layer {self._short_digest} is compressed with zstd, which is not supported here",
                    hint="run: pip install 'mpijob[zstd]', or push it with gzip: podman push --compression-format gzip",
                )
            self._new_decompressor = zstd.FrameDecompressor
        else:
            return
        self._decompressor = self._new_decompressor()

    def _decompress(self, part: bytes) -> bytes:
        try:
            data: bytes = self._decompressor.decompress(part, _BLOCK_BYTES)
        except (zlib.error, zstd.DecompressError) as error:
            raise InvalidImage(f"cannot decompress layer {self._short_digest}: {error}") from error
        return data

    def _emit(self, data: bytes) -> None:
        self._decompressed_bytes += len(data)
        self._spend(len(data))
        if self._decompressed_bytes > self._compressed_bytes * _MAX_RATIO + _RATIO_FREE_BYTES:
            raise InvalidImage(
                f"layer {self._short_digest} has a compression ratio above {_MAX_RATIO}: refused as a "
                "decompression bomb"
            )
        self._content_digest.update(data)
        self._output += data

    def _drain(self) -> None:
        self._ended = True
        # Data that the decompressor still holds back.
        while self._decompressor is not None and not self._decompressor.eof:
            data = self._decompress(b"")
            if not data and not self._decompressor.eof:
                raise InvalidImage(f"layer {self._short_digest} is truncated")
            self._emit(data)


class ImageContent:
    """The merged content of an image, layer by layer."""

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self.entries: dict[str, Entry] = {}
        self.bytes = 0
        self._max_bytes = most_bytes
        self._names = self._kept_bytes = 0

    def add(self, blob: Blob, blocks: Iterator[bytes], content: str) -> None:
        """Merge a layer on top; if it is refused, the content stays as it was."""
        stream, names_before = LayerStream(blob, blocks, self._count_bytes), self._names
        # Collected first and merged after the digests were checked.
        upper: dict[str, Entry] = {}
        removed: set[str] = set()
        opaque: set[str] = set()
        try:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header, bufsize=_BLOCK_BYTES) as tar:
                for header in tar:
                    # tarfile would keep all headers in memory.
                    tar.members.clear()  # type: ignore[attr-defined]
                    self._add_entry(tar, header, upper, removed, opaque)
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            # An empty layer is valid.
            if self._names > names_before or "empty" not in str(error):
                raise InvalidImage(f"layer {blob.digest[:19]} is not a tar archive: {error}") from error
        stream.finish(content)
        self._merge(upper, removed, opaque)

    def _count_bytes(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self._max_bytes:
            raise InvalidImage(f"the image is larger than {self._max_bytes >> 30} GiB")

    def _add_entry(
        self,
        tar: tarfile.TarFile,
        header: tarfile.TarInfo,
        upper: dict[str, Entry],
        removed: set[str],
        opaque: set[str],
    ) -> None:
        self._names += 1
        if self._names > _MAX_NAMES:
            raise InvalidImage(f"the image has more than {_MAX_NAMES} files")
        path = clean_path(header.name)
        directory, _, name = path.rpartition("/")
        self._kept_bytes += len(path) if name.startswith(_WHITEOUT) else 0
        if name == _OPAQUE:
            opaque.add(directory)
        elif name.startswith(_WHITEOUT):
            removed.add(f"{directory}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
        elif path and (entry := self._entry(tar, header, path, upper)):
            upper[path] = entry
            self._kept_bytes += len(path) + _memory_size(entry)
            if len(upper) + len(self.entries) > MAX_ENTRIES:
                raise InvalidImage(f"the image has more than {MAX_ENTRIES} directories, links and programs")
        if self._kept_bytes > _MAX_KEPT_BYTES or len(removed) + len(opaque) > MAX_ENTRIES:
            raise InvalidImage("names and texts of the image exceed the memory limit")

    def _entry(
        self, tar: tarfile.TarFile, header: tarfile.TarInfo, path: str, upper: Mapping[str, Entry]
    ) -> Entry | None:
        attributes: dict[str, Any] = {
            "mode": header.mode & 0o7777,
            "uid": header.uid,
            "gid": header.gid,
            "size": header.size,
        }
        if header.isdir():
            return Entry(kind=Kind.FOLDER, **attributes)
        if header.issym():
            return Entry(kind=Kind.LINK, link=header.linkname[:_MAX_NAME_LENGTH], **attributes)
        if header.islnk():
            # A hard link is another name of a file in this layer, or below it.
            target = clean_path(header.linkname)
            return upper.get(target) or self.entries.get(target)
        if not header.isreg():
            return Entry(kind=Kind.OTHER, **attributes)
        max_bytes = file_probes.bytes_wanted(path)
        capabilities = file_probes.capabilities(header.pax_headers)
        clue = file_probes.read(path, _read_start(tar, header, max_bytes)) if max_bytes else None
        if not (clue or capabilities or header.mode & 0o111 or ".so" in path or "-info" in path):
            return None
        return Entry(kind=Kind.FILE, capabilities=capabilities, clue=clue, **attributes)

    def _merge(self, upper: Mapping[str, Entry], removed: set[str], opaque: set[str]) -> None:
        # Whiteouts apply to the layers below only, so they come first.
        tree, resolved = Tree(self.entries), dict[str, str]()
        self._remove(
            frozenset(_stored_path(path, tree, resolved) for path in removed),
            below=frozenset(tree.follow(directory) for directory in opaque),
        )
        tree, resolved, replaced = Tree(self.entries), {}, set()
        for path, entry in upper.items():
            stored_path = _stored_path(path, tree, resolved)
            existing = self.entries.get(stored_path)
            # A file or link in the place of a directory hides what was in it.
            if existing is not None and existing.kind is Kind.FOLDER and entry.kind is not Kind.FOLDER:
                replaced.add(stored_path)
            self.entries[stored_path] = entry
        self._remove(frozenset(), below=frozenset(replaced))

    def _remove(self, paths: frozenset[str], *, below: frozenset[str]) -> None:
        """Remove names, everything below them, and everything below other directories, in one pass."""
        if paths or below:
            removed = paths | below
            self.entries = {
                name: entry
                for name, entry in self.entries.items()
                if name not in paths and removed.isdisjoint(_parents(name))
            }


def _parents(path: str) -> Iterator[str]:
    """Yield the parent directories of a path, the image's root as ""."""
    yield ""
    slash = path.find("/")
    while slash >= 0:
        yield path[:slash]
        slash = path.find("/", slash + 1)


def _memory_size(entry: Entry) -> int:
    """Return the approximate memory of an entry, apart from its name."""
    clue = entry.clue
    return len(entry.link) + (len(clue.text) + sum(map(len, clue.needed)) if clue else 0)


def _read_start(tar: tarfile.TarFile, header: tarfile.TarInfo, max_bytes: int) -> bytes:
    file = tar.extractfile(header)
    return file.read(min(max_bytes, header.size)) if file is not None else b""


def clean_path(name: str) -> str:
    """Return a name in an archive as a path in the image; raise InvalidImage for one that leads outside."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(name) > _MAX_NAME_LENGTH or "\0" in name:
        raise InvalidImage(f"a layer contains the name {name[:80]!r}, which leads out of the image")
    return "/".join(parts)


def _stored_path(path: str, tree: Tree, resolved: dict[str, str]) -> str:
    """Return where a name of a layer is stored: its directories may be links."""
    directory, _, name = path.rpartition("/")
    if not directory:
        return name
    if directory not in resolved:
        resolved[directory] = tree.follow(directory)
    return f"{resolved[directory]}/{name}"
