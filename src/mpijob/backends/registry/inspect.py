"""Inspect an image by its name or file: open it, read its layers, describe its content.

What the content means for MPI jobs is decided in `checks/images`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from mpijob.backends.registry import credentials, image_archive, manifest
from mpijob.backends.registry.client import Registry
from mpijob.backends.registry.http import RegistryHttp
from mpijob.backends.registry.layers import ImageContent
from mpijob.backends.registry.manifest import BlobSource
from mpijob.formats.images import filesystem
from mpijob.model.spec.image import Image, Origin, Reference


class ImageLocation(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a registry: platform, credentials, certificate authority."""

    platform: str = ""
    auth_file: str = ""
    ca_file: str = ""
    plain_http: bool = False
    seconds: float = 20.0


def inspect_image(target: str, location: ImageLocation, environ: Mapping[str, str] | None = None) -> Image:
    """Return the description of an image: the path of an archive or directory, or a name in a registry."""
    environ = os.environ if environ is None else environ
    platform = location.platform or manifest.local_platform()
    if _is_path(target):
        target = os.path.expanduser(target)
        with closing(image_archive.open_path(Path(target))) as source:
            if isinstance(source, image_archive.DockerArchive):
                return _describe(source, source.read_image(platform))
            return _describe(source, manifest.select_image(source, platform))
    registry = open_registry(Reference.parse(target), location, environ)
    return _describe(registry, manifest.select_image(registry, platform))


def open_registry(reference: Reference, location: ImageLocation, environ: Mapping[str, str]) -> Registry:
    """Return an image at its registry, with this user's login; nothing is requested yet."""
    http = RegistryHttp(seconds=location.seconds, plain_http=location.plain_http, ca_file=location.ca_file)
    host, path = reference.host, reference.path
    return Registry(
        reference, http, lambda: credentials.find_login(host, path, environ, auth_file=location.auth_file)
    )


def _is_path(target: str) -> bool:
    # A name without a tag may also be an existing file.
    looks_like_path = target.startswith(("/", "./", "../", "~")) or target.endswith((".tar", ".oci"))
    return looks_like_path or target == "." or (os.path.exists(target) and ":" not in target)


def _describe(
    source: BlobSource | image_archive.DockerArchive, manifest_image: manifest.PlatformImage
) -> Image:
    layers = ImageContent()
    for blob, content in zip(manifest_image.layers, manifest_image.contents, strict=True):
        layers.add(blob, source.read_blob(blob), content)
    origin = Origin(
        name=source.name,
        digest=manifest_image.digest,
        platform=manifest_image.platform,
        layers=len(manifest_image.layers),
        bytes=layers.bytes,
    )
    return filesystem.describe(origin, manifest_image.config, layers.entries)
