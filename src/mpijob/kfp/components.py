"""The component itself. kfp copies the text of its function into the pipeline, so it holds nothing but a call.

Its annotations are read by kfp when the function is defined: this module does without the `annotations` future.
"""

from typing import Any, NamedTuple

from kfp import dsl


def make(image: str, packages: tuple[str, ...]) -> Any:
    """Return the component for an image, with the packages that it lacks."""
    return dsl.component(
        mpijob,
        base_image=image,
        packages_to_install=list(packages),
        install_kfp_package=bool(packages),
    )


def mpijob(
    job: str,
    logs: dsl.Output[dsl.Artifact],
    files: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    changes: dict = {},  # type: ignore[type-arg]  # noqa: B006 - kfp reads the bare type, and never changes it
    run: str = "",
    timeout_minutes: float = 0.0,
) -> NamedTuple("Outputs", name=str, namespace=str, phase=str):  # type: ignore[valid-type]  # kfp's own form
    """Run an MPI job and wait for its end; a job that fails fails the step, with the first cause and its fixes.

    `job` is a job file; `changes` set parts of it by path; `run` (dsl.PIPELINE_JOB_ID_PLACEHOLDER) makes its name
    the run's own. `logs` is the merged output, `files` what the job left, `metrics` what its training told.
    """
    from mpijob.kfp import step

    done = step.run(job, changes, run, timeout_minutes * 60, logs.path, files.path)
    for key, value in done.metrics.items():
        metrics.log_metric(key, value)
    return (done.name, done.namespace, done.phase)
