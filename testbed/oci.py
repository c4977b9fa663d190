"""Container images without a container engine: layers as plain tar files, put together as an OCI archive.

`ctr images import` takes the archive. Time stamps are zero, so that a digest depends on the contents alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
}


@dataclass(frozen=True)
class Image:
    """An image: its full name with tag, its layers from the lowest, and how it starts."""

    name: str
    layers: tuple[Path, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    environment: tuple[str, ...] = ()


def write_folder_layer(folder: Path, layer: Path) -> None:
    """Write everything under a folder as a layer, owned by root."""
    with _new_layer(layer) as tar:
        for path in sorted(folder.rglob("*")):
            entry = tar.gettarinfo(path, arcname=str(path.relative_to(folder)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            with path.open("rb") if entry.isreg() else io.BytesIO() as contents:
                tar.addfile(entry, contents)


def write_program_layer(program: Path, inside: str, layer: Path) -> None:
    """Write a layer that holds one static program and the two accounts that it may run as."""
    with _new_layer(layer) as tar:
        _add_folder(tar, "tmp", mode=0o1777)
        for name, text in _ACCOUNTS.items():
            _add_file(tar, name, text.encode(), mode=0o644)
        _add_file(tar, inside.lstrip("/"), program.read_bytes(), mode=0o755)


def write_removal_layer(paths: Iterable[str], layer: Path) -> None:
    """Write a layer that takes files of the layers below away ("whiteouts")."""
    with _new_layer(layer) as tar:
        for path in map(PurePosixPath, paths):
            _add_file(tar, str(path.with_name(f".wh.{path.name}")), b"", mode=0o644)


def write_archive(image: Image, archive: Path, architecture: str) -> None:
    """Write an image as an OCI archive."""
    digests = [_digest_of(layer) for layer in image.layers]
    config = _json(_config(image, digests, architecture))
    manifest = _json(_manifest(image, digests, config))
    index = _json(_index(image, manifest, architecture))
    with tarfile.open(archive, "w") as tar:
        _add_file(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', mode=0o644)
        _add_file(tar, "index.json", index, mode=0o644)
        for blob in (manifest, config):
            _add_file(tar, f"blobs/sha256/{_sha256(blob)}", blob, mode=0o644)
        for digest, layer in dict(zip(digests, image.layers, strict=True)).items():
            tar.add(layer, arcname=f"blobs/sha256/{digest}")


def _config(image: Image, digests: Sequence[str], architecture: str) -> Mapping[str, Any]:
    config: dict[str, Any] = {"Env": [f"PATH={_PATH}", *image.environment], "WorkingDir": "/"}
    given = {"Entrypoint": list(image.entrypoint), "Cmd": list(image.command), "User": image.user}
    return {
        "architecture": architecture,
        "os": "linux",
        "config": config | {key: value for key, value in given.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }


def _manifest(image: Image, digests: Sequence[str], config: bytes) -> Mapping[str, Any]:
    layers = zip(digests, image.layers, strict=True)
    return {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor(_CONFIG, _sha256(config), len(config)),
        "layers": [_descriptor(_LAYER, digest, layer.stat().st_size) for digest, layer in layers],
    }


def _index(image: Image, manifest: bytes, architecture: str) -> Mapping[str, Any]:
    entry = _descriptor(_MANIFEST, _sha256(manifest), len(manifest)) | {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name.rsplit(":", 1)[1],
        },
    }
    return {"schemaVersion": 2, "manifests": [entry]}


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _new_layer(layer: Path) -> tarfile.TarFile:
    return tarfile.open(layer, "w", format=tarfile.PAX_FORMAT)


def _add_folder(tar: tarfile.TarFile, name: str, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, name: str, contents: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = mode, len(contents)
    tar.addfile(entry, io.BytesIO(contents))


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return _read_digest(file)


def _read_digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type] # an open binary file will do
