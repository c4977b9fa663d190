"""Causes around a job's image: it is not there, may not be pulled, or cannot be."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="IMAGE_NOT_FOUND",
        title="The image does not exist",
        why="The registry was asked for the image and does not have it: the name or the tag is misspelt, it "
        "was never pushed, or it was deleted. Kubernetes goes on asking and never reports a failure.",
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
            Remedy("push the image to that registry; the pods then start by themselves"),
        ),
        confidence=0.95,
        field="image",
    ),
    Rule(
        id="IMAGE_NAME_INVALID",
        title="The image's name is not a name of an image",
        why="A name has small letters, digits, dots, dashes and slashes, and may end with :TAG or @DIGEST. "
        "This one has another form, so no registry can be asked for it.",
        trust=Trust.FACT,
        facts=("reason:ImageNameInvalid",),
        signs=(
            Sign("InvalidImageName", r"InvalidImageName"),
            Sign("invalid reference format", r"(?P<detail>invalid reference format[^\n]{0,80})"),
        ),
        causes=("{message}", "The image's name is not a name of an image."),
        example="'Team/MPI:9' is not the name of an image (all 4 workers)",
        remedies=(Remedy("write it as REGISTRY/PATH:TAG"),),
        confidence=1.0,
        field="image",
    ),
    Rule(
        id="IMAGE_REFUSED",
        title="The registry refuses to serve the image",
        why="The registry wants a login that the namespace does not have, or the login may not read this "
        "image. Some registries answer the same for images that do not exist.",
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
            "The image may not be pulled: its registry refuses.",
        ),
        example="Image team/mpi:1 may not be pulled: its registry refuses (all 4 workers)",
        remedies=(
            Remedy("name the secret with the registry's login in the job: pull_secrets"),
            Remedy("check the image's name: it may not exist"),
        ),
        confidence=0.9,
        field="pull_secrets",
    ),
    Rule(
        id="IMAGE_PULL_FAILED",
        title="The image cannot be pulled",
        why="The node did not get the image: the registry does not answer, its name is not known on the node, "
        "or the disk is full. Kubernetes tries again with growing pauses.",
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
            Remedy("see whether the cluster's nodes reach the registry; ask an administrator"),
            Remedy("use a registry inside the cluster"),
        ),
        confidence=0.85,
        field="image",
    ),
)
