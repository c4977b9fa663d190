"""The layers of an image, one on the other, as names and modes in memory: nothing is ever written to a disk.

A layer is read as it comes: unpacked, its digests taken, its archive walked through, all piece by piece. What is
kept of it are folders, links, programs and the few files that `formats/images/file_probes` wants to read. Every amount
that an image may claim has an end here: names, headers, bytes, and how far a packed byte may grow.
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

MOST_BYTES = 100 << 30  # of a whole image, unpacked
MOST_ENTRIES = 500_000  # that are kept
_MOST_NAMES = 5_000_000  # that are walked past
_MOST_GROWTH = 100  # real layers grow five- to tenfold
_FREE_GROWTH = 256 << 20
_LONGEST_HEADER = 1 << 20
_LONGEST_NAME = 4096
_MOST_GLOBAL = 64
_MOST_KEPT_BYTES = 128 << 20  # of names, links and texts
_PIECE = 1 << 18
_SLICE = 1 << 15
_GZIP = zlib.MAX_WBITS | 16
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_BROKEN = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]  # not in its stubs
_HEADERS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip


class Header(tarfile.TarInfo):
    """An archive's header that cannot make us read without end."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Header:
        """Return the next header; where the library would take a broken one for the end, the archive is refused."""
        try:
            return super().fromtarfile(tarfile_)
        except _BROKEN as error:
            if tarfile_.offset == 0:
                raise  # the library says so itself: it is no archive at all
            raise InvalidImage(f"an archive breaks off at byte {tarfile_.offset}: {error}") from error

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.type in _HEADERS and self.size > _LONGEST_HEADER:
            raise InvalidImage(f"a layer has a header of {self.size} bytes")
        if len(tar.pax_headers) > _MOST_GLOBAL:
            raise InvalidImage(f"a layer has more than {_MOST_GLOBAL} headers that hold for all of it")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise Unsupported("a layer holds a sparse file, which no image builder writes")
        return super()._proc_member(tar)  # type: ignore[misc]  # the library's own hook for subclasses

    def _block(self, count: int) -> int:
        if count < 0:  # it would lead back, and round and round
            raise InvalidImage("a layer holds a file of less than no bytes")
        return -(-count // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE

    def _refuse(self, *_: Any) -> None:
        raise Unsupported("a layer holds a sparse file, which no image builder writes")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse


class Flow(io.RawIOBase):
    """A layer as it comes: its digest and size checked, unpacked, the digest of its content taken."""

    def __init__(self, blob: Blob, pieces: Iterator[bytes], spend: Callable[[int], None]) -> None:
        self._blob = blob
        self._pieces = pieces
        self._spend = spend
        self._packed = hashlib.new(blob.digest.partition(":")[0]) if blob.digest else None
        self._content = hashlib.sha256()
        self._inflate: Any = None
        self._unpacker: Callable[[], Any]
        self._begun = self._over = False
        self._ready = self._pending = b""
        self._at = 0
        self._in = self._out = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next unpacked bytes, as many as were asked for unless the end comes first."""
        wanted = _PIECE if size < 0 else size
        while len(self._ready) < wanted and not self._over:
            self._more()
        data, self._ready = self._ready[:wanted], self._ready[wanted:]
        return data

    def finish(self, content: str) -> None:
        """Read what is left and refuse the layer if it is not what manifest and configuration say."""
        while not self._over or self._ready:
            self._ready = b""
            if not self._over:
                self._more()
        if self._blob.size is not None and self._in != self._blob.size:
            raise InvalidImage(
                f"layer {self._short} has {self._in} bytes, and its manifest says {self._blob.size}"
            )
        if self._packed is not None and self._packed.hexdigest() != self._blob.digest.partition(":")[2]:
            raise InvalidImage(f"layer {self._short} has another digest: it was damaged or exchanged")
        if f"sha256:{self._content.hexdigest()}" != content:
            raise InvalidImage(f"what is in layer {self._short} is not what the image's configuration says")

    @property
    def _short(self) -> str:
        return self._blob.digest[:19] or "of the archive"

    def _more(self) -> None:
        """Unpack a little more; how much of a packed piece is taken depends on how far it grows."""
        if self._at >= len(self._pending) and not self._fetch():
            return
        if self._inflate is None:
            data, self._at = self._pending[self._at :], len(self._pending)
            self._take(data)
            return
        if self._inflate.eof:  # several packed streams may follow each other, and zeros after the last
            if not self._pending[self._at :].strip(b"\0"):
                self._at = len(self._pending)
                return
            self._inflate = self._unpacker()
        part = self._pending[self._at : self._at + _SLICE]
        data = self._unpacked(part)
        left = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._at += len(part) - len(left)
        self._take(data)

    def _fetch(self) -> bool:
        """Get the next packed piece; False at the end."""
        self._pending, self._at = next(self._pieces, b""), 0
        if not self._pending:
            self._end()
            return False
        self._in += len(self._pending)
        if self._blob.size is not None and self._in > self._blob.size:
            raise InvalidImage(
                f"layer {self._short} is longer than its manifest says ({self._blob.size} bytes)"
            )
        if self._packed is not None:
            self._packed.update(self._pending)
        if not self._begun:
            self._begin(self._pending)
        return True

    def _begin(self, piece: bytes) -> None:
        self._begun = True
        if piece[:2] == b"\x1f\x8b":
            self._unpacker = lambda: zlib.decompressobj(_GZIP)
        elif zstd.is_packed(piece) or "zstd" in self._blob.kind:
            if not zstd.is_there():
                raise Unsupported(
                    f"layer {self._short} is packed with zstd, which cannot be read here",
                    hint="pip install 'mpijob[zstd]', or push it with gzip: podman push --compression-format gzip",
                )
            self._unpacker = zstd.Unpacker
        else:
            return
        self._inflate = self._unpacker()

    def _unpacked(self, part: bytes) -> bytes:
        try:
            data: bytes = self._inflate.decompress(part, _PIECE)
        except (zlib.error, zstd.Broken) as error:
            raise InvalidImage(f"layer {self._short} cannot be unpacked: {error}") from error
        return data

    def _take(self, data: bytes) -> None:
        self._out += len(data)
        self._spend(len(data))
        if self._out > self._in * _MOST_GROWTH + _FREE_GROWTH:
            raise InvalidImage(
                f"layer {self._short} grows more than {_MOST_GROWTH}-fold when it is unpacked: it is made to harm"
            )
        self._content.update(data)
        self._ready += data

    def _end(self) -> None:
        self._over = True
        while self._inflate is not None and not self._inflate.eof:  # what it still holds back
            data = self._unpacked(b"")
            if not data and not self._inflate.eof:
                raise InvalidImage(f"layer {self._short} ends before its packed content does")
            self._take(data)


class Stack:
    """An image as it grows, layer by layer."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.entries: dict[str, Entry] = {}
        self.bytes = 0
        self._most = most_bytes
        self._names = self._kept = 0

    def add(self, blob: Blob, pieces: Iterator[bytes], content: str) -> None:
        """Put a layer on top of those below; one that is refused leaves the rest as it was."""
        flow, before = Flow(blob, pieces, self._spend), self._names
        upper: dict[str, Entry] = {}
        gone: set[str] = set()
        opaque: set[str] = set()
        try:
            with tarfile.open(fileobj=flow, mode="r|", tarinfo=Header, bufsize=_PIECE) as tar:
                for header in tar:
                    tar.members.clear()  # type: ignore[attr-defined]  # the library would keep them all
                    self._walk(tar, header, upper, gone, opaque)
        except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
            if self._names > before or "empty" not in str(error):  # a layer may hold nothing at all
                raise InvalidImage(f"layer {blob.digest[:19]} is no archive: {error}") from error
        flow.finish(content)
        self._merge(upper, gone, opaque)

    def _spend(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self._most:
            raise InvalidImage(f"the image holds more than {self._most >> 30} GiB")

    def _walk(
        self,
        tar: tarfile.TarFile,
        header: tarfile.TarInfo,
        upper: dict[str, Entry],
        gone: set[str],
        opaque: set[str],
    ) -> None:
        self._names += 1
        if self._names > _MOST_NAMES:
            raise InvalidImage(f"the image holds more than {_MOST_NAMES} names")
        path = clean(header.name)
        folder, _, name = path.rpartition("/")
        self._kept += len(path) if name.startswith(_WHITEOUT) else 0
        if name == _OPAQUE:
            opaque.add(folder)
        elif name.startswith(_WHITEOUT):
            gone.add(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
        elif path and (entry := self._entry(tar, header, path, upper)):
            upper[path] = entry
            self._kept += len(path) + _weight(entry)
            if len(upper) + len(self.entries) > MOST_ENTRIES:
                raise InvalidImage(f"the image holds more than {MOST_ENTRIES} folders, links and programs")
        if self._kept > _MOST_KEPT_BYTES or len(gone) + len(opaque) > MOST_ENTRIES:
            raise InvalidImage("the image holds more names and texts than any real one")

    def _entry(
        self, tar: tarfile.TarFile, header: tarfile.TarInfo, path: str, upper: Mapping[str, Entry]
    ) -> Entry | None:
        given: dict[str, Any] = {
            "mode": header.mode & 0o7777,
            "uid": header.uid,
            "gid": header.gid,
            "size": header.size,
        }
        if header.isdir():
            return Entry(kind=Kind.FOLDER, **given)
        if header.issym():
            return Entry(kind=Kind.LINK, link=header.linkname[:_LONGEST_NAME], **given)
        if header.islnk():
            same = clean(header.linkname)
            return upper.get(same) or self.entries.get(same)
        if not header.isreg():
            return Entry(kind=Kind.OTHER, **given)
        wanted = file_probes.bytes_wanted(path)
        capabilities = file_probes.capabilities(header.pax_headers)
        clue = file_probes.read(path, _beginning(tar, header, wanted)) if wanted else None
        if not (clue or capabilities or header.mode & 0o111 or ".so" in path or "-info" in path):
            return None
        return Entry(kind=Kind.FILE, capabilities=capabilities, clue=clue, **given)

    def _merge(self, upper: Mapping[str, Entry], gone: set[str], opaque: set[str]) -> None:
        tree, places = Tree(self.entries), dict[str, str]()
        self._remove(
            frozenset(_placed(path, tree, places) for path in gone),
            below=frozenset(tree.follow(folder) for folder in opaque),
        )
        tree, places, replaced = Tree(self.entries), {}, set()
        for path, entry in upper.items():
            place = _placed(path, tree, places)
            there = self.entries.get(place)
            if there is not None and there.kind is Kind.FOLDER and entry.kind is not Kind.FOLDER:
                replaced.add(place)
            self.entries[place] = entry
        self._remove(frozenset(), below=frozenset(replaced))

    def _remove(self, paths: frozenset[str], *, below: frozenset[str]) -> None:
        """Take names away, and all that lies below them or below other folders, in one pass."""
        if paths or below:
            closed = paths | below
            self.entries = {
                name: entry
                for name, entry in self.entries.items()
                if name not in paths and closed.isdisjoint(_above(name))
            }


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, the image's root as ""."""
    yield ""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _weight(entry: Entry) -> int:
    """Return about how much is kept of an entry beside its name."""
    clue = entry.clue
    return len(entry.link) + (len(clue.text) + sum(map(len, clue.needed)) if clue else 0)


def _beginning(tar: tarfile.TarFile, header: tarfile.TarInfo, most: int) -> bytes:
    file = tar.extractfile(header)
    return file.read(min(most, header.size)) if file is not None else b""


def clean(name: str) -> str:
    """Return a name in an archive as a path in the image; one that leads out of it is refused."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(name) > _LONGEST_NAME or "\0" in name:
        raise InvalidImage(f"a layer holds the name {name[:80]!r}, which leads out of the image")
    return "/".join(parts)


def _placed(path: str, tree: Tree, known: dict[str, str]) -> str:
    """Return where a name of a layer comes to lie: links among its folders lead elsewhere in the image."""
    folder, _, name = path.rpartition("/")
    if not folder:
        return name
    if folder not in known:
        known[folder] = tree.follow(folder)
    return f"{known[folder]}/{name}"
