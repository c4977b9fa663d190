"""The documents of an image: index, manifest and configuration, with every digest checked.

They come from strangers: every value is checked before it is used, and numbers are bounded.
"""

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
_MAX_LAYERS = 512
_MAX_PLATFORMS = 256
_MAX_NESTED_INDEXES = 4
_MAX_CONFIG_BYTES = 4 << 20
_KEPT_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_VERSION")
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}


class Blob(msgspec.Struct, frozen=True):
    """A blob of an image; `size` is what its manifest says, None if unknown."""

    digest: str
    size: int | None = None
    kind: str = ""


class BlobSource(Protocol):
    """Where an image comes from: a registry, an archive, a directory."""

    @property
    def name(self) -> str: ...

    def document(self, version: str = "") -> tuple[bytes, str]:
        """Return the index or manifest with a digest (default: of the image itself), and its media type."""
        ...

    def read_blob(self, blob: Blob) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class PlatformImage(msgspec.Struct, frozen=True):
    """One image for one platform."""

    digest: str
    platform: str
    config: Config
    layers: tuple[Blob, ...]
    # Digests of the layers' uncompressed content.
    contents: tuple[str, ...] = ()


def local_platform() -> str:
    """Return this machine's platform in image notation."""
    return f"linux/{_ARCHITECTURES.get(machine.machine(), machine.machine())}"


def select_image(source: BlobSource, platform: str) -> PlatformImage:
    """Return the image for a platform; raise NotFound if an index has none for it."""
    data, kind = source.document()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    for _ in range(_MAX_NESTED_INDEXES):
        document = decode_object(data, "the manifest")
        if "manifests" not in document:
            return _read_image(source, digest, kind, document, platform)
        entry = _select_entry(document, platform, source.name)
        digest, size = _parse_digest(entry), entry.get("size")
        data, kind = source.document(digest)
        verify_digest(data, digest)
        if isinstance(size, int) and size != len(data):
            raise InvalidImage(
                f"{source.name}: the manifest has {len(data)} bytes, but its index says {size}"
            )
    raise InvalidImage(f"{source.name}: more than {_MAX_NESTED_INDEXES} nested indexes")


def _select_entry(index: dict[str, Any], platform: str, name: str) -> dict[str, Any]:
    """Return the entry of an index for a platform; a single entry without a platform is accepted."""
    listed = index["manifests"] if isinstance(index["manifests"], list) else []
    entries = [entry for entry in listed if isinstance(entry, dict)]
    if len(entries) > _MAX_PLATFORMS:
        raise InvalidImage(f"{name}: its index has {len(entries)} entries, more than {_MAX_PLATFORMS}")
    # Attestations (SBOM, provenance) are listed with an unknown platform.
    by_platform = [(_platform(entry), entry) for entry in entries if _platform(entry) != "unknown/unknown"]
    for entry_platform, entry in by_platform:
        if (
            entry_platform == platform
            or entry_platform.startswith(f"{platform}/")
            or (not entry_platform and len(by_platform) == 1)
        ):
            return entry
    platforms = sorted({entry_platform for entry_platform, _ in by_platform if entry_platform})
    available = ", ".join(platforms) or "no named platform"
    raise NotFound(
        f"{name} has no image for {platform}, only for {available}", hint="choose one of them with --platform"
    )


def _platform(entry: dict[str, Any]) -> str:
    platform = entry.get("platform")
    return _format_platform(platform) if isinstance(platform, dict) else ""


def _format_platform(fields: dict[str, Any]) -> str:
    return "/".join(str(fields[key]) for key in ("os", "architecture", "variant") if fields.get(key))


