"""An image from its name or its file to a value: opened, its layers walked through, described."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from mpijob.backends.registry import credentials, image_archive, manifest
from mpijob.backends.registry.client import Registry
from mpijob.backends.registry.http import Lines
from mpijob.backends.registry.layers import Stack
from mpijob.backends.registry.manifest import BlobSource
from mpijob.formats.images import filesystem
from mpijob.model.spec.image import Image, Origin, Reference


class ImageLocation(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry is reached: which platform is meant, whose login, whom to trust."""

    platform: str = ""
    auth_file: str = ""
    ca_file: str = ""
    plain_http: bool = False
    seconds: float = 20.0


def read(target: str, way: ImageLocation, environ: Mapping[str, str] | None = None) -> Image:
    """Return what is in an image: the path of an archive or of a folder, or a name at a registry."""
    environ = os.environ if environ is None else environ
    platform = way.platform or manifest.here()
    if _is_path(target):
        target = os.path.expanduser(target)
        with closing(image_archive.open_path(Path(target))) as source:
            if isinstance(source, image_archive.Saved):
                return _walked(source, source.picture(platform))
            return _walked(source, manifest.choose(source, platform))
    registry = at_registry(Reference.parse(target), way, environ)
    return _walked(registry, manifest.choose(registry, platform))


def at_registry(reference: Reference, way: ImageLocation, environ: Mapping[str, str]) -> Registry:
    """Return an image at its registry, with this user's login."""
    lines = Lines(seconds=way.seconds, plain=way.plain_http, ca_file=way.ca_file)
    host, path = reference.host, reference.path
    return Registry(reference, lines, lambda: credentials.find(host, path, environ, auth_file=way.auth_file))


def _is_path(target: str) -> bool:
    """Whether a file is meant: what looks like one, and what is there under a name that no registry has."""
    looks = target.startswith(("/", "./", "../", "~")) or target.endswith((".tar", ".oci"))
    return looks or target == "." or (os.path.exists(target) and ":" not in target)


def _walked(source: BlobSource | image_archive.Saved, picture: manifest.Picture) -> Image:
    stack = Stack()
    for blob, content in zip(picture.layers, picture.contents, strict=True):
        stack.add(blob, source.pieces(blob), content)
    origin = Origin(
        name=source.name,
        digest=picture.digest,
        platform=picture.platform,
        layers=len(picture.layers),
        bytes=stack.bytes,
    )
    return filesystem.describe(origin, picture.config, stack.entries)
