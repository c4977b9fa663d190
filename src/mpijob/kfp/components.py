"""The component. kfp copies the source of its function into the pipeline, so it contains only a call of `step`.

kfp reads the annotations when the function is defined, so this module does not use the `annotations` future.
"""

from typing import Any, NamedTuple

from kfp import dsl


def make(image: str, packages: tuple[str, ...]) -> Any:
    return dsl.component(
        mpijob, base_image=image, packages_to_install=list(packages), install_kfp_package=bool(packages)
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
    """Run an MPI job and wait for its end; if it fails, the step fails with the first cause and its fixes.

    `job` is a job file; `changes` set parts of it by path; `run` (dsl.PIPELINE_JOB_ID_PLACEHOLDER) makes its
    name unique to the run. `logs` is the merged output, `files` the job's artifacts, `metrics` its training
    metrics.
    """
    from mpijob.kfp import step

    result = step.run(job, changes, run, timeout_minutes * 60, logs.path, files.path)
    for key, value in result.metrics.items():
        metrics.log_metric(key, value)
    return (result.name, result.namespace, result.phase)
