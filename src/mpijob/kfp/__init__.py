"""A Kubeflow pipeline step that runs an MPI job: `run_job`, for pipelines of kfp v2.

This module creates the component; what its container does is in `step`, which does not need kfp. The job is
passed as the text of a job file, so a pipeline is compiled where the job's files are and runs where they are
not.

    from kfp import dsl
    from mpijob.kfp import job_text, run_job

    @dsl.pipeline(name="training")
    def training(lr: float = 0.1):
        train = run_job(job=job_text(job), changes={"env.LR": lr}, run=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        evaluate(files=train.outputs["files"])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpijob.errors import Unsupported

if TYPE_CHECKING:
    from mpijob.model import MPIJob

__all__ = ["component", "job_text", "run_job"]

PACKAGES = ("mpijob[kubernetes]", "mpijob[s3]")
IMAGE = "python:3.12"


def job_text(job: MPIJob, directory: str | Path = ".") -> str:
    """Return the text of a job file that contains the job's code files, for a step."""
    # The step runs in a container without the directory where the pipeline is compiled.
    from mpijob.backends import code_upload
    from mpijob.formats.jobfile import jobfile_reader
    from mpijob.settings import load, own_places

    resolved = code_upload.resolve(job, Path(directory), own_places(load()))
    return jobfile_reader.write(resolved.replace(code=code_upload.inline(resolved.code)))


def component(*, image: str = IMAGE, packages: Sequence[str] = PACKAGES) -> Any:
    """Return the component for an image with Python; `packages` are installed in it (none if it has mpijob)."""
    try:
        from mpijob.kfp.components import make
    except ImportError as error:
        raise Unsupported(
            "pipelines need kfp, which is not installed", hint="run: pip install 'mpijob[pipelines]'"
        ) from error
    return make(image, tuple(packages))


# The component is created on first use: `from mpijob.kfp import job_text` works without kfp.
def __getattr__(name: str) -> Any:
    if name == "run_job":
        return component()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
