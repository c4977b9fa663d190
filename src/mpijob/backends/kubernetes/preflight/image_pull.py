"""Whether a job's image can be pulled: its registry's answer, and the machines that have the image already."""

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


def begin(asker: ImageLookup | None, api: Api, job: MPIJob) -> WaitForResult:
    """Begin to ask the registry; what is returned waits for its answer."""
    if asker is None:
        return lambda: None

    def secret(name: str) -> Mapping[str, Any] | None:
        try:
            return api.find(resources.SECRET.path(job.namespace, name))
        except ApiError:
            return None  # whoever may not read it asks the registry without

    return asker.start(job, secret)


def end(waiting: WaitForResult, nodes: Iterable[Document]) -> ImageAnswer | None:
    """Return the answer; of an image that is missing also whether a machine has it from before."""
    answer = waiting()
    if answer is None or answer.asked is not Asked.MISSING:
        return answer
    from mpijob.model.spec.image import Reference

    wanted = {answer.image, str(Reference.parse(answer.image))}
    images = (one for node in nodes for one in (node.get("status") or {}).get("images") or ())
    held = any(not wanted.isdisjoint(one.get("names") or ()) for one in images)
    return msgspec.structs.replace(answer, held=held)
