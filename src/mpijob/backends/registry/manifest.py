"""The documents of an image: an index of platforms, the manifest of one, its configuration; every digest checked."""

from __future__ import annotations

import hashlib
import platform as machine
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from mpijob.errors import InvalidImage, NotFound, Unsupported
from mpijob.model.spec.image import DIGEST, Config

_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker.distribution"
INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.manifest.list.v2+json")
MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.manifest.v2+json", *INDEXES)
_MOST_LAYERS = 512
_MOST_PLATFORMS = 256
_MOST_STEPS = 4
_LARGEST_CONFIG = 4 << 20
_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_VERSION")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}


class Blob(msgspec.Struct, frozen=True):
    """A piece of an image by its digest; `size` is what its manifest says, None where nothing does."""

    digest: str
    size: int | None = None
    kind: str = ""


class BlobSource(Protocol):
    """Where an image comes from: a registry, an archive, a folder."""

    @property
    def name(self) -> str:
        """Return what the image is called."""
        ...

    def document(self, version: str = "") -> tuple[bytes, str]:
        """Return the index or manifest of that digest, of the image itself without one; and its type."""
        ...

    def pieces(self, blob: Blob) -> Iterator[bytes]:
        """Yield the bytes of a blob."""
        ...

    def close(self) -> None:
        """Give up what is open."""
        ...


class Picture(msgspec.Struct, frozen=True):
    """One image for one platform: what it is made of."""

    digest: str
    platform: str
    config: Config
    layers: tuple[Blob, ...]
    contents: tuple[str, ...] = ()  # digests of the layers once they are unpacked


def here() -> str:
    """Return the platform of this machine, as images name it."""
    return f"linux/{_MACHINES.get(machine.machine(), machine.machine())}"


def choose(source: BlobSource, platform: str) -> Picture:
    """Return the image for a platform."""
    data, kind = source.document()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    for _ in range(_MOST_STEPS):
        document = decoded(data, "the manifest")
        if "manifests" not in document:
            return _picture(source, digest, kind, document, platform)
        entry = _entry(document, platform, source.name)
        digest, size = _digest(entry), entry.get("size")
        data, kind = source.document(digest)
        check(data, digest)
        if isinstance(size, int) and size != len(data):
            raise InvalidImage(
                f"{source.name}: the manifest has {len(data)} bytes, and its index says {size}"
            )
    raise InvalidImage(f"{source.name}: its index leads to an index, and that to another, to no end")


def _entry(index: dict[str, Any], platform: str, name: str) -> dict[str, Any]:
    """Return the entry of an index that is for a platform; an only one that names none is taken."""
    entries = (
        [one for one in index["manifests"] if isinstance(one, dict)]
        if isinstance(index["manifests"], list)
        else []
    )
    if len(entries) > _MOST_PLATFORMS:
        raise InvalidImage(f"{name}: its index has {len(entries)} entries")
    told = [(_platform(one), one) for one in entries if _platform(one) != "unknown/unknown"]
    for known, entry in told:
        if known == platform or known.startswith(f"{platform}/") or (not known and len(told) == 1):
            return entry
    listed = ", ".join(sorted({known for known, _ in told if known})) or "none that is named"
    raise NotFound(
        f"{name} is not made for {platform}, but for {listed}", hint="choose one of them with --platform"
    )


def _platform(entry: dict[str, Any]) -> str:
    told = entry.get("platform")
    if not isinstance(told, dict):
        return ""
    return "/".join(str(told[key]) for key in ("os", "architecture", "variant") if told.get(key))


