"""An image from its name or its file to a value: opened, its layers walked through, described."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from mpijob.backends.registry import credentials, packed, pictures
from mpijob.backends.registry.client import Registry
from mpijob.backends.registry.layers import Stack
from mpijob.backends.registry.lines import Lines
from mpijob.backends.registry.pictures import Source
from mpijob.dialects import imagetree
from mpijob.model.image import Image, Origin, Reference


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry is reached: which platform is meant, whose login, whom to trust."""

    platform: str = ""
    auth_file: str = ""
    ca_file: str = ""
    plain_http: bool = False
    seconds: float = 20.0


def read(target: str, way: Way, environ: Mapping[str, str] | None = None) -> Image:
    """Return what is in an image: the path of an archive or of a folder, or a name at a registry."""
    environ = os.environ if environ is None else environ
    platform = way.platform or pictures.here()
    if _is_path(target):
        target = os.path.expanduser(target)
        with closing(packed.open_path(Path(target))) as source:
            if isinstance(source, packed.Saved):
                return _walked(source, source.picture(platform))
            return _walked(source, pictures.choose(source, platform))
    registry = at_registry(Reference.parse(target), way, environ)
    return _walked(registry, pictures.choose(registry, platform))


def at_registry(reference: Reference, way: Way, environ: Mapping[str, str]) -> Registry:
    """Return an image at its registry, with this user's login."""
    lines = Lines(seconds=way.seconds, plain=way.plain_http, ca_file=way.ca_file)
    host, path = reference.host, reference.path
    return Registry(reference, lines, lambda: credentials.find(host, path, environ, auth_file=way.auth_file))


def _is_path(target: str) -> bool:
    """Whether a file is meant: what looks like one, and what is there under a name that no registry has."""
    looks = target.startswith(("/", "./", "../", "~")) or target.endswith((".tar", ".oci"))
    return looks or target == "." or (os.path.exists(target) and ":" not in target)


def _walked(source: Source | packed.Saved, picture: pictures.Picture) -> Image:
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
    return imagetree.describe(origin, picture.config, stack.entries)
