"""Whether a job's image can be pulled: the registry's answer, and the nodes that have the image already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.model.platform.cluster import Asked, ImageAnswer

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.backends.registry.image_exists import ImageLookup, WaitForResult
    from mpijob.formats.kubernetes.metadata.well_known import Document
    from mpijob.model import MPIJob


def start(lookup: ImageLookup | None, api: Api, job: MPIJob) -> WaitForResult:
    """Start asking the registry; return a function that waits for the result."""
    if lookup is None:
        return lambda: None

    def secret(name: str) -> Mapping[str, Any] | None:
        try:
            return api.find(resources.SECRET.path(job.namespace, name))
        except ApiError:
            # A user who may not read the Secret asks the registry anonymously.
            return None

    return lookup.start(job, secret)


def finish(waiting: WaitForResult, nodes: Iterable[Document]) -> ImageAnswer | None:
    """Return the registry's answer; of a missing image also whether a node has it."""
    answer = waiting()
    if answer is None or answer.asked is not Asked.MISSING:
        return answer
    from mpijob.model.spec.image import Reference

    # A node that has the image does not pull it, unless the pull policy is Always.
    names = {answer.image, str(Reference.parse(answer.image))}
    images = (image for node in nodes for image in (node.get("status") or {}).get("images") or ())
    held = any(not names.isdisjoint(image.get("names") or ()) for image in images)
    return msgspec.structs.replace(answer, held=held)
