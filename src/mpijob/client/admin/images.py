"""Inspect images before jobs run in them: `backends/registry` reads them, `checks` checks them."""

from __future__ import annotations

import os

from mpijob.backends.registry import inspect
from mpijob.backends.registry.inspect import ImageLocation
from mpijob.checks import images
from mpijob.errors import NotFound
from mpijob.model.spec.image import ImageReport, Reference


def inspect_image(
    image: str,
    *,
    launcher: str = "",
    platform: str = "",
    auth_file: str = "",
    ca_file: str = "",
    plain_http: bool = False,
) -> ImageReport:
    """Return what is in an image and whether MPI jobs will run in it; nothing is started or unpacked.

    `image` is a name at a registry, an archive (OCI, or of `docker save`), or the folder of an OCI layout.
    With `launcher`, the image that the launcher runs in, the two are compared, too.
    """
    way = ImageLocation(platform=platform, auth_file=auth_file, ca_file=ca_file, plain_http=plain_http)
    found = inspect.inspect_image(image, way)
    told = images.inspect(found)
    if launcher:
        told = (*images.compare(inspect.inspect_image(launcher, way), found), *told)
    return ImageReport.of(found, told)


def image_exists(image: str, *, auth_file: str = "", ca_file: str = "", plain_http: bool = False) -> str:
    """Return the full name of an image; raise NotFound if its registry does not have it."""
    way = ImageLocation(auth_file=auth_file, ca_file=ca_file, plain_http=plain_http)
    reference = Reference.parse(image)
    if not inspect.open_registry(reference, way, os.environ).exists():
        message = f"the registry {reference.server} has no image {str(reference).partition('/')[2]}"
        raise NotFound(message, hint="check the name and the tag, and that it was pushed")
    return str(reference)