def _read_image(
    source: BlobSource, digest: str, kind: str, manifest: dict[str, Any], platform: str
) -> PlatformImage:
    if manifest.get("schemaVersion") != 2 or not isinstance(manifest.get("config"), dict):
        raise Unsupported(
            f"{source.name} has an obsolete manifest format or is not a container image ({kind or 'no media type'})",
            hint="push it again with a current docker, podman or buildah",
        )
    layers = manifest.get("layers")
    if (
        not isinstance(layers, list)
        or not all(isinstance(layer, dict) for layer in layers)
        or len(layers) > _MAX_LAYERS
    ):
        raise InvalidImage(f"{source.name}: its manifest has no list of layers, or more than {_MAX_LAYERS}")
    config = read_small_blob(source, _parse_blob(manifest["config"]), _MAX_CONFIG_BYTES)
    return image_from_config(
        config, tuple(_parse_blob(layer) for layer in layers), platform, source.name, digest
    )


def image_from_config(
    data: bytes, layers: tuple[Blob, ...], platform: str, name: str, digest: str = ""
) -> PlatformImage:
    """Return an image from its configuration and layers; raise InvalidImage if they do not match."""
    config = decode_object(data, "the configuration")
    if not isinstance(config.get("rootfs"), dict):
        raise Unsupported(f"{name} is not a container image: its configuration has no rootfs")
    listed = config["rootfs"].get("diff_ids")
    is_valid = isinstance(listed, list) and all(isinstance(diff_id, str) for diff_id in listed)
    diff_ids = tuple(listed) if is_valid else ()
    if len(layers) > _MAX_LAYERS:
        raise InvalidImage(f"{name}: {len(layers)} layers, more than {_MAX_LAYERS}")
    if len(diff_ids) != len(layers):
        raise InvalidImage(f"{name}: {len(layers)} layers, but {len(diff_ids)} content digests")
    image_platform = _format_platform(config) or platform
    return PlatformImage(digest, image_platform, _parse_config(config.get("config")), layers, diff_ids)


def _parse_config(settings: Any) -> Config:
    settings = settings if isinstance(settings, dict) else {}
    lines = [line for line in settings.get("Env") or () if isinstance(line, str)]
    return Config(
        user=str(settings.get("User") or ""),
        env={key: value for key, _, value in (line.partition("=") for line in lines) if _affects_jobs(key)},
        entrypoint=_string_tuple(settings.get("Entrypoint")),
        command=_string_tuple(settings.get("Cmd")),
        directory=str(settings.get("WorkingDir") or ""),
    )


def _affects_jobs(variable: str) -> bool:
    # Other variables may be secrets and are not kept.
    return variable in _KEPT_VARIABLES or variable.startswith(
        ("OMPI_", "PRTE_", "PMIX_", "I_MPI_", "MPICH_", "UCX_", "NCCL_")
    )


def _string_tuple(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _parse_blob(descriptor: dict[str, Any]) -> Blob:
    size = descriptor.get("size")
    if not isinstance(size, int) or size < 0:
        raise InvalidImage("a layer or the configuration has no valid size")
    return Blob(_parse_digest(descriptor), size, str(descriptor.get("mediaType") or ""))


def _parse_digest(descriptor: dict[str, Any]) -> str:
    digest = descriptor.get("digest")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise InvalidImage(f"{str(digest)[:80]!r} is not a valid digest")
    return digest


def decode_object(data: bytes, name: str) -> dict[str, Any]:
    """Decode a JSON object; `name` is for the message of InvalidImage."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidImage(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidImage(f"{name} is not a JSON object")
    return value


def verify_digest(data: bytes, digest: str) -> None:
    """Raise InvalidImage if data does not have a digest."""
    actual = hashlib.new(digest.partition(":")[0], data, usedforsecurity=True).hexdigest()
    if actual != digest.partition(":")[2]:
        raise InvalidImage(f"digest mismatch for {digest}: the data is damaged or was replaced")


def read_small_blob(source: BlobSource, blob: Blob, limit: int) -> bytes:
    """Return a blob, verified; raise InvalidImage if it exceeds the limit or does not match its digest."""
    if blob.size is not None and blob.size > limit:
        raise InvalidImage(f"a document of {blob.size} bytes exceeds the limit of {limit}")
    data = b""
    for block in source.read_blob(blob):
        data += block
        if len(data) > (limit if blob.size is None else blob.size):
            raise InvalidImage(f"{blob.digest} is larger than its manifest says")
    verify_digest(data, blob.digest)
    return data
