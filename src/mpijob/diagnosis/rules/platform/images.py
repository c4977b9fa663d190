"""Causes around a job's image: it is not there, may not be pulled, or cannot be."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="IMAGE_NOT_FOUND",
        title="The image does not exist",
        why="The registry does not have the image: the name or the tag is misspelt, it was never "
        "pushed, or it was deleted. Kubernetes keeps retrying and never reports a failure.",
        trust=Trust.FACT,
        facts=("reason:ImageNotFound",),
        signs=(
            Sign("manifest unknown", r"(?P<detail>manifest unknown[^\n]{0,120})"),
            Sign(
                "failed to resolve reference",
                r"failed to resolve reference \"(?P<image>[^\"]+)\": [^\n]{0,160}not found",
            ),
        ),
        causes=(
            "{message}",
            "Image {image} does not exist in its registry.",
            "The image does not exist in its registry: {detail}",
        ),
        example="Image team/mpi:9 does not exist in its registry (all 4 workers, for 40 s)",
        remedies=(
            Remedy("correct the image's name and tag, then submit the job again"),
            Remedy("push the image to that registry; the pods then start automatically"),
        ),
        confidence=0.95,
        field="image",
    ),
    Rule(
        id="IMAGE_NAME_INVALID",
        title="The image name is not valid",
        why="An image name consists of lower-case letters, digits, dots, dashes and slashes, and may end "
        "with :TAG or @DIGEST. This name does not have this form.",
        trust=Trust.FACT,
        facts=("reason:ImageNameInvalid",),
        signs=(
            Sign("InvalidImageName", r"InvalidImageName"),
            Sign("invalid reference format", r"(?P<detail>invalid reference format[^\n]{0,80})"),
        ),
        causes=("{message}", "The image name is not valid."),
        example="'Team/MPI:9' is not a valid image name (all 4 workers)",
        remedies=(Remedy("write it as REGISTRY/PATH:TAG"),),
        confidence=1.0,
        field="image",
    ),
    Rule(
        id="IMAGE_REFUSED",
        title="The registry refuses access to the image",
        why="The registry requires credentials that the namespace does not have, or these credentials "
        "may not read the image. Some registries give the same answer for images that do not "
        "exist.",
        trust=Trust.FACT,
        facts=("reason:ImageRefused",),
        signs=(
            Sign("pull access denied", r"pull access denied for (?P<image>[^\s,]+)"),
            Sign(
                "Failed to pull image",
                r"Failed to pull image \"(?P<image>[^\"]+)\"[^\n]{0,300}?"
                r"(?:unauthorized|authentication required|denied)",
            ),
        ),
        causes=(
            "{message}",
            "Failed to pull image '{image}': authentication required",
            "The registry refuses access to the image.",
        ),
        example="Image team/mpi:1 cannot be pulled: its registry denies access (all 4 workers)",
        remedies=(
            Remedy("add the secret with the registry's credentials to the job: pull_secrets"),
            Remedy("check the image name: the image may not exist"),
        ),
        confidence=0.9,
        field="pull_secrets",
    ),
    Rule(
        id="IMAGE_PULL_FAILED",
        title="The image cannot be pulled",
        why="The node could not pull the image: the registry does not respond, its name does not resolve "
        "on the node, its certificate is not trusted, or the disk is full. Kubernetes retries with "
        "increasing delays.",
        trust=Trust.FACT,
        facts=("reason:ImagePullFailed",),
        signs=(
            Sign(
                "Failed to pull image",
                r"Failed to pull image \"(?P<image>[^\"]+)\": (?P<detail>[^\n]{1,200})",
            ),
            Sign("ImagePullBackOff", r"(?P<detail>ImagePullBackOff)"),
            Sign("ErrImagePull", r"(?P<detail>ErrImagePull)"),
        ),
        causes=(
            "{message}",
            "Failed to pull image '{image}': {detail}",
            "The image cannot be pulled: {detail}",
        ),
        example="Image team/mpi:1 cannot be pulled: dial tcp: i/o timeout (worker 2, for 3 min)",
        remedies=(
            Remedy("check from a node that the registry is reachable and trusted, or ask an administrator"),
            Remedy("use a registry inside the cluster"),
        ),
        confidence=0.85,
        field="image",
    ),
)