def _picture(source: BlobSource, digest: str, kind: str, manifest: dict[str, Any], platform: str) -> Picture:
    if manifest.get("schemaVersion") != 2 or not isinstance(manifest.get("config"), dict):
        raise Unsupported(
            f"{source.name} has a manifest of an old form or is no container image ({kind or 'no type'})",
            hint="push it again with a present docker, podman or buildah",
        )
    layers = manifest.get("layers")
    if (
        not isinstance(layers, list)
        or not all(isinstance(one, dict) for one in layers)
        or len(layers) > _MOST_LAYERS
    ):
        raise InvalidImage(
            f"{source.name}: its manifest has no list of layers, or one of more than {_MOST_LAYERS}"
        )
    config = whole(source, _blob(manifest["config"]), _LARGEST_CONFIG)
    return of_config(config, tuple(_blob(one) for one in layers), platform, source.name, digest)


def of_config(data: bytes, layers: tuple[Blob, ...], platform: str, name: str, digest: str = "") -> Picture:
    """Return an image by its configuration and its layers."""
    config = decoded(data, "the configuration")
    if not isinstance(config.get("rootfs"), dict):
        raise Unsupported(f"{name} is no container image: its configuration names no file system")
    own = "/".join(str(config[key]) for key in ("os", "architecture", "variant") if config.get(key))
    contents = config["rootfs"].get("diff_ids")
    checked = (
        tuple(contents)
        if isinstance(contents, list) and all(isinstance(one, str) for one in contents)
        else ()
    )
    if len(layers) > _MOST_LAYERS:
        raise InvalidImage(f"{name}: {len(layers)} layers are more than any engine takes")
    if len(checked) != len(layers):
        raise InvalidImage(f"{name}: {len(layers)} layers, and {len(checked)} digests of what is in them")
    return Picture(digest, own or platform, _config(config.get("config")), layers, checked)


def _config(told: Any) -> Config:
    told = told if isinstance(told, dict) else {}
    lines = [one for one in told.get("Env") or () if isinstance(one, str)]
    return Config(
        user=str(told.get("User") or ""),
        env={key: value for key, _, value in (one.partition("=") for one in lines) if _matters(key)},
        entrypoint=_words(told.get("Entrypoint")),
        command=_words(told.get("Cmd")),
        directory=str(told.get("WorkingDir") or ""),
    )


def _matters(variable: str) -> bool:
    """Whether a variable decides what a job finds; the others, which may be anybody's secrets, are not kept."""
    return variable in _VARIABLES or variable.startswith(
        ("OMPI_", "PRTE_", "PMIX_", "I_MPI_", "MPICH_", "UCX_", "NCCL_")
    )


def _words(told: Any) -> tuple[str, ...]:
    return tuple(map(str, told)) if isinstance(told, list) else ()


def _blob(descriptor: dict[str, Any]) -> Blob:
    size = descriptor.get("size")
    if not isinstance(size, int) or size < 0:
        raise InvalidImage("a layer or configuration has no size")
    return Blob(_digest(descriptor), size, str(descriptor.get("mediaType") or ""))


def _digest(descriptor: dict[str, Any]) -> str:
    digest = descriptor.get("digest")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise InvalidImage(f"{str(digest)[:80]!r} is not a digest")
    return digest


def decoded(data: bytes, what: str) -> dict[str, Any]:
    """Return a JSON document."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidImage(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidImage(f"{what} is not a JSON object")
    return value


def check(data: bytes, digest: str) -> None:
    """Refuse bytes that are not those of a digest."""
    found = hashlib.new(digest.partition(":")[0], data, usedforsecurity=True).hexdigest()
    if found != digest.partition(":")[2]:
        raise InvalidImage(f"what was given as {digest} has another digest: it was damaged or exchanged")


def whole(source: BlobSource, blob: Blob, most: int) -> bytes:
    """Return a short blob, checked."""
    if blob.size is not None and blob.size > most:
        raise InvalidImage(f"a document of {blob.size} bytes is longer than any real one")
    data = b""
    for piece in source.pieces(blob):
        data += piece
        if len(data) > (most if blob.size is None else blob.size):
            raise InvalidImage(f"what was given as {blob.digest} is longer than its manifest says")
    check(data, blob.digest)
    return data
